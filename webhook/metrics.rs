//! Counters of answered calls, and gauges of the cluster state, read when scraped.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use divvy_index::demand::Demand;
use divvy_index::{Index, Outcome};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Counters and histograms.
#[derive(Clone, Debug)]
pub struct Metrics {
    reviews: Family<Review, Counter>,
    review_durations: Durations,
    calls: Family<Call, Counter>,
    call_durations: Durations,
    handler_panics: Family<Listener, Counter>,
    /// Until when the scheduler's certificate is valid, in seconds since 1970; 0 until one was shown.
    pub scheduler_certificate: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Review {
    endpoint: &'static str,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    verb: &'static str,
    /// HTTP status code.
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Listener {
    listener: &'static str,
}

/// Histograms by one label.
type Durations = Family<[(&'static str, &'static str); 1], Histogram, fn() -> Histogram>;

/// Gauges that are read when scraped.
struct State {
    index: Arc<Index>,
    leads: Box<dyn Fn() -> bool + Send + Sync>,
    /// When a scrape first saw each pending pod, by UID.
    pending_since: Mutex<HashMap<Arc<str>, Instant>>,
}

const HANDLER_PANICS: &str = "Calls that were answered with HTTP status code 500 because their handler panicked, by listener (reviews, extender, queries, aggregated_api, pages)";

/// Seconds; a review or a filter of 500 nodes takes a fraction of a millisecond.
fn durations() -> Histogram {
    Histogram::new([50e-6, 100e-6, 200e-6, 300e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 250e-3, 1.0, 5.0])
}

// === impl Metrics ===

impl Metrics {
    /// Registers counters, gauges of the cluster state and whether this replica leads.
    pub fn register(
        registry: &mut Registry,
        index: &Arc<Index>,
        leads: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let metrics = Self {
            reviews: Family::default(),
            review_durations: Family::new_with_constructor(durations),
            calls: Family::default(),
            call_durations: Family::new_with_constructor(durations),
            handler_panics: Family::default(),
            scheduler_certificate: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("divvy");
        registry.register("admission_reviews", "Admission reviews, by endpoint (mutate, validate, templates) and verdict (allowed, warned, refused, malformed)", metrics.reviews.clone());
        let help = "Latency of admission reviews in seconds";
        registry.register("admission_review_duration_seconds", help, metrics.review_durations.clone());
        registry.register(
            "extender_calls",
            "Extender calls of kube-scheduler, by verb and HTTP status code",
            metrics.calls.clone(),
        );
        let help = "Latency of extender calls in seconds; bind includes the request to the API server";
        registry.register("extender_call_duration_seconds", help, metrics.call_durations.clone());
        registry.register("handler_panics", HANDLER_PANICS, metrics.handler_panics.clone());
        registry.register(
            "scheduler_certificate_expiration_timestamp_seconds",
            "End of validity of the client certificate that the scheduler showed last, in seconds since 1970; 0: none yet",
            metrics.scheduler_certificate.clone(),
        );
        let state = State { index: Arc::clone(index), leads: Box::new(leads), pending_since: Mutex::default() };
        registry.register_collector(Box::new(state));
        metrics
    }

    pub(crate) fn reviewed(&self, endpoint: &'static str, started: Instant, verdict: &'static str) {
        self.reviews.get_or_create(&Review { endpoint, verdict }).inc();
        self.review_durations.get_or_create(&[("endpoint", endpoint)]).observe(started.elapsed().as_secs_f64());
    }

    /// Counter of the panics of a listener's handlers.
    pub(crate) fn panics(&self, listener: &'static str) -> Counter {
        self.handler_panics.get_or_create(&Listener { listener }).clone()
    }

    pub(crate) fn called(&self, verb: &'static str, started: Instant, code: u16) {
        self.calls.get_or_create(&Call { verb, code }).inc();
        self.call_durations.get_or_create(&[("verb", verb)]).observe(started.elapsed().as_secs_f64());
    }
}

// === impl State ===

impl State {
    /// How long the scrapes of this replica have seen the same pod pending, at most.
    fn longest_wait(&self, pending: &[Arc<Demand>]) -> Duration {
        let now = Instant::now();
        let mut known = self.pending_since.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |pod: &Arc<Demand>| (Arc::clone(&pod.uid), known.get(&pod.uid).copied().unwrap_or(now));
        *known = pending.iter().map(since).collect();
        known.values().min().map_or(Duration::ZERO, |first| now.duration_since(*first))
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl Collector for State {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let outcomes = self.index.outcomes();
        let help = "GPU reservations that ended, by outcome: kept, moved to other GPUs of the node, ended with the pod, expired before the node reported them, never bound, or bound elsewhere than planned";
        let mut family = encoder.encode_descriptor("reservation_outcomes", help, None, MetricType::Counter)?;
        for outcome in Outcome::ALL {
            let labels = [("outcome", outcome.as_str())];
            ConstCounter::new(outcomes.get(outcome)).encode(family.encode_family(&labels)?)?;
        }
        let snapshot = self.index.snapshot();
        let nodes = snapshot.nodes().count();
        let pending = self.index.waiting();
        let open = snapshot.nodes().filter(|node| node.closed.is_none()).count();
        let gauges = [
            ("leader", "Whether this replica is the leader: 1 or 0", f64::from(u8::from((self.leads)()))),
            ("nodes", "Nodes with a GpuNode", count(nodes)),
            ("nodes_unschedulable", "Nodes with a GpuNode that accept no pods that request GPUs", count(nodes - open)),
            (
                "reservations",
                "Pods with reserved GPUs that their node has not reported as allocated yet",
                count(self.index.reserved().len()),
            ),
            ("pending_pods", "Pods that request GPUs and are not bound to a node", count(pending.len())),
            (
                "gated_pods",
                "Pods that wait with the scheduling gate divvy.dev/placement alone: the leader has found no place for them yet",
                count(self.index.gated()),
            ),
            (
                "pending_pods_longest_wait_seconds",
                "How long this replica has seen the same pod pending, at most; 0: none is pending",
                self.longest_wait(&pending).as_secs_f64(),
            ),
            (
                "request_distribution_pods",
                "Pods that request GPUs from which this replica has learned the request distribution",
                count(snapshot.counted_pods()),
            ),
        ];
        for (name, help, value) in gauges {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(family)?;
        }
        Ok(())
    }
}

fn count(of: impl TryInto<u32>) -> f64 {
    f64::from(of.try_into().unwrap_or(u32::MAX))
}
