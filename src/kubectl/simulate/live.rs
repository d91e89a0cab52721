//! A live cluster: which of its pending pods would fit now, and how each policy would place all its pods.
//!
//! It is about cards alone: CPU, host memory, node selectors and taints aren't asked for.

#![expect(clippy::cast_precision_loss, reason = "pods and cards are fewer than 2^53")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::annotation::PolicyName;
use divvy_api::gpunode::GpuNode;
use divvy_api::names::annotation::PLANNED;
use divvy_index::demand::{Demand, SchedulingConfig};
use divvy_index::pod::PodView;
use divvy_index::{Index, Query, shortlist};
use divvy_placement::ExpectedRequests;
use divvy_simulate::Rng;
use divvy_simulate::policy::Name;
use kube::api::ListParams;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use serde::Serialize;

use crate::cluster::{Cluster, Refusal};
use crate::explain::fetch::{NOT_ENDED, gpu_nodes, take_machines};
use crate::text::table;

/// What the API server has.
pub(super) struct Snapshot {
    nodes: BTreeMap<String, GpuNode>,
    /// Pods that ask for cards and haven't ended.
    pods: Vec<PodView>,
    /// Index of all of it, with the first requested policy.
    index: Index,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Feasibility {
    waiting: Vec<Waiting>,
    /// All pods as they are.
    now: Placed,
    /// All pods if they were created again, in random orders; means.
    policies: Vec<Placed>,
}

#[derive(Debug, Serialize)]
struct Waiting {
    pod: String,
    fits: bool,
    says: String,
}

#[derive(Debug, Serialize)]
struct Placed {
    policy: String,
    pods: f64,
    of: usize,
    /// Healthy cards without shares.
    whole_cards: f64,
}

/// How long nodes are asked about one pod.
const PATIENCE: Duration = Duration::from_secs(1);

// === impl Snapshot ===

impl Snapshot {
    /// Lists nodes and pods with the user's own rights.
    pub(super) async fn read(cluster: &Cluster, policy: PolicyName) -> Result<Self, anyhow::Error> {
        let (index, now) = (index(policy), Instant::now());
        let nodes = gpu_nodes(cluster).await.map_err(Refusal::of_gpu_nodes)?;
        let mut readable = BTreeMap::new();
        for (name, node) in nodes {
            match node {
                Ok(node) => {
                    index.apply_gpu_node(&name, &node);
                    readable.insert(name, node);
                }
                Err(problem) => index.apply_unreadable(&name, &problem),
            }
        }
        take_machines(cluster, &index).await?;
        let alive = ListParams::default().fields(NOT_ENDED);
        let mut pods = cluster.list_at::<PodView>("/api/v1/pods", alive).await?;
        for pod in &pods {
            index.apply_pod(pod, now);
        }
        index.expect_counted();
        pods.retain(|pod| !pod.ended && matches!(Demand::of(pod, index.config()), Ok(Some(_))));
        Ok(Self { nodes: readable, pods, index })
    }

    /// What policies would make of it, in as many orders of its pods as there are seeds.
    pub(super) fn outlook(self, policies: &[PolicyName], seeds: &[u64]) -> Feasibility {
        let now = Placed {
            policy: "as it is".to_owned(),
            pods: self.pods.iter().filter(|pod| pod.node.is_some()).count() as f64,
            of: self.pods.len(),
            whole_cards: whole_cards(&self.index),
        };
        let policies = policies.iter().map(|policy| self.anew(*policy, seeds)).collect();
        Feasibility { waiting: self.waiting(), now, policies }
    }

    /// The pods that wait, the most important first; each that fits takes its place.
    fn waiting(&self) -> Vec<Waiting> {
        let mut demands = self.index.waiting();
        demands.sort_by(|one, other| {
            other
                .priority
                .cmp(&one.priority)
                .then_with(|| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)))
        });
        let waiting = |demand: Arc<Demand>| {
            let outlook = self.index.feasibility(&demand, PATIENCE);
            let fits =
                outlook.best.first().is_some_and(|node| self.index.reserve(&demand, node, Instant::now()).is_ok());
            Waiting { pod: format!("{}/{}", demand.namespace, demand.name), fits, says: outlook.to_string() }
        };
        demands.into_iter().map(waiting).collect()
    }

    fn anew(&self, policy: PolicyName, seeds: &[u64]) -> Placed {
        let names: Vec<&str> = self.nodes.keys().map(String::as_str).collect();
        let (mut pods, mut whole) = (0, 0.0);
        for seed in seeds {
            let index = index(policy);
            index.expect(ExpectedRequests::clone(&self.index.expected()));
            for (name, node) in &self.nodes {
                let mut node = node.clone();
                node.status.iter_mut().for_each(|status| status.shares.clear());
                index.apply_gpu_node(name, &node);
            }
            let mut order: Vec<&PodView> = self.pods.iter().collect();
            order.shuffle(&mut Rng::seed_from_u64(*seed));
            pods += order.into_iter().filter(|pod| place(&index, pod, &names).is_some()).count();
            whole += whole_cards(&index);
        }
        let runs = seeds.len().max(1) as f64;
        Placed {
            policy: Name::Product(policy).as_str().to_owned(),
            pods: pods as f64 / runs,
            of: self.pods.len(),
            whole_cards: whole / runs,
        }
    }
}

fn index(policy: PolicyName) -> Index {
    Index::new(SchedulingConfig { card_policy: policy, node_policy: policy, ..SchedulingConfig::default() })
}

/// Puts a pod where the extender would, as if it were new.
fn place(index: &Index, pod: &PodView, names: &[&str]) -> Option<()> {
    let mut pod = PodView { node: None, nominated: None, ..pod.clone() };
    pod.annotations.remove(PLANNED);
    let demand = Arc::new(Demand::of(&pod, index.config()).ok()??);
    let mut fitting = index.rank(&Query::new(&demand, index.config()), names, false).fitting;
    shortlist(&mut fitting, 1);
    let (asked, _) = fitting.first()?;
    index.reserve(&demand, names[asked.name], Instant::now()).ok().map(drop)
}

fn whole_cards(index: &Index) -> f64 {
    let nodes = index.nodes();
    nodes.iter().flat_map(|node| &node.cards).filter(|card| card.healthy && card.held.pods == 0).count() as f64
}

// === impl Feasibility ===

impl Feasibility {
    /// For people.
    pub(super) fn tables(&self) -> String {
        let waiting = |Waiting { pod, fits, says }: &Waiting| {
            let fits = if *fits { "yes" } else { "no" };
            vec![("WAITING POD", pod.clone()), ("FITS NOW", fits.to_owned()), ("WHERE OR WHY NOT", says.clone())]
        };
        let placed = |Placed { policy, pods, of, whole_cards }: &Placed| {
            let pods = format!("{pods:.1} of {of}");
            vec![("POLICY", policy.clone()), ("PODS PLACED", pods), ("FREE GPUS", format!("{whole_cards:.1}"))]
        };
        let policies = table(std::iter::once(&self.now).chain(&self.policies).map(placed).collect(), true);
        let waiting: Vec<_> = self.waiting.iter().map(waiting).collect();
        if waiting.is_empty() { policies } else { format!("{}\n{policies}", table(waiting, true)) }
    }
}
