//! Contexts: a process claims its slot of the accounting region before it has one, and what ends with one is forgotten with it.
//!
//! What a context itself costs isn't charged here, because a process can't know it. The driver tells how much of the card is
//! free, but nobody may ask before the first context is there, and what is free after it may have changed by whatever the
//! card's other tenants did meanwhile: a neighbour's allocation would be taken for our context's, for as long as we live.
//! What is right is the driver's own figure for the processes (`nvmlDeviceGetComputeRunningProcesses`) less what they are
//! charged with. The daemon sees it, as it sees processes by their host's numbers, and tells us in a file of its own
//! ([`divvy_region::overhead`]).

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use divvy_region::layout::CARDS;

use crate::cuda::{CUcontext, CUdevice, CUresult, SUCCESS};
use crate::driver::cuda::cuDevicePrimaryCtxGetState;
use crate::pace::end;

use super::allocations::release;
use super::resources::{Kind, RESOURCES};
use super::{green, imports, pools, quota};

/// The primary contexts, by the driver's ordinals; 0: none, or not seen.
static PRIMARY: [AtomicUsize; CARDS] = [const { AtomicUsize::new(0) }; CARDS];

/// `cuDevicePrimaryCtxRetain`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn retain_primary(
    real: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult,
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = begin(|| unsafe { real(context, device) });
    if result == SUCCESS
        && !context.is_null()
        && let Some(known) = primary(device)
    {
        // SAFETY: the driver has just written there.
        let now = unsafe { *context }.addr();
        let before = known.swap(now, Ordering::Relaxed);
        if before != now {
            forget(before); // it ended unseen
        }
    }
    result
}

/// `cuCtxCreate` and `cuCtxCreate_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(*mut CUcontext, c_uint, CUdevice) -> CUresult,
    context: *mut CUcontext,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    begin(|| unsafe { real(context, flags, device) })
}

/// `cuCtxCreate_v3`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create_with_affinity(
    real: unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_int, c_uint, CUdevice) -> CUresult,
    context: *mut CUcontext,
    affinities: *mut c_void,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    begin(|| unsafe { real(context, affinities, count, flags, device) })
}

/// `cuCtxCreate_v4`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create_with_parameters(
    real: unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_uint, CUdevice) -> CUresult,
    context: *mut CUcontext,
    parameters: *mut c_void,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    begin(|| unsafe { real(context, parameters, flags, device) })
}

/// `cuCtxDestroy` and `cuCtxDestroy_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(CUcontext) -> CUresult, context: CUcontext) -> CUresult {
    // SAFETY: the caller's argument as it came.
    let result = end::of_context(context, || unsafe { real(context) });
    if result == SUCCESS {
        forget(context.addr());
    }
    result
}

/// `cuDevicePrimaryCtxRelease` and `cuDevicePrimaryCtxRelease_v2`: the last who releases it ends it.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn release_primary(real: unsafe extern "C" fn(CUdevice) -> CUresult, device: CUdevice) -> CUresult {
    // SAFETY: the caller's argument as it came.
    let result = end::of_primary(device, || unsafe { real(device) });
    if result == SUCCESS {
        released_primary(device);
    }
    result
}

/// Somebody has released a card's primary context, who may have been the last.
pub(super) fn released_primary(device: CUdevice) {
    let (mut flags, mut is_active): (c_uint, c_int) = (0, 1);
    // SAFETY: numbers are written to numbers.
    let told = unsafe { cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut is_active) };
    if told == SUCCESS && is_active == 0 {
        forget_primary(device);
    }
}

/// `cuDevicePrimaryCtxReset` and `cuDevicePrimaryCtxReset_v2`: whichever thread still has it, what was in it is gone.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn reset_primary(real: unsafe extern "C" fn(CUdevice) -> CUresult, device: CUdevice) -> CUresult {
    // SAFETY: the caller's argument as it came.
    let result = end::of_primary(device, || unsafe { real(device) });
    if result == SUCCESS {
        forget_primary(device);
    }
    result
}

/// Has the driver make a context, if this process has a slot of the accounting region: without one nothing could be charged to it.
pub(super) fn begin(ask: impl FnOnce() -> CUresult) -> CUresult {
    match quota::claim_slot() {
        Ok(()) => ask(),
        Err(refused) => refused,
    }
}

fn primary(device: CUdevice) -> Option<&'static AtomicUsize> {
    usize::try_from(device).ok().and_then(|device| PRIMARY.get(device))
}

fn forget_primary(device: CUdevice) {
    if let Some(known) = primary(device) {
        forget(known.swap(0, Ordering::Relaxed));
    }
    green::forget_all_of(device);
}

/// Releases all that ended with a context.
pub(super) fn forget(context: usize) {
    if context != 0 {
        let kinds = [Kind::Memory, Kind::Array, Kind::MipmappedArray];
        RESOURCES.take_all(&kinds, |resource| resource.context == context, release);
        RESOURCES.take_all(&[Kind::Import], |resource| resource.context == context, imports::close);
        pools::synchronised();
    }
}
