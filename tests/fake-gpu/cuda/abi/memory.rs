//! Device memory, managed memory, and that of other processes.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::CUipcMemHandle;

use super::types::Location;
use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::context::current;
use crate::driver::memory::{Block, HOST, Kind};
use crate::driver::{Device, Driver};

/// Rows of pitched memory begin at multiples of this.
const PITCH: usize = 512;

fn device_of(driver: &Driver) -> Result<&Device, Code> {
    Ok(&driver.devices[driver.current()?.device])
}

/// Moves managed memory to a card (`Some`), or to the host.
fn prefetch(driver: &mut Driver, address: u64, count: usize, to: Option<usize>) -> Result<(), Code> {
    let base = driver.memory.managed(address)?;
    driver.migrate(base, count as u64, to)
}

/// A card's ordinal, or the host's.
fn place(driver: &Driver, device: c_int) -> Result<Option<usize>, Code> {
    if device == HOST { Ok(None) } else { driver.device(device).map(|_| usize::try_from(device).ok()) }
}

/// `CUpointer_attribute`: the value of one, as wide as CUDA has it.
fn pointer_attribute(driver: &Driver, number: c_uint, address: u64) -> Result<(u64, usize), Code> {
    let mapped = driver.virtual_memory.mapping(address);
    let (base, block) = match (driver.memory.find(address), mapped) {
        (Some((base, block)), _) => (base, block.clone()),
        (None, Some((base, size, handle))) => {
            let device = driver.virtual_memory.physical.get(handle)?.device.unwrap_or(0);
            (base, Block { size, charged: 0, device, context: 0, kind: Kind::Device, id: 0 })
        }
        (None, None) => return Err(Code::INVALID_VALUE),
    };
    let host = matches!(block.kind, Kind::Host { .. } | Kind::Registered { .. });
    Ok(match number {
        1 => (block.context as u64, 8),
        2 => (if host { 1 } else { 2 }, 4),
        3 => (address, 8),
        4 if host || block.kind == Kind::Managed => (address, 8),
        7 => (block.id, 8),
        8 => (u64::from(block.kind == Kind::Managed), 1),
        9 => (block.device as u64, 4),
        10 => (u64::from(matches!(block.kind, Kind::Device | Kind::Ipc)), 4),
        11 => (base, 8),
        12 => (block.size, 8),
        13 => (1, 1),
        17 => (if let Kind::Pool { pool } = block.kind { pool as u64 } else { 0 }, 8),
        5 | 6 | 14..=16 | 18..=22 => (0, 4),
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// # Safety
/// `to` is null or valid for writes of the attribute's size.
unsafe fn write_attribute(to: *mut c_void, (value, size): (u64, usize)) -> Result<(), Code> {
    // SAFETY: the caller's.
    unsafe {
        match size {
            1 => write::value(to.cast(), value as u8),
            4 => write::value(to.cast(), value as u32),
            _ => write::value(to.cast(), value),
        }
    }
}

/// `CUmem_advise`: where a whole block belongs is remembered. Other advice changes nothing that programs could tell.
fn advise(me: Entry, address: u64, advice: c_uint, device: c_int) -> Result<(), Code> {
    let mut driver = me.driver()?;
    driver.memory.managed(address)?;
    match advice {
        3 => {
            place(&driver, device)?;
            driver.memory.prefer(address, Some(device))
        }
        4 => driver.memory.prefer(address, None),
        1 | 2 | 5 | 6 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// `CUmem_range_attribute`, those that are one number: of a whole block.
fn range_attribute(driver: &Driver, number: c_uint, address: u64) -> Result<c_int, Code> {
    /// `CU_DEVICE_INVALID`
    const NOWHERE: c_int = -2;
    let preferred = driver.memory.preferred(address)?;
    match number {
        1 => Ok(0),
        2 => Ok(preferred.unwrap_or(NOWHERE)),
        4 => Ok(NOWHERE),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// A location as an ordinal, as the first revisions of functions have it.
fn ordinal(location: Location) -> c_int {
    if location.kind == 1 { location.id } else { HOST }
}

functions! {
    // The first forms are of programs with 32-bit addresses, which ours have not.
    [2000 cuMemAlloc](address: *mut c_uint, _size: c_uint) = |me| {
        drop(me.driver()?);
        write::value(address, 0)?;
        Err(Code::OUT_OF_MEMORY)
    };
    [3020 cuMemAlloc_v2](address: *mut u64, size: usize) = |me| {
        let allocated = me.unsafe_driver()?.allocate(size as u64, Kind::Device)?;
        write::value(address, allocated)
    };
    [2000 cuMemFree](address: c_uint) = |me| {
        drop(me.driver()?);
        if address == 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }
    };
    [3020 cuMemFree_v2](address: u64) = |me| {
        let mut driver = me.unsafe_driver()?;
        if address == 0 {
            return Ok(());
        }
        match driver.memory.find(address) {
            Some((base, block)) if base == address => match block.kind {
                Kind::Device | Kind::Managed | Kind::Pool { .. } | Kind::Graph { .. } | Kind::External => {}
                _ => return Err(Code::INVALID_VALUE),
            },
            _ => return Err(Code::INVALID_VALUE),
        }
        driver.free_block(address)
    };
    [2000 cuMemAllocPitch](
        address: *mut c_uint, _pitch: *mut c_uint, _width: c_uint, _height: c_uint, _element: c_uint
    ) = |me| {
        drop(me.driver()?);
        write::value(address, 0)?;
        Err(Code::OUT_OF_MEMORY)
    };
    [3020 cuMemAllocPitch_v2](
        address: *mut u64, pitch: *mut usize, width: usize, height: usize, _element: c_uint
    ) = |me| {
        let row = width.checked_next_multiple_of(PITCH).ok_or(Code::INVALID_VALUE)?;
        let size = row.checked_mul(height).ok_or(Code::INVALID_VALUE)?;
        let allocated = me.unsafe_driver()?.allocate(size as u64, Kind::Device)?;
        write::value(pitch, row)?;
        write::value(address, allocated)
    };
    [6000 cuMemAllocManaged](address: *mut u64, size: usize, flags: c_uint) = |me| {
        let mut driver = me.unsafe_driver()?;
        if !(1..=4).contains(&flags) {
            return Err(Code::INVALID_VALUE);
        }
        let allocated = driver.allocate(size as u64, Kind::Managed)?;
        write::value(address, allocated)
    };
    [2000 cuMemGetInfo](free: *mut c_uint, total: *mut c_uint) = |me| {
        let driver = me.driver()?;
        let device = device_of(&driver)?;
        write::wanted(free, c_uint::try_from(device.free()).unwrap_or(c_uint::MAX));
        write::wanted(total, c_uint::try_from(device.card.memory_total).unwrap_or(c_uint::MAX));
        Ok(())
    };
    [3020 cuMemGetInfo_v2](free: *mut usize, total: *mut usize) = |me| {
        let driver = me.driver()?;
        let device = device_of(&driver)?;
        write::wanted(free, usize::try_from(device.free()).unwrap_or(usize::MAX));
        write::wanted(total, usize::try_from(device.card.memory_total).unwrap_or(usize::MAX));
        Ok(())
    };
    [3020 cuMemGetAddressRange_v2](base: *mut u64, size: *mut usize, address: u64) = |me| {
        let driver = me.driver()?;
        let (found, block) = driver.memory.find(address).ok_or(Code::NOT_FOUND)?;
        write::wanted(base, found);
        write::wanted(size, block.size as usize);
        Ok(())
    };
    [8000 cuMemAdvise](address: u64, _count: usize, advice: c_uint, device: c_int) = |me| {
        advise(me, address, advice, device)
    };
    [12020 cuMemAdvise_v2](address: u64, _count: usize, advice: c_uint, location: Location) = |me| {
        advise(me, address, advice, ordinal(location))
    };
    [8000 cuMemRangeGetAttribute](
        value: *mut c_void, size: usize, number: c_uint, address: u64, _count: usize
    ) = |me| {
        if size != size_of::<c_int>() {
            return Err(Code::INVALID_VALUE);
        }
        write::value(value.cast(), range_attribute(&*me.driver()?, number, address)?)
    };
    [8000 cuMemPrefetchAsync, 8000 cuMemPrefetchAsync_ptsz](
        address: u64, count: usize, device: c_int, stream: usize
    ) = |me| {
        let mut driver = me.driver()?;
        driver.stream(stream, me.per_thread)?;
        let to = place(&driver, device)?;
        prefetch(&mut driver, address, count, to)
    };
    [12020 cuMemPrefetchAsync_v2, 12020 cuMemPrefetchAsync_v2_ptsz](
        address: u64, count: usize, location: Location, _flags: c_uint, stream: usize
    ) = |me| {
        let mut driver = me.driver()?;
        driver.stream(stream, me.per_thread)?;
        let to = place(&driver, ordinal(location))?;
        prefetch(&mut driver, address, count, to)
    };
    [4000 cuPointerGetAttribute](value: *mut c_void, number: c_uint, address: u64) = |me| {
        let found = pointer_attribute(&*me.driver()?, number, address)?;
        write_attribute(value, found)
    };
    [7000 cuPointerGetAttributes](
        count: c_uint, numbers: *mut c_uint, values: *mut *mut c_void, address: u64
    ) = |me| {
        let driver = me.driver()?;
        let numbers = write::list(numbers.cast_const(), count as usize)?;
        for (number, value) in numbers.into_iter().zip(write::list(values.cast_const(), count as usize)?) {
            // An address of nobody's has no attributes, which is no error here.
            let size = pointer_attribute(&driver, number, address).unwrap_or((0, 4));
            write_attribute(value, size)?;
        }
        Ok(())
    };
    [6000 cuPointerSetAttribute](value: *const c_void, _number: c_uint, address: u64) = |me| {
        let driver = me.driver()?;
        let known = driver.memory.find(address).filter(|_| !value.is_null());
        known.map(drop).ok_or(Code::INVALID_VALUE)
    };
    [4010 cuIpcGetMemHandle](handle: *mut CUipcMemHandle, address: u64) = |me| {
        let words = me.unsafe_driver()?.export_block(address)?;
        write::value(handle.cast(), words)
    };
    [4010 cuIpcOpenMemHandle, 11000 cuIpcOpenMemHandle_v2](
        address: *mut u64, handle: CUipcMemHandle, flags: c_uint
    ) = |me| {
        if flags != 1 {
            return Err(Code::INVALID_VALUE);
        }
        let mut driver = me.unsafe_driver()?;
        driver.current()?;
        write::value(address, driver.import_block((&raw const handle).cast::<[u64; 8]>().read_unaligned())?)
    };
    [4010 cuIpcCloseMemHandle](address: u64) = |me| {
        let mut driver = me.unsafe_driver()?;
        let found = driver.memory.find(address).filter(|(_, block)| block.kind == Kind::Ipc);
        let base = found.ok_or(Code::INVALID_VALUE)?.0;
        driver.free_block(base)
    };
    // Memory of another API is as big as is said, and the API's.
    [10000 cuImportExternalMemory](memory: *mut usize, description: *const c_void) = |me| {
        let mut driver = me.driver()?;
        driver.current()?;
        if description.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let loaded = driver.load(current(), false);
        write::value(memory, loaded)
    };
    // The description begins with offset and size.
    [10000 cuExternalMemoryGetMappedBuffer](
        address: *mut u64, memory: usize, description: *const [u64; 2]
    ) = |me| {
        let mut driver = me.driver()?;
        driver.modules.get(memory)?;
        let [_offset, size] = write::read(description)?;
        let mapped = driver.allocate(size, Kind::External)?;
        write::value(address, mapped)
    };
    [10000 cuDestroyExternalMemory](memory: usize) = |me| me.driver()?.unload(memory);
}
