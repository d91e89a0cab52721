//! Physical memory that programs map themselves. It lives as long as something refers to it, a handle or a mapping, and is
//! charged as long, where it lies and not where its maker happens to be.
//!
//! What is imported is another's, and what lies on the host is no card's: they are known here and charged with nothing. Of
//! the one it is told in the accounting region how much of it is mapped.

use core::ffi::{c_int, c_ulonglong, c_void};

use crate::cuda::{
    CUdeviceptr, CUmemAllocationProp, CUmemAllocationPropWhole, CUmemGenericAllocationHandle, CUresult, SUCCESS,
};
use crate::driver::cuda::cuMemGetAllocationPropertiesFromHandle;
use crate::lock::Lock;

use super::allocations::release;
use super::imports;
use super::quota::Quota;
use super::resources::{Full, Kind, RESOURCES, Resource};

/// Numbers for physical memory: the driver may give a handle out again while what it meant is still mapped. Holding the
/// lock makes a step of what concerns more than one resource.
static NUMBERS: Lock<u64> = Lock::new(0);
/// In place of the context of physical memory, which ends with none: it was imported, and its bytes are those mapped.
const IMPORTED: usize = 1;

/// `cuMemCreate`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(
        *mut CUmemGenericAllocationHandle,
        usize,
        *const CUmemAllocationProp,
        c_ulonglong,
    ) -> CUresult,
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    properties: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: a program gives properties, or null.
    let Some(location) = unsafe { properties.as_ref() }.map(|properties| properties.location) else {
        // SAFETY: the caller's arguments as they came.
        return unsafe { real(handle, bytes, properties, flags) };
    };
    let quota = match location.device().map(Quota::of_device).transpose() {
        Ok(quota) => quota,
        Err(refused) => return refused,
    };
    let reserved = match quota.map(|quota| quota.reserve(bytes as u64)).transpose() {
        Ok(reserved) => reserved,
        Err(refused) => return refused,
    };
    let mut given = 0;
    // SAFETY: the caller's arguments, but for where the handle goes first.
    let result = unsafe { real(if handle.is_null() { handle } else { &raw mut given }, bytes, properties, flags) };
    if result == SUCCESS {
        let (charged, card) = quota.map_or((0, 0), |quota| (bytes as u64, quota.card));
        // What has no place stays charged until the process ends.
        let _full = enter(given, Resource { bytes: charged, card, context: 0, of: 1 });
        if let Some(reserved) = reserved {
            reserved.keep();
        }
        // SAFETY: the driver would have written there, so it isn't null.
        unsafe { *handle = given };
    }
    result
}

/// `cuMemImportFromShareableHandle`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn import(
    real: unsafe extern "C" fn(*mut CUmemGenericAllocationHandle, *mut c_void, c_int) -> CUresult,
    handle: *mut CUmemGenericAllocationHandle,
    shared: *mut c_void,
    kind: c_int,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(handle, shared, kind) };
    if result == SUCCESS && !handle.is_null() {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *handle };
        let mut properties = CUmemAllocationPropWhole::default();
        // SAFETY: properties are written to properties.
        let told = unsafe { cuMemGetAllocationPropertiesFromHandle(&raw mut properties, handle) };
        let quota = properties
            .head
            .location
            .device()
            .filter(|_| told == SUCCESS)
            .and_then(|device| Quota::of_device(device).ok());
        let context = if quota.is_some() { IMPORTED } else { 0 };
        let _full = enter(handle, Resource { bytes: 0, card: quota.map_or(0, |quota| quota.card), context, of: 1 });
    }
    result
}

/// `cuMemRelease`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn release_handle(
    real: unsafe extern "C" fn(CUmemGenericAllocationHandle) -> CUresult,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    // As with addresses: the driver may give the handle out again as soon as it has it back.
    let held = take_handle(handle);
    // SAFETY: the caller's argument as it came.
    let result = unsafe { real(handle) };
    match held {
        Some(of) if result == SUCCESS => refer_less(of),
        Some(of) => {
            let _had_a_place = add_handle(handle, of);
        }
        None => {}
    }
    result
}

