//! Pools: memory that is allocated and freed in the order of streams.
//!
//! A pool keeps what was freed for the next who wants it, so what it costs the card isn't what is allocated from it but what
//! it has reserved. That is what it is charged with, as the driver tells it, around everything that can change it.
//!
//! How much a pool will grow is the driver's secret. Mostly it doesn't: while what is allocated from it by our own count fits
//! in what it has, it is only looked at afterwards. Otherwise the driver is asked what is in use, and reserved is what the
//! growth comes to if it is by whole granules. If the pool then grew further than the limit allows, the allocation is given
//! back. For that moment the container has had more; what the pool then has beyond the limit is used for nothing.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::{
    CUcontext, CUdevice, CUdeviceptr, CUmemAllocationProp, CUmemoryPool, CUresult, CUstream, ERROR_NOT_FOUND,
    ERROR_OUT_OF_MEMORY, POOL_RESERVED, POOL_USED, STREAM_LEGACY, STREAM_PER_THREAD, SUCCESS,
};
use crate::lock::Lock;
use crate::table::cuda::{
    cuCtxGetCurrent, cuCtxGetDevice, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuDeviceGetCount,
    cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuMemFreeAsync, cuMemPoolGetAttribute, cuMemPoolTrimTo,
    cuStreamGetCtx, cuStreamGetDevice, cuStreamIsCapturing,
};

use super::held::{HELD, Kind, Thing};
use super::room::{Reserved, Room};

/// Pools of this process that are charged, and how many more there can be: a program that makes more is refused.
const POOLS: usize = 256;
/// What pools grow by.
const GRANULE: u64 = 2 << 20;

static KNOWN: Lock<[Pool; POOLS]> = Lock::new([Pool::NONE; POOLS]);
/// Whether there is any, for those who would otherwise look for nothing.
static ANY: AtomicBool = AtomicBool::new(false);

/// A pool, and what of the books is its.
#[derive(Clone, Copy)]
struct Pool {
    life: Life,
    handle: usize,
    card: usize,
    /// Bytes that it is charged with, and those of them that the limit had room for.
    charged: u64,
    granted: u64,
    /// Bytes that are allocated from it. By the driver's count it may be more, as it frees later than it is asked to.
    held: u64,
    /// Bytes that are being allocated from it just now, and by how much it is expected to grow for them.
    wanted: u64,
    growing: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    None,
    /// It is being made or ended, and the driver isn't to be asked about it.
    Unsure,
    Live,
    /// Of host memory, which costs the card nothing.
    Host,
    /// Gone but for what is still allocated from it, which is what it is charged with.
    Gone,
}

/// An allocation from a pool, while the driver is at it.
struct Attempt {
    room: Room,
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
    /// It is charged.
    Charged,
    /// The driver is to take it back: the pool grew further than the limit allows.
    TooMuch,
    /// The same, and with less of a guess there may be room.
    Misjudged,
}

// === impl Pool ===

impl Pool {
    const NONE: Self =
        Self { life: Life::None, handle: 0, card: 0, charged: 0, granted: 0, held: 0, wanted: 0, growing: 0 };

    /// Whether it is the living one with this handle.
    fn is(&self, handle: usize) -> bool {
        matches!(self.life, Life::Live | Life::Host) && self.handle == handle
    }

    /// What the driver says of it; 0 if it says nothing.
    fn attribute(&self, attribute: c_int) -> u64 {
        let mut value = 0_u64;
        if self.life == Life::Live {
            // SAFETY: it is the handle of a pool that lives; these attributes have 64 bits.
            unsafe { cuMemPoolGetAttribute(handle(self.handle), attribute, (&raw mut value).cast()) };
        }
        value
    }

    /// Charges it with what it has reserved now.
    fn settle(&mut self) {
        if self.life == Life::Live
            && let Ok(room) = Room::of_card(self.card)
        {
            let now = self.attribute(POOL_RESERVED);
            if now != self.charged {
                room.change(self.charged, now);
            }
            self.charged = now;
            self.granted = self.granted.min(now);
        }
    }

