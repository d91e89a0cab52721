//! Green contexts: parts of a card's primary context, with some of its multiprocessors. What is allocated in one is the
//! primary context's, and outlives it; each keeps the primary context alive.

use core::ffi::{c_uint, c_void};
use core::ptr;

use crate::cuda::{CUcontext, CUdevice, CUgreenCtx, CUresult, SUCCESS};
use crate::pace::end;

use super::contexts;
use super::resources::{Kind, RESOURCES, Resource};

/// `cuGreenCtxCreate`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(*mut CUgreenCtx, *mut c_void, CUdevice, c_uint) -> CUresult,
    green: *mut CUgreenCtx,
    resources: *mut c_void,
    device: CUdevice,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = contexts::with_primary(device, || unsafe { real(green, resources, device, flags) });
    if result == SUCCESS
        && !green.is_null()
        && let Ok(device) = u64::try_from(device)
    {
        // SAFETY: the driver has just written there.
        let key = unsafe { *green }.addr() as u64;
        let _full = RESOURCES.put(Kind::Green, key, Resource { of: device + 1, ..Resource::default() });
    }
    result
}

/// `cuCtxFromGreenCtx`: what is allocated while it is current is known by this context.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn context(
    real: unsafe extern "C" fn(*mut CUcontext, CUgreenCtx) -> CUresult,
    context: *mut CUcontext,
    green: CUgreenCtx,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(context, green) };
    let key = green.addr() as u64;
    if result == SUCCESS
        && !context.is_null()
        && let Some(known) = RESOURCES.get(Kind::Green, key)
    {
        // SAFETY: the driver has just written there.
        let context = unsafe { *context }.expose_provenance();
        let _had_a_place = RESOURCES.put(Kind::Green, key, Resource { context, ..known });
    }
    result
}

/// `cuGreenCtxDestroy`: releases the primary context of its card.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(CUgreenCtx) -> CUresult, green: CUgreenCtx) -> CUresult {
    // It stays known: what was allocated in it is there until the primary context ends.
    let known = RESOURCES.get(Kind::Green, green.addr() as u64).unwrap_or_default();
    // SAFETY: the caller's argument as it came.
    let ask = || unsafe { real(green) };
    let result = match known.context {
        0 => ask(), // nothing was launched in it
        context => end::of_context(ptr::with_exposed_provenance_mut(context), ask),
    };
    if let Some(device) = device_of(&known).filter(|_| result == SUCCESS) {
        contexts::released_primary(device);
    }
    result
}

/// A card's primary context has ended, and with it what was allocated in its green ones.
pub(super) fn forget_all_of(device: CUdevice) {
    let is_of_it = |resource: &Resource| device_of(resource) == Some(device);
    while let Some(green) = RESOURCES.search(Kind::Green, |_, resource| is_of_it(resource)) {
        RESOURCES.take_all(&[Kind::Green], |resource| *resource == green, |_, _| ());
        contexts::forget(green.context);
    }
}

fn device_of(green: &Resource) -> Option<CUdevice> {
    CUdevice::try_from(green.of.checked_sub(1)?).ok()
}
