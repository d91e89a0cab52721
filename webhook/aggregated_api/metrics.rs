//! Counters of answered requests, and gauges of what is served, read when scraped.

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

use super::MOST_WATCHES;
use super::objects::ServedKind;
use super::shared_store::SharedStore;

/// Counters of answered requests.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestCounter(Family<Labels, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    resource: &'static str,
    verb: &'static str,
    /// HTTP status code.
    code: u16,
}

/// Gauges that are read when scraped.
#[derive(Debug)]
struct Gauges {
    store: SharedStore,
    /// Places that are free.
    watches: Arc<Semaphore>,
}

/// Registers counters, and gauges of objects and open watches.
pub(super) fn register(registry: &mut Registry, store: &SharedStore, watches: &Arc<Semaphore>) -> RequestCounter {
    let requests = RequestCounter::default();
    let registry = registry.sub_registry_with_prefix("divvy_aggregated_api");
    let help = "Answered requests for the aggregated API, by resource, verb and HTTP status code; a watch counts when it begins";
    registry.register("requests", help, requests.0.clone());
    registry.register_collector(Box::new(Gauges { store: store.clone(), watches: Arc::clone(watches) }));
    requests
}

// === impl RequestCounter ===

impl RequestCounter {
    pub(super) fn answered(&self, kind: ServedKind, verb: &'static str, code: u16) {
        self.0.get_or_create(&Labels { resource: kind.plural(), verb, code }).inc();
    }
}

// === impl Gauges ===

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = ServedKind::ALL.map(|kind| (kind, self.store.lock().count(kind)));
        let help = "Objects of the aggregated API, by resource";
        let mut family = encoder.encode_descriptor("objects", help, None, MetricType::Gauge)?;
        for (kind, objects) in counts {
            ConstGauge::new(gauge(objects)).encode(family.encode_family(&[("resource", kind.plural())])?)?;
        }
        let open = MOST_WATCHES.saturating_sub(self.watches.available_permits());
        let family =
            encoder.encode_descriptor("watches", "Open watches of the aggregated API", None, MetricType::Gauge)?;
        ConstGauge::new(gauge(open)).encode(family)
    }
}

fn gauge(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
