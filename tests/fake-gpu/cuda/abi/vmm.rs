//! Virtual memory management.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd as _, IntoRawFd as _};

use super::types::{Access, AllocationProperties, Location};
use super::{functions, write};
use crate::codes::Code;
use crate::driver::Driver;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: c_uint = 1;

/// The card that a location means; `None`: the host.
fn device(driver: &Driver, location: Location) -> Result<Option<usize>, Code> {
    match location.kind {
        1 => driver.device(location.id).map(|_| usize::try_from(location.id).ok()),
        2..=4 => Ok(None),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// A descriptor that says whose card the memory is on, how much it is, and its properties.
fn export(driver: &mut Driver, handle: usize) -> Result<c_int, Code> {
    let physical = driver.physical(handle)?;
    let (device, size, properties) = (physical.device, physical.size, physical.properties);
    let card = device.map_or("host", |device| driver.devices[device].card.uuid.as_str());
    let [kind, types, location, _] = properties;
    // SAFETY: the name is a C string.
    let descriptor = unsafe { libc::memfd_create(c"fake-cuda".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Code::OPERATING_SYSTEM);
    }
    // SAFETY: the descriptor is new and nobody else's.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    write!(file, "{card} {size} {kind} {types} {location}").map_err(|_io| Code::OPERATING_SYSTEM)?;
    Ok(file.into_raw_fd())
}

fn import(driver: &mut Driver, descriptor: c_int) -> Result<usize, Code> {
    // SAFETY: the program says that this is a descriptor; if it isn't, reading fails. It stays the program's.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(|_io| Code::INVALID_VALUE)?;
    let words: Vec<&str> = text.split(' ').collect();
    let [card, size, kind, types, location] = words[..] else { return Err(Code::INVALID_VALUE) };
    let number = |word: &str| word.parse::<u32>().map_err(|_text| Code::INVALID_VALUE);
    let device = match card {
        "host" => None,
        card => {
            let known = driver.devices.iter().position(|device| device.card.uuid == card);
            Some(known.ok_or(Code::INVALID_DEVICE)?)
        }
    };
    let ordinal = u32::try_from(device.unwrap_or(0)).unwrap_or(0);
    let properties = [number(kind)?, number(types)?, number(location)?, ordinal];
    driver.create_physical(device, size.parse().map_err(|_text| Code::INVALID_VALUE)?, properties, true)
}

functions! {
    [10020 cuMemGetAllocationGranularity](
        granularity: *mut usize, properties: *const AllocationProperties, _which: c_uint
    ) = |me| {
        let driver = me.driver()?;
        device(&driver, write::read(properties)?.location)?;
        write::value(granularity, driver.machine.granularity as usize)
    };
    [10020 cuMemAddressReserve](
        address: *mut u64, size: usize, alignment: usize, wanted: u64, flags: c_ulonglong
    ) = |me| {
        let mut driver = me.driver()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        write::value(address, driver.reserve_addresses(size as u64, alignment as u64, wanted)?)
    };
    [10020 cuMemAddressFree](address: u64, size: usize) = |me| me.driver()?.free_addresses(address, size as u64);
    [10020 cuMemCreate](
        handle: *mut c_ulonglong, size: usize, properties: *const AllocationProperties, flags: c_ulonglong
    ) = |me| {
        let mut driver = me.driver()?;
        let properties = write::read(properties)?;
        if flags != 0 || properties.kind != 1 {
            return Err(Code::INVALID_VALUE);
        }
        let device = device(&driver, properties.location)?;
        let location = properties.location;
        let kept = [properties.kind, properties.handle_types, location.kind, location.id.cast_unsigned()];
        let made = driver.create_physical(device, size as u64, kept, false)?;
        write::value(handle, made as u64)
    };
    [10020 cuMemRelease](handle: c_ulonglong) = |me| me.driver()?.release_physical(handle as usize);
    [10020 cuMemMap](
        address: u64, size: usize, offset: usize, handle: c_ulonglong, flags: c_ulonglong
    ) = |me| {
        let mut driver = me.driver()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        driver.map_physical(address, size as u64, offset as u64, handle as usize)
    };
    [10020 cuMemUnmap](address: u64, size: usize) = |me| me.driver()?.unmap(address, size as u64);
    [10020 cuMemSetAccess](address: u64, size: usize, access: *const Access, count: usize) = |me| {
        let mut driver = me.driver()?;
        let accessible = write::list(access, count)?.iter().any(|access| access.flags != 0);
        driver.set_access(address, size as u64, accessible)
    };
    [10020 cuMemGetAccess](flags: *mut c_ulonglong, location: *const Location, address: u64) = |me| {
        let driver = me.driver()?;
        device(&driver, write::read(location)?)?;
        driver.virtual_memory.mapping(address).ok_or(Code::INVALID_VALUE)?;
        let accessible = driver.virtual_memory.is_mapped(address..address + 1);
        write::value(flags, if accessible { 3 } else { 0 })
    };
    [11000 cuMemRetainAllocationHandle](handle: *mut c_ulonglong, address: *mut c_void) = |me| {
        let retained = me.driver()?.retain_physical(address.expose_provenance() as u64)?;
        write::value(handle, retained as u64)
    };
    [10020 cuMemGetAllocationPropertiesFromHandle](
        properties: *mut AllocationProperties, handle: c_ulonglong
    ) = |me| {
        let [kind, handle_types, location, id] = me.driver()?.physical(handle as usize)?.properties;
        let location = Location { kind: location, id: id.cast_signed() };
        write::value(properties, AllocationProperties { kind, handle_types, location, win32: 0, flags: [0; 8] })
    };
    [10020 cuMemExportToShareableHandle](
        shared: *mut c_void, handle: c_ulonglong, kind: c_uint, _flags: c_ulonglong
    ) = |me| {
        let mut driver = me.driver()?;
        if kind != DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        if driver.physical(handle as usize)?.properties[1] & DESCRIPTOR == 0 {
            return Err(Code::INVALID_VALUE);
        }
        write::value(shared.cast::<c_int>(), export(&mut driver, handle as usize)?)
    };
    [10020 cuMemImportFromShareableHandle](handle: *mut c_ulonglong, shared: *mut c_void, kind: c_uint) = |me| {
        let mut driver = me.driver()?;
        if kind != DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        // The descriptor itself is where a pointer would be.
        let descriptor = c_int::try_from(shared.addr()).map_err(|_pointer| Code::INVALID_VALUE)?;
        let imported = import(&mut driver, descriptor)?;
        write::value(handle, imported as u64)
    };
}
