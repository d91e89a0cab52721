//! Metrics of the device plugin's calls and of the kubelet's pod list.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use divvy_node_core::allocator::Refusal;
use divvy_node_core::ports::{CoreMetrics, PodOrigin};

/// Counters and histograms.
#[derive(Debug)]
pub struct Metrics {
    calls: Family<Call, Counter>,
    durations: Family<CallName, Histogram, fn() -> Histogram>,
    pod_lists: Family<Outcome, Histogram, fn() -> Histogram>,
    identified: Family<Source, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    call: &'static str,
    /// `ok` or the kind of refusal.
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallName {
    call: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Source {
    /// `kubelet` or `api-server`.
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Histogram in seconds: Allocate's own part is tens of microseconds, a pod list under load a tenth of a second.
fn durations() -> Histogram {
    Histogram::new([25e-6, 50e-6, 100e-6, 250e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0])
}

// === impl Metrics ===

impl Metrics {
    /// Registers the metrics; their names get the prefix of `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            durations: Family::new_with_constructor(durations),
            pod_lists: Family::new_with_constructor(durations),
            identified: Family::default(),
        };
        registry.register(
            "device_plugin_calls",
            "Device plugin calls by the kubelet, by outcome",
            metrics.calls.clone(),
        );
        let help = "Latency of device plugin calls, including the kubelet pod list request";
        registry.register("device_plugin_call_duration_seconds", help, metrics.durations.clone());
        let help = "Latency of kubelet pod list requests";
        registry.register("kubelet_pod_list_duration_seconds", help, metrics.pod_lists.clone());
        let help = "Allocations whose pod was identified, by source of the pod list";
        registry.register("identified_containers", help, metrics.identified.clone());
        // From 0 on, so that the first one is an increase.
        for source in ["kubelet", "api-server"] {
            drop(metrics.identified.get_or_create(&Source { source }));
        }
        metrics
    }

    /// Records a call that was answered.
    pub fn observe<T>(&self, call: &'static str, started: Instant, result: &Result<T, Refusal>) {
        let outcome = result.as_ref().err().map_or("ok", Refusal::kind);
        if let Err(refusal) = result {
            tracing::warn!(call, kind = outcome, "{refusal}");
        }
        self.calls.get_or_create(&Call { call, outcome }).inc();
        self.durations.get_or_create(&CallName { call }).observe(started.elapsed().as_secs_f64());
    }

    /// Records a request for the pod list.
    pub fn pod_list(&self, started: Instant, ok: bool) {
        let outcome = Outcome { outcome: if ok { "ok" } else { "error" } };
        self.pod_lists.get_or_create(&outcome).observe(started.elapsed().as_secs_f64());
    }
}

impl CoreMetrics for Metrics {
    fn identified(&self, by: PodOrigin) {
        let source = match by {
            PodOrigin::Kubelet => "kubelet",
            PodOrigin::ApiServer => "api-server",
        };
        self.identified.get_or_create(&Source { source }).inc();
    }
}
