//! Memory by address: allocated for a context, and freed one way or the other.

use core::ffi::c_uint;

use crate::cuda::{CUdeviceptr, CUresult, CUstream, SUCCESS};
use crate::driver::cuda::cuMemFree_v2;
use crate::driver::current_context;

use super::quota::{Place, Quota, Reserved};
use super::resources::{Kind, MANAGED, PAGED, RESOURCES, Resource};
use super::{pages, pools, spill, streams};

/// Rows of pitched memory begin at multiples of this or of less, on all cards so far.
const PITCH: u64 = 512;

/// `cuMemAlloc_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn allocate(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize) -> CUresult,
    address: *mut CUdeviceptr,
    bytes: usize,
) -> CUresult {
    // SAFETY: the caller's arguments as they came, but for where the address goes first.
    unsafe { spill::allocate(address, bytes as u64, |address| real(address, bytes), || {}) }
}

/// `cuMemAllocManaged`: in full, though it moves between the card and the host as it is used.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn allocate_managed(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize, c_uint) -> CUresult,
    address: *mut CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: as above.
    unsafe { allocate_in(Place::Any, address, bytes as u64, |address| real(address, bytes, flags)) }
}

/// `cuMemAlloc`, of programs with 32-bit addresses.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn allocate_32(
    real: unsafe extern "C" fn(*mut c_uint, c_uint) -> CUresult,
    address: *mut c_uint,
    bytes: c_uint,
) -> CUresult {
    // SAFETY: the caller's arguments as they came, but for where the address goes first.
    unsafe { allocate_narrow(address, bytes.into(), |address| real(address, bytes)) }
}

/// `cuMemAllocPitch`, of programs with 32-bit addresses.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn allocate_pitch_32(
    real: unsafe extern "C" fn(*mut c_uint, *mut c_uint, c_uint, c_uint, c_uint) -> CUresult,
    address: *mut c_uint,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> CUresult {
    let expected = row(width.into()).and_then(|row| row.checked_mul(height.into())).unwrap_or(u64::MAX);
    // SAFETY: the caller's arguments as they came, but for where the address goes first.
    unsafe { allocate_narrow(address, expected, |address| real(address, pitch, width, height, element)) }
}

/// As [`allocate_for`], with a 32-bit address.
///
/// # Safety
/// As [`allocate_for`].
unsafe fn allocate_narrow(address: *mut c_uint, bytes: u64, real: impl FnOnce(*mut c_uint) -> CUresult) -> CUresult {
    if address.is_null() {
        return real(address);
    }
    let mut wide = 0;
    // SAFETY: `wide` is valid for a write, and so is `address`.
    unsafe {
        let result = allocate_for(&raw mut wide, bytes, |wide| widened(wide, real));
        if result == SUCCESS {
            *address = wide as c_uint;
        }
        result
    }
}

/// Writes the 32-bit address that a function of the driver's gives.
///
/// # Safety
/// `wide` is valid for a write.
unsafe fn widened(wide: *mut CUdeviceptr, real: impl FnOnce(*mut c_uint) -> CUresult) -> CUresult {
    let mut narrow = 0;
    let result = real(&raw mut narrow);
    // SAFETY: the caller's guarantee.
    unsafe { *wide = narrow.into() };
    result
}

/// Bytes from one row to the next on known cards.
fn row(width: u64) -> Option<u64> {
    width.checked_next_multiple_of(PITCH)
}

/// `cuMemAllocPitch_v2`: rows are as far apart as the driver likes. Reserved is what that comes to on known cards.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn allocate_pitch(
    real: unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, usize, usize, c_uint) -> CUresult,
    address: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> CUresult {
    let row = row(width as u64);
    let expected = row.and_then(|row| row.checked_mul(height as u64)).unwrap_or(u64::MAX);
    let ask = |address: *mut CUdeviceptr| {
        // SAFETY: as above.
        unsafe { real(address, pitch, width, height, element) }
    };
    // SAFETY: as above. Where rows of managed memory begin is ours to say, for elements as the driver knows them.
    unsafe {
        if pitch.is_null() || !matches!(element, 4 | 8 | 16) {
            return allocate_for(address, expected, ask);
        }
        spill::allocate(address, expected, ask, || *pitch = row.unwrap_or(0) as usize)
    }
}

/// `cuMemFree_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn free(real: unsafe extern "C" fn(CUdeviceptr) -> CUresult, address: CUdeviceptr) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    give_back(Kind::Memory, address, || unsafe { real(address) })
}

/// `cuMemFree`, of programs with 32-bit addresses.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn free_32(real: unsafe extern "C" fn(c_uint) -> CUresult, address: c_uint) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    give_back(Kind::Memory, address.into(), || unsafe { real(address) })
}

/// `cuMemFreeAsync`. In a capture it becomes a part of a graph, and frees nothing now.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn free_async<const PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUdeviceptr, CUstream) -> CUresult,
    address: CUdeviceptr,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let ask = || unsafe { real(address, stream) };
    // SAFETY: the caller's stream.
    if unsafe { streams::is_captured::<PER_THREAD>(stream) } { ask() } else { give_back(Kind::Memory, address, ask) }
}

