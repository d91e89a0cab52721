//! Pools, and allocation in the order of streams.

use std::ffi::{c_int, c_uint, c_void};

use super::types::{Access, Location, PoolProperties};
use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::Driver;
use crate::driver::capture::Target;
use crate::driver::graph::NodeKind;
use crate::driver::memory::Kind;
use crate::driver::pool::Pool;

/// # Safety
/// `address` is null or valid for writes.
unsafe fn allocate(me: Entry, address: *mut u64, size: usize, pool: Option<usize>, stream: usize) -> Result<(), Code> {
    let mut driver = me.driver()?;
    let stream = driver.stream(stream, me.per_thread)?;
    let device = driver.streams.get(stream)?.device;
    let allocated = match driver.target(stream)? {
        Target::Live => {
            let pool = pool.unwrap_or(driver.devices[device].pool);
            driver.allocate_from(pool, size as u64)?
        }
        Target::Captured(id) => {
            let graph = driver.captures.get(&id).ok_or(Code::ILLEGAL_STATE)?.graph;
            let frontier = driver.streams.get(stream)?.frontier.clone();
            let (node, allocated) = driver.add_allocation(graph, frontier, (device, size as u64))?;
            driver.streams.get_mut(stream)?.frontier = vec![node];
            allocated
        }
    };
    // SAFETY: the caller's.
    unsafe { write::value(address, allocated) }
}

/// `CUmemPool_attribute`s that are 64 bits wide.
fn wide(driver: &Driver, pool: usize, number: c_uint) -> Result<Option<u64>, Code> {
    let pool = driver.pools.get(pool).map_err(|_unknown| Code::INVALID_VALUE)?;
    Ok(match number {
        1..=3 => None,
        4 => Some(pool.threshold),
        5 => Some(pool.reserved),
        6 => Some(pool.reserved_high),
        7 => Some(pool.used),
        8 => Some(pool.used_high),
        _ => return Err(Code::INVALID_VALUE),
    })
}

functions! {
    [11020 cuMemAllocAsync, 11020 cuMemAllocAsync_ptsz](address: *mut u64, size: usize, stream: usize) = |me| {
        allocate(me, address, size, None, stream)
    };
    [11020 cuMemAllocFromPoolAsync, 11020 cuMemAllocFromPoolAsync_ptsz](
        address: *mut u64, size: usize, pool: usize, stream: usize
    ) = |me| allocate(me, address, size, Some(pool), stream);
    // What comes later in the stream may reuse the memory at once, so the pool has it back now.
    [11020 cuMemFreeAsync, 11020 cuMemFreeAsync_ptsz](address: u64, stream: usize) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        if let Target::Captured(id) = driver.target(stream)? {
            return driver.capture(id, stream, NodeKind::Free { address }).map(|_node| ());
        }
        match driver.memory.find(address) {
            Some((base, block)) if base == address => match block.kind {
                Kind::Pool { .. } | Kind::Graph { .. } | Kind::Device => driver.free_block(address),
                _ => Err(Code::INVALID_VALUE),
            },
            _ => Err(Code::INVALID_VALUE),
        }
    };
    [11020 cuMemPoolCreate](pool: *mut usize, properties: *const PoolProperties) = |me| {
        let mut driver = me.driver()?;
        let properties = write::read(properties)?;
        let device = match properties.location.kind {
            1 => properties.location.id,
            2..=4 => 0,
            _ => return Err(Code::INVALID_VALUE),
        };
        driver.device(device)?;
        let device = usize::try_from(device).map_err(|_negative| Code::INVALID_DEVICE)?;
        let on_host = properties.location.kind != 1;
        let made = driver.pools.add(Pool { on_host, most: properties.most as u64, ..Pool::new(device) });
        write::value(pool, made)
    };
    [11020 cuMemPoolDestroy](pool: usize) = |me| me.driver()?.destroy_pool(pool);
    [11020 cuMemPoolTrimTo](pool: usize, keep: usize) = |me| me.driver()?.trim(pool, keep as u64);
    [11020 cuMemPoolGetAttribute](pool: usize, number: c_uint, value: *mut c_void) = |me| {
        let driver = me.driver()?;
        match wide(&driver, pool, number)? {
            Some(wide) => write::value(value.cast(), wide),
            None => write::value(value.cast(), driver.pools.get(pool)?.reuse[number as usize - 1]),
        }
    };
    [11020 cuMemPoolSetAttribute](pool: usize, number: c_uint, value: *mut c_void) = |me| {
        let mut driver = me.driver()?;
        let is_wide = wide(&driver, pool, number)?.is_some();
        let state = driver.pools.get_mut(pool)?;
        if !is_wide {
            state.reuse[number as usize - 1] = write::read(value.cast_const().cast::<c_int>())?;
            return Ok(());
        }
        match (number, write::read(value.cast_const().cast::<u64>())?) {
            (4, threshold) => state.threshold = threshold,
            (6, 0) => state.reserved_high = state.reserved,
            (8, 0) => state.used_high = state.used,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    };
    [11020 cuMemPoolSetAccess](pool: usize, access: *const Access, count: usize) = |me| {
        me.driver()?.pools.get(pool).map_err(|_unknown| Code::INVALID_VALUE)?;
        write::list(access, count).map(drop)
    };
    [11020 cuMemPoolGetAccess](flags: *mut c_uint, pool: usize, _location: *mut Location) = |me| {
        me.driver()?.pools.get(pool).map_err(|_unknown| Code::INVALID_VALUE)?;
        write::value(flags, 3)
    };
    [13000 cuMemGetDefaultMemPool](pool: *mut usize, location: *mut Location, _kind: c_uint) = |me| {
        let (mut driver, location) = (me.driver()?, write::read(location.cast_const())?);
        let found = if location.kind == 1 { driver.device(location.id)?.default_pool } else { driver.host_pool() };
        write::value(pool, found)
    };
    [13000 cuMemGetMemPool](pool: *mut usize, location: *mut Location, _kind: c_uint) = |me| {
        let (mut driver, location) = (me.driver()?, write::read(location.cast_const())?);
        let found = if location.kind == 1 { driver.device(location.id)?.pool } else { driver.host_pool() };
        write::value(pool, found)
    };
    [13000 cuMemSetMemPool](location: *mut Location, _kind: c_uint, pool: usize) = |me| {
        let mut driver = me.driver()?;
        driver.pools.get(pool).map_err(|_unknown| Code::INVALID_VALUE)?;
        let location = write::read(location.cast_const())?;
        driver.device_mut(location.id)?.pool = pool;
        Ok(())
    };
}
