//! Gauges and counters of the GPUs' sensors, as of the last probe: a scrape calls no driver.

use std::fmt;
use std::sync::Arc;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;

use crate::nvml::GpuReadings;

/// Collector of the readings.
#[derive(Debug)]
pub(super) struct Readings(pub(super) watch::Receiver<Arc<Vec<GpuReadings>>>);

/// A metric of each GPU: name, help, type, and its values, none where the GPU doesn't have it.
type Metric = (&'static str, &'static str, MetricType, fn(&GpuReadings) -> Vec<Value>);

/// A value, and the label that tells it from the GPU's other values.
type Value = (Option<(&'static str, String)>, f64);

const METRICS: [Metric; 12] = [
    (
        "gpu_utilization_ratio",
        "Part of NVML's last sample period in which a kernel ran on the GPU",
        MetricType::Gauge,
        |gpu| one(gpu.sensors.utilization.map(|percent| f64::from(percent) / 100.0)),
    ),
    (
        "gpu_memory_utilization_ratio",
        "Part of NVML's last sample period in which memory of the GPU was read or written",
        MetricType::Gauge,
        |gpu| one(gpu.sensors.memory_utilization.map(|percent| f64::from(percent) / 100.0)),
    ),
    ("gpu_temperature_celsius", "Temperature of the GPU", MetricType::Gauge, |gpu| {
        one(gpu.sensors.temperature.map(f64::from))
    }),
    ("gpu_power_watts", "Power draw of the GPU", MetricType::Gauge, |gpu| {
        one(gpu.sensors.power.map(|milliwatts| f64::from(milliwatts) / 1e3))
    }),
    ("gpu_power_limit_watts", "Power limit in force on the GPU", MetricType::Gauge, |gpu| {
        one(gpu.sensors.power_limit.map(|milliwatts| f64::from(milliwatts) / 1e3))
    }),
    ("gpu_energy_joules", "Energy that the GPU has used since the driver was loaded", MetricType::Counter, |gpu| {
        one(gpu.sensors.energy.map(|millijoules| count(millijoules) / 1e3))
    }),
    (
        "gpu_ecc_errors",
        "Memory errors since the driver was loaded, by type: corrected, uncorrected",
        MetricType::Counter,
        |gpu| by_type(gpu.sensors.ecc_corrected, gpu.sensors.ecc_uncorrected),
    ),
    (
        "gpu_remapped_rows",
        "Rows of the GPU's memory that were replaced by spare ones, by type of the errors: corrected, uncorrected",
        MetricType::Counter,
        |gpu| {
            let rows = gpu.sensors.remapped_rows;
            by_type(rows.map(|rows| rows.corrected.into()), rows.map(|rows| rows.uncorrected.into()))
        },
    ),
    ("gpu_row_remapping_pending", "1 if rows are replaced at the GPU's next reset", MetricType::Gauge, |gpu| {
        one(gpu.sensors.remapped_rows.map(|rows| f64::from(u8::from(rows.pending))))
    }),
    ("gpu_row_remapping_failed", "1 if a row couldn't be replaced", MetricType::Gauge, |gpu| {
        one(gpu.sensors.remapped_rows.map(|rows| f64::from(u8::from(rows.failed))))
    }),
    (
        "gpu_clocks_event_reason",
        "1 if the GPU's clocks are held down for this reason; names as nvidia-smi has them (clocks_event_reasons)",
        MetricType::Gauge,
        |gpu| gpu.sensors.clocks_event_reasons.map(by_reason).unwrap_or_default(),
    ),
    ("gpu_xid_errors", "XID errors that the driver has reported, by XID", MetricType::Counter, |gpu| {
        gpu.xids.iter().map(|(xid, reports)| (Some(("xid", xid.to_string())), count(*reports))).collect()
    }),
];

/// NVML's reasons, under the names that nvidia-smi gives them.
const REASONS: [(&str, ThrottleReasons); 9] = [
    ("gpu_idle", ThrottleReasons::GPU_IDLE),
    ("applications_clocks_setting", ThrottleReasons::APPLICATIONS_CLOCKS_SETTING),
    ("sw_power_cap", ThrottleReasons::SW_POWER_CAP),
    ("hw_slowdown", ThrottleReasons::HW_SLOWDOWN),
    ("sync_boost", ThrottleReasons::SYNC_BOOST),
    ("sw_thermal_slowdown", ThrottleReasons::SW_THERMAL_SLOWDOWN),
    ("hw_thermal_slowdown", ThrottleReasons::HW_THERMAL_SLOWDOWN),
    ("hw_power_brake_slowdown", ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
    ("display_clock_setting", ThrottleReasons::DISPLAY_CLOCK_SETTING),
];

fn one(value: Option<f64>) -> Vec<Value> {
    value.map(|value| (None, value)).into_iter().collect()
}

fn by_type(corrected: Option<u64>, uncorrected: Option<u64>) -> Vec<Value> {
    let values = [("corrected", corrected), ("uncorrected", uncorrected)].into_iter();
    values.filter_map(|(name, value)| Some((Some(("type", name.to_owned())), count(value?)))).collect()
}

fn by_reason(bits: u64) -> Vec<Value> {
    let active = ThrottleReasons::from_bits_truncate(bits);
    let value = |(name, reason): (&str, ThrottleReasons)| {
        (Some(("reason", name.to_owned())), f64::from(u8::from(active.contains(reason))))
    };
    REASONS.map(value).into()
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows floats only")]
fn count(value: u64) -> f64 {
    value as f64
}

// === impl Readings ===

impl Collector for Readings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gpus = Arc::clone(&self.0.borrow());
        for (name, help, kind, values) in METRICS {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for gpu in gpus.iter() {
                for (label, value) in values(gpu) {
                    let labels = [("uuid", gpu.id.as_str()), ("model", &gpu.model)];
                    let label = label.as_ref().map(|(name, value)| (*name, value.as_str()));
                    let labels: Vec<_> = labels.into_iter().chain(label).collect();
                    let encoder = family.encode_family(&labels)?;
                    match kind {
                        MetricType::Counter => ConstCounter::new(value).encode(encoder)?,
                        _ => ConstGauge::new(value).encode(encoder)?,
                    }
                }
            }
        }
        Ok(())
    }
}
