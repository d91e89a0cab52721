//! A live cluster: which of its pending pods would fit now, how each policy would place all its pods, what keeps its pods
//! from free GPUs, and how many GPUs each policy would leave if such pods came until they have requested all.
//!
//! The first two are about GPUs alone: CPU, host memory, node selectors and taints aren't asked for.

#![expect(clippy::cast_precision_loss, reason = "pods and cards are fewer than 2^53")]

mod free;
mod objects;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use divvy_api::annotation::PolicyName;
use divvy_api::gpunode::GpuNodeReport;
use divvy_api::names::annotation::PLANNED;
use divvy_index::demand::{Demand, SchedulingConfig};
use divvy_index::pod::PodView;
use divvy_index::{Index, Query, shortlist};
use divvy_placement::ExpectedRequests;
use divvy_simulate::Rng;
use divvy_simulate::policy::Name;
use divvy_simulate::report::Report;
use divvy_simulate::study::{self, Settings};
use divvy_simulate::workload::Workload;
use kube::ResourceExt as _;
use kube::api::ListParams;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use serde::Serialize;

use super::show::spread;
use crate::cluster::{Cluster, Refusal};
use crate::text::table;
use crate::view::explain::fetch::{NOT_ENDED, take_machines, take_quotas};

use free::Free;
use objects::{LiveNode, LivePod};

/// What the API server has.
pub(super) struct Snapshot {
    nodes: BTreeMap<String, GpuNodeReport>,
    machines: Vec<LiveNode>,
    /// Pods that haven't ended.
    pods: Vec<LivePod>,
    /// Index of all of it, with the first requested policy.
    index: Index,
    /// Index of GPUs and pods, as if no Node kept pods away, with nothing expected.
    gpus: Index,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Outlook {
    waiting: Vec<Waiting>,
    /// All pods as they are.
    now: Placed,
    /// All pods if they were created again, in random orders; means.
    policies: Vec<Placed>,
    /// Free GPUs, by whether the pods could use them.
    free_gpus: Vec<Free>,
    /// What would be left if such pods came until they have requested all GPUs.
    left: Vec<Left>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing_left: Option<String>,
    #[serde(skip)]
    runs: usize,
}

/// GPUs that are left by one policy.
#[derive(Debug, Serialize)]
struct Left {
    policy: &'static str,
    /// When pods have requested all GPUs, in percent of them.
    unallocated_pct_mean: f64,
    unallocated_pct_sd: f64,
    /// The mean as a number of GPUs.
    gpus: f64,
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

/// What pods have requested in the end, in percent of all GPUs.
pub(super) const UNTIL: u32 = 100;
/// How long nodes are asked about one pod.
const PATIENCE: Duration = Duration::from_secs(1);

// === impl Snapshot ===

impl Snapshot {
    /// Lists nodes and pods with the user's own rights.
    pub(super) async fn read(cluster: &Cluster, policy: PolicyName) -> Result<Self, anyhow::Error> {
        let gpus = index(policy);
        let index = index(policy);
        let now = Instant::now();
        let nodes = cluster.list(&cluster.gpu_nodes(), None).await.map_err(Refusal::of_gpu_nodes)?;
        let nodes: BTreeMap<String, GpuNodeReport> = nodes.into_iter().map(|node| (node.name_any(), node)).collect();
        for (name, node) in &nodes {
            index.apply_gpu_node(name, node.clone());
            gpus.apply_gpu_node(name, node.clone());
        }
        // Who may not list quotas sees what GPUs allow, as before there were any.
        drop(take_quotas(cluster, &index, None).await);
        let machines = take_machines(cluster, &index).await?.iter().map(LiveNode::new).collect();
        let alive = ListParams::default().fields(NOT_ENDED);
        let mut pods = cluster.pods::<LivePod>(None, alive).await?;
        for pod in &pods {
            index.apply_pod(&pod.view, now);
            gpus.apply_pod(&pod.view, now);
        }
        index.expect_counted();
        pods.retain(|pod| !pod.view.ended);
        Ok(Self { nodes, machines, pods, index, gpus })
    }

    /// Cluster and pods for the simulator, or why there is nothing to simulate.
    pub(super) fn workload(&self) -> Result<Arc<Workload>, String> {
        workload::of_cluster(&self.gpus, &self.machines, &self.pods).map(Arc::new).map_err(|error| error.to_string())
    }

