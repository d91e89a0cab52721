//! A large cluster, and the pods that come to it.

use std::sync::Arc;
use std::time::Duration;

use divvy_api::annotation::MOST_ITEMS;
use divvy_api::gpunode::{CardStatus, GpuNode, GpuNodeSpec, GpuNodeStatus, ShareStatus};
use divvy_api::{ContainerKind, Cores, GpuRequest, Links, Memory, MemoryAmount, Share};
use divvy_index::Index;
use divvy_index::demand::SchedulingConfig;
use divvy_placement::{Expected, ExpectedRequests, Kind};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

/// The best of some runs of each call: the tail of the work is wanted, not that of the machine.
const RUNS: usize = 3;
const CARDS: usize = 8;

/// Nodes with eight cards and eight shares each, and the index that knows them.
pub(crate) struct Cluster {
    pub(crate) index: Arc<Index>,
    pub(crate) names: Vec<String>,
    pub(crate) rng: StdRng,
    reports: Vec<GpuNode>,
}

/// Which pods come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pods {
    /// 24 shapes of one card.
    Known,
    /// Every pod another shape of one card.
    New,
    /// Every pod another shape of one card, of models that it names.
    Picky,
    /// The same, with as many models as a pod may name, none of which the cluster has.
    Pickiest,
    /// Six shapes of two cards.
    Pairs,
    /// Every pod another shape of two cards.
    NewPairs,
    /// Every pod another shape: init container, sidecar, two apps, one of them on two cards.
    Several,
    /// Six shapes, each of more cards than any node has.
    Nowhere,
    /// Every pod another shape of one card, with more memory than any card has.
    NewNowhere,
}

impl Pods {
    const ALL: [Self; 9] = [
        Self::Known,
        Self::New,
        Self::Picky,
        Self::Pickiest,
        Self::Pairs,
        Self::NewPairs,
        Self::Several,
        Self::Nowhere,
        Self::NewNowhere,
    ];

    /// Those that the command line names, or all.
    pub(crate) fn wanted() -> Vec<Self> {
        let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
        let is_wanted = |pods: &Self| names.is_empty() || names.contains(&format!("{pods:?}"));
        Self::ALL.into_iter().filter(is_wanted).collect()
    }
}

/// Nodes that report between two calls: as a scheduler at 200 pods a second makes them, and 1 000 a second with a call
/// every 10 ms.
pub(crate) fn loads(pods: Pods) -> &'static [(&'static str, usize)] {
    let all = &[("quiet", 2), ("storm", 10)];
    if matches!(pods, Pods::Known | Pods::New) { all } else { &all[..1] }
}

impl Cluster {
    /// Least fragmentation, with a mix of requests to look ahead to or without, which best-fits.
    pub(crate) fn new(nodes: usize, looks_ahead: bool) -> Self {
        let mut cluster = Self::silent(nodes, looks_ahead);
        cluster.reports = (0..nodes).map(|at| cluster.report(at)).collect();
        // The order in which the index hears of nodes is not the one in which the scheduler names them.
        let mut order: Vec<usize> = (0..nodes).collect();
        order.shuffle(&mut cluster.rng);
        for at in order {
            cluster.index.apply_gpu_node(&cluster.names[at], &cluster.reports[at]);
        }
        cluster
    }

    /// Nodes of which the index hasn't heard.
    pub(crate) fn silent(nodes: usize, looks_ahead: bool) -> Self {
        let names = (0..nodes).map(|number| format!("gpu-node-{number:05}.eu-central.example")).collect();
        let index = Arc::new(Index::new(SchedulingConfig::default()));
        index.expect(mix(if looks_ahead { 24 } else { 0 }));
        Self { index, names, rng: StdRng::seed_from_u64(1), reports: Vec::new() }
    }

    /// What the node could say.
    pub(crate) fn report(&mut self, at: usize) -> GpuNode {
        report(at, &self.names[at], &mut self.rng)
    }

    /// All nodes that the index knows report anew, and later change what they have reported.
    pub(crate) fn keep_reports(&mut self) {
        for at in 0..self.names.len() {
            let mut report = self.report(at);
            report.status.get_or_insert_default().ledger_revision = 1;
            self.index.apply_gpu_node(&self.names[at], &report);
            self.reports.push(report);
        }
    }

    /// So many nodes report, each with its shares in another order.
    pub(crate) fn change(&mut self, nodes: usize) {
        for _ in 0..nodes {
            let at = self.rng.random_range(0..self.reports.len());
            let status = self.reports[at].status.get_or_insert_default();
            status.ledger_revision += 1;
            status.shares.rotate_left(1);
            self.index.apply_gpu_node(&self.names[at], &self.reports[at]);
        }
    }
}

/// How long each of the calls takes, the first tenth left out. All runs make the same calls, each of what `new` makes.
pub(crate) fn times<C>(calls: usize, new: impl Fn() -> C, time: impl Fn(&mut C, usize) -> Duration) -> String {
    let run = |_| {
        let mut called = new();
        (0..calls + calls / 10).map(|call| time(&mut called, call)).skip(calls / 10).collect::<Vec<_>>()
    };
    let least = |one: Vec<Duration>, other| one.into_iter().zip(other).map(|(one, other)| one.min(other)).collect();
    let mut best = (0..RUNS).map(run).reduce(least).unwrap_or_default();
    best.sort_unstable();
    let at = |permille: usize| best[(best.len() - 1) * permille / 1000].as_micros();
    format!("p50 {} µs, p90 {}, p99 {}, most {}", at(500), at(900), at(990), at(1000))
}

