//! A large cluster, and the scheduler's questions about it.

use std::sync::Arc;
use std::time::Instant;

use divvy_contract::gpunode::{CardStatus, GpuNode, GpuNodeSpec, GpuNodeStatus, Health, LinkStatus, ShareStatus};
use divvy_contract::{Claim, ContainerKind, Cores, Memory, MemoryAmount, Share};
use divvy_index::demand::{Demand, Reading};
use divvy_index::{Index, Outlook, Question, Terms};
use divvy_placement::policy::Expected;
use divvy_placement::{Mix, Policy};
use divvy_webhook::extender::Extender;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

pub(crate) struct Cluster {
    index: Arc<Index>,
    pub(crate) extender: Extender,
    reports: Vec<GpuNode>,
    names: Vec<String>,
    rng: StdRng,
}

/// What goes on between two calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Two nodes report, as a scheduler at 200 pods a second makes them.
    Quiet,
    /// Ten nodes report: 1 000 a second, with a call every 10 ms.
    Storm,
}

/// Which pods come.
#[derive(Clone, Copy)]
pub(crate) struct Shapes {
    pub(crate) name: &'static str,
    /// Different amounts.
    kinds: usize,
    cards: usize,
}

pub(crate) const FEW: Shapes = Shapes { name: "24 shapes of one card", kinds: 24, cards: 1 };
pub(crate) const MANY: Shapes = Shapes { name: "every pod another shape of one card", kinds: usize::MAX, cards: 1 };
pub(crate) const MULTI: Shapes = Shapes { name: "6 shapes of two cards", kinds: 6, cards: 2 };
pub(crate) const NOWHERE: Shapes = Shapes { name: "6 shapes that fit nowhere", kinds: 6, cards: 9 };

const CARDS: usize = 8;

impl Cluster {
    /// Eight cards a node, and eight shares.
    ///
    /// Least fragmentation, with a mix of requests to look ahead to or without, which best-fits.
    pub(crate) fn new(nodes: usize, looks_ahead: bool) -> Self {
        let mut cluster = Self::empty(nodes, mix(if looks_ahead { 24 } else { 0 }));
        for at in 0..nodes {
            let report = report(at, &cluster.names[at], &mut cluster.rng);
            cluster.index.apply_node(&cluster.names[at], &report);
            cluster.reports.push(report);
        }
        cluster
    }

    /// The same with the pods of all shares, and nothing kept but what the index keeps.
    pub(crate) fn without_reports(nodes: usize) -> Self {
        let mut cluster = Self::empty(nodes, Mix::default());
        for at in 0..nodes {
            let report = report(at, &cluster.names[at], &mut cluster.rng);
            cluster.index.apply_node(&cluster.names[at], &report);
            for share in report.status.unwrap_or_default().shares {
                let mut pod = pod(at, FEW);
                pod["metadata"]["uid"] = share.pod_uid.into();
                pod["spec"]["nodeName"] = cluster.names[at].as_str().into();
                let pod = serde_json::from_value(pod).expect("a pod");
                cluster.index.apply_pod(&pod, Instant::now());
            }
        }
        cluster
    }

    fn empty(nodes: usize, mix: Mix) -> Self {
        let names = (0..nodes).map(|number| format!("gpu-node-{number:05}.eu-central.example")).collect();
        let reading = Reading { policy: Policy { mix: mix.into(), ..Policy::default() }, ..Reading::default() };
        let index = Arc::new(Index::new(reading, Terms::default()));
        let extender = Extender::new(Arc::clone(&index), 16);
        Self { index, extender, reports: Vec::new(), names, rng: StdRng::seed_from_u64(1) }
    }

    pub(crate) fn change(&mut self, load: Load) {
        for _ in 0..match load {
            Load::Quiet => 2,
            Load::Storm => 10,
        } {
            let at = self.rng.random_range(0..self.reports.len());
            let status = self.reports[at].status.get_or_insert_default();
            status.ledger_revision += 1;
            status.shares.rotate_left(1);
            self.index.apply_node(&self.names[at], &self.reports[at]);
        }
    }

