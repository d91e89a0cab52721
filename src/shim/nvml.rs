//! What programs are told by NVML: their share as if it were the card, and nobody but themselves on it.
//!
//! Temperatures, clocks, links and how busy a card is are the card's own. What would change a card for its other tenants is
//! refused.

pub(crate) mod devices;
pub(crate) mod memory;
pub(crate) mod processes;

use core::ffi::{CStr, c_char, c_uint};

use crate::cuda::CUresult;
use crate::driver::nvml::nvmlDeviceGetUUID;
use crate::driver::{nvmlDevice_t, nvmlReturn_t};
use crate::limits::CardId;
use crate::process::{self, Process};

pub(crate) const NVML_SUCCESS: nvmlReturn_t = 0;
const NVML_ERROR_INVALID_ARGUMENT: nvmlReturn_t = 2;
const NVML_ERROR_NO_PERMISSION: nvmlReturn_t = 4;
const NVML_ERROR_NOT_FOUND: nvmlReturn_t = 6;
const NVML_ERROR_INSUFFICIENT_SIZE: nvmlReturn_t = 7;

/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`: the longest name of a card, with a zero byte.
const UUID: usize = 96;

/// What a tenant may not do to a card: others work on it too.
///
/// # Safety
/// None is needed: the driver isn't called.
pub(crate) unsafe fn denied(_real: unsafe extern "C" fn() -> nvmlReturn_t) -> nvmlReturn_t {
    NVML_ERROR_NO_PERMISSION
}

/// What NVML knows of other tenants' processes.
///
/// # Safety
/// None is needed: the driver isn't called.
pub(crate) unsafe fn unseen(_real: unsafe extern "C" fn() -> nvmlReturn_t) -> nvmlReturn_t {
    NVML_ERROR_NOT_FOUND
}

/// Whose card a device is.
enum Whose {
    /// The container's, at this position.
    Ours(&'static Process, usize),
    /// Somebody else's, or not told.
    OtherProcesses,
    /// Nothing is ours, as there are no limits.
    Refused,
}

/// # Safety
/// A device of NVML's.
unsafe fn whose(device: nvmlDevice_t) -> Whose {
    match process::this() {
        Err(_) => Whose::Refused,
        // SAFETY: the caller's guarantee.
        Ok(process) => match (unsafe { id_of(device) }).and_then(|id| process.find(&id)) {
            Some(card) => Whose::Ours(process, card),
            None => Whose::OtherProcesses,
        },
    }
}

/// # Safety
/// A device of NVML's.
unsafe fn id_of(device: nvmlDevice_t) -> Option<CardId> {
    let mut uuid: [c_char; UUID] = [0; UUID];
    // SAFETY: the buffer is longer than is said, and so ends with a zero byte whatever is written.
    let result: CUresult = unsafe { nvmlDeviceGetUUID(device, uuid.as_mut_ptr(), UUID as c_uint - 1) };
    // SAFETY: as above.
    let uuid = (result == NVML_SUCCESS).then(|| unsafe { CStr::from_ptr(uuid.as_ptr()) })?;
    Some(CardId::new(uuid.to_str().ok()?))
}