/// Has the driver allocate so many bytes of the current context's card, if they are to be had.
///
/// # Safety
/// `address` is null or valid for a write, and `ask` writes an address where it is told to if it succeeds.
unsafe fn allocate_for(
    address: *mut CUdeviceptr,
    bytes: u64,
    ask: impl FnOnce(*mut CUdeviceptr) -> CUresult,
) -> CUresult {
    // SAFETY: the caller's guarantee.
    unsafe { allocate_in(Place::Card, address, bytes, ask) }
}

/// The same, of memory that may lie there.
///
/// # Safety
/// As [`allocate_for`].
unsafe fn allocate_in(
    place: Place,
    address: *mut CUdeviceptr,
    bytes: u64,
    ask: impl FnOnce(*mut CUdeviceptr) -> CUresult,
) -> CUresult {
    if address.is_null() {
        return ask(address);
    }
    // What the driver writes is read here, and not where other threads of the program could have changed it.
    let mut given = 0;
    let ask = || (ask(&raw mut given), given);
    let result = match (place, Quota::of_current()) {
        (_, Err(refused)) => refused,
        (Place::Card, Ok(quota)) => hold_pages(&quota, bytes, ask).unwrap_or_else(|| quota.out_of_memory()),
        (Place::Any, Ok(_)) => held_in(place, Kind::Memory, bytes, ask),
    };
    if result == SUCCESS {
        // SAFETY: the caller's guarantee.
        unsafe { *address = given };
    }
    result
}

/// Has the driver give something that takes so many bytes of the current context's card, if they are to be had.
pub(super) fn held(kind: Kind, bytes: u64, ask: impl FnOnce() -> (CUresult, u64)) -> CUresult {
    held_in(Place::Card, kind, bytes, ask)
}

fn held_in(place: Place, kind: Kind, bytes: u64, ask: impl FnOnce() -> (CUresult, u64)) -> CUresult {
    let quota = match Quota::of_current() {
        Ok(quota) => quota,
        Err(refused) => return refused,
    };
    match quota.reserve_in(place, bytes) {
        Some(reserved) => hold(reserved, kind, ask),
        None => quota.out_of_memory(),
    }
}

/// Has the driver give something for which bytes of the current context's card are reserved.
pub(super) fn hold(reserved: Reserved, kind: Kind, ask: impl FnOnce() -> (CUresult, u64)) -> CUresult {
    let of = if reserved.place() == Place::Any { MANAGED } else { 0 };
    let resource = Resource { of, ..Resource::in_context(reserved.bytes(), reserved.card(), current_context()) };
    let (result, given) = ask();
    if result == SUCCESS {
        keep(reserved, (kind, given), resource);
    }
    result
}

/// Has the driver allocate so many bytes of the current context's card, in its pages; `None`: they are not to be had.
pub(super) fn hold_pages(quota: &Quota, bytes: u64, ask: impl FnOnce() -> (CUresult, u64)) -> Option<CUresult> {
    let resource = Resource { of: PAGED, ..Resource::in_context(bytes, quota.card, current_context()) };
    let mut reserved = quota.reserve_in(Place::Card, pages::most(bytes));
    if reserved.is_none() && !pages::have_space(bytes, quota.card, resource.context) {
        return None;
    }
    let (result, given) = ask();
    if result != SUCCESS {
        return Some(result);
    }
    let taken = pages::enter(given, &resource);
    match &mut reserved {
        Some(reserved) => reserved.replace(taken),
        None => reserved = quota.reserve_in(Place::Card, taken),
    }
    let Some(reserved) = reserved else {
        // SAFETY: it was allocated just now, and nobody knows of it.
        unsafe { cuMemFree_v2(given) };
        pages::leave(given, bytes);
        return None;
    };
    keep(reserved, (Kind::Memory, given), resource);
    Some(SUCCESS)
}

/// Keeps charged what the driver has given.
fn keep(reserved: Reserved, (kind, given): (Kind, u64), resource: Resource) {
    // What finds no place stays charged until the process ends, which is never too little; a million things have one.
    if let Ok(Some(gone)) = RESOURCES.put(kind, given, resource) {
        release(given, gone); // the driver took it back without being asked through here
    }
    reserved.keep();
}

/// Has the driver take something back. What isn't known here is charged to nobody.
pub(super) fn give_back(kind: Kind, key: u64, ask: impl FnOnce() -> CUresult) -> CUresult {
    // Taken out before, because the driver may give the same address to another thread before we could do so after.
    let taken = RESOURCES.take(kind, key);
    let result = ask();
    match taken {
        Some(resource) if result == SUCCESS => release(key, resource),
        // It had a place just now. If it has none any more, it stays charged.
        Some(resource) => {
            let _had_a_place = RESOURCES.put(kind, key, resource);
        }
        None => {}
    }
    result
}

/// Releases what a resource with this key is charged with.
pub(super) fn release(key: u64, resource: Resource) {
    let (place, bytes) = match resource.of {
        0 => (Place::Card, resource.bytes),
        PAGED => (Place::Card, pages::leave(key, resource.bytes)),
        MANAGED => (Place::Any, resource.bytes),
        _ => return pools::freed(resource),
    };
    if let Ok(quota) = Quota::of_card(resource.card) {
        quota.release(place, bytes);
    }
}
