//! Functions about a card.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;
use nvml_wrapper_sys::bindings::{
    nvmlComputeMode_t, nvmlDevice_t, nvmlEccCounterType_t, nvmlEnableState_t, nvmlEventSet_t,
    nvmlEventTypeXidCriticalError, nvmlGpuTopologyLevel_t, nvmlIntNvLinkDeviceType_t, nvmlMemoryErrorType_t,
    nvmlPciInfo_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t, nvmlReturn_t, nvmlTemperatureSensors_t,
    nvmlUtilization_t,
};

use fake_card::{compute_mode, set_compute_mode};

use super::{code, write};
use crate::driver::{self, events};
use crate::scenario::{
    CardScenario, FabricScenario, LinkScenario, NvmlReturn, PciLevel, Process, Scenario, parse_pci_bus_id,
};
use crate::shared;

/// A GH100; no caller decides by it.
const PCI_DEVICE_ID: c_uint = 0x2330_10de;

/// Defines C functions whose first argument is a card's handle, and not that of an instance.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) = |$driver:pat_param, $card:pat_param| $body:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(device: nvmlDevice_t, $($argument: $type),*) -> nvmlReturn_t {
                code(driver::about_handle(stringify!($name), device.addr(), |$driver, $card| {
                    // SAFETY: by NVML's contract pointers are null or valid for what the function writes.
                    unsafe { $body }
                }))
            }
        )*
    };
}

