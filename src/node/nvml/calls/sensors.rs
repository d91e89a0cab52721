//! Sensors and counters of a GPU.

use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};

use super::{CallError, raw, unless_lost};
use crate::nvml::readings::Sensors;

/// Reads them; what the GPU doesn't have is left out. ECC errors are the volatile counts, which health goes by too.
///
/// PCIe throughput isn't read, because NVML measures it for 20 ms in each call.
pub(super) fn read(nvml: &Nvml, device: &Device<'_>) -> Result<Sensors, CallError> {
    let rates = unless_lost("nvmlDeviceGetUtilizationRates", device.utilization_rates())?;
    let ecc = |kind| unless_lost("nvmlDeviceGetTotalEccErrors", device.total_ecc_errors(kind, EccCounter::Volatile));
    let reasons = unless_lost("nvmlDeviceGetCurrentClocksThrottleReasons", device.current_throttle_reasons())?;
    Ok(Sensors {
        utilization: rates.as_ref().map(|rates| rates.gpu),
        memory_utilization: rates.map(|rates| rates.memory),
        temperature: unless_lost("nvmlDeviceGetTemperature", device.temperature(TemperatureSensor::Gpu))?,
        power: unless_lost("nvmlDeviceGetPowerUsage", device.power_usage())?,
        power_limit: unless_lost("nvmlDeviceGetEnforcedPowerLimit", device.enforced_power_limit())?,
        energy: unless_lost("nvmlDeviceGetTotalEnergyConsumption", device.total_energy_consumption())?,
        ecc_corrected: ecc(MemoryError::Corrected)?,
        ecc_uncorrected: ecc(MemoryError::Uncorrected)?,
        clocks_event_reasons: reasons.map(|reasons| reasons.bits()),
        remapped_rows: unless_lost("nvmlDeviceGetRemappedRows", raw::remapped_rows(nvml, device))?,
    })
}
