//! What containers really use, and what was found about it, as of the last look.

use std::fmt;
use std::sync::Arc;

use divvy_api::usage::{ContainerUsage, FindingKind, NodeUsage};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;

/// What a scrape reads.
#[derive(Debug)]
pub(super) struct Usage(pub(super) watch::Receiver<Arc<NodeUsage>>);

/// A metric of each card of each container: name, help, and its value where it is known.
type PerContainer = (&'static str, &'static str, fn(&ContainerUsage) -> Option<f64>);

const GAUGES: [PerContainer; 5] = [
    ("container_memory_limit_bytes", "Memory of the card that the container may use", |usage| {
        Some(count(usage.share.memory.as_mib() << 20))
    }),
    ("container_memory_used_bytes", "Memory of the card that the container uses, by its own books", |usage| {
        usage.books.map(|books| count(books.used_bytes))
    }),
    (
        "container_memory_overhead_bytes",
        "Memory that contexts and modules of the container take beyond that",
        |usage| usage.books.map(|_| count(usage.overhead_bytes)),
    ),
    ("container_memory_driver_bytes", "Memory of the card that the container uses, by the driver", |usage| {
        usage.driver_bytes.map(count)
    }),
    ("container_processes", "Processes of the container that have a place in its books", |usage| {
        usage.books.map(|books| f64::from(books.processes))
    }),
];

const COUNTERS: [PerContainer; 5] = [
    ("container_busy_seconds", "GPU time that the container has used", |usage| {
        usage.books.map(|books| seconds(books.busy_ns))
    }),
    ("container_throttled_seconds", "Time for which launches of the container were held back", |usage| {
        usage.books.map(|books| seconds(books.throttled_ns))
    }),
    ("container_launches", "Kernels and graphs that the container has launched", |usage| {
        usage.books.map(|books| count(books.launches))
    }),
    ("container_out_of_memory", "Allocations that the container was refused", |usage| {
        usage.books.map(|books| count(books.out_of_memory))
    }),
    ("container_unhooked_functions", "Functions that the container has, and libdivvy doesn't know", |usage| {
        usage.books.map(|books| count(books.unhooked))
    }),
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
        let help = "What stands now that no promise allows";
        let mut family = encoder.encode_descriptor("findings", help, None, MetricType::Gauge)?;
        for kind in FindingKind::ALL {
            let standing = usage.findings.iter().filter(|finding| finding.kind == kind).count();
            ConstGauge::new(count(standing as u64)).encode(family.encode_family(&[("kind", kind.as_str())])?)?;
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
