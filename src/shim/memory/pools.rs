//! Pools: memory that is allocated and freed in the order of streams.
//!
//! A pool keeps what was freed for the next who wants it, so what it costs the card isn't what is allocated from it but what
//! it has reserved. That is what it is charged with, as the driver tells it, around everything that can change it.
//!
//! How much a pool will grow is the driver's secret. Mostly it doesn't: while what is allocated from it by our own count fits
//! in what it has, it is only looked at afterwards. Otherwise the driver is asked what is in use, and reserved is what the
//! growth comes to if it is by whole granules. If the pool then grew further than the limit allows, the allocation is given
//! back. For that moment the container has had more; what the pool then has beyond the limit is used for nothing.

mod pool;

use core::ffi::c_int;
use core::ptr;

use crate::cuda::{
    CUdevice, CUdeviceptr, CUmemAllocationProp, CUmemLocation, CUmemoryPool, CUresult, CUstream, ERROR_OUT_OF_MEMORY,
    POOL_USED, SUCCESS,
};
use crate::driver::cuda::{
    cuDeviceGetCount, cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuMemFreeAsync, cuMemPoolTrimTo,
};

pub(super) use self::pool::forget_all as forget;
use self::pool::{Life, Pool, enter, find, handle, known, with};
use super::quota::{Quota, Reserved};
use super::resources::{Kind, RESOURCES, Resource};
use super::streams::{device_of, is_captured};

/// An allocation from a pool, while the driver is at it.
struct Attempt {
    quota: Quota,
    pool: usize,
    bytes: u64,
    growth: u64,
    /// Whether the driver was asked what the pool has left.
    is_sure: bool,
    reserved: Reserved,
}

/// What became of one.
#[derive(PartialEq, Eq)]
enum Ended {
    /// A growth that is charged.
    Charged,
    /// The driver is to take it back: the pool grew further than the limit allows.
    TooMuch,
    /// Reconciles, after which there may be room.
    Misjudged,
}

// === impl Attempt ===

impl Attempt {
    /// Reserves what the pool will grow by.
    fn begin(pool: usize, bytes: u64, must_be_sure: bool) -> Result<Self, CUresult> {
        let (card, is_sure, growth) = with(pool, |pool| {
            let is_sure = must_be_sure || !pool.has(bytes);
            let growth = if is_sure { pool.growth(bytes) } else { 0 };
            pool.wanted = pool.wanted.saturating_add(bytes);
            pool.growing = pool.growing.saturating_add(growth);
            (pool.card, is_sure, growth)
        })
        .ok_or(ERROR_OUT_OF_MEMORY)?;
        let reserved = Quota::of_card(card).and_then(|quota| Ok((quota, quota.reserve(growth)?)));
        match reserved {
            Ok((quota, reserved)) => Ok(Self { quota, pool, bytes, growth, is_sure, reserved }),
            Err(refused) => {
                with(pool, |pool| pool.is_no_longer_wanted(bytes, growth));
                Err(refused)
            }
        }
    }

    /// The driver has allocated an address, or nothing.
    fn end(self, given: Option<CUdeviceptr>) -> Ended {
        let Self { quota, pool: number, bytes, growth, is_sure, reserved } = self;
        let ended = with(number, |pool| {
            pool.is_no_longer_wanted(bytes, growth);
            let before = pool.charged;
            pool.reconcile();
            drop(reserved);
            let grown = pool.charged.saturating_sub(before);
            if grown > growth && quota.is_overdrawn() {
                return if is_sure { Ended::TooMuch } else { Ended::Misjudged };
            }
            if grown > 0 {
                pool.granted = pool.charged;
            }
            if given.is_some() {
                pool.held = pool.held.saturating_add(bytes);
            }
            Ended::Charged
        });
        let ended = ended.unwrap_or(Ended::TooMuch);
        if let Some(given) = given.filter(|_| ended == Ended::Charged) {
            let resource = Resource { bytes, card: quota.card, context: 0, of: number as u64 + 1 };
            if let Ok(Some(gone)) = RESOURCES.put(Kind::Memory, given, resource) {
                super::allocations::release(given, gone);
            }
            quota.count();
        }
        ended
    }
}

