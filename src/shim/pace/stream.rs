//! Streams, by what a program means by a handle, and questions about them.

use core::ptr;

use crate::cuda::{CAPTURE_NONE, CUcontext, CUstream, ERROR_NOT_READY, STREAM_LEGACY, STREAM_PER_THREAD, SUCCESS};
use crate::driver::cuda::{
    cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuStreamIsCapturing, cuStreamQuery, cuThreadExchangeStreamCaptureMode,
};
use crate::sys;

/// A stream of one context: the program's own handle, or a default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) context: usize,
    pub(super) handle: usize,
    /// Whose default stream it is, if each thread has its own; else 0.
    pub(super) thread: usize,
}

/// While it lives, this thread's questions don't disturb captures of other threads.
pub(super) struct Relaxed(u32);

// === impl Stream ===

impl Stream {
    /// What a program means by a handle.
    #[inline]
    pub(super) fn of(context: CUcontext, stream: CUstream, is_per_thread: bool) -> Self {
        let handle = match stream.expose_provenance() {
            0 if is_per_thread => STREAM_PER_THREAD,
            0 => STREAM_LEGACY,
            handle => handle,
        };
        let thread = if handle == STREAM_PER_THREAD { sys::thread() } else { 0 };
        Self { context: context.expose_provenance(), handle, thread }
    }

    pub(super) fn handle(&self) -> CUstream {
        ptr::with_exposed_provenance_mut(self.handle)
    }

    /// Whether it is collecting a graph, or can't be told.
    pub(super) fn is_capturing(&self) -> bool {
        let mut status = 0;
        // SAFETY: a status is written to a status.
        let result = unsafe { cuStreamIsCapturing(self.handle(), &raw mut status) };
        result != SUCCESS || status != CAPTURE_NONE
    }

    /// Whether nothing is left to do in it; `None` if that can't be asked.
    pub(super) fn is_empty(&self) -> Option<bool> {
        if self.thread != 0 {
            return None; // another thread means its own by the same handle
        }
        let context: CUcontext = ptr::with_exposed_provenance_mut(self.context);
        // SAFETY: a context that lives: before it ends, its streams are forgotten.
        if unsafe { cuCtxPushCurrent_v2(context) } != SUCCESS {
            return None;
        }
        let _asking = Relaxed::begin();
        let answer = (!self.is_capturing()).then(|| {
            // SAFETY: a stream that lives, as its context does.
            unsafe { cuStreamQuery(self.handle()) }
        });
        let mut popped = ptr::null_mut();
        // SAFETY: the context that was pushed is written to a context.
        let _popped = unsafe { cuCtxPopCurrent_v2(&raw mut popped) };
        match answer {
            Some(SUCCESS) => Some(true),
            // A capture isn't disturbed; it ends soon.
            Some(ERROR_NOT_READY) | None => Some(false),
            Some(_) => None,
        }
    }
}

// === impl Relaxed ===

impl Relaxed {
    pub(super) fn begin() -> Self {
        let mut mode = 2; // CU_STREAM_CAPTURE_MODE_RELAXED
        // SAFETY: a mode is exchanged for a mode.
        let exchanged = unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        Self(if exchanged == SUCCESS { mode } else { 0 })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as above.
        let _exchanged = unsafe { cuThreadExchangeStreamCaptureMode(&raw mut self.0) };
    }
}
