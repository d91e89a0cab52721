//! MIG mode and MIG instances of a GPU.

use divvy_api::card_id::BadMigProfile;
use divvy_api::{CardId, Memory, MigInstance, MigProfile};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use super::{CallError, FindError, ProbeError, Sample, in_call, raw};
use crate::config::MigStrategy;
use crate::nvml::readings::Sensors;
use divvy_node_core::inventory::{CardProcess, MigPlace};

/// Most instances of a GPU; a larger count is invalid.
const MAX_INSTANCES: u32 = 64;

/// A GPU in MIG mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::nvml) struct Partition {
    /// Instances that are advertised.
    pub(in crate::nvml) instances: Vec<Instance>,
    /// Reason why there are no more, if there should be.
    pub(in crate::nvml) trouble: Option<String>,
}

/// MIG instance, as found by a probe of its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nvml) struct Instance {
    pub(in crate::nvml) id: CardId,
    pub(in crate::nvml) mig: MigInstance,
    pub(in crate::nvml) place: MigPlace,
    /// The GPU's product and the profile.
    pub(in crate::nvml) model: String,
    /// Total memory and memory in use, or NVML's error.
    pub(in crate::nvml) memory: Result<(Memory, Memory), String>,
    /// Processes that compute on it; `None`: NVML doesn't report them.
    pub(in crate::nvml) processes: Option<Vec<CardProcess>>,
}

/// Probes a GPU that may be in MIG mode; `None`: it isn't, or it doesn't support MIG.
///
/// NVML gives out handles of instances by index only since the beginning, by UUID since R470, so they are looked up by
/// index each time. Instances may come and go meanwhile: one that can't be read is left out without affecting the others.
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
    let mig = MigInstance { profile: profile(&model)?, by_profile: strategy == MigStrategy::Mixed };
    let place = MigPlace {
        gpu: gpu.clone(),
        gi: raw::gpu_instance_id(nvml, &device).map_err(in_call("nvmlDeviceGetGpuInstanceId"))?,
        ci: raw::compute_instance_id(nvml, &device).map_err(in_call("nvmlDeviceGetComputeInstanceId"))?,
    };
    let id = device.uuid().map_err(in_call("nvmlDeviceGetUUID"))?.parse()?;
    let memory = device.memory_info().map_err(|error| in_call("nvmlDeviceGetMemoryInfo")(error).to_string());
    let memory = memory.map(|info| (super::allocatable(&info), Memory::from_bytes_floor(info.used)));
    Ok(Some(Instance { id, mig, place, model, memory, processes: super::processes(&device).ok() }))
}

/// NVML names an instance `<product> MIG <profile>`.
fn profile(name: &str) -> Result<MigProfile, BadMigProfile> {
    name.rsplit_once(" MIG ").map_or(name, |(_, profile)| profile).parse()
}

// === impl Instance ===

impl Instance {
    /// Result as if the instance had been probed by itself; location and uncorrected memory errors are those of its GPU.
    pub(in crate::nvml) fn sample(&self, gpu: &Sample) -> Result<Sample, ProbeError> {
        let (memory, memory_used) = self.memory.clone().map_err(ProbeError::Instance)?;
        Ok(Sample {
            memory: Some(memory),
            memory_used: Some(memory_used),
            model: Some(self.model.clone()),
            sensors: Sensors { ecc_uncorrected: gpu.sensors.ecc_uncorrected, ..Sensors::default() },
            processes: self.processes.clone(),
            partition: None,
            // NVLink isn't for instances.
            clique: None,
            pci_bus_id: gpu.pci_bus_id.clone(),
            ..*gpu
        })
    }
}
