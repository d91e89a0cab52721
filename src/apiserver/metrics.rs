//! Counters of answered calls, and gauges of what is served, read when scraped.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::nodes::Nodes;
use crate::objects::Kind;

/// Counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Labels, Counter>,
    handler_panics: Family<Listener, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    resource: &'static str,
    verb: &'static str,
    /// HTTP status code.
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Listener {
    listener: &'static str,
}

/// Gauges that are read when scraped.
#[derive(Debug)]
struct Served {
    nodes: Nodes,
    watches: Arc<Semaphore>,
    most: usize,
}

// === impl Metrics ===

impl Metrics {
    /// Registers counters, and gauges of objects and of the places of watches that are taken, of so many.
    pub fn register(registry: &mut Registry, nodes: &Nodes, watches: &Arc<Semaphore>, most: usize) -> Self {
        let metrics = Self { requests: Family::default(), handler_panics: Family::default() };
        let registry = registry.sub_registry_with_prefix("divvy_apiserver");
        let help = "Answered requests, by resource, verb and HTTP status code; a watch counts when it begins";
        registry.register("requests", help, metrics.requests.clone());
        let help = "Calls that were answered with HTTP status code 500 because their handler panicked, by listener (api, pages)";
        registry.register("handler_panics", help, metrics.handler_panics.clone());
        registry.register_collector(Box::new(Served { nodes: nodes.clone(), watches: Arc::clone(watches), most }));
        metrics
    }

    pub(crate) fn answered(&self, resource: &'static str, verb: &'static str, code: u16) {
        self.requests.get_or_create(&Labels { resource, verb, code }).inc();
    }

    /// Counter of the panics of a listener's handlers.
    pub(crate) fn panics(&self, listener: &'static str) -> Counter {
        self.handler_panics.get_or_create(&Listener { listener }).clone()
    }
}

// === impl Served ===

impl Collector for Served {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = Kind::ALL.map(|kind| (kind, self.nodes.store().count(kind)));
        let mut family =
            encoder.encode_descriptor("objects", "Served objects, by resource", None, MetricType::Gauge)?;
        for (kind, objects) in counts {
            ConstGauge::new(count(objects)).encode(family.encode_family(&[("resource", kind.plural())])?)?;
        }
        let open = self.most.saturating_sub(self.watches.available_permits());
        let family = encoder.encode_descriptor("watches", "Open watches", None, MetricType::Gauge)?;
        ConstGauge::new(count(open)).encode(family)
    }
}

fn count(of: usize) -> f64 {
    f64::from(u32::try_from(of).unwrap_or(u32::MAX))
}