/// `cuMemAllocAsync`: from the pool that its card has at the moment.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn allocate<const PER_THREAD: bool>(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize, CUstream) -> CUresult,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's stream.
    if address.is_null() || unsafe { is_captured::<PER_THREAD>(stream) } {
        // SAFETY: the caller's arguments as they came.
        return unsafe { real(address, bytes, stream) };
    }
    let mut pool: CUmemoryPool = ptr::null_mut();
    // SAFETY: a pool is written to a pool; the caller's stream.
    let found = unsafe {
        device_of::<PER_THREAD>(stream).and_then(|device| match cuDeviceGetMemPool(&raw mut pool, device) {
            SUCCESS => find(pool, device),
            error => Err(error),
        })
    };
    // SAFETY: the caller's arguments, but for where the address goes first.
    unsafe { allocate_from_pool(found, address, bytes, stream, |address| real(address, bytes, stream)) }
}

/// `cuMemAllocFromPoolAsync`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn allocate_from<const PER_THREAD: bool>(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream) -> CUresult,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's stream.
    if address.is_null() || unsafe { is_captured::<PER_THREAD>(stream) } {
        // SAFETY: the caller's arguments as they came.
        return unsafe { real(address, bytes, pool, stream) };
    }
    // SAFETY: the caller's stream and pool.
    let found =
        unsafe { device_of::<PER_THREAD>(stream).and_then(|device| find(pool, owner_of(pool).unwrap_or(device))) };
    // SAFETY: the caller's arguments, but for where the address goes first.
    unsafe { allocate_from_pool(found, address, bytes, stream, |address| real(address, bytes, pool, stream)) }
}

/// # Safety
/// `address` is valid for a write, and `ask` writes an address where it is told to if it succeeds.
unsafe fn allocate_from_pool(
    pool: Result<Option<usize>, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    ask: impl Fn(*mut CUdeviceptr) -> CUresult,
) -> CUresult {
    let pool = match pool {
        Ok(Some(pool)) => pool,
        Ok(None) => return ask(address), // of the host
        Err(refused) => return refused,
    };
    for must_be_sure in [false, true] {
        let attempt = match Attempt::begin(pool, bytes as u64, must_be_sure) {
            Ok(attempt) => attempt,
            Err(refused) => return refused,
        };
        let mut given = 0;
        let result = ask(&raw mut given);
        let ended = attempt.end((result == SUCCESS).then_some(given));
        if result == SUCCESS && ended == Ended::Charged {
            // SAFETY: the caller's guarantee.
            unsafe { *address = given };
        }
        if result != SUCCESS || ended == Ended::Charged {
            return result;
        }
        // SAFETY: it was allocated in this stream just now, and nobody knows of it.
        unsafe { cuMemFreeAsync(given, stream) };
        if ended == Ended::TooMuch {
            break;
        }
    }
    ERROR_OUT_OF_MEMORY
}

/// `cuMemPoolCreate`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn create(
    real: unsafe extern "C" fn(*mut CUmemoryPool, *const CUmemAllocationProp) -> CUresult,
    pool: *mut CUmemoryPool,
    properties: *const CUmemAllocationProp,
) -> CUresult {
    // SAFETY: a program gives properties, which begin so, or null.
    let Some(location) = unsafe { properties.as_ref() }.map(|properties| properties.location) else {
        // SAFETY: the caller's arguments as they came.
        return unsafe { real(pool, properties) };
    };
    let life = if location.device().is_some() { Life::Live } else { Life::Host };
    let card = location.device().map_or(Ok(0), |device| Quota::of_device(device).map(|quota| quota.card));
    let number = match card.and_then(|card| enter(Pool { life: Life::Unsure, card, ..Pool::NONE })) {
        Ok(number) => number,
        Err(refused) => return refused,
    };
    let mut made: CUmemoryPool = ptr::null_mut();
    // SAFETY: the caller's arguments, but for where the pool goes first.
    let result = unsafe { real(if pool.is_null() { pool } else { &raw mut made }, properties) };
    if result != SUCCESS {
        with(number, |pool| *pool = Pool::NONE);
        return result;
    }
    with(number, |pool| (pool.life, pool.handle) = (life, made.addr()));
    // SAFETY: the driver would have written there, so it isn't null.
    unsafe { *pool = made };
    result
}

