//! Contexts: a process claims its slot of the accounting region before it has one, and what ends with one is forgotten with it.
//!
//! The driver takes some hundred MiB of the card for a context. A process can't measure that: nobody may ask how much of the
//! card is free before the first context is there, and after it others may have changed it. So a context is charged as the
//! daemon says on the clock page, which learns it for each model and driver, and before it is made: programs size themselves
//! by what is free then. What it costs beyond that, and what is loaded later, the daemon measures
//! ([`divvy_region::overhead`]).

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use divvy_region::layout::CARDS;

use crate::cuda::{CUcontext, CUdevice, CUresult, SUCCESS};
use crate::driver::cuda::{cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain};
use crate::lock::Lock;
use crate::log;
use crate::pace::{self, end};
use crate::process;

use super::allocations::release;
use super::quota::{self, Quota, Reserved};
use super::resources::{Kind, RESOURCES, Resource};
use super::{graphs, green, imports, pools};

/// The primary contexts, by the driver's ordinals; 0: none, or not seen.
static PRIMARY: [AtomicUsize; CARDS] = [const { AtomicUsize::new(0) }; CARDS];
/// Held for a step that looks whether a primary context is there, makes it and charges it.
static STEP: Lock<()> = Lock::new(());

/// `cuDevicePrimaryCtxRetain`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn retain_primary(
    real: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult,
    context: *mut CUcontext,
    device: CUdevice,
) -> CUresult {
    let _step = STEP.lock();
    let charge = match Charge::of_primary(device) {
        Ok(charge) => charge,
        Err(refused) => return refused,
    };
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(context, device) };
    if result == SUCCESS && !context.is_null() {
        // SAFETY: the driver has just written there.
        charge.keep_primary(device, unsafe { *context }.addr());
    }
    result
}

/// Has the driver do something that retains a card's primary context without telling which that is.
pub(super) fn with_primary(device: CUdevice, ask: impl FnOnce() -> CUresult) -> CUresult {
    let _step = STEP.lock();
    let charge = match Charge::of_primary(device) {
        Ok(charge) => charge,
        Err(refused) => return refused,
    };
    let result = ask();
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: a context is written to a context, of a card that has it already; it is released as often as retained.
    unsafe {
        if result == SUCCESS && cuDevicePrimaryCtxRetain(&raw mut context, device) == SUCCESS {
            charge.keep_primary(device, context.addr());
            cuDevicePrimaryCtxRelease_v2(device);
        }
    }
    result
}

/// `cuCtxCreate` and `cuCtxCreate_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(*mut CUcontext, c_uint, CUdevice) -> CUresult,
    context: *mut CUcontext,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's arguments as they came; the driver writes a context where it is told to.
    unsafe { make(context, device, || real(context, flags, device)) }
}

/// `cuCtxCreate_v3`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create_with_affinity(
    real: unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_int, c_uint, CUdevice) -> CUresult,
    context: *mut CUcontext,
    affinities: *mut c_void,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's arguments as they came; the driver writes a context where it is told to.
    unsafe { make(context, device, || real(context, affinities, count, flags, device)) }
}

/// `cuCtxCreate_v4`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create_with_parameters(
    real: unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_uint, CUdevice) -> CUresult,
    context: *mut CUcontext,
    parameters: *mut c_void,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the caller's arguments as they came; the driver writes a context where it is told to.
    unsafe { make(context, device, || real(context, parameters, flags, device)) }
}

/// `cuCtxDestroy` and `cuCtxDestroy_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(CUcontext) -> CUresult, context: CUcontext) -> CUresult {
    // SAFETY: the caller's argument as it came.
    let result = end::of_context(context, || unsafe { real(context) });
    if result == SUCCESS {
        forget(context.addr());
    }
    result
}

/// `cuCtxAttach`: the calling thread's context has one more user, who [detaches](detach) from it.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn attach(
    real: unsafe extern "C" fn(*mut CUcontext, c_uint) -> CUresult,
    context: *mut CUcontext,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(context, flags) };
    if result == SUCCESS && !context.is_null() {
        // SAFETY: the driver has just written there.
        let key = unsafe { *context }.addr() as u64;
        count_users(key, |users| users + 1);
    }
    result
}

/// `cuCtxDetach`: ends a context if nobody else is attached to it.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn detach(real: unsafe extern "C" fn(CUcontext) -> CUresult, context: CUcontext) -> CUresult {
    let key = context.addr() as u64;
    if RESOURCES.get(Kind::Context, key).is_none_or(|known| known.of == 0) {
        // SAFETY: the caller's guarantee.
        return unsafe { destroy(real, context) };
    }
    // SAFETY: the caller's argument as it came.
    let result = unsafe { real(context) };
    if result == SUCCESS {
        count_users(key, |users| users.saturating_sub(1));
    }
    result
}

fn count_users(context: u64, count: impl FnOnce(u64) -> u64) {
    let known =
        RESOURCES.get(Kind::Context, context).unwrap_or(Resource { context: context as usize, ..Resource::default() });
    let _full = RESOURCES.put(Kind::Context, context, Resource { of: count(known.of), ..known });
}

