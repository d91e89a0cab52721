//! Host memory that the card can reach.

use std::ffi::{c_uint, c_void};

use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::Driver;
use crate::driver::context::current;
use crate::driver::memory::space::map_host;
use crate::driver::memory::{Block, Kind};

/// # Safety
/// `address` is null or valid for writes.
unsafe fn allocate(me: Entry, address: *mut *mut c_void, size: usize, flags: c_uint) -> Result<(), Code> {
    let mut driver = me.unsafe_driver()?;
    let device = driver.current()?.device;
    if size == 0 || flags > 7 {
        return Err(Code::INVALID_VALUE);
    }
    let base = map_host(size as u64).map_err(|_refused| Code::OUT_OF_MEMORY)?;
    add(&mut driver, base, (size, device), Kind::Host { flags });
    // SAFETY: the caller's.
    unsafe { write::value(address, std::ptr::with_exposed_provenance_mut(base as usize)) }
}

fn add(driver: &mut Driver, base: u64, (size, device): (usize, usize), kind: Kind) {
    let id = driver.id();
    driver.memory.insert(base, Block { size: size as u64, charged: 0, device, context: current(), kind, id });
}

/// The flags of the memory that an address lies in.
fn flags_of(driver: &Driver, address: *mut c_void) -> Result<c_uint, Code> {
    match driver.memory.find(address.expose_provenance() as u64) {
        Some((_, Block { kind: Kind::Host { flags } | Kind::Registered { flags }, .. })) => Ok(*flags),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Frees what begins at an address, if it is of that kind.
fn free(driver: &mut Driver, address: *mut c_void, of_kind: fn(&Kind) -> bool, otherwise: Code) -> Result<(), Code> {
    let address = address.expose_provenance() as u64;
    let found = driver.memory.find(address).filter(|(base, block)| *base == address && of_kind(&block.kind));
    found.map(drop).ok_or(otherwise)?;
    driver.free_block(address)
}

functions! {
    [2000 cuMemAllocHost, 3020 cuMemAllocHost_v2](address: *mut *mut c_void, size: usize) = |me| {
        allocate(me, address, size, 0)
    };
    [2020 cuMemHostAlloc](address: *mut *mut c_void, size: usize, flags: c_uint) = |me| {
        allocate(me, address, size, flags)
    };
    [2000 cuMemFreeHost](address: *mut c_void) = |me| {
        let mut driver = me.unsafe_driver()?;
        free(&mut driver, address, |kind| matches!(kind, Kind::Host { .. }), Code::INVALID_VALUE)
    };
    [4000 cuMemHostRegister, 6050 cuMemHostRegister_v2](address: *mut c_void, size: usize, flags: c_uint) = |me| {
        let mut driver = me.unsafe_driver()?;
        let device = driver.current()?.device;
        let base = address.expose_provenance() as u64;
        if base == 0 || size == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if driver.memory.find(base).is_some() {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        add(&mut driver, base, (size, device), Kind::Registered { flags });
        Ok(())
    };
    [4000 cuMemHostUnregister](address: *mut c_void) = |me| {
        let mut driver = me.unsafe_driver()?;
        let of_kind = |kind: &Kind| matches!(kind, Kind::Registered { .. });
        free(&mut driver, address, of_kind, Code::HOST_MEMORY_NOT_REGISTERED)
    };
    [3020 cuMemHostGetDevicePointer_v2](device: *mut u64, address: *mut c_void, _flags: c_uint) = |me| {
        flags_of(&*me.driver()?, address)?;
        write::value(device, address.expose_provenance() as u64)
    };
    [2030 cuMemHostGetFlags](flags: *mut c_uint, address: *mut c_void) = |me| {
        write::value(flags, flags_of(&*me.driver()?, address)?)
    };
}