/// `cuMemGetDefaultMemPool` and `cuMemGetMemPool`: pools of the host are made known, as what isn't is taken for a card's.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn of_location(
    real: unsafe extern "C" fn(*mut CUmemoryPool, *mut CUmemLocation, c_int) -> CUresult,
    pool: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: c_int,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(pool, location, kind) };
    // SAFETY: the driver has read the one and written the other, or they are null.
    if let (SUCCESS, Some(pool), Some(location)) = (result, unsafe { pool.as_ref() }, unsafe { location.as_ref() })
        && location.device().is_none()
        && known(*pool).is_none()
    {
        let _full = enter(Pool { life: Life::Host, handle: pool.addr(), ..Pool::NONE });
    }
    result
}

/// `cuMemPoolDestroy`: what is still allocated from it stays, and is charged.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(CUmemoryPool) -> CUresult, pool: CUmemoryPool) -> CUresult {
    let number = known(pool);
    let before = number.and_then(|number| {
        with(number, |pool| {
            let used = pool.attribute(POOL_USED);
            (core::mem::replace(&mut pool.life, Life::Unsure), used)
        })
    });
    // SAFETY: the caller's argument as it came.
    let result = unsafe { real(pool) };
    if let (Some(number), Some((life, used))) = (number, before) {
        with(number, |pool| {
            if result != SUCCESS {
                pool.life = life;
                return;
            }
            if let Ok(quota) = Quota::of_card(pool.card) {
                quota.change(pool.charged, used);
            }
            *pool = Pool { life: if used > 0 { Life::Gone } else { Life::None }, handle: 0, charged: used, ..*pool };
        });
    }
    result
}

/// `cuMemPoolTrimTo`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn trim(
    real: unsafe extern "C" fn(CUmemoryPool, usize) -> CUresult,
    pool: CUmemoryPool,
    keep: usize,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    let result = unsafe { real(pool, keep) };
    if let Some(number) = known(pool) {
        with(number, Pool::reconcile);
    }
    result
}

/// Something that was allocated from a pool is free.
pub(super) fn freed(resource: Resource) {
    let Some(number) = usize::try_from(resource.of).ok().and_then(|of| of.checked_sub(1)) else { return };
    with(number, |pool| match pool.life {
        Life::Gone => {
            let left = pool.charged.saturating_sub(resource.bytes);
            if let Ok(quota) = Quota::of_card(pool.card) {
                quota.change(pool.charged, left);
            }
            *pool = if left == 0 { Pool::NONE } else { Pool { charged: left, ..*pool } };
        }
        // What it no longer needs it gives back when somebody waits for the card.
        _ => pool.held = pool.held.saturating_sub(resource.bytes),
    });
}

/// The program has waited for the card: pools may have given back what lay idle in them.
pub(crate) fn synchronised() {
    if let Some(mut pools) = pool::all() {
        pools.iter_mut().for_each(Pool::reconcile);
    }
}

/// Gives back what lies idle in the pools of a card.
pub(super) fn give_back(card: usize) {
    let Some(mut pools) = pool::all() else { return };
    for pool in pools.iter_mut().filter(|pool| pool.life == Life::Live && pool.card == card) {
        let keep = pool.attribute(POOL_USED).saturating_add(pool.wanted);
        // SAFETY: it is the handle of a pool that lives.
        unsafe { cuMemPoolTrimTo(handle(pool.handle), keep as usize) };
        pool.reconcile();
    }
}

/// The card whose default pool this is.
fn owner_of(pool: CUmemoryPool) -> Option<CUdevice> {
    let mut count: c_int = 0;
    let mut found: CUmemoryPool = ptr::null_mut();
    // SAFETY: a number is written to a number.
    unsafe { cuDeviceGetCount(&raw mut count) };
    // SAFETY: a pool is written to a pool.
    (0..count).find(|device| unsafe { cuDeviceGetDefaultMemPool(&raw mut found, *device) } == SUCCESS && found == pool)
}
