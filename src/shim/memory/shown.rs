//! What programs are told of a card's memory: their share, as if it were the card.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::{CUdevice, CUresult, SUCCESS};
use crate::process::{self, UNLIMITED};
use crate::sys;

/// When the dead were looked for last; with many processes it takes too long to do so each time.
static BURIED_NS: AtomicU64 = AtomicU64::new(0);
const BURY_EVERY_NS: u64 = 100_000_000;

/// `cuMemGetInfo_v2`: total is the limit; free is what is left of it, or of the card if that is less.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn info(
    real: unsafe extern "C" fn(*mut usize, *mut usize) -> CUresult,
    free: *mut usize,
    total: *mut usize,
) -> CUresult {
    let (mut real_free, mut real_total) = (0_usize, 0_usize);
    // SAFETY: the caller's arguments, null where they were null, but for where the numbers go first.
    let result = unsafe { real(if_wanted(free, &raw mut real_free), if_wanted(total, &raw mut real_total)) };
    if result != SUCCESS {
        return result;
    }
    match share() {
        // SAFETY: where the driver would have written.
        Ok((left, limit)) => unsafe {
            write(free, real_free.min(left as usize));
            write(total, if limit == UNLIMITED { real_total } else { limit as usize });
        },
        Err(refused) => return refused,
    }
    result
}

/// `cuMemGetInfo`, of programs with 32-bit sizes: no more than they can say.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn info_32(
    real: unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> CUresult,
    free: *mut c_uint,
    total: *mut c_uint,
) -> CUresult {
    let (mut real_free, mut real_total) = (0, 0);
    // SAFETY: as above.
    let result = unsafe { real(if_wanted(free, &raw mut real_free), if_wanted(total, &raw mut real_total)) };
    if result != SUCCESS {
        return result;
    }
    match share() {
        // SAFETY: where the driver would have written.
        Ok((left, limit)) => unsafe {
            write(free, real_free.min(narrow(left)));
            write(total, if limit == UNLIMITED { real_total } else { narrow(limit) });
        },
        Err(refused) => return refused,
    }
    result
}

/// `cuDeviceTotalMem_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn total(
    real: unsafe extern "C" fn(*mut usize, CUdevice) -> CUresult,
    bytes: *mut usize,
    device: CUdevice,
) -> CUresult {
    let mut real_bytes = 0;
    // SAFETY: as above.
    let result = unsafe { real(if_wanted(bytes, &raw mut real_bytes), device) };
    if result != SUCCESS {
        return result;
    }
    match limit_of(device) {
        // SAFETY: where the driver would have written.
        Ok(limit) => unsafe { write(bytes, real_bytes.min(limit as usize)) },
        Err(refused) => return refused,
    }
    result
}

/// `cuDeviceTotalMem`, of programs with 32-bit sizes.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn total_32(
    real: unsafe extern "C" fn(*mut c_uint, CUdevice) -> CUresult,
    bytes: *mut c_uint,
    device: CUdevice,
) -> CUresult {
    let mut real_bytes = 0;
    // SAFETY: as above.
    let result = unsafe { real(if_wanted(bytes, &raw mut real_bytes), device) };
    if result != SUCCESS {
        return result;
    }
    match limit_of(device) {
        // SAFETY: where the driver would have written.
        Ok(limit) => unsafe { write(bytes, real_bytes.min(narrow(limit))) },
        Err(refused) => return refused,
    }
    result
}

/// What is left of the limit of the current context's card, and the limit. Programs that size themselves by it come after
/// others that have just ended, so what the dead held doesn't count.
fn share() -> Result<(u64, u64), CUresult> {
    let (process, card) = process::current_card()?;
    let now = sys::now();
    process.keep_up(now);
    let buried = BURIED_NS.load(Ordering::Relaxed);
    if buried == 0 || now.saturating_sub(buried) >= BURY_EVERY_NS {
        BURIED_NS.store(now, Ordering::Relaxed);
        process.reap();
    }
    let limit = process.limit(card);
    Ok((limit.saturating_sub(process.used(card)), limit))
}

/// The limit of a card; nothing of one that isn't the container's.
fn limit_of(device: CUdevice) -> Result<u64, CUresult> {
    process::this().map(|process| process.card_of(device).map_or(0, |card| process.limit(card)))
}

fn narrow(bytes: u64) -> c_uint {
    c_uint::try_from(bytes).unwrap_or(c_uint::MAX)
}

fn if_wanted<T>(asked: *mut T, place: *mut T) -> *mut T {
    if asked.is_null() { asked } else { place }
}

/// # Safety
/// `to` is null or valid for a write.
unsafe fn write<T>(to: *mut T, value: T) {
    // SAFETY: the caller's promise.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = value;
    }
}