    /// Whether so many more bytes need nothing more of the card, by what is known without a question.
    fn has(&self, bytes: u64) -> bool {
        let used = self.held.saturating_add(self.wanted).saturating_add(bytes);
        used <= self.granted.saturating_add(self.growing)
    }

    /// By how much it would grow if so many more bytes were allocated from it.
    fn growth(&self, bytes: u64) -> u64 {
        let used = self.attribute(POOL_USED).saturating_add(self.wanted).saturating_add(bytes);
        let there = self.attribute(POOL_RESERVED).min(self.granted).saturating_add(self.growing);
        if used <= there { 0 } else { used.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX).saturating_sub(there) }
    }

    fn is_no_longer_wanted(&mut self, bytes: u64, growth: u64) {
        self.wanted = self.wanted.saturating_sub(bytes);
        self.growing = self.growing.saturating_sub(growth);
    }
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
        let reserved = Room::of_card(card).and_then(|room| Ok((room, room.reserve(growth)?)));
        match reserved {
            Ok((room, reserved)) => Ok(Self { room, pool, bytes, growth, is_sure, reserved }),
            Err(refused) => {
                with(pool, |pool| pool.is_no_longer_wanted(bytes, growth));
                Err(refused)
            }
        }
    }

    /// The driver has allocated an address, or nothing.
    fn end(self, given: Option<CUdeviceptr>) -> Ended {
        let Self { room, pool: number, bytes, growth, is_sure, reserved } = self;
        let ended = with(number, |pool| {
            pool.is_no_longer_wanted(bytes, growth);
            let before = pool.charged;
            pool.settle();
            drop(reserved);
            let grown = pool.charged.saturating_sub(before);
            if grown > growth && room.is_overdrawn() {
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
            let thing = Thing { bytes, card: room.card, context: 0, of: number as u64 + 1 };
            if let Ok(Some(gone)) = HELD.put(Kind::Memory, given, thing) {
                super::allocations::release(gone);
            }
            room.count();
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
            // SAFETY: the caller's promise.
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
    let card = location.device().map_or(Ok(0), |device| Room::of_device(device).map(|room| room.card));
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
            if let Ok(room) = Room::of_card(pool.card) {
                room.change(pool.charged, used);
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
        with(number, Pool::settle);
    }
    result
}

/// Something that was allocated from a pool is free.
pub(super) fn freed(thing: Thing) {
    let Some(number) = usize::try_from(thing.of).ok().and_then(|of| of.checked_sub(1)) else { return };
    with(number, |pool| match pool.life {
        Life::Gone => {
            let left = pool.charged.saturating_sub(thing.bytes);
            if let Ok(room) = Room::of_card(pool.card) {
                room.change(pool.charged, left);
            }
            *pool = if left == 0 { Pool::NONE } else { Pool { charged: left, ..*pool } };
        }
        // What it no longer needs it gives back when somebody waits for the card.
        _ => pool.held = pool.held.saturating_sub(thing.bytes),
    });
}

/// The program has waited for the card: pools may have given back what lay idle in them.
pub(crate) fn synchronised() {
    if ANY.load(Ordering::Relaxed) {
        KNOWN.lock().iter_mut().for_each(Pool::settle);
    }
}

/// Gives back what lies idle in the pools of a card.
pub(super) fn give_back(card: usize) {
    for pool in KNOWN.lock().iter_mut().filter(|pool| pool.life == Life::Live && pool.card == card) {
        let keep = pool.attribute(POOL_USED).saturating_add(pool.wanted);
        // SAFETY: it is the handle of a pool that lives.
        unsafe { cuMemPoolTrimTo(handle(pool.handle), keep as usize) };
        pool.settle();
    }
}

/// In a child that fork made.
pub(super) fn forget() {
    *KNOWN.reset() = [Pool::NONE; POOLS];
    ANY.store(false, Ordering::Relaxed);
}

/// Whether work in a stream is recorded instead of done.
///
/// # Safety
/// A stream, or one of the numbers that mean a default stream.
pub(super) unsafe fn is_captured<const PER_THREAD: bool>(stream: CUstream) -> bool {
    let stream = named::<PER_THREAD>(stream);
    if matches!(stream.addr(), 0 | STREAM_LEGACY) {
        return false; // the one stream that can't be
    }
    let mut status: c_int = 0;
    // SAFETY: a status is written to a status. If it can't be told, the driver will refuse the work.
    let result = unsafe { cuStreamIsCapturing(stream, &raw mut status) };
    result == SUCCESS && status != 0
}

/// Null means another stream to functions of the per-thread kind than to those that are asked about it.
fn named<const PER_THREAD: bool>(stream: CUstream) -> CUstream {
    if PER_THREAD && stream.is_null() { ptr::without_provenance_mut(STREAM_PER_THREAD) } else { stream }
}

/// The card of a stream.
///
/// # Safety
/// As [`is_captured`].
unsafe fn device_of<const PER_THREAD: bool>(stream: CUstream) -> Result<CUdevice, CUresult> {
    let mut device: CUdevice = 0;
    let checked = |result, device| if result == SUCCESS { Ok(device) } else { Err(result) };
    // SAFETY: devices and contexts are written to devices and contexts; the context is pushed and popped again.
    unsafe {
        if matches!(stream.addr(), 0 | STREAM_LEGACY | STREAM_PER_THREAD) {
            return checked(cuCtxGetDevice(&raw mut device), device);
        }
        match cuStreamGetDevice(stream, &raw mut device) {
            ERROR_NOT_FOUND => {} // before CUDA 12.8
            result => return checked(result, device),
        }
        let (mut context, mut current): (CUcontext, CUcontext) = (ptr::null_mut(), ptr::null_mut());
        checked(cuStreamGetCtx(named::<PER_THREAD>(stream), &raw mut context), 0)?;
        cuCtxGetCurrent(&raw mut current);
        if context == current {
            return checked(cuCtxGetDevice(&raw mut device), device);
        }
        checked(cuCtxPushCurrent_v2(context), 0)?;
        let result = cuCtxGetDevice(&raw mut device);
        cuCtxPopCurrent_v2(&raw mut current);
        checked(result, device)
    }
}

/// The card whose default pool this is.
fn owner_of(pool: CUmemoryPool) -> Option<CUdevice> {
    let (mut count, mut found): (c_int, CUmemoryPool) = (0, ptr::null_mut());
    // SAFETY: a number is written to a number.
    unsafe { cuDeviceGetCount(&raw mut count) };
    // SAFETY: a pool is written to a pool.
    (0..count).find(|device| unsafe { cuDeviceGetDefaultMemPool(&raw mut found, *device) } == SUCCESS && found == pool)
}

/// The number of a pool; `None` if it is the host's. One that wasn't made by this program's own doing, such as a default
/// one, is entered as of the card `device`.
fn find(pool: CUmemoryPool, device: CUdevice) -> Result<Option<usize>, CUresult> {
    let place =
        KNOWN.lock().iter().enumerate().find(|(_, known)| known.is(pool.addr())).map(|(at, known)| (at, known.life));
    if let Some((number, life)) = place {
        return Ok(Some(number).filter(|_| life != Life::Host));
    }
    let card = Room::of_device(device)?.card;
    enter(Pool { life: Life::Live, handle: pool.addr(), card, ..Pool::NONE }).map(Some)
}

/// The number of a pool that is known.
fn known(pool: CUmemoryPool) -> Option<usize> {
    KNOWN.lock().iter().position(|known| known.is(pool.addr()))
}

/// Gives a pool a number: that which it has, if another thread was faster.
fn enter(pool: Pool) -> Result<usize, CUresult> {
    let mut all = KNOWN.lock();
    ANY.store(true, Ordering::Relaxed);
    let there = all.iter().position(|known| known.is(pool.handle));
    let number = there.or_else(|| all.iter().position(|free| free.life == Life::None)).ok_or(ERROR_OUT_OF_MEMORY)?;
    if let Some(place) = all.get_mut(number).filter(|_| there.is_none()) {
        *place = pool;
    }
    Ok(number)
}

fn with<T>(number: usize, act: impl FnOnce(&mut Pool) -> T) -> Option<T> {
    KNOWN.lock().get_mut(number).map(act)
}

fn handle(address: usize) -> CUmemoryPool {
    ptr::with_exposed_provenance_mut(address)
}
