//! The calls to NVML, and what their errors mean. All of them may hang.

mod mig;
mod raw;
mod sensors;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use divvy_api::card::ComputeMode;
use divvy_api::{CardId, Link, Memory};
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{ComputeMode as NvmlComputeMode, TopologyLevel};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{MemoryInfo, PciInfo, ProcessInfo};
use nvml_wrapper::{Device, EventSet, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use nvml_wrapper_sys::bindings as sys;

use super::readings::Sensors;
use crate::config::MigStrategy;
use divvy_node_core::inventory::{CardProcess, Driver};
pub(super) use mig::{Instance, Partition};
pub(super) use raw::{Slice, XidEvent, wait};

/// A call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{function}: {error}")]
pub(super) struct CallError {
    function: &'static str,
    error: NvmlError,
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    /// The driver knows no card of this UUID.
    #[error("NVML no longer finds the GPU")]
    Gone,
    /// The GPU doesn't have this instance any more.
    #[error("NVML no longer finds the MIG instance")]
    Vanished,
    /// An error of the instance, which exists.
    #[error("{0}")]
    Instance(String),
    /// An error of the card.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why no card or MIG instance was found at an index.
#[derive(Debug, thiserror::Error)]
pub(super) enum FindError {
    /// NVML reports an error.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The UUID can't be part of a device ID.
    #[error(transparent)]
    Uuid(#[from] divvy_api::card_id::CardIdError),
    /// The profile can't be part of a resource name.
    #[error(transparent)]
    Profile(#[from] divvy_api::card_id::BadMigProfile),
}

/// Result of a probe; `None`: not reported by NVML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) memory: Option<Memory>,
    pub(super) memory_used: Option<Memory>,
    pub(super) model: Option<String>,
    pub(super) pci_bus_id: Option<String>,
    pub(super) minor: Option<u32>,
    pub(super) index: Option<u32>,
    pub(super) clique: Option<String>,
    pub(super) numa: Option<u32>,
    pub(super) compute_mode: Option<ComputeMode>,
    pub(super) processes: Option<Vec<CardProcess>>,
    pub(super) sensors: Sensors,
    /// `None`: not in MIG mode.
    pub(super) partition: Option<Partition>,
}

/// Where the active NVLinks of a card lead.
#[derive(Debug, Default)]
pub(super) struct NvLinks {
    /// To other cards, by PCI domain, bus and device.
    pub(super) cards: BTreeMap<(u32, u32, u32), u32>,
    /// To NVSwitches.
    pub(super) switches: u32,
}

/// Loads and initialises NVML.
pub(super) fn open(library: &OsStr) -> Result<(Nvml, Driver), CallError> {
    let nvml = Nvml::builder().lib_path(library).init().map_err(|error| match error {
        error @ NvmlError::LibloadingError(_) => CallError { function: "loading NVML", error },
        error => CallError { function: "nvmlInit", error },
    })?;
    let cuda = |number| format!("{}.{}", cuda_driver_version_major(number), cuda_driver_version_minor(number));
    let driver = Driver {
        version: nvml.sys_driver_version().unwrap_or_default(),
        cuda: nvml.sys_cuda_driver_version().ok().map(cuda),
    };
    Ok((nvml, driver))
}

/// How many cards there are.
pub(super) fn count(nvml: &Nvml) -> Result<u32, CallError> {
    nvml.device_count().map_err(in_call("nvmlDeviceGetCount"))
}

/// The card at an index, which is only good until the next card comes or goes.
pub(super) fn find(nvml: &Nvml, index: u32) -> Result<CardId, FindError> {
    let device = nvml.device_by_index(index).map_err(in_call("nvmlDeviceGetHandleByIndex"))?;
    Ok(device.uuid().map_err(in_call("nvmlDeviceGetUUID"))?.parse()?)
}

/// Probes a card. Only its handle, its memory and its MIG mode must be answered; another call counts as failed
/// if it says that the card is lost. That NVML has no figure of its memory is an answer too: it's that of a GB10.
pub(super) fn probe(nvml: &Nvml, card: &CardId, sysfs: &Path, mig: MigStrategy) -> Result<Sample, ProbeError> {
    let device = nvml.device_by_uuid(card.as_str()).map_err(|error| match error {
        NvmlError::NotFound => ProbeError::Gone,
        error => in_call("nvmlDeviceGetHandleByUUID")(error).into(),
    })?;
    let info = match device.memory_info() {
        Ok(info) => Some(info),
        Err(NvmlError::NotSupported) => None,
        Err(error) => return Err(in_call("nvmlDeviceGetMemoryInfo")(error).into()),
    };
    let pci_bus_id = unless_lost("nvmlDeviceGetPciInfo", device.pci_info())?.map(|pci| pci.bus_id);
    Ok(Sample {
        memory: info.as_ref().map(allocatable),
        memory_used: info.map(|info| Memory::from_bytes_floor(info.used)),
        model: unless_lost("nvmlDeviceGetName", device.name())?,
        minor: unless_lost("nvmlDeviceGetMinorNumber", device.minor_number())?,
        index: unless_lost("nvmlDeviceGetIndex", device.index())?,
        clique: unless_lost("nvmlDeviceGetGpuFabricInfo", raw::clique(nvml, &device))?.flatten(),
        numa: pci_bus_id.as_deref().and_then(|bus_id| numa_node(sysfs, bus_id)),
        pci_bus_id,
        compute_mode: unless_lost("nvmlDeviceGetComputeMode", device.compute_mode())?.map(allowed_contexts),
        processes: unless_lost("nvmlDeviceGetComputeRunningProcesses", processes(&device))?,
        sensors: sensors::read(nvml, &device)?,
        partition: mig::partition(nvml, card, &device, mig)?,
    })
}

/// One thread's contexts are fewer than one process's: the mode is of old drivers, and answered as the other by newer ones.
fn allowed_contexts(mode: NvmlComputeMode) -> ComputeMode {
    match mode {
        NvmlComputeMode::Default => ComputeMode::Default,
        NvmlComputeMode::ExclusiveThread | NvmlComputeMode::ExclusiveProcess => ComputeMode::ExclusiveProcess,
        NvmlComputeMode::Prohibited => ComputeMode::Prohibited,
    }
}

/// What can be allocated of a card or a MIG instance: NVML's total is what is built in, of which the driver keeps a part.
fn allocatable(memory: &MemoryInfo) -> Memory {
    Memory::from_bytes_floor(memory.total.saturating_sub(memory.reserved))
}

/// Compute processes on a card or a MIG instance, ordered by PID: those with a context of their own, and clients of the
/// multi-process service, which older drivers don't report.
fn processes(device: &Device<'_>) -> Result<Vec<CardProcess>, NvmlError> {
    let process = |info: ProcessInfo| CardProcess { pid: info.pid, bytes: bytes(&info.used_gpu_memory) };
    let clients = match device.mps_running_compute_processes() {
        Err(error) if is_about_the_gpu(&error) => return Err(error),
        clients => clients.unwrap_or_default(),
    };
    let mut processes: Vec<_> = device.running_compute_processes()?.into_iter().chain(clients).map(process).collect();
    processes.sort_unstable();
    processes.dedup_by_key(|process| process.pid);
    Ok(processes)
}

fn bytes(used: &UsedGpuMemory) -> Option<u64> {
    match used {
        UsedGpuMemory::Used(bytes) => Some(*bytes),
        UsedGpuMemory::Unavailable => None,
    }
}

/// An event set for the XIDs of one card.
pub(super) fn subscribe<'n>(nvml: &'n Nvml, card: &CardId) -> Result<EventSet<'n>, CallError> {
    let device = nvml.device_by_uuid(card.as_str()).map_err(in_call("nvmlDeviceGetHandleByUUID"))?;
    let set = nvml.create_event_set().map_err(in_call("nvmlEventSetCreate"))?;
    let registered = device.register_events(EventTypes::CRITICAL_XID_ERROR, set);
    registered.map_err(|error| in_call("nvmlDeviceRegisterEvents")(error.error))
}

/// Text of an error of a wait for events.
pub(super) fn wait_error(error: NvmlError) -> CallError {
    in_call("nvmlEventSetWait")(error)
}

/// The best PCI path between two cards.
pub(super) fn pci_link(a: &Device<'_>, b: Device<'_>) -> Option<Link> {
    Some(match a.topology_common_ancestor(b).ok()? {
        TopologyLevel::Internal | TopologyLevel::Single => Link::SingleSwitch,
        TopologyLevel::Multiple => Link::MultiSwitch,
        TopologyLevel::HostBridge => Link::HostBridge,
        TopologyLevel::Node => Link::Node,
        TopologyLevel::System => Link::System,
    })
}

/// A card's active NVLinks; what can't be read counts as inactive.
pub(super) fn nvlinks(nvml: &Nvml, device: &Device<'_>) -> NvLinks {
    let mut links = NvLinks::default();
    for link in (0..sys::NVML_NVLINK_MAX_LINKS).map(|number| device.link_wrapper_for(number)) {
        if !matches!(link.is_active(), Ok(true)) {
            continue;
        }
        match raw::remote_device_type(nvml, device, link.link()) {
            Ok(sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH) => links.switches += 1,
            Ok(sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU) => {
                if let Ok(remote) = link.remote_pci_info() {
                    *links.cards.entry(pci_address(&remote)).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    links
}

/// Domain, bus and device: a link's far end is named by them, in whatever letter case.
pub(super) fn pci_address(pci: &PciInfo) -> (u32, u32, u32) {
    (pci.domain, pci.bus, pci.device)
}

fn in_call(function: &'static str) -> impl Fn(NvmlError) -> CallError {
    move |error| CallError { function, error }
}

fn unless_lost<T>(function: &'static str, answer: Result<T, NvmlError>) -> Result<Option<T>, CallError> {
    match answer {
        Err(error) if is_about_the_gpu(&error) => Err(CallError { function, error }),
        answer => Ok(answer.ok()),
    }
}

/// Whether the error means that the GPU is unusable, rather than that this call failed.
fn is_about_the_gpu(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired)
}

/// Reads the NUMA node from sysfs, where the kernel writes -1 for a card without one.
fn numa_node(sysfs: &Path, bus_id: &str) -> Option<u32> {
    let (domain, rest) = bus_id.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let device = format!("{domain:04x}:{}", rest.to_ascii_lowercase());
    let path = sysfs.join("bus/pci/devices").join(device).join("numa_node");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

// === impl CallError ===

impl CallError {
    fn is_about_the_gpu(&self) -> bool {
        is_about_the_gpu(&self.error)
    }

    /// Whether NVML must be closed and opened again, because the driver was unloaded or replaced.
    pub(super) fn is_driver_gone(&self) -> bool {
        matches!(self.error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch)
    }
}