    pub(crate) fn filter_body(&mut self, call: usize, names: usize, shapes: Shapes) -> Vec<u8> {
        let from = self.rng.random_range(0..self.names.len());
        let names: Vec<&String> = self.names.iter().cycle().skip(from).take(names).collect();
        serde_json::to_vec(&json!({"Pod": pod(call, shapes), "Nodes": null, "NodeNames": names})).expect("JSON")
    }

    /// What admission asks about a pod.
    pub(crate) fn outlook(&self, call: usize, shapes: Shapes) -> Outlook {
        let pod = serde_json::from_value(pod(call, shapes)).expect("a pod");
        let demand = Demand::of(&pod, self.index.reading()).expect("a claim").expect("cards");
        let policies = demand.policies(&self.index.reading().policy);
        self.index.outlook(&Question::new(&demand, &policies))
    }

    pub(crate) fn prioritize_body(call: usize, answer: &[u8], shapes: Shapes) -> Vec<u8> {
        let answer: Value = serde_json::from_slice(answer).expect("JSON");
        serde_json::to_vec(&json!({"Pod": pod(call, shapes), "Nodes": null, "NodeNames": answer["NodeNames"]}))
            .expect("JSON")
    }
}

fn mix(kinds: u32) -> Mix {
    let kind = |number: u32| Expected {
        claim: Claim {
            cards: 1 << (number % 3),
            memory: MemoryAmount::Absolute(Memory::mib(u64::from(3 + 3 * number) << 10)),
            cores: Cores::new(4 * number),
        },
        weight: 1 + number % 5,
    };
    Mix { requests: (0..kinds).map(kind).collect() }
}

fn report(at: usize, name: &str, rng: &mut StdRng) -> GpuNode {
    let uuid = |card: usize| format!("GPU-5f3a9c10-{at:04x}-4000-8000-{card:012}").parse().expect("a card's name");
    let card = |number: usize| CardStatus {
        uuid: uuid(number),
        model: "NVIDIA H100 80GB HBM3".into(),
        memory: Memory::mib(81_559),
        health: Health::Healthy,
        reason: None,
        numa: Some(u32::from(number >= 4)),
        links: (0..CARDS)
            .filter(|other| *other != number)
            .map(|other| LinkStatus { to: uuid(other), class: "NV18".into() })
            .collect(),
        mig: None,
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
            exclusive: false,
        },
    };
    let ready = json!({"type": "Ready", "status": "True", "reason": "Registered", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = GpuNodeStatus {
        cards: (0..CARDS).map(card).collect(),
        shares: (0..8).map(|number| share(number, rng)).collect(),
        conditions: vec![serde_json::from_value(ready).expect("a condition")],
        ..GpuNodeStatus::default()
    };
    GpuNode { status: Some(status), ..GpuNode::new(name, GpuNodeSpec::default()) }
}

/// About 4 KB, as pods of a real cluster are.
fn pod(call: usize, Shapes { kinds, cards, .. }: Shapes) -> Value {
    let kind = call % kinds;
    let filler: Vec<Value> =
        (0..20).map(|number| json!({"name": format!("VARIABLE_{number}"), "value": "x".repeat(120)})).collect();
    json!({
        "metadata": {"uid": format!("6b1f0c9e-{call:04x}-4b0e-9c0a-1f2e3d4c5b6a"), "namespace": "team-a", "name": format!("train-{call}"), "labels": {"app": "train"}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main", "image": "example.com/train:1", "env": filler,
            "resources": {"limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": cards.to_string(),
                "nvidia.com/gpumem": (1024 + 512 * kind).min(60_000 + kind % 1000).to_string(), "nvidia.com/gpucores": (5 + kind % 40).to_string()}}}]},
        "status": {"phase": "Pending"}
    })
}
