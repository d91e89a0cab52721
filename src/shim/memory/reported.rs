//! The card memory that programs are told: their share, as if it were the card.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::{CUdevice, CUresult, SUCCESS};
use crate::process::{self, Process, UNLIMITED};
use crate::time;

use super::pages;

/// When the dead were looked for last; with many processes it takes too long to do so each time.
static REAPED_NS: AtomicU64 = AtomicU64::new(0);
const REAP_INTERVAL_NS: u64 = 100_000_000;

/// A number of bytes as some generation of the driver's functions has it.
pub(crate) trait Bytes: Copy + Default + Ord {
    /// So many, or as many as it can say.
    fn saturating(bytes: u64) -> Self;
}

impl Bytes for usize {
    fn saturating(bytes: u64) -> Self {
        bytes as Self
    }
}

/// Sizes of programs with 32-bit addresses.
impl Bytes for c_uint {
    fn saturating(bytes: u64) -> Self {
        Self::try_from(bytes).unwrap_or(Self::MAX)
    }
}

/// `cuMemGetInfo` and `cuMemGetInfo_v2`: total is the limit; free is what is left of it in whole pages, which can be allocated, or
/// of the card if that is less and the share isn't oversubscribed.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn info<B: Bytes>(
    real: unsafe extern "C" fn(*mut B, *mut B) -> CUresult,
    free: *mut B,
    total: *mut B,
) -> CUresult {
    let mut real_free = B::default();
    let mut real_total = B::default();
    // SAFETY: the caller's arguments, null where they were null, but for where the numbers go first.
    let result = unsafe { real(if_wanted(free, &raw mut real_free), if_wanted(total, &raw mut real_total)) };
    if result != SUCCESS {
        return result;
    }
    let (process, card) = match current() {
        Ok(current) => current,
        Err(refused) => return refused,
    };
    let limit = process.limit(card);
    // SAFETY: where the driver would have written.
    unsafe {
        write(free, shown(process, card, real_free, pages::whole(process.tell_free(card))));
        write(total, if limit == UNLIMITED { real_total } else { B::saturating(limit) });
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
    let process = match process::this() {
        Ok(process) => process,
        Err(refused) => return refused,
    };
    // Of a card that isn't the container's it is nothing.
    let ours = process.card_of(device).map(|card| shown(process, card, real_bytes, process.limit(card)));
    // SAFETY: where the driver would have written.
    unsafe { write(bytes, ours.unwrap_or_default()) };
    SUCCESS
}

/// The current context's card, of which somebody wants to know what is left. Programs that size themselves by it come after
/// others that have just ended, so what the dead held doesn't count.
fn current() -> Result<(&'static Process, usize), CUresult> {
    let process = process::this()?;
    let card = process.current_card()?;
    let now = time::now();
    process.refresh(now);
    let reaped = REAPED_NS.load(Ordering::Relaxed);
    if reaped == 0 || now.saturating_sub(reaped) >= REAP_INTERVAL_NS {
        REAPED_NS.store(now, Ordering::Relaxed);
        process.reap();
    }
    Ok((process, card))
}

/// What a program is shown of a card in place of the driver's figure: the container's, or the card's if that is less. What an
/// oversubscribed share has beyond the card lies on the host.
fn shown<B: Bytes>(process: &Process, card: usize, real: B, ours: u64) -> B {
    if process.is_oversubscribed(card) { B::saturating(ours) } else { real.min(B::saturating(ours)) }
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
