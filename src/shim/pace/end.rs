//! Completion of work that is known without asking the driver: after waits, and at the end of streams and contexts.

use core::ffi::{c_int, c_uint};
use core::ptr;

use super::card::Card;
use super::stream::{Relaxed, Stream};
use super::track::{Completed, Track};
use super::{monitor, tracks};
use crate::cuda::{CUcontext, CUdevice, CUresult, CUstream, SUCCESS};
use crate::driver::cuda::{cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain};
use crate::driver::current_context;
use crate::process;
use crate::time;

/// Pays for what a track's program has waited for; nothing more, if others have launched meanwhile.
fn complete(track: &mut Track, stream: &Stream, launches: u64) {
    let Ok(process) = process::this() else { return };
    let _asking = Relaxed::begin();
    let now = time::now();
    if track.poll(process, stream, now, Completed::Now) && track.launches() == launches {
        track.finish(process, now);
    }
    if let Some(card) = Card::at(track.card) {
        card.wake_waiting(process, track.card, now);
    }
}

/// Waits for a stream.
pub(crate) fn stream_wait(stream: CUstream, is_per_thread: bool, wait: impl FnOnce() -> CUresult) -> CUresult {
    let launches = (!tracks::is_empty()).then(|| {
        let stream = Stream::of_any(stream, is_per_thread);
        tracks::find(&stream).filter(|entry| !entry.is_idle())?;
        Some((stream, tracks::lock(&stream)?.update(|track, _| track.begin_wait())))
    });
    let result = wait();
    if result == SUCCESS
        && let Some((stream, launches)) = launches.flatten()
        && let Some(mut locked) = tracks::lock(&stream)
    {
        locked.update(|track, stream| complete(track, stream, launches));
    }
    result
}

/// Waits for an event: what was launched before it is done, and one who waits like this may wait for nothing else.
pub(crate) fn event_wait(wait: impl FnOnce() -> CUresult) -> CUresult {
    let result = wait();
    if result == SUCCESS
        && !tracks::is_empty()
        && let Ok(process) = process::this()
    {
        monitor::try_poll(process, Completed::Now);
    }
    result
}

/// Waits for a context; none, or null, means the current one.
pub(crate) fn context_wait(context: Option<CUcontext>, wait: impl FnOnce() -> CUresult) -> CUresult {
    if tracks::is_empty() {
        return wait();
    }
    let context = context.filter(|context| !context.is_null()).unwrap_or_else(current_context).expose_provenance();
    let began = time::now();
    for mut locked in tracks::of_context(context) {
        locked.update(|track, _| track.begin_wait());
    }
    let result = wait();
    if result == SUCCESS && context != 0 {
        for mut locked in tracks::of_context(context) {
            locked.update(|track, stream| {
                let launches = if track.is_unchanged_since(began) { track.launches() } else { u64::MAX };
                complete(track, stream, launches);
            });
        }
    }
    result
}

/// `cuStreamDestroy`: what is in flight goes on; from now on only markers tell of it.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn stream(real: unsafe extern "C" fn(CUstream) -> CUresult, stream: CUstream) -> CUresult {
    if !tracks::is_empty()
        && let Ok(process) = process::this()
        && let Some(mut locked) = tracks::lock(&Stream::of_any(stream, false))
    {
        locked.update(|track, stream| {
            let current = stream.enter();
            if current.is_some() && stream.is_capturing() == Some(false) {
                track.mark_rest(stream, time::now());
            }
            if track.has_unmarked() {
                track.finish(process, time::now());
            }
        });
    }
    // SAFETY: the caller's arguments as they came.
    unsafe { real(stream) }
}

/// Has a context end, of which nothing is known afterwards.
pub(crate) fn of_context(context: CUcontext, end: impl FnOnce() -> CUresult) -> CUresult {
    monitor::while_not_polling(|| {
        let result = end();
        if result == SUCCESS {
            forget(context);
        }
        result
    })
}

/// Releases a card's primary context, or resets it: it ends, or doesn't.
pub(crate) fn of_primary(device: CUdevice, end: impl FnOnce() -> CUresult) -> CUresult {
    monitor::while_not_polling(|| {
        let context = if tracks::is_empty() { ptr::null_mut() } else { primary_context(device) };
        let result = end();
        if !context.is_null() && !has_primary_context(device) {
            forget(context);
        }
        result
    })
}

/// The context's events and streams are gone with it.
fn forget(context: CUcontext) {
    let Ok(process) = process::this() else { return };
    for mut locked in tracks::of_context(context.expose_provenance()) {
        locked.update(|track, _| track.finish(process, time::now()));
        locked.end();
    }
    Card::forget(context.expose_provenance());
}

fn has_primary_context(device: CUdevice) -> bool {
    let mut flags: c_uint = 0;
    let mut is_active: c_int = 0;
    // SAFETY: numbers are written to numbers.
    let result = unsafe { cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut is_active) };
    result == SUCCESS && is_active != 0
}

/// A card's primary context, if it has one.
fn primary_context(device: CUdevice) -> CUcontext {
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: a context is written to a context; what is retained is released.
    unsafe {
        if has_primary_context(device) && cuDevicePrimaryCtxRetain(&raw mut context, device) == SUCCESS {
            let _released = cuDevicePrimaryCtxRelease_v2(device);
        }
    }
    context
}
