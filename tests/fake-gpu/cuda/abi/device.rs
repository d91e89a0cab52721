//! Cards.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{functions, write};
use crate::codes::Code;
use crate::driver::Driver;

/// `CUdevice_attribute`: what every card of ours answers. The rest is 0.
const ATTRIBUTES: &[(c_uint, c_int)] = &[
    (1, 1024), // threads per block
    (2, 1024), // block x, y, z
    (3, 1024),
    (4, 64),
    (5, c_int::MAX), // grid x, y, z
    (6, 65_535),
    (7, 65_535),
    (8, 48 << 10),    // shared memory per block
    (9, 64 << 10),    // constant memory
    (10, 32),         // warp
    (11, c_int::MAX), // pitch
    (12, 65_536),     // registers per block
    (13, 1_980_000),  // kHz
    (14, 512),        // texture alignment
    (15, 1),          // overlap
    (19, 1),          // maps host memory
    (31, 1),          // concurrent kernels
    (32, 1),          // ECC
    (36, 3_201_000),  // memory kHz
    (37, 6144),       // memory bus width
    (38, 60 << 20),   // L2
    (39, 2048),       // threads per multiprocessor
    (40, 3),          // copy engines
    (41, 1),          // unified addressing
    (78, 1),          // stream priorities
    (79, 1),
    (80, 1),
    (81, 228 << 10), // shared memory per multiprocessor
    (82, 65_536),    // registers per multiprocessor
    (83, 1),         // managed memory
    (88, 1),         // pageable memory access
    (90, 1),         // compute preemption
    (91, 1),         // host pointers for registered memory
    (95, 1),         // cooperative launch
    (97, 227 << 10), // shared memory per block, opted in
    (102, 1),        // virtual memory management
    (103, 1),        // its handles are file descriptors
    (106, 32),       // blocks per multiprocessor
    (111, 1 << 10),  // reserved shared memory per block
    (115, 1),        // memory pools
    (119, 1),        // IPC of pools by file descriptors
    (120, 1),        // clusters
];

/// `CU_DEVICE_ATTRIBUTE_…` that depend on the card.
fn attribute(driver: &Driver, attribute: c_uint, device: c_int) -> Result<c_int, Code> {
    const LAST: c_uint = 160;
    let card = driver.device(device)?.card;
    let pci = |part: usize| {
        let parts: Vec<&str> = card.pci_bus_id.split([':', '.']).collect();
        parts.get(part).and_then(|digits| c_int::from_str_radix(digits, 16).ok()).unwrap_or(0)
    };
    Ok(match attribute {
        0 => return Err(Code::INVALID_VALUE),
        16 => card.multiprocessors,
        33 => pci(1),
        34 => pci(2),
        50 => pci(0),
        75 => card.compute_capability.0,
        76 => card.compute_capability.1,
        89 => card.concurrent_managed_access.into(),
        known if known <= LAST => ATTRIBUTES.iter().find(|(number, _)| *number == known).map_or(0, |(_, value)| *value),
        _ => return Err(Code::INVALID_VALUE),
    })
}

