//! What NVML shows of a card.

use std::ffi::{CString, c_char, c_void};
use std::mem::ManuallyDrop;

use anyhow::{Context as _, Result, ensure};
use libloading::Library;
use serde_json::{Value, json};

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
    // SAFETY: what NVML's library does when it is loaded is what every program relies on.
    let Ok(library) = (unsafe { Library::new("libnvidia-ml.so.1") }) else { return Ok(Value::Null) };
    let library = ManuallyDrop::new(library);
    let name = CString::new(uuid).context("a UUID")?;
    let (mut device, mut memory) = (std::ptr::null_mut(), Memory::default());
    // SAFETY: NVML's functions have these arguments (nvml.h): a name that ends with a zero byte, and places to write to.
    let results = unsafe {
        let init = library.get::<Init>("nvmlInit_v2")?;
        let by_uuid = library.get::<ByUuid>("nvmlDeviceGetHandleByUUID")?;
        let info = library.get::<Info>("nvmlDeviceGetMemoryInfo")?;
        (
            init(),
            by_uuid(name.as_ptr(), &raw mut device),
            if device.is_null() { 0 } else { info(device, &raw mut memory) },
        )
    };
    ensure!(results == (0, 0, 0), "NVML answers {results:?} to nvmlInit, the card's handle, its memory");
    Ok(json!({ "total": memory.total, "free": memory.free, "used": memory.used }))
}