/// `cuMemRetainAllocationHandle`: one more handle to what is mapped at an address.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn retain(
    real: unsafe extern "C" fn(*mut CUmemGenericAllocationHandle, *mut c_void) -> CUresult,
    handle: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(handle, address) };
    if result == SUCCESS && !handle.is_null() {
        let address = address.addr() as u64;
        let covers = |start: u64, mapping: &Resource| address.wrapping_sub(start) < mapping.bytes;
        let found = RESOURCES.get(Kind::Mapping, address).or_else(|| RESOURCES.search(Kind::Mapping, covers));
        if let Some(mapping) = found {
            refer_more(mapping.of);
            // SAFETY: the driver has just written there.
            let _full = add_handle(unsafe { *handle }, mapping.of);
        }
    }
    result
}

/// `cuMemMap`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn map(
    real: unsafe extern "C" fn(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong) -> CUresult,
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> CUresult {
    let of = RESOURCES.get(Kind::Handle, handle).map(|handle| handle.of);
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(address, bytes, offset, handle, flags) };
    if let Some(of) = of.filter(|_| result == SUCCESS) {
        refer_more(of);
        grow_import(of, bytes as u64);
        let mapping = Resource { bytes: bytes as u64, of, ..Resource::default() };
        let _full = RESOURCES.put(Kind::Mapping, address, mapping);
    }
    result
}

/// `cuMemUnmap`, of one mapping or of several that lie side by side.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn unmap(
    real: unsafe extern "C" fn(CUdeviceptr, usize) -> CUresult,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(address, bytes) };
    if result == SUCCESS {
        let matches = |start: u64| start.wrapping_sub(address) < bytes as u64;
        // Side by side most often, one by one from the first.
        let mut at = address;
        while matches(at)
            && let Some(mapping) = RESOURCES.take(Kind::Mapping, at)
        {
            refer_less(mapping.of);
            at = at.saturating_add(mapping.bytes.max(1));
        }
    }
    result
}

fn enter(handle: CUmemGenericAllocationHandle, memory: Resource) -> Result<(), Full> {
    let number = {
        let mut numbers = NUMBERS.lock();
        *numbers = numbers.wrapping_add(1);
        *numbers
    };
    RESOURCES.put(Kind::Physical, number, memory)?;
    add_handle(handle, number)
}

/// Remembers that a handle refers to physical memory, once more.
fn add_handle(handle: CUmemGenericAllocationHandle, of: u64) -> Result<(), Full> {
    let _step = NUMBERS.lock();
    let times = RESOURCES.get(Kind::Handle, handle).filter(|known| known.of == of).map_or(0, |known| known.bytes);
    RESOURCES
        .put(Kind::Handle, handle, Resource { bytes: times.saturating_add(1), of, ..Resource::default() })
        .map(drop)
}

/// The handle refers to it once less; what it referred to.
fn take_handle(handle: CUmemGenericAllocationHandle) -> Option<u64> {
    let _step = NUMBERS.lock();
    let known = RESOURCES.take(Kind::Handle, handle)?;
    if known.bytes > 1 {
        let _had_a_place = RESOURCES.put(Kind::Handle, handle, Resource { bytes: known.bytes - 1, ..known });
    }
    Some(known.of)
}

fn refer_more(number: u64) {
    let _step = NUMBERS.lock();
    if let Some(memory) = RESOURCES.get(Kind::Physical, number) {
        let _had_a_place =
            RESOURCES.put(Kind::Physical, number, Resource { of: memory.of.saturating_add(1), ..memory });
    }
}

/// So much of it is mapped. The driver doesn't tell how large memory is that was imported.
fn grow_import(number: u64, bytes: u64) {
    let _step = NUMBERS.lock();
    let Some(memory) = RESOURCES.get(Kind::Physical, number) else { return };
    if memory.context == IMPORTED
        && bytes > memory.bytes
        && let Ok(quota) = Quota::of_card(memory.card)
    {
        quota.account.import(bytes - memory.bytes);
        let _had_a_place = RESOURCES.put(Kind::Physical, number, Resource { bytes, ..memory });
    }
}

/// The last that referred to physical memory ends it.
fn refer_less(number: u64) {
    let _step = NUMBERS.lock();
    match RESOURCES.take(Kind::Physical, number) {
        Some(memory) if memory.of <= 1 && memory.context == IMPORTED => imports::close(memory),
        Some(memory) if memory.of <= 1 => release(number, Resource { of: 0, ..memory }),
        Some(memory) => {
            let _had_a_place = RESOURCES.put(Kind::Physical, number, Resource { of: memory.of - 1, ..memory });
        }
        None => {}
    }
}

/// In a child that fork made.
pub(super) fn forget() {
    *NUMBERS.reset() = 0;
}