/// `cuDevicePrimaryCtxRelease` and `cuDevicePrimaryCtxRelease_v2`: the last who releases it ends it.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn release_primary(real: unsafe extern "C" fn(CUdevice) -> CUresult, device: CUdevice) -> CUresult {
    // SAFETY: the caller's argument as it came.
    let result = end::of_primary(device, || unsafe { real(device) });
    if result == SUCCESS {
        released_primary(device);
    }
    result
}

/// Somebody has released a card's primary context, who may have been the last.
pub(super) fn released_primary(device: CUdevice) {
    let mut flags: c_uint = 0;
    let mut is_active: c_int = 1;
    // SAFETY: numbers are written to numbers.
    let told = unsafe { cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut is_active) };
    if told == SUCCESS && is_active == 0 {
        forget_primary(device);
    }
}

/// `cuDevicePrimaryCtxReset` and `cuDevicePrimaryCtxReset_v2`: whichever thread still has it, what was in it is gone.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn reset_primary(real: unsafe extern "C" fn(CUdevice) -> CUresult, device: CUdevice) -> CUresult {
    // SAFETY: the caller's argument as it came.
    let result = end::of_primary(device, || unsafe { real(device) });
    if result == SUCCESS {
        forget_primary(device);
    }
    result
}

/// Has the driver make a context, and charges it.
///
/// # Safety
/// `context` is null or what `ask` writes a context to if it succeeds.
unsafe fn make(context: *mut CUcontext, device: CUdevice, ask: impl FnOnce() -> CUresult) -> CUresult {
    let charge = match Charge::reserve(device) {
        Ok(charge) => charge,
        Err(refused) => return refused,
    };
    let result = ask();
    if result == SUCCESS && !context.is_null() {
        // SAFETY: the caller's guarantee.
        charge.keep(unsafe { *context }.addr());
    }
    result
}

/// What a context costs, reserved before it is made. A process without a slot of the accounting region makes none.
struct Charge(Option<Reserved>);

impl Charge {
    fn reserve(device: CUdevice) -> Result<Self, CUresult> {
        quota::claim_slot()?;
        let process = process::this()?;
        // The driver answers for a card that isn't there.
        let Some(card) = process.card_of(device) else { return Ok(Self(None)) };
        let bytes = pace::driver_memory(process, card).context_bytes;
        Quota::of_card(card)?.reserve(bytes).map(|reserved| Self(Some(reserved).filter(|_| bytes > 0))).inspect_err(
            |_| {
                static REFUSED: log::LogOnce = log::LogOnce::new();
                let context = bytes >> 20;
                let share = process.limit(card) >> 20;
                REFUSED.log(format_args!(
                    "a context of CUDA takes {context} MiB, which isn't left of this container's share of {share} MiB"
                ));
            },
        )
    }

    /// Nothing, of a primary context that is there.
    fn of_primary(device: CUdevice) -> Result<Self, CUresult> {
        let is_known = primary(device).is_some_and(|known| known.load(Ordering::Relaxed) != 0);
        if is_known { quota::claim_slot().map(|()| Self(None)) } else { Self::reserve(device) }
    }

    fn keep_primary(self, device: CUdevice, now: usize) {
        let Some(known) = primary(device) else { return };
        let before = known.swap(now, Ordering::Relaxed);
        if before != now {
            forget(before); // it ended unseen
            self.keep(now);
        }
    }

    fn keep(self, context: usize) {
        let Some(reserved) = self.0 else { return };
        let account = reserved.account();
        let card = reserved.card();
        let bytes = reserved.charge();
        account.add_context(bytes);
        let made = Resource { bytes, card, context, of: 0 };
        if let Ok(Some(gone)) = RESOURCES.put(Kind::Context, context as u64, made) {
            uncharge(gone); // it ended unseen
        }
    }
}

fn uncharge(context: Resource) {
    if let Ok(quota) = Quota::of_card(context.card) {
        quota.account.release(context.bytes);
        quota.account.remove_context(context.bytes);
    }
}

fn primary(device: CUdevice) -> Option<&'static AtomicUsize> {
    usize::try_from(device).ok().and_then(|device| PRIMARY.get(device))
}

fn forget_primary(device: CUdevice) {
    if let Some(known) = primary(device) {
        forget(known.swap(0, Ordering::Relaxed));
    }
    green::forget_all_of(device);
}

/// Releases all that ended with a context.
pub(super) fn forget(context: usize) {
    if context != 0 {
        let kinds = [Kind::Memory, Kind::Array, Kind::MipmappedArray];
        RESOURCES.take_all(&kinds, |resource| resource.context == context, release);
        RESOURCES.take_all(&[Kind::Import], |resource| resource.context == context, |_, open| imports::close(open));
        RESOURCES.take_all(&[Kind::Context], |resource| resource.context == context, |_, made| uncharge(made));
        graphs::forget_context(context);
        pools::synchronised();
    }
}

/// In a child that fork made: it has no context.
pub(super) fn forget_all() {
    for known in &PRIMARY {
        known.store(0, Ordering::Relaxed);
    }
    drop(STEP.reset());
}