/// So many kinds of requests.
pub(crate) fn mix(kinds: u32) -> ExpectedRequests {
    let kind = |number: u32| Expected {
        kind: Kind {
            request: GpuRequest {
                cards: 1 << (number % 3),
                memory: MemoryAmount::Absolute(Memory::mib(u64::from(3 + 3 * number) << 10)),
                cores: Cores::new(4 * number),
            },
            profile: None,
            instances: false,
            models: Vec::new(),
            avoid_models: Vec::new(),
            cpu_milli: 1000 * (number % 8),
        },
        weight: 1 + number % 5,
    };
    ExpectedRequests { requests: (0..kinds).map(kind).collect(), counted: 1000 }
}

/// Of this process, in MiB.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn report(at: usize, name: &str, rng: &mut StdRng) -> GpuNode {
    let uuid = |card: usize| format!("GPU-5f3a9c10-{at:04x}-4000-8000-{card:012}").parse().expect("a card's name");
    let card = |number: usize| CardStatus {
        numa: Some(u32::from(number >= 4)),
        ..CardStatus::healthy(uuid(number), "NVIDIA H100 80GB HBM3", Memory::mib(81_559))
    };
    let share = |number: usize, rng: &mut StdRng| ShareStatus {
        pod_uid: format!("{at:08x}-{number:04x}-4000-8000-000000000000"),
        namespace: "default".into(),
        pod: format!("pod-{at}-{number}"),
        container: "main".into(),
        kind: ContainerKind::App,
        card: uuid(rng.random_range(0..CARDS)),
        share: Share {
            memory: Memory::mib(rng.random_range(1..10) << 10),
            cores: Cores::new(rng.random_range(0..12)),
            ..Share::default()
        },
        adopted: false,
    };
    let ready = json!({"type": "Ready", "status": "True", "reason": "Registered", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = GpuNodeStatus {
        cards: (0..CARDS).map(card).collect(),
        links: Links::nvswitch(CARDS, 18).groups(),
        shares: (0..8).map(|number| share(number, rng)).collect(),
        conditions: vec![serde_json::from_value(ready).expect("a condition")],
        ..GpuNodeStatus::default()
    };
    GpuNode { status: Some(status), ..GpuNode::new(name, GpuNodeSpec::default()) }
}

/// About 4 KB, as pods of a real cluster are.
pub(crate) fn pod(call: usize, pods: Pods) -> Value {
    let kind = call
        % match pods {
            Pods::Known => 24,
            Pods::Pairs | Pods::Nowhere => 6,
            Pods::New | Pods::Picky | Pods::Pickiest | Pods::NewPairs | Pods::Several | Pods::NewNowhere => usize::MAX,
        };
    let filler: Vec<Value> =
        (0..20).map(|number| json!({"name": format!("VARIABLE_{number}"), "value": "x".repeat(120)})).collect();
    // Small and large ones in turn, as 7919 is a prime.
    let memory = 1024 + 7919 * kind % if matches!(pods, Pods::Several) { 30_000 } else { 75_000 };
    let memory = memory + if matches!(pods, Pods::NewNowhere) { 82_000 } else { 0 };
    let request = |cards: usize| {
        json!({
            "cpu": "4", "memory": "16Gi", "nvidia.com/gpu": cards.to_string(),
            "nvidia.com/gpumem": memory.to_string(), "nvidia.com/gpucores": (5 + kind % 40).to_string(),
        })
    };
    let container = |name: &str, cards| json!({"name": name, "image": "example.com/train:1", "env": filler, "resources": {"limits": request(cards)}});
    let mut spec = json!({"schedulerName": "default-scheduler"});
    spec["containers"] = match pods {
        Pods::Known | Pods::New | Pods::Picky | Pods::Pickiest | Pods::NewNowhere => json!([container("main", 1)]),
        Pods::Pairs | Pods::NewPairs => json!([container("main", 2)]),
        Pods::Several => json!([container("main", 2), container("serve", 1)]),
        Pods::Nowhere => json!([container("main", CARDS + 1)]),
    };
    if matches!(pods, Pods::Several) {
        let mut sidecar = container("sidecar", 1);
        sidecar["restartPolicy"] = "Always".into();
        spec["initContainers"] = json!([container("fetch", 1), sidecar]);
    }
    let annotations = match pods {
        Pods::Picky => json!({"divvy.dev/card-model": "H100,A100"}),
        Pods::Pickiest => {
            let models: Vec<String> = (0..MOST_ITEMS).map(|number| format!("H100 80GB HBM3 rev {number}")).collect();
            json!({"divvy.dev/card-model": models.join(",")})
        }
        _ => json!({}),
    };
    let uid = format!("6b1f0c9e-{call:04x}-4b0e-9c0a-1f2e3d4c5b6a");
    let metadata = json!({"uid": uid, "namespace": "team-a", "name": format!("train-{call}"), "labels": {"app": "train"}, "annotations": annotations});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
}
