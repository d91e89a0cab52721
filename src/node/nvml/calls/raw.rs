//! NVML functions that nvml-wrapper 0.13 lacks, or whose results it loses.
#![expect(unsafe_code, reason = "a C interface")]

use std::ffi::c_uint;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, EventSet, Nvml};
use nvml_wrapper_sys::bindings as sys;
use uuid::Uuid;

use crate::nvml::readings::RemappedRows;

/// An XID that the driver reports.
pub(in crate::nvml) struct XidEvent<'n> {
    /// The GPU, also where the event is about a MIG instance.
    pub(in crate::nvml) device: Device<'n>,
    pub(in crate::nvml) xid: u64,
    /// `None`: all of the GPU.
    pub(in crate::nvml) slice: Option<Slice>,
}

/// GPU instance or compute instance that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvml) struct Slice {
    /// ID of the GPU instance.
    pub(in crate::nvml) gi: u32,
    /// ID of the compute instance; `None`: all of the GPU instance.
    pub(in crate::nvml) ci: Option<u32>,
}

/// `nvmlEventSetWait_v2`; nvml-wrapper's `EventData` leaves out the instances (`nvmlEventData_t`, whose IDs are
/// 0xffffffff where there are none). `None`: an event of another kind.
pub(in crate::nvml) fn wait<'n>(
    nvml: &'n Nvml,
    set: &EventSet<'n>,
    millis: u32,
) -> Result<Option<XidEvent<'n>>, NvmlError> {
    let function = nvml_sym(nvml.lib().nvmlEventSetWait_v2.as_ref())?;
    let mut data = sys::nvmlEventData_t {
        device: std::ptr::null_mut(),
        eventType: 0,
        eventData: 0,
        gpuInstanceId: c_uint::MAX,
        computeInstanceId: c_uint::MAX,
    };
    // SAFETY: the set comes from this NVML and outlives the call; the result is valid for writes.
    nvml_try(unsafe { function(set.handle(), &raw mut data, millis) })?;
    if data.eventType != u64::from(sys::nvmlEventTypeXidCriticalError) {
        return Ok(None);
    }
    let id = |id| (id != c_uint::MAX).then_some(id);
    let slice = id(data.gpuInstanceId).map(|gi| Slice { gi, ci: id(data.computeInstanceId) });
    // SAFETY: the handle comes from this NVML, which takes any that it has given out.
    let device = unsafe { Device::new(data.device, nvml) };
    Ok(Some(XidEvent { device, xid: data.eventData, slice }))
}

/// `nvmlDeviceGetGpuInstanceId`.
pub(super) fn gpu_instance_id(nvml: &Nvml, instance: &Device<'_>) -> Result<u32, NvmlError> {
    let function = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: the handle comes from this NVML and is used while it is open; the result is valid for writes.
    nvml_try(unsafe { function(instance.handle(), &raw mut id) })?;
    Ok(id)
}

/// `nvmlDeviceGetComputeInstanceId`.
pub(super) fn compute_instance_id(nvml: &Nvml, instance: &Device<'_>) -> Result<u32, NvmlError> {
    let function = nvml_sym(nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: the handle comes from this NVML and is used while it is open; the result is valid for writes.
    nvml_try(unsafe { function(instance.handle(), &raw mut id) })?;
    Ok(id)
}

/// `nvmlDeviceGetRemappedRows`.
pub(super) fn remapped_rows(nvml: &Nvml, device: &Device<'_>) -> Result<RemappedRows, NvmlError> {
    let function = nvml_sym(nvml.lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let mut corrected = 0;
    let mut uncorrected = 0;
    let mut pending = 0;
    let mut failed = 0;
    // SAFETY: the handle comes from this NVML and is used while it is open; the results are valid for writes.
    nvml_try(unsafe {
        function(device.handle(), &raw mut corrected, &raw mut uncorrected, &raw mut pending, &raw mut failed)
    })?;
    Ok(RemappedRows { corrected, uncorrected, pending: pending != 0, failed: failed != 0 })
}

/// The card's NVLink domain and clique by `nvmlDeviceGetGpuFabricInfo`, in the form of GPU feature discovery's label
/// `nvidia.com/gpu.clique`; `None`: it isn't registered with a fabric that reaches beyond its node (k8s-device-plugin,
/// `internal/lm/imex.go`; go-nvlib, `IsFabricAttached`).
pub(super) fn clique(nvml: &Nvml, device: &Device<'_>) -> Result<Option<String>, NvmlError> {
    let function = nvml_sym(nvml.lib().nvmlDeviceGetGpuFabricInfo.as_ref())?;
    let mut info = sys::nvmlGpuFabricInfo_t { clusterUuid: [0; 16], status: 0, cliqueId: 0, state: 0 };
    // SAFETY: the handle comes from this NVML and is used while it is open; the result is valid for writes.
    nvml_try(unsafe { function(device.handle(), &raw mut info) })?;
    let is_attached = u32::from(info.state) == sys::NVML_GPU_FABRIC_STATE_COMPLETED
        && info.status == sys::nvmlReturn_enum_NVML_SUCCESS
        && info.clusterUuid != [0; 16];
    Ok(is_attached.then(|| format!("{}.{}", Uuid::from_bytes(info.clusterUuid), info.cliqueId)))
}

/// `nvmlDeviceGetNvLinkRemoteDeviceType`, because nvml-wrapper writes the answer into a temporary and then returns
/// `Unknown` for every link (`NvLink::remote_device_type`).
pub(super) fn remote_device_type(
    nvml: &Nvml,
    device: &Device<'_>,
    link: u32,
) -> Result<sys::nvmlIntNvLinkDeviceType_t, NvmlError> {
    let function = nvml_sym(nvml.lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref())?;
    let mut device_type = sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    // SAFETY: the handle comes from this NVML and is used while it is open; the result is valid for writes.
    nvml_try(unsafe { function(device.handle(), link, &raw mut device_type) })?;
    Ok(device_type)
}
