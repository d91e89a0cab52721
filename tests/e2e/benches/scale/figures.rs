//! Processor time of every program and the counters of API server and scheduler, between two moments.

use std::collections::BTreeMap;
use std::time::Duration;

use divvy_e2e::cluster::Cluster;
use divvy_e2e::figures::{Spread, sample};
use divvy_e2e::program::{Program, processor_time};

use crate::fleet::Fleet;

/// Counters of the API server that are kept, and the labels that they are added up by.
const KEPT: [(&str, &[&str]); 5] = [
    ("apiserver_request_total", &["verb", "resource", "subresource"]),
    ("apiserver_request_body_size_bytes_sum", &["verb", "resource"]),
    ("apiserver_response_sizes_sum", &["verb", "resource", "subresource"]),
    ("apiserver_watch_events_sizes_sum", &["resource", "kind"]),
    ("apiserver_watch_events_total", &["resource", "kind"]),
];
/// Sum and count of a scheduling cycle, in seconds.
const CYCLE: [&str; 2] =
    ["scheduler_scheduling_algorithm_duration_seconds_sum", "scheduler_scheduling_algorithm_duration_seconds_count"];
/// Verbs that write.
const WRITES: [&str; 5] = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];

/// Values of counters by name and labels.
type Counters = BTreeMap<String, f64>;

/// What has been counted so far, or between two moments.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Seconds of processors by program.
    pub(crate) spent: BTreeMap<&'static str, f64>,
    counters: Counters,
    cycle: [f64; 2],
}

/// A counter's samples, added up by these labels.
fn sums(text: &str, name: &str, by: &[&str]) -> Counters {
    let mut sums = Counters::new();
    let samples = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} "));
    for (labels, value) in samples {
        let label = |wanted: &&str| {
            let (_, rest) = labels.split_once(&format!("{wanted}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let labels: Vec<&str> = by.iter().filter_map(label).filter(|value| !value.is_empty()).collect();
        *sums.entry(format!("{name} {}", labels.join(" "))).or_default() += value.parse().unwrap_or(0.0);
    }
    sums
}

/// The middle, and in brackets the least and the most.
pub(crate) fn spread(values: &[f64], digits: usize) -> String {
    Spread::of(values.iter().copied()).map_or_else(String::new, |spread| format!("{spread:.digits$}"))
}

// === impl Reading ===

impl Reading {
    /// All until now.
    pub(crate) async fn now(cluster: &Cluster, fleet: &Fleet) -> anyhow::Result<Self> {
        let api = text(cluster.api.get("/metrics").await?);
        let scheduler = text(cluster.control_plane.scheduler_pages.get("/metrics").await?);
        let counters = KEPT.iter().flat_map(|(name, by)| sums(&api, name, by)).collect();
        Ok(Self {
            spent: spent(cluster, fleet),
            counters,
            cycle: CYCLE.map(|name| sample(&scheduler, name).unwrap_or(0.0)),
        })
    }

    /// What was counted after an earlier reading; the scheduler's is of this process alone.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (program, spent) in &mut self.spent {
            *spent -= before.spent.get(program).copied().unwrap_or_default();
        }
        for (name, value) in &mut self.counters {
            *value -= before.counters.get(name).copied().unwrap_or_default();
        }
        self.cycle = [self.cycle[0] - before.cycle[0], self.cycle[1] - before.cycle[1]];
        self
    }

    /// Mean of a scheduling cycle in ms.
    pub(crate) fn cycle(&self) -> f64 {
        self.cycle[0] * 1e3 / self.cycle[1]
    }

    /// Seconds of processors, of all programs.
    pub(crate) fn all(&self) -> f64 {
        self.spent.values().sum()
    }

    /// Writes of GpuNodes, and of the status of Nodes and pods.
    pub(crate) fn daemons_wrote(&self) -> f64 {
        let of = ["PATCH gpunodes status", "PATCH nodes status", "PATCH pods status"];
        of.iter().filter_map(|of| self.counters.get(&format!("apiserver_request_total {of}"))).sum()
    }

    /// Prints what each pod cost: time of processors, writes by resource, bytes.
    pub(crate) fn print(&self, pods: f64) {
        let programs = self.spent.iter().map(|(program, spent)| format!("{program} {:.2}", spent * 1e3 / pods));
        println!(
            "    ms of processors a pod: {:.2} = {}",
            self.all() * 1e3 / pods,
            programs.collect::<Vec<_>>().join(" + ")
        );
        println!("    scheduling cycle, mean: {:.3} ms of {} cycles", self.cycle(), self.cycle[1]);
        for (name, value) in &self.counters {
            let a_pod = value / pods;
            let is_shown = match name.split(' ').collect::<Vec<_>>()[..] {
                ["apiserver_request_total", verb, ..] => WRITES.contains(&verb) && a_pod >= 0.005,
                _ => a_pod >= if name.contains("_total") { 0.005 } else { 20.0 },
            };
            if is_shown {
                println!("    {name}: {a_pod:.2} a pod");
            }
        }
    }
}

fn text(page: serde_json::Value) -> String {
    if let serde_json::Value::String(text) = page { text } else { String::new() }
}

fn spent(cluster: &Cluster, fleet: &Fleet) -> BTreeMap<&'static str, f64> {
    let (plane, [one, other]) = (&cluster.control_plane, &cluster.webhook.replicas);
    let programs = [
        ("kube-scheduler", &plane.scheduler),
        ("kube-apiserver", &plane.api),
        ("etcd", &plane.etcd),
        ("webhook a", &one.program),
        ("webhook b", &other.program),
    ];
    let seconds = |spent: Option<Duration>| spent.unwrap_or_default().as_secs_f64();
    let players: f64 = fleet.players().map(|program| seconds(program.processor_time())).sum();
    let own = [("daemons", players), ("this program", seconds(processor_time(std::process::id())))];
    programs
        .map(|(name, program): (_, &Program)| (name, seconds(program.processor_time())))
        .into_iter()
        .chain(own)
        .collect()
}
