//! The card memory that programs are told: their share, as if it were the card.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::{CUdevice, CUresult, SUCCESS};
use crate::process::{self, UNLIMITED};
use crate::time;

use super::pages;

/// When the dead were looked for last; with many processes it takes too long to do so each time.
static REAPED_NS: AtomicU64 = AtomicU64::new(0);
const REAP_INTERVAL_NS: u64 = 100_000_000;

/// A number of bytes as some generation of the driver's functions has it.
pub(crate) trait Bytes: Copy + Default + Ord {
    /// So many, or as many as it can say.
    fn of(bytes: u64) -> Self;
}

impl Bytes for usize {
    fn of(bytes: u64) -> Self {
        bytes as Self
    }
}

/// Sizes of programs with 32-bit addresses.
impl Bytes for c_uint {
    fn of(bytes: u64) -> Self {
        Self::try_from(bytes).unwrap_or(Self::MAX)
    }
}

/// `cuMemGetInfo` and `cuMemGetInfo_v2`: total is the limit; free is what is left of it in whole pages, which can be allocated, or
/// of the card if that is less.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn info<B: Bytes>(
    real: unsafe extern "C" fn(*mut B, *mut B) -> CUresult,
    free: *mut B,
    total: *mut B,
) -> CUresult {
    let (mut real_free, mut real_total) = (B::default(), B::default());
    // SAFETY: the caller's arguments, null where they were null, but for where the numbers go first.
    let result = unsafe { real(if_wanted(free, &raw mut real_free), if_wanted(total, &raw mut real_total)) };
    if result != SUCCESS {
        return result;
    }
    let (left, limit) = match share() {
        Ok(share) => share,
        Err(refused) => return refused,
    };
    // SAFETY: where the driver would have written.
    unsafe {
        write(free, real_free.min(B::of(left)));
        write(total, if limit == UNLIMITED { real_total } else { B::of(limit) });
    }
    SUCCESS
}

/// `cuDeviceTotalMem` and `cuDeviceTotalMem_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn total<B: Bytes>(
    real: unsafe extern "C" fn(*mut B, CUdevice) -> CUresult,
    bytes: *mut B,
    device: CUdevice,
) -> CUresult {
    let mut real_bytes = B::default();
    // SAFETY: as above.
    let result = unsafe { real(if_wanted(bytes, &raw mut real_bytes), device) };
    if result != SUCCESS {
        return result;
    }
    let limit = match limit_of(device) {
        Ok(limit) => limit,
        Err(refused) => return refused,
    };
    // SAFETY: where the driver would have written.
    unsafe { write(bytes, real_bytes.min(B::of(limit))) };
    SUCCESS
}

/// What is left of the limit of the current context's card, and the limit. Programs that size themselves by it come after
/// others that have just ended, so what the dead held doesn't count.
fn share() -> Result<(u64, u64), CUresult> {
    let process = process::this()?;
    let card = process.current_card()?;
    let now = time::now();
    process.refresh(now);
    let reaped = REAPED_NS.load(Ordering::Relaxed);
    if reaped == 0 || now.saturating_sub(reaped) >= REAP_INTERVAL_NS {
        REAPED_NS.store(now, Ordering::Relaxed);
        process.reap();
    }
    Ok((pages::whole(process.tell_free(card)), process.limit(card)))
}

/// The limit of a card; nothing of one that isn't the container's.
fn limit_of(device: CUdevice) -> Result<u64, CUresult> {
    process::this().map(|process| process.card_of(device).map_or(0, |card| process.limit(card)))
}

fn if_wanted<T>(asked: *mut T, place: *mut T) -> *mut T {
    if asked.is_null() { asked } else { place }
}

/// # Safety
/// `to` is null or valid for a write.
unsafe fn write<T>(to: *mut T, value: T) {
    // SAFETY: the caller's guarantee.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = value;
    }
}