    /// What policies would make of it, in as many orders of its pods as there are seeds. Pods that the simulator lets come
    /// are counted in `arrived`.
    pub(super) fn outlook(
        self,
        workload: Result<Arc<Workload>, String>,
        settings: &Settings,
        arrived: &AtomicU64,
    ) -> Outlook {
        let Settings { policies, seeds, .. } = settings;
        let with_gpus: Vec<&PodView> = self
            .pods
            .iter()
            .map(|pod| &pod.view)
            .filter(|pod| matches!(Demand::read(pod, self.index.config()), Ok(Some(_))))
            .collect();
        let now = Placed {
            policy: "as it is".to_owned(),
            pods: with_gpus.iter().filter(|pod| pod.node.is_some()).count() as f64,
            of: with_gpus.len(),
            whole_cards: whole_cards(&self.index),
        };
        let (left, nothing_left) = match workload {
            Ok(workload) => (left(&workload, settings, arrived), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let own = policies.iter().filter_map(|name| match name {
            Name::Product(policy) => Some(self.anew(&with_gpus, *policy, seeds)),
            Name::BestFit => None,
        });
        Outlook {
            waiting: self.waiting(),
            now,
            policies: own.collect(),
            free_gpus: free::free(&self.gpus, &self.machines, &self.pods),
            left,
            nothing_left,
            runs: seeds.len(),
        }
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
        demands.iter().map(|demand| self.try_to_place(demand)).collect()
    }

    /// Whether a waiting pod fits; then it takes its place.
    fn try_to_place(&self, demand: &Arc<Demand>) -> Waiting {
        let outlook = self.index.snapshot_for(demand).feasibility(demand, PATIENCE);
        let fits = outlook.best.first().is_some_and(|node| self.index.reserve(demand, node, Instant::now()).is_ok());
        Waiting { pod: format!("{}/{}", demand.namespace, demand.name), fits, says: outlook.to_string() }
    }

    fn anew(&self, with_gpus: &[&PodView], policy: PolicyName, seeds: &[u64]) -> Placed {
        let names: Vec<&str> = self.nodes.keys().map(String::as_str).collect();
        let mut pods = 0;
        let mut whole = 0.0;
        for seed in seeds {
            let index = index(policy);
            index.expect(ExpectedRequests::clone(self.index.snapshot().expected()));
            for (name, node) in &self.nodes {
                let mut node = node.clone();
                node.shares.clear();
                index.apply_gpu_node(name, node);
            }
            let mut order = with_gpus.to_vec();
            order.shuffle(&mut Rng::seed_from_u64(*seed));
            pods += order.into_iter().filter(|pod| place(&index, pod, &names).is_some()).count();
            whole += whole_cards(&index);
        }
        let runs = seeds.len().max(1) as f64;
        Placed {
            policy: Name::Product(policy).as_str().to_owned(),
            pods: pods as f64 / runs,
            of: with_gpus.len(),
            whole_cards: whole / runs,
        }
    }
}

fn left(workload: &Arc<Workload>, settings: &Settings, arrived: &AtomicU64) -> Vec<Left> {
    let report = Report::new(workload, settings, &study::study(workload, settings, arrived));
    let left = report.policies.iter().filter_map(|report| {
        let at = report.at.last()?;
        let unallocated_pct_mean = at.unallocated_pct_mean;
        let unallocated_pct_sd = at.unallocated_pct_sd;
        let gpus = unallocated_pct_mean / 100.0 * workload.capacity() as f64 / 1000.0;
        Some(Left { policy: report.policy, unallocated_pct_mean, unallocated_pct_sd, gpus })
    });
    left.collect()
}

fn index(policy: PolicyName) -> Index {
    Index::new(SchedulingConfig { card_policy: policy, node_policy: policy, ..SchedulingConfig::default() })
}

/// Puts a pod where the extender would, as if it were new.
fn place(index: &Index, pod: &PodView, names: &[&str]) -> Option<()> {
    let mut pod = PodView { node: None, nominated: None, ..pod.clone() };
    pod.annotations.remove(PLANNED);
    let demand = Arc::new(Demand::read(&pod, index.config()).ok()??);
    let mut fitting = index.snapshot_for(&demand).rank(&Query::new(&demand, index.config()), names, false).fitting;
    shortlist(&mut fitting, 1);
    let (asked, _) = fitting.first()?;
    index.reserve(&demand, names[asked.name], Instant::now()).ok().map(drop)
}

fn whole_cards(index: &Index) -> f64 {
    let snapshot = index.snapshot();
    let each = snapshot.nodes().flat_map(|node| node.state.each());
    each.filter(|(card, held)| card.is_healthy() && held.pods == 0).count() as f64
}

// === impl Outlook ===

impl Outlook {
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
        let free = |Free { reason, gpus }: &Free| {
            vec![("FREE GPUS", format!("{gpus:.1}")), ("STATE", reason.as_str().to_owned())]
        };
        let left = |left: &Left| {
            let percent = spread(left.unallocated_pct_mean, left.unallocated_pct_sd);
            let gpus = format!("{:.1}", left.gpus);
            vec![("POLICY", left.policy.to_owned()), ("GPUS LEFT", gpus), ("% OF ALL", percent)]
        };
        let mut tables = vec![
            table(self.waiting.iter().map(waiting).collect(), true),
            table(std::iter::once(&self.now).chain(&self.policies).map(placed).collect(), true),
            table(self.free_gpus.iter().map(free).collect(), true),
        ];
        tables.push(match &self.nothing_left {
            Some(why) => format!("policies aren't compared: {why}\n"),
            None => format!(
                "GPUs left unallocated once pods such as these have requested all; mean ± standard deviation, runs: {}\n\n{}",
                self.runs,
                table(self.left.iter().map(left).collect(), true)
            ),
        });
        tables.retain(|table| !table.is_empty());
        tables.join("\n")
    }
}
