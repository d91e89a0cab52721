//! Sensors and counters of a card.

use serde::{Deserialize, Serialize};

/// What they answer; `None`: `NVML_ERROR_NOT_SUPPORTED`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SensorScenario {
    /// `nvmlDeviceGetTemperature` in °C.
    pub temperature: Option<u32>,
    /// `nvmlDeviceGetPowerUsage` in milliwatts.
    pub power: Option<u32>,
    /// `nvmlDeviceGetEnforcedPowerLimit` in milliwatts.
    pub power_limit: Option<u32>,
    /// `nvmlDeviceGetTotalEnergyConsumption` in millijoules since the driver was loaded.
    pub energy: Option<u64>,
    /// `nvmlDeviceGetCurrentClocksThrottleReasons`: the bits of nvml.h.
    pub throttle_reasons: Option<u64>,
    /// `nvmlDeviceGetRemappedRows`.
    pub remapped_rows: Option<RemappedRows>,
}

/// Rows of memory that were replaced by spare ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RemappedRows {
    /// Rows, because of correctable errors.
    pub corrected: u32,
    /// Rows, because of uncorrectable errors.
    pub uncorrected: u32,
    /// Whether a row is replaced at the next reset.
    pub pending: bool,
    /// Whether a row couldn't be replaced.
    pub failed: bool,
}

// === impl SensorScenario ===

impl SensorScenario {
    /// An idle card that supports all of them.
    pub fn idle() -> Self {
        Self {
            temperature: Some(34),
            power: Some(72_500),
            power_limit: Some(350_000),
            energy: Some(1_234_500),
            throttle_reasons: Some(1),
            remapped_rows: Some(RemappedRows::default()),
        }
    }
}
