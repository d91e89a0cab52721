//! Functions that take the handle of a MIG instance, or of its card; all others refuse an instance's.

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings as sys;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlReturn_t,
};

use super::{card, code, write};
use crate::driver::{self, Target};
use crate::scenario::NvmlReturn;
use crate::shared;

/// The most instances that any card can be cut into.
const MOST: c_uint = 7;

/// Defines C functions whose first argument is a handle.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) = |$target:pat_param| $body:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(device: nvmlDevice_t, $($argument: $type),*) -> nvmlReturn_t {
                code(driver::about_target(stringify!($name), device.addr(), |$target| {
                    // SAFETY: by NVML's contract pointers are null or valid for what the function writes.
                    unsafe { $body }
                }))
            }
        )*
    };
}

functions! {
    nvmlDeviceGetUUID(uuid: *mut c_char, length: c_uint) = |target| write::text(uuid, length, &target.uuid());
    nvmlDeviceGetName(name: *mut c_char, length: c_uint) = |target| write::text(name, length, &target.name());
    nvmlDeviceGetMemoryInfo(memory: *mut nvmlMemory_t) = |target| {
        let (total, used) = target.memory()?;
        // The first form knows nothing of what the driver keeps: it is in use.
        let used = used.saturating_add(target.reserved());
        write::value(memory, nvmlMemory_t { total, free: total.saturating_sub(used), used })
    };
    nvmlDeviceGetMemoryInfo_v2(memory: *mut nvmlMemory_v2_t) = |target| {
        let (total, used) = target.memory()?;
        let version = memory.as_ref().ok_or(NvmlReturn::InvalidArgument)?.version;
        let reserved = target.reserved();
        let free = total.saturating_sub(used).saturating_sub(reserved);
        write::value(memory, nvmlMemory_v2_t { version, total, reserved, free, used })
    };
    nvmlDeviceGetComputeRunningProcesses(count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) = |target| {
        let old = |process: nvmlProcessInfo_t| {
            nvmlProcessInfo_v1_t { pid: process.pid, usedGpuMemory: process.usedGpuMemory }
        };
        write::list(infos, count, &target.processes().into_iter().map(old).collect::<Vec<_>>())
    };
    nvmlDeviceGetComputeRunningProcesses_v2(count: *mut c_uint, infos: *mut nvmlProcessInfo_t) = |target| {
        write::list(infos, count, &target.processes())
    };
    nvmlDeviceGetComputeRunningProcesses_v3(count: *mut c_uint, infos: *mut nvmlProcessInfo_t) = |target| {
        write::list(infos, count, &target.processes())
    };
    nvmlDeviceIsMigDeviceHandle(is_mig: *mut c_uint) = |target| {
        write::value(is_mig, c_uint::from(target.instance.is_some()))
    };
    nvmlDeviceGetGpuInstanceId(id: *mut c_uint) = |target| {
        write::value(id, target.instance.ok_or(NvmlReturn::NotSupported)?.gi)
    };
    nvmlDeviceGetComputeInstanceId(id: *mut c_uint) = |target| {
        write::value(id, target.instance.ok_or(NvmlReturn::NotSupported)?.ci)
    };
    nvmlDeviceGetMigMode(current: *mut c_uint, pending: *mut c_uint) = |target| {
        let mig = target.whole_card()?.mig.as_ref().ok_or(NvmlReturn::NotSupported)?;
        let mode = if mig.enabled { sys::NVML_DEVICE_MIG_ENABLE } else { sys::NVML_DEVICE_MIG_DISABLE };
        write::value(current, mode)?;
        write::value(pending, mode)
    };
    nvmlDeviceGetMaxMigDeviceCount(count: *mut c_uint) = |target| {
        let enabled = target.whole_card()?.mig.as_ref().is_some_and(|mig| mig.enabled);
        write::value(count, if enabled { MOST } else { 0 })
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: c_uint,
    instance: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let found = driver::find_relative("nvmlDeviceGetMigDeviceHandleByIndex", device.addr(), |target| {
        let card = target.whole_card()?;
        card.mig.as_ref().filter(|mig| mig.enabled).ok_or(NvmlReturn::NotSupported)?;
        let instance = card.instances().get(index as usize).ok_or(NvmlReturn::NotFound)?;
        Ok(instance.uuid_on(card))
    });
    // SAFETY: NVML's contract for results.
    code(found.and_then(|handle| unsafe { write::value(instance, handle as nvmlDevice_t) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    instance: nvmlDevice_t,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let found = driver::find_relative("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance.addr(), |target| {
        target.instance.ok_or(NvmlReturn::InvalidArgument)?;
        Ok(target.card.uuid.clone())
    });
    // SAFETY: NVML's contract for results.
    code(found.and_then(|handle| unsafe { write::value(device, handle as nvmlDevice_t) }))
}

// === impl Target ===

impl Target<'_> {
    fn uuid(&self) -> String {
        self.instance.map_or_else(|| self.card.uuid.clone(), |instance| instance.uuid_on(self.card))
    }

    fn name(&self) -> String {
        let product = &self.card.model;
        self.instance.map_or_else(|| product.clone(), |instance| format!("{product} MIG {}", instance.profile))
    }

    /// Total and in use.
    fn memory(&self) -> Result<(u64, u64), NvmlReturn> {
        if self.card.unified_memory {
            return Err(NvmlReturn::NotSupported);
        }
        let whole = || (self.card.memory_total, shared::look(self.card).memory_used);
        Ok(self.instance.map_or_else(whole, |instance| (instance.memory_total, instance.memory_used)))
    }

    /// What the driver keeps of a whole card.
    fn reserved(&self) -> u64 {
        if self.instance.is_none() { self.card.memory_reserved } else { 0 }
    }

    fn processes(&self) -> Vec<nvmlProcessInfo_t> {
        if self.instance.is_none() { card::processes(self.card) } else { Vec::new() }
    }
}
