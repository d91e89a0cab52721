//! Readings of GPUs for metrics alone: nothing is decided by them.

use std::collections::BTreeMap;

use divvy_api::CardId;

/// Readings of a GPU, or of a MIG instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuReadings {
    /// UUID of the GPU or the instance.
    pub id: CardId,
    /// Product name; empty while unknown.
    pub model: String,
    /// Values of the last probe. MIG instances have none of their own.
    pub sensors: Sensors,
    /// How many XIDs the driver has reported since the daemon started, by their number.
    pub xids: BTreeMap<u64, u64>,
}

/// Sensors and counters of a GPU. `None`: it doesn't have this one, or NVML didn't answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sensors {
    /// Percent of NVML's last sample period, up to a second, in which a kernel ran.
    pub utilization: Option<u32>,
    /// Percent of the same period in which memory was read or written.
    pub memory_utilization: Option<u32>,
    /// Temperature of the GPU in °C.
    pub temperature: Option<u32>,
    /// Power draw in milliwatts.
    pub power: Option<u32>,
    /// Power limit in force in milliwatts.
    pub power_limit: Option<u32>,
    /// Energy in millijoules since the driver was loaded.
    pub energy: Option<u64>,
    /// Corrected memory errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected memory errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Reasons that hold the clocks down, as the bits of `nvmlClocksEventReason…`.
    pub clocks_event_reasons: Option<u64>,
    /// Rows of memory that were replaced by spare ones.
    pub remapped_rows: Option<RemappedRows>,
}

/// Rows of memory that were replaced by spare ones, over the life of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