functions! {
    [2000 cuDeviceGet](device: *mut c_int, ordinal: c_int) = |me| {
        me.driver()?.device(ordinal)?;
        write::value(device, ordinal)
    };
    [2000 cuDeviceGetCount](count: *mut c_int) = |me| {
        let cards = me.driver()?.devices.len();
        write::value(count, c_int::try_from(cards).map_err(|_many| Code::UNKNOWN)?)
    };
    [2000 cuDeviceGetName](name: *mut c_char, length: c_int, device: c_int) = |me| {
        write::text(name, length, &me.driver()?.device(device)?.card.model)
    };
    [9020 cuDeviceGetUuid, 11040 cuDeviceGetUuid_v2](uuid: *mut [u8; 16], device: c_int) = |me| {
        write::value(uuid, me.driver()?.device(device)?.card.uuid_bytes())
    };
    [2000 cuDeviceTotalMem](bytes: *mut c_uint, device: c_int) = |me| {
        let total = me.driver()?.device(device)?.card.memory_total;
        write::value(bytes, c_uint::try_from(total).unwrap_or(c_uint::MAX))
    };
    [3020 cuDeviceTotalMem_v2](bytes: *mut usize, device: c_int) = |me| {
        let total = me.driver()?.device(device)?.card.memory_total;
        write::value(bytes, usize::try_from(total).unwrap_or(usize::MAX))
    };
    [2000 cuDeviceGetAttribute](value: *mut c_int, number: c_uint, device: c_int) = |me| {
        write::value(value, attribute(&*me.driver()?, number, device)?)
    };
    [2000 cuDeviceComputeCapability](major: *mut c_int, minor: *mut c_int, device: c_int) = |me| {
        let (its_major, its_minor) = me.driver()?.device(device)?.card.compute_capability;
        write::value(major, its_major)?;
        write::value(minor, its_minor)
    };
    [4010 cuDeviceGetPCIBusId](text: *mut c_char, length: c_int, device: c_int) = |me| {
        let driver = me.driver()?;
        // CUDA writes four digits of the domain where NVML writes eight.
        let bus_id = driver.device(device)?.card.pci_bus_id.as_str();
        write::text(text, length, if bus_id.len() > 12 { &bus_id[bus_id.len() - 12..] } else { bus_id })
    };
    [4010 cuDeviceGetByPCIBusId](device: *mut c_int, text: *const c_char) = |me| {
        let driver = me.driver()?;
        let wanted = write::name(text)?.to_string_lossy().to_ascii_lowercase();
        let same = |bus_id: &str| bus_id.to_ascii_lowercase().ends_with(&wanted) && wanted.len() >= 7;
        let found = driver.devices.iter().position(|device| same(&device.card.pci_bus_id));
        let found = found.and_then(|index| c_int::try_from(index).ok()).ok_or(Code::INVALID_DEVICE)?;
        write::value(device, found)
    };
    [4000 cuDeviceCanAccessPeer](can: *mut c_int, device: c_int, peer: c_int) = |me| {
        let driver = me.driver()?;
        driver.device(device)?;
        driver.device(peer)?;
        write::value(can, c_int::from(device != peer))
    };
    [8000 cuDeviceGetP2PAttribute](value: *mut c_int, number: c_uint, device: c_int, peer: c_int) = |me| {
        let driver = me.driver()?;
        driver.device(device)?;
        driver.device(peer)?;
        if device == peer || !(1..=4).contains(&number) {
            return Err(Code::INVALID_VALUE);
        }
        write::value(value, c_int::from(number != 3))
    };
    [11020 cuDeviceGetDefaultMemPool](pool: *mut usize, device: c_int) = |me| {
        write::value(pool, me.driver()?.device(device)?.default_pool)
    };
    [11020 cuDeviceGetMemPool](pool: *mut usize, device: c_int) = |me| {
        write::value(pool, me.driver()?.device(device)?.pool)
    };
    [11020 cuDeviceSetMemPool](device: c_int, pool: usize) = |me| {
        let mut driver = me.driver()?;
        driver.pools.get(pool).map_err(|_unknown| Code::INVALID_VALUE)?;
        driver.device_mut(device)?.pool = pool;
        Ok(())
    };
    [11040 cuDeviceGetGraphMemAttribute](device: c_int, number: c_uint, value: *mut c_void) = |me| {
        let driver = me.driver()?;
        let memory = &driver.device(device)?.graph_memory;
        let values = [memory.used, memory.used_high, memory.reserved, memory.reserved_high];
        write::value(value.cast(), *values.get(number as usize).ok_or(Code::INVALID_VALUE)?)
    };
    [11040 cuDeviceSetGraphMemAttribute](device: c_int, number: c_uint, value: *mut c_void) = |me| {
        let mut driver = me.driver()?;
        let memory = &mut driver.device_mut(device)?.graph_memory;
        match (number, write::read(value.cast_const().cast::<u64>())?) {
            (1, 0) => memory.used_high = memory.used,
            (3, 0) => memory.reserved_high = memory.reserved,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    };
    [11040 cuDeviceGraphMemTrim](device: c_int) = |me| me.driver()?.trim_graphs(device);
}