functions! {
    nvmlDeviceGetMinorNumber(minor: *mut c_uint) = |_, card| write::value(minor, card.minor);
    nvmlDeviceGetIndex(index: *mut c_uint) = |driver, card| write::value(index, position(driver.session()?, card)?);
    nvmlDeviceGetPciInfo_v3(pci: *mut nvmlPciInfo_t) = |_, card| write::value(pci, pci_info(&card.pci_bus_id)?);
    nvmlDeviceGetCudaComputeCapability(major: *mut c_int, minor: *mut c_int) = |_, card| {
        write::value(major, card.compute_capability.0)?;
        write::value(minor, card.compute_capability.1)
    };
    nvmlDeviceGetUtilizationRates(rates: *mut nvmlUtilization_t) = |_, card| {
        if card.mig.as_ref().is_some_and(|mig| mig.enabled) {
            return Err(NvmlReturn::NotSupported);
        }
        let gpu = shared::look(card).utilization;
        write::value(rates, nvmlUtilization_t { gpu, memory: gpu / 2 })
    };
    nvmlDeviceGetProcessUtilization(
        samples: *mut nvmlProcessUtilizationSample_t, count: *mut c_uint, since: c_ulonglong
    ) = |_, card| {
        let seen = shared::look(card);
        let busy = seen.processes.iter().filter(|process| process.utilization > 0 && seen.sampled_at > since);
        let found: Vec<_> = busy.map(|process| nvmlProcessUtilizationSample_t {
            pid: process.pid,
            timeStamp: seen.sampled_at,
            smUtil: process.utilization,
            memUtil: process.utilization / 2,
            encUtil: 0,
            decUtil: 0,
        }).collect();
        // NVML has no empty list here.
        if found.is_empty() { Err(NvmlReturn::NotFound) } else { write::list(samples, count, &found) }
    };
    nvmlDeviceGetMPSComputeRunningProcesses_v3(count: *mut c_uint, infos: *mut nvmlProcessInfo_t) = |_, card| {
        write::list(infos, count, &infos_of(&shared::look(card).clients))
    };
    nvmlDeviceGetComputeMode(mode: *mut nvmlComputeMode_t) = |_, card| {
        write::value(mode, compute_mode(&shared::modes().ok_or(NvmlReturn::Unknown)?, &card.uuid))
    };
    nvmlDeviceGetGraphicsRunningProcesses_v3(count: *mut c_uint, infos: *mut nvmlProcessInfo_t) = |_, _| {
        write::list(infos, count, &[])
    };
    nvmlDeviceGetEccMode(current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t) = |_, card| {
        let mode = c_uint::from(card.ecc_uncorrected.is_some());
        write::value(current, mode)?;
        write::value(pending, mode)
    };
    nvmlDeviceGetTotalEccErrors(
        kind: nvmlMemoryErrorType_t, _counter: nvmlEccCounterType_t, count: *mut c_ulonglong
    ) = |_, card| {
        let uncorrected = card.ecc_uncorrected.ok_or(NvmlReturn::NotSupported)?;
        let corrected = kind == sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED;
        write::value(count, if corrected { card.ecc_corrected } else { uncorrected })
    };
    nvmlDeviceGetTemperature(_sensor: nvmlTemperatureSensors_t, celsius: *mut c_uint) = |_, card| {
        write::value(celsius, card.sensors.temperature.ok_or(NvmlReturn::NotSupported)?)
    };
    nvmlDeviceGetPowerUsage(milliwatts: *mut c_uint) = |_, card| {
        write::value(milliwatts, card.sensors.power.ok_or(NvmlReturn::NotSupported)?)
    };
    nvmlDeviceGetEnforcedPowerLimit(milliwatts: *mut c_uint) = |_, card| {
        write::value(milliwatts, card.sensors.power_limit.ok_or(NvmlReturn::NotSupported)?)
    };
    nvmlDeviceGetTotalEnergyConsumption(millijoules: *mut c_ulonglong) = |_, card| {
        write::value(millijoules, card.sensors.energy.ok_or(NvmlReturn::NotSupported)?)
    };
    nvmlDeviceGetCurrentClocksThrottleReasons(reasons: *mut c_ulonglong) = |_, card| {
        write::value(reasons, card.sensors.throttle_reasons.ok_or(NvmlReturn::NotSupported)?)
    };
    nvmlDeviceGetRemappedRows(
        corrected: *mut c_uint, uncorrected: *mut c_uint, pending: *mut c_uint, failed: *mut c_uint
    ) = |_, card| {
        let rows = card.sensors.remapped_rows.ok_or(NvmlReturn::NotSupported)?;
        write::value(corrected, rows.corrected)?;
        write::value(uncorrected, rows.uncorrected)?;
        write::value(pending, rows.pending.into())?;
        write::value(failed, rows.failed.into())
    };
    nvmlDeviceGetGpuFabricInfo(info: *mut sys::nvmlGpuFabricInfo_t) = |_, card| {
        let fabric = card.fabric.ok_or(NvmlReturn::NotSupported)?;
        write::value(info, fabric_info(fabric)?)
    };
    nvmlDeviceGetTopologyCommonAncestor(other: nvmlDevice_t, level: *mut nvmlGpuTopologyLevel_t) = |driver, card| {
        let other = driver.card(other.addr())?;
        write::value(level, common_ancestor(driver.session()?, &card.uuid, &other.uuid))
    };
    nvmlDeviceGetNvLinkState(link: c_uint, active: *mut nvmlEnableState_t) = |driver, card| {
        write::value(active, c_uint::from(remote(driver.session()?, card, link)?.is_some()))
    };
    nvmlDeviceGetNvLinkRemotePciInfo_v2(link: c_uint, pci: *mut nvmlPciInfo_t) = |driver, card| {
        let remote = remote(driver.session()?, card, link)?.ok_or(NvmlReturn::NotSupported)?;
        write::value(pci, remote.pci_info(driver.session()?, link)?)
    };
    nvmlDeviceGetNvLinkRemoteDeviceType(link: c_uint, kind: *mut nvmlIntNvLinkDeviceType_t) = |driver, card| {
        write::value(kind, remote(driver.session()?, card, link)?.ok_or(NvmlReturn::NotSupported)?.device_type())
    };
    nvmlDeviceGetSupportedEventTypes(types: *mut c_ulonglong) = |_, _| {
        write::value(types, nvmlEventTypeXidCriticalError.into())
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    types: c_ulonglong,
    set: nvmlEventSet_t,
) -> nvmlReturn_t {
    code(events::register("nvmlDeviceRegisterEvents", device.addr(), types, set.addr()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetComputeMode(device: nvmlDevice_t, mode: nvmlComputeMode_t) -> nvmlReturn_t {
    code(driver::about_handle("nvmlDeviceSetComputeMode", device.addr(), |_, card| {
        let modes = shared::modes().ok_or(NvmlReturn::Unknown)?;
        set_compute_mode(&modes, &card.uuid, mode).map_err(|_error| NvmlReturn::NoPermission)
    }))
}

/// The far end of an NVLink.
enum Remote<'s> {
    Card(&'s str),
    Switch,
}

/// What a card's link leads to: its direct links come first, then those to the switches; the rest are inactive.
fn remote<'s>(scenario: &'s Scenario, card: &CardScenario, link: c_uint) -> Result<Option<Remote<'s>>, NvmlReturn> {
    if link >= sys::NVML_NVLINK_MAX_LINKS {
        return Err(NvmlReturn::InvalidArgument);
    }
    let direct = scenario.links.iter().filter_map(|link| Some((link.other_end(&card.uuid)?, link.nvlinks)));
    let direct = direct.flat_map(|(other, count)| (0..count).map(move |_| Remote::Card(other)));
    let mut all = direct.chain((0..scenario.nvswitch_links).map(|_| Remote::Switch)).peekable();
    all.peek().ok_or(NvmlReturn::NotSupported)?;
    Ok(all.nth(link as usize))
}

fn position(scenario: &Scenario, card: &CardScenario) -> Result<c_uint, NvmlReturn> {
    let position = scenario.enumerated().position(|other| other.uuid == card.uuid);
    position.and_then(|position| c_uint::try_from(position).ok()).ok_or(NvmlReturn::Unknown)
}

fn pci_info(bus_id: &str) -> Result<nvmlPciInfo_t, NvmlReturn> {
    let (domain, bus, device) = parse_pci_bus_id(bus_id).ok_or(NvmlReturn::Unknown)?;
    Ok(nvmlPciInfo_t {
        busIdLegacy: write::array(bus_id.get(4..).unwrap_or_default()),
        domain,
        bus,
        device,
        pciDeviceId: PCI_DEVICE_ID,
        pciSubSystemId: 0,
        busId: write::array(bus_id),
    })
}

/// What the fabric manager has told the card; nothing before it has.
fn fabric_info(fabric: FabricScenario) -> Result<sys::nvmlGpuFabricInfo_t, NvmlReturn> {
    let (clusterUuid, cliqueId, state) = if fabric.registered {
        (fabric.cluster, fabric.clique, sys::NVML_GPU_FABRIC_STATE_COMPLETED)
    } else {
        ([0; 16], 0, sys::NVML_GPU_FABRIC_STATE_IN_PROGRESS)
    };
    let state = state.try_into().map_err(|_wide| NvmlReturn::Unknown)?;
    Ok(sys::nvmlGpuFabricInfo_t { clusterUuid, status: sys::nvmlReturn_enum_NVML_SUCCESS, cliqueId, state })
}

pub(super) fn processes(card: &CardScenario) -> Vec<nvmlProcessInfo_t> {
    infos_of(&shared::look(card).processes)
}

fn infos_of(processes: &[Process]) -> Vec<nvmlProcessInfo_t> {
    let info = |process: &Process| nvmlProcessInfo_t {
        pid: process.pid,
        usedGpuMemory: process.memory_used,
        gpuInstanceId: c_uint::MAX,
        computeInstanceId: c_uint::MAX,
    };
    processes.iter().map(info).collect()
}

fn common_ancestor(scenario: &Scenario, a: &str, b: &str) -> nvmlGpuTopologyLevel_t {
    let link = scenario.links.iter().find(|link| link.joins(a, b));
    match link.map_or(PciLevel::System, |link| link.pci) {
        PciLevel::System => sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_SYSTEM,
        PciLevel::Node => sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_NODE,
        PciLevel::HostBridge => sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_HOSTBRIDGE,
        PciLevel::Multiple => sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_MULTIPLE,
        PciLevel::Single => sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_SINGLE,
        PciLevel::Internal => sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_INTERNAL,
    }
}

// === impl Remote ===

impl Remote<'_> {
    fn device_type(&self) -> nvmlIntNvLinkDeviceType_t {
        match self {
            Self::Card(_) => sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU,
            Self::Switch => sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH,
        }
    }

    fn pci_info(&self, scenario: &Scenario, link: c_uint) -> Result<nvmlPciInfo_t, NvmlReturn> {
        match self {
            Self::Card(uuid) => {
                let card = scenario.cards.iter().find(|card| card.uuid == *uuid).ok_or(NvmlReturn::Unknown)?;
                pci_info(&card.pci_bus_id)
            }
            // Four switches, which share the links.
            Self::Switch => pci_info(&format!("00000000:C{}:00.0", link % 4)),
        }
    }
}

// === impl LinkScenario ===

impl LinkScenario {
    fn other_end(&self, card: &str) -> Option<&str> {
        let (one, other) = &self.cards;
        if one == card {
            Some(other)
        } else if other == card {
            Some(one)
        } else {
            None
        }
    }
}
