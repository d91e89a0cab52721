//! Oversubscribed shares: what doesn't fit on the card becomes managed memory, which the driver moves between the card and
//! the host as it is used.
//!
//! A share has two limits then, of all memory and of that which has to lie on the card. A plain allocation for which the card's
//! part has no room, or for which the driver has none, is made as managed memory with the card as its preferred location: the
//! driver brings to the card what kernels use, and evicts it for plain memory of any process. To a program it is the same, but
//! that it can't be exported. All other kinds of memory have to lie on the card, and are refused.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU8, Ordering};

use divvy_region::layout::CARDS;

use crate::cuda::{CUdevice, CUdeviceptr, CUmemLocation, CUresult, ERROR_NOT_FOUND, ERROR_OUT_OF_MEMORY, SUCCESS};
use crate::driver::cuda::{cuCtxGetDevice, cuDeviceGetAttribute, cuMemAdvise, cuMemAdvise_v2, cuMemAllocManaged};
use crate::log;

use super::allocations::{hold, hold_pages};
use super::quota::{Place, Quota};
use super::resources::Kind;
use super::streams;

/// `CU_MEM_ATTACH_GLOBAL`
const ATTACH_GLOBAL: c_uint = 1;
/// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`
const PREFERRED_LOCATION: c_uint = 3;
/// `CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`: managed memory moves by pages. Where it doesn't, all of it moves to the card
/// with each launch, and can't exceed it.
const CONCURRENT_MANAGED_ACCESS: c_int = 89;

/// Whether each card, by its position, has that.
static CONCURRENT: [AtomicU8; CARDS] = [const { AtomicU8::new(NOT_ASKED) }; CARDS];
const NOT_ASKED: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Has the driver allocate so many bytes of the current context's card: by `ask`, or as managed memory, which calls
/// `is_managed`.
///
/// # Safety
/// `address` is null or valid for a write, and `ask` writes an address where it is told to if it succeeds.
pub(super) unsafe fn allocate(
    address: *mut CUdeviceptr,
    bytes: u64,
    ask: impl FnOnce(*mut CUdeviceptr) -> CUresult,
    is_managed: impl FnOnce(),
) -> CUresult {
    if address.is_null() {
        return ask(address);
    }
    let quota = match Quota::of_current() {
        Ok(quota) => quota,
        Err(refused) => return refused,
    };
    let mut given = 0;
    let asked = hold_pages(&quota, bytes, || (ask(&raw mut given), given));
    let device = if matches!(asked, None | Some(ERROR_OUT_OF_MEMORY)) { device_to_spill_from(&quota) } else { None };
    let result = match (asked, device) {
        (_, Some(device)) => spill(&quota, device, bytes, &mut given),
        (Some(result), None) => result,
        (None, None) => quota.out_of_memory(),
    };
    if result == SUCCESS {
        if device.is_some() {
            is_managed();
        }
        // SAFETY: the caller's guarantee.
        unsafe { *address = given };
    }
    result
}

/// The device whose memory may become managed memory, if it may: of the current context.
fn device_to_spill_from(quota: &Quota) -> Option<CUdevice> {
    if !quota.is_oversubscribed() || streams::thread_captures() {
        return None;
    }
    let mut device: CUdevice = 0;
    // SAFETY: a device is written to a device.
    let told = unsafe { cuCtxGetDevice(&raw mut device) };
    (told == SUCCESS && has_concurrent_access(quota.card, device)).then_some(device)
}

fn has_concurrent_access(card: usize, device: CUdevice) -> bool {
    let Some(known) = CONCURRENT.get(card) else { return false };
    if known.load(Ordering::Relaxed) == NOT_ASKED {
        let mut has: c_int = 0;
        // SAFETY: a number is written to a number.
        let told = unsafe { cuDeviceGetAttribute(&raw mut has, CONCURRENT_MANAGED_ACCESS, device) };
        known.store(if told == SUCCESS && has != 0 { YES } else { NO }, Ordering::Relaxed);
    }
    known.load(Ordering::Relaxed) == YES
}

/// Allocates managed memory that belongs on a device. Whatever keeps the driver from it, a program that wanted plain memory
/// knows one reason.
fn spill(quota: &Quota, device: CUdevice, bytes: u64, given: &mut CUdeviceptr) -> CUresult {
    let Some(reserved) = quota.reserve_in(Place::Any, bytes) else { return quota.out_of_memory() };
    let ask = || {
        // SAFETY: an address is written to an address.
        let result = unsafe { cuMemAllocManaged(given, bytes as usize, ATTACH_GLOBAL) };
        (if result == SUCCESS { SUCCESS } else { ERROR_OUT_OF_MEMORY }, *given)
    };
    let result = hold(reserved, Kind::Memory, ask);
    if result == SUCCESS {
        advise(device, *given, bytes);
    }
    result
}

/// Says that memory belongs on a device. Without that it works, and moves more often.
fn advise(device: CUdevice, address: CUdeviceptr, bytes: u64) {
    // SAFETY: managed memory that was allocated just now.
    let advised = unsafe {
        match cuMemAdvise(address, bytes as usize, PREFERRED_LOCATION, device) {
            ERROR_NOT_FOUND => {
                let location = CUmemLocation::of_device(device);
                cuMemAdvise_v2(address, bytes as usize, PREFERRED_LOCATION, location)
            }
            advised => advised,
        }
    };
    if advised != SUCCESS {
        static REFUSED: log::LogOnce = log::LogOnce::new();
        REFUSED.log(format_args!(
            "cuMemAdvise failed with {advised}: managed memory of this container isn't kept on the GPU where it could be"
        ));
    }
}
