//! Gauges and counters of the measured use of containers, as of the last measurement.

use std::fmt;
use std::sync::Arc;

use divvy_api::usage::{ContainerUsage, NodeUsage, ViolationKind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;

/// Collector of the measured use.
#[derive(Debug)]
pub(super) struct Usage(pub(super) watch::Receiver<Arc<NodeUsage>>);

/// A metric of each card of each container: name, help, and its value where it is known.
type PerContainer = (&'static str, &'static str, fn(&ContainerUsage) -> Option<f64>);

const GAUGES: [PerContainer; 5] = [
    ("container_memory_limit_bytes", "GPU memory limit of the container", |usage| {
        Some(count(usage.share.memory.as_mib() << 20))
    }),
    ("container_memory_used_bytes", "GPU memory used by the container according to libdivvy", |usage| {
        usage.region.map(|region| count(region.used_bytes))
    }),
    (
        "container_memory_overhead_bytes",
        "GPU memory of CUDA contexts and modules beyond what libdivvy accounts",
        |usage| usage.region.map(|_| count(usage.overhead_bytes)),
    ),
    ("container_memory_driver_bytes", "GPU memory used by the container according to the driver", |usage| {
        usage.driver_bytes.map(count)
    }),
    ("container_processes", "Processes of the container that libdivvy accounts", |usage| {
        usage.region.map(|region| f64::from(region.processes))
    }),
];

const COUNTERS: [PerContainer; 5] = [
    ("container_busy_seconds", "GPU time used by the container", |usage| {
        usage.region.map(|region| seconds(region.busy_ns))
    }),
    ("container_throttled_seconds", "Time for which launches of the container were throttled", |usage| {
        usage.region.map(|region| seconds(region.throttled_ns))
    }),
    ("container_launches", "Kernels and graphs launched by the container", |usage| {
        usage.region.map(|region| count(region.launches))
    }),
    ("container_refused_allocations", "GPU memory allocations refused to the container", |usage| {
        usage.region.map(|region| count(region.out_of_memory))
    }),
    (
        "container_unhooked_functions",
        "CUDA functions loaded in the container that libdivvy doesn't intercept",
        |usage| usage.region.map(|region| count(region.unhooked)),
    ),
];

// === impl Usage ===

impl Collector for Usage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let usage = Arc::clone(&self.0.borrow());
        for (metrics, kind) in [(GAUGES, MetricType::Gauge), (COUNTERS, MetricType::Counter)] {
            for (name, help, value) in metrics {
                let mut family = encoder.encode_descriptor(name, help, None, kind)?;
                for container in &usage.containers {
                    let Some(value) = value(container) else { continue };
                    let labels = labels(container);
                    let encoder = family.encode_family(&labels)?;
                    match kind {
                        MetricType::Counter => ConstCounter::new(value).encode(encoder)?,
                        _ => ConstGauge::new(value).encode(encoder)?,
                    }
                }
            }
        }
        let help = "Active share violations, by kind";
        let mut family = encoder.encode_descriptor("share_violations", help, None, MetricType::Gauge)?;
        for kind in ViolationKind::ALL {
            let active = usage.findings.iter().filter(|finding| finding.kind == kind).count();
            ConstGauge::new(count(active as u64)).encode(family.encode_family(&[("kind", kind.as_str())])?)?;
        }
        Ok(())
    }
}

fn labels(usage: &ContainerUsage) -> [(&'static str, &str); 4] {
    let of = &usage.of;
    let uuid = usage.card.as_str();
    [("namespace", &of.namespace), ("pod", &of.pod), ("container", &of.container), ("uuid", uuid)]
}

fn seconds(ns: u64) -> f64 {
    count(ns) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows floats only")]
fn count(value: u64) -> f64 {
    value as f64
}
