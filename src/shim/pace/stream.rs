//! Streams, by what a program means by a handle, and questions about them.

use core::ptr;

use crate::cuda::{
    CAPTURE_NONE, CUcontext, CUstream, ERROR_NOT_READY, ERROR_STREAM_CAPTURE_IMPLICIT, STREAM_LEGACY,
    STREAM_PER_THREAD, SUCCESS,
};
use crate::driver::cuda::{
    cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuStreamGetCtx, cuStreamIsCapturing, cuStreamQuery,
    cuThreadExchangeStreamCaptureMode,
};
use crate::driver::current_context;
use crate::sys;

/// A stream of one context: the program's own handle, or a default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) context: usize,
    pub(super) handle: usize,
    /// Whose default stream it is, if each thread has its own; else 0.
    pub(super) thread: usize,
}

/// While it lives, a context is this thread's current one.
pub(super) struct Current(());

/// While it lives, this thread's questions don't disturb captures of other threads.
pub(super) struct Relaxed(u32);

// === impl Stream ===

impl Stream {
    /// What a program means by a handle, whatever context is current: a stream that was made is one of its own context.
    pub(super) fn of_any(stream: CUstream, is_per_thread: bool) -> Self {
        let mut context = current_context();
        if stream.addr() > STREAM_PER_THREAD {
            // SAFETY: the program's stream, as for the function that it called; a context is written to a context.
            let _same = unsafe { cuStreamGetCtx(stream, &raw mut context) };
        }
        Self::in_context(context, stream, is_per_thread)
    }

    /// What a program means by a handle in a context.
    #[inline]
    pub(super) fn in_context(context: CUcontext, stream: CUstream, is_per_thread: bool) -> Self {
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

    /// Whether it is collecting a graph; `None` if that can't be asked.
    pub(super) fn is_capturing(&self) -> Option<bool> {
        let mut status = 0;
        // SAFETY: a status is written to a status.
        match unsafe { cuStreamIsCapturing(self.handle(), &raw mut status) } {
            SUCCESS => Some(status != CAPTURE_NONE),
            // The default stream would take part in the capture of another.
            ERROR_STREAM_CAPTURE_IMPLICIT => Some(true),
            _ => None,
        }
    }

    /// Makes its context the current one; `None` if that is refused.
    pub(super) fn enter(&self) -> Option<Current> {
        let context: CUcontext = ptr::with_exposed_provenance_mut(self.context);
        // SAFETY: a context that lives: before it ends, its streams are forgotten.
        (unsafe { cuCtxPushCurrent_v2(context) } == SUCCESS).then_some(Current(()))
    }

    /// Whether nothing is left to do in it, asked while its context is current; `None` if that can't be asked.
    pub(super) fn is_empty(&self) -> Option<bool> {
        if self.thread != 0 {
            return None; // another thread means its own by the same handle
        }
        let _asking = Relaxed::begin();
        if self.is_capturing()? {
            return Some(false); // it isn't disturbed, and ends soon
        }
        // SAFETY: a stream that lives, as its context does.
        match unsafe { cuStreamQuery(self.handle()) } {
            SUCCESS => Some(true),
            ERROR_NOT_READY => Some(false),
            _ => None,
        }
    }
}

// === impl Current ===

impl Drop for Current {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: the context that was pushed is written to a context.
        let _popped = unsafe { cuCtxPopCurrent_v2(&raw mut popped) };
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
