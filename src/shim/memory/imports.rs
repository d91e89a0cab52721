//! Memory that another process made and this one opens. It is charged to who made it. How much is open is told in the accounting region
//! all the same: the driver may charge all who have it, and the daemon must not take that for contexts.

use core::ffi::c_uint;
use core::ptr;

use crate::cuda::{CUdeviceptr, CUipcMemHandle, CUresult, SUCCESS};
use crate::driver::cuda::cuMemGetAddressRange_v2;
use crate::driver::current_context;
use crate::lock::Lock;

use super::quota::Quota;
use super::resources::{Kind, RESOURCES, Resource};

/// Held for a step that looks at what is open and changes it.
static STEP: Lock<()> = Lock::new(());

/// `cuIpcOpenMemHandle` and `cuIpcOpenMemHandle_v2`. One that is open already has the same address once more.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn open_handle(
    real: unsafe extern "C" fn(*mut CUdeviceptr, CUipcMemHandle, c_uint) -> CUresult,
    address: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> CUresult {
    let _step = STEP.lock();
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(address, handle, flags) };
    if result == SUCCESS && !address.is_null() {
        // SAFETY: the driver has just written there.
        enter(unsafe { *address });
    }
    result
}

/// `cuIpcCloseMemHandle`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn close_handle(
    real: unsafe extern "C" fn(CUdeviceptr) -> CUresult,
    address: CUdeviceptr,
) -> CUresult {
    let _step = STEP.lock();
    // SAFETY: the caller's argument as it came.
    let result = unsafe { real(address) };
    if result == SUCCESS {
        match RESOURCES.take(Kind::Import, address) {
            Some(open) if open.of > 1 => {
                let _had_a_place = RESOURCES.put(Kind::Import, address, Resource { of: open.of - 1, ..open });
            }
            Some(open) => close(open),
            None => {}
        }
    }
    result
}

/// Counts memory that is open as imported. What isn't counted the daemon takes for a context's, which is never too little.
fn enter(address: CUdeviceptr) {
    if let Some(open) = RESOURCES.get(Kind::Import, address) {
        let _had_a_place = RESOURCES.put(Kind::Import, address, Resource { of: open.of + 1, ..open });
        return;
    }
    let mut bytes = 0;
    // SAFETY: a size is written to a size.
    let found = unsafe { cuMemGetAddressRange_v2(ptr::null_mut(), &raw mut bytes, address) };
    let Ok(quota) = Quota::of_current() else { return };
    let open = Resource { of: 1, ..Resource::in_context(bytes as u64, quota.card, current_context()) };
    if found == SUCCESS && RESOURCES.put(Kind::Import, address, open).is_ok() {
        quota.account.import(open.bytes);
    }
}

/// Nothing of it is open any more.
pub(super) fn close(open: Resource) {
    if let Ok(quota) = Quota::of_card(open.card) {
        quota.account.close(open.bytes);
    }
}

/// In a child that fork made.
pub(super) fn forget() {
    drop(STEP.reset());
}
