//! A GPU's MIG mode, and its instances.

use divvy_api::card::BadMigProfile;
use divvy_api::{CardId, Memory, MigProfile};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use super::{CallError, FindError, ProbeError, Sample, in_call, raw};
use crate::config::MigStrategy;
use divvy_node_core::inventory::{CardProcess, MigInstance};

/// More than any GPU can be cut into; a count above it is nonsense.
const MAX_INSTANCES: u32 = 64;

/// A GPU in MIG mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::nvml) struct Partition {
    /// Those that are cards.
    pub(in crate::nvml) instances: Vec<Instance>,
    /// Why there aren't more of them, if there should be.
    pub(in crate::nvml) trouble: Option<String>,
}

/// An instance, as a probe of its GPU sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvml) struct Instance {
    pub(in crate::nvml) id: CardId,
    pub(in crate::nvml) place: MigInstance,
    /// The GPU's product and the profile.
    pub(in crate::nvml) model: String,
    /// All of it, and what is in use; or what NVML says instead.
    pub(in crate::nvml) memory: Result<(Memory, Memory), String>,
    /// Those that compute on it; `None`: NVML doesn't say.
    pub(in crate::nvml) processes: Option<Vec<CardProcess>>,
}

/// Looks at a GPU that may be in MIG mode; `None`: it isn't, or it can't be.
///
/// NVML gives out handles of instances by index only since the beginning, by UUID since R470, so they are looked up by
/// index each time. Instances may come and go meanwhile: one that can't be told is left out, and concerns no other.
pub(super) fn partition(
    nvml: &Nvml,
    gpu: &CardId,
    device: &Device<'_>,
    strategy: MigStrategy,
) -> Result<Option<Partition>, CallError> {
    match device.mig_mode() {
        Ok(mode) if mode.current == sys::NVML_DEVICE_MIG_ENABLE => {}
        Ok(_) | Err(NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_)) => {
            return Ok(None);
        }
        Err(error) => return Err(in_call("nvmlDeviceGetMigMode")(error)),
    }
    let mut partition = Partition::default();
    if !strategy.makes_cards() {
        return Ok(Some(partition));
    }
    let count = device.mig_device_count().map_err(in_call("nvmlDeviceGetMaxMigDeviceCount"))?;
    for index in 0..count.min(MAX_INSTANCES) {
        match instance(nvml, gpu, device, strategy, index) {
            Ok(instance) => partition.instances.extend(instance),
            Err(FindError::Call(error)) if error.is_about_the_gpu() => return Err(error),
            Err(error) => partition.trouble = Some(format!("MIG instance at index {index}: {error}")),
        }
    }
    if partition.instances.is_empty() {
        partition.trouble.get_or_insert("in MIG mode without instances: make some with nvidia-smi mig -cgi".to_owned());
    }
    Ok(Some(partition))
}

/// The instance at an index; not every index has one.
fn instance(
    nvml: &Nvml,
    gpu: &CardId,
    device: &Device<'_>,
    strategy: MigStrategy,
    index: u32,
) -> Result<Option<Instance>, FindError> {
    let device = match device.mig_device_by_index(index) {
        Err(NvmlError::NotFound) => return Ok(None),
        device => device.map_err(in_call("nvmlDeviceGetMigDeviceHandleByIndex"))?,
    };
    let model = device.name().map_err(in_call("nvmlDeviceGetName"))?;
    let place = MigInstance {
        by_profile: strategy == MigStrategy::Mixed,
        profile: profile(&model)?,
        parent: gpu.clone(),
        gi: raw::gpu_instance_id(nvml, &device).map_err(in_call("nvmlDeviceGetGpuInstanceId"))?,
        ci: raw::compute_instance_id(nvml, &device).map_err(in_call("nvmlDeviceGetComputeInstanceId"))?,
    };
    let id = device.uuid().map_err(in_call("nvmlDeviceGetUUID"))?.parse()?;
    let memory = device.memory_info().map_err(|error| in_call("nvmlDeviceGetMemoryInfo")(error).to_string());
    let memory = memory.map(|info| (Memory::from_bytes_floor(info.total), Memory::from_bytes_floor(info.used)));
    Ok(Some(Instance { id, place, model, memory, processes: super::processes(&device).ok() }))
}

/// NVML names an instance `<product> MIG <profile>`.
fn profile(name: &str) -> Result<MigProfile, BadMigProfile> {
    name.rsplit_once(" MIG ").map_or(name, |(_, profile)| profile).parse()
}

// === impl Instance ===

impl Instance {
    /// As if it had been probed by itself: where it is, and whether its memory is sound, is as with its GPU.
    pub(in crate::nvml) fn sample(&self, gpu: &Sample) -> Result<Sample, ProbeError> {
        let (memory, memory_used) = self.memory.clone().map_err(ProbeError::Instance)?;
        Ok(Sample {
            memory,
            memory_used,
            model: Some(self.model.clone()),
            utilization: None,
            processes: self.processes.clone(),
            partition: None,
            pci_bus_id: gpu.pci_bus_id.clone(),
            ..*gpu
        })
    }
}
