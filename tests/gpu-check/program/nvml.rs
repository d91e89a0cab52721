//! What NVML shows of a card.

use std::ffi::{CString, c_char, c_void};
use std::mem;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Library;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

type Init = unsafe extern "C" fn() -> u32;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> u32;
type Info = unsafe extern "C" fn(*mut c_void, *mut Memory) -> u32;

/// Bytes of a card; null on a machine without the library.
pub(super) fn memory(uuid: &str) -> Result<Value> {
    let Some(library) = Library::open(c"libnvidia-ml.so.1") else { return Ok(Value::Null) };
    let find = |name| {
        let address = library.symbol(name);
        ensure!(!address.is_null(), "{name:?}: not in libnvidia-ml.so.1");
        Ok(address)
    };
    let (init, by_uuid) = (find(c"nvmlInit_v2")?, find(c"nvmlDeviceGetHandleByUUID")?);
    let info = find(c"nvmlDeviceGetMemoryInfo")?;
    // SAFETY: NVML's function of this name has these arguments, as the two below have theirs (nvml.h).
    let init = unsafe { mem::transmute::<*mut c_void, Init>(init) };
    // SAFETY: as above.
    let by_uuid = unsafe { mem::transmute::<*mut c_void, ByUuid>(by_uuid) };
    // SAFETY: as above.
    let info = unsafe { mem::transmute::<*mut c_void, Info>(info) };
    let name = CString::new(uuid).context("a UUID")?;
    let (mut device, mut memory) = (std::ptr::null_mut(), Memory::default());
    // SAFETY: a name that ends with a zero byte, and places for what is written; the second has written the device.
    let results = unsafe {
        (
            init(),
            by_uuid(name.as_ptr(), &raw mut device),
            if device.is_null() { 0 } else { info(device, &raw mut memory) },
        )
    };
    ensure!(results == (0, 0, 0), "NVML answers {results:?} to nvmlInit, the card's handle, its memory");
    Ok(json!({ "total": memory.total, "free": memory.free, "used": memory.used }))
}
