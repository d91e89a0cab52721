//! What programs are told of a card's memory: their share, as if it were the card.

use crate::cuda::{CUdevice, CUresult, SUCCESS};
use crate::process::{self, Process};

/// `cuMemGetInfo`: total is the limit; free is what is left of it, or of the card if that is less.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn info(
    real: unsafe extern "C" fn(*mut usize, *mut usize) -> CUresult,
    free: *mut usize,
    total: *mut usize,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(free, total) };
    if result != SUCCESS || free.is_null() || total.is_null() {
        return result;
    }
    let (process, card) = match process::current_card() {
        Ok(found) => found,
        Err(refused) => return refused,
    };
    let limit = process.limit(card);
    let left = limit.saturating_sub(process.used(card));
    // SAFETY: the driver has just written there.
    unsafe {
        *free = (*free).min(left as usize);
        *total = limit as usize;
    }
    result
}

/// `cuDeviceTotalMem`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn total(
    real: unsafe extern "C" fn(*mut usize, CUdevice) -> CUresult,
    bytes: *mut usize,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(bytes, device) };
    if result != SUCCESS || bytes.is_null() {
        return result;
    }
    let limit = process::this().map(|process| process.card_of(device).map_or(0, |card| Process::limit(process, card)));
    match limit {
        // SAFETY: the driver has just written there.
        Ok(limit) => unsafe { *bytes = (*bytes).min(limit as usize) },
        Err(refused) => return refused,
    }
    result
}
