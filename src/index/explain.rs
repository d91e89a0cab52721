//! Why a pod runs where it does, or why it doesn't, node by node and GPU by GPU.
//!
//! An [`Explanation`] is written as JSON, with its fields in camel case. Fields are added without notice; one that changes
//! its meaning, or goes, comes with another `version`. Memory is in MiB (`memoryMi`), compute in percent of a card.

mod answer;
mod expectation;
mod feasibility;
mod overview;
mod suggestions;
#[cfg(test)]
mod tests;
mod unplaced;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::annotation::{self, Cards, DialectAnnotation, Document as _, Planned};
use divvy_api::names::annotation::{CARDS, INPUTS};
use divvy_api::pod::peak;
use divvy_api::request::Totals;
use divvy_api::{ContainerKind, ContainerRequest, Cores, MemoryAmount, MigProfile};
use divvy_placement::NodeScore;
use serde::Serialize;

pub use self::answer::{CardAnswer, Fits, NodeAnswer, Part};
pub use self::expectation::{Expectation, ExpectedPart};
pub use self::feasibility::Feasibility;
use self::feasibility::{MOST_NAMED, grouped};
pub use self::overview::{CardOverview, NodeOverview};
pub use self::suggestions::{Change, ChangedRequest, EndingPod, KnownPod, Objects, Suggestion};
use crate::cluster::Index;
use crate::demand::{BadDemand, Demand};
use crate::fit::Query;
use crate::nodes::NodeRef;
use crate::nodes::Unschedulable;
use crate::pod::PodView;
use crate::ranking::ranked;
use crate::snapshot::Snapshot;
use crate::state::NotReserved;

/// Explanation of one pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Version of this structure: `v1`.
    pub version: &'static str,
    /// The pod's namespace.
    pub namespace: String,
    /// Name of the pod; empty if it is yet to be generated.
    pub name: String,
    /// UID of the pod; absent if it isn't created yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Priority by which it may preempt others.
    pub priority: i32,
    /// Requests; absent if there are none for GPUs, or they can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asks>,
    /// Phase of the pod.
    pub state: State,
    /// Summary in a sentence.
    pub verdict: String,
    /// Nodes that can run it now, of those that were asked.
    pub fitting: usize,
    /// The group of pods that it starts with, where all of them were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupAnswer>,
    /// Expected requests that these nodes are ranked by, if any. Rarer kinds are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expectation>,
    /// What would let a pod run that waits, the smallest change first; empty where nobody has looked for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// All nodes that have reported, the best first, for a pod that waits; for one that is bound and has no cards yet, its
    /// own.
    pub nodes: Vec<NodeAnswer>,
}

/// A group of pods that start together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupAnswer {
    /// Name of the `PodGroup`.
    pub name: String,
    /// Why it can't start; absent if GPUs are free for all pods that must start together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Requests of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Asks {
    /// Containers with a request, in admission order.
    pub containers: Vec<ContainerAsks>,
    /// Amounts over all GPUs, at the pod's peak: what scheduler and kubelet count.
    pub peak: Peak,
    /// Annotations of the author, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub wishes: BTreeMap<String, String>,
    /// What the author wrote in the words of another system, which was translated at admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<DialectAnnotation>,
}

/// A container's request, with defaults for amounts that were left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerAsks {
    /// The container.
    pub name: String,
    /// Kind of the container.
    pub kind: ContainerKind,
    /// The MIG profile whose instances it asks for; absent: cards of the plain count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<MigProfile>,
    /// Number of distinct GPUs.
    pub cards: u32,
    /// Memory of each GPU: `8Gi` or `25%`.
    pub memory: MemoryAmount,
    /// Compute of each GPU.
    pub cores: Cores,
    /// Whether other pods may hold no share of them.
    pub exclusive: bool,
}

/// Amounts over all GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peak {
    /// Number of GPUs.
    pub cards: u64,
    /// Memory of requests that name an amount.
    pub memory_mi: u64,
    /// Memory of requests that name a percentage.
    pub memory_percent: u64,
    /// Compute in percent of a GPU.
    pub cores: u64,
}

/// Phase of a pod, as far as GPUs are concerned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "phase", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum State {
    /// Waits for a node.
    Waiting {
        /// Node where pods are being evicted for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        nominated: Option<String>,
    },
    /// Bound, and the node hasn't reported its GPUs.
    Bound {
        /// The node.
        node: String,
        /// GPUs that the extender has reserved, if it has.
        #[serde(skip_serializing_if = "Option::is_none")]
        planned: Option<Planned>,
    },
    /// The node has allocated its GPUs.
    Given {
        /// The node.
        node: String,
        /// Shares by container.
        cards: Cards,
    },
    /// Succeeded or Failed: its GPUs are free.
    Ended,
    /// Asks for no GPUs.
    NoCards,
    /// Invalid: no node would serve it.
    Contradicts {
        /// Why, by the field's path.
        reason: String,
    },
}

/// Answer of one node.
struct NodeResult {
    asked: NodeRef,
    answer: NodeAnswer,
    /// Score, if the pod fits there now.
    score: Option<NodeScore>,
}

/// Kinds of requests that an explanation names.
const MOST_EXPECTED: usize = 10;

// === impl Index ===

impl Index {
    /// Explains a pod. Every node is planned on, which takes milliseconds in a cluster of thousands, and many more for a pod
    /// of several requests: after `patience` the others are left out.
    pub fn explain(&self, pod: &PodView, patience: Duration) -> Explanation {
        let demand = Demand::read(pod, self.config());
        let state = State::new(pod, &demand);
        let mut explanation = Explanation {
            version: "v1",
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            priority: pod.priority,
            asks: None,
            verdict: state.to_string(),
            state,
            fitting: 0,
            group: None,
            expected: None,
            suggestions: Vec::new(),
            nodes: Vec::new(),
        };
        if let Ok(Some(demand)) = &demand {
            explanation.asks = Some(Asks::new(pod, demand));
            self.snapshot_for(demand).ask_nodes(demand, Instant::now() + patience, &mut explanation);
        }
        explanation
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// Answer of a node to a query for the models that quotas leave, with what they say if it has only others.
    fn ask_node(
        &self,
        asked: NodeRef,
        query: &Query<'_>,
        without_quotas: &Query<'_>,
        deadline: Instant,
    ) -> Option<NodeResult> {
        let is_late = Instant::now() >= deadline;
        let node = self.view.node(asked.place)?;
        let (mut answer, score) = NodeAnswer::planned(node, query, node.unschedulable, is_late);
        if score.is_none()
            && let Some(reason) = node.why_over_quota(without_quotas, self.exceeded())
        {
            (answer.fits, answer.reason) = (Fits::Later, Some(reason.to_string()));
        }
        Some(NodeResult { asked, answer, score })
    }

    fn ask_nodes(&self, demand: &Demand, deadline: Instant, explanation: &mut Explanation) {
        let view = &self.view;
        let allowed = demand.avoiding(self.exceeded());
        let without_quotas = Query::new(demand, &self.config);
        let query = Query::new(&allowed, &self.config);
        match &explanation.state {
            State::Waiting { .. } => {
                let ask = |asked| self.ask_node(asked, &query, &without_quotas, deadline);
                let mut said: Vec<NodeResult> = view.all().filter_map(ask).collect();
                explanation.expected = self.look_ahead(&query, &mut said);
                let nodes = in_order(said);
                explanation.verdict = feasibility(&nodes).to_string();
                explanation.fitting = nodes.iter().filter(|node| node.fits == Fits::Now).count();
                explanation.nodes = nodes;
            }
            State::Bound { node: name, .. } => {
                match view.find(name) {
                    Some(node) => {
                        // Whether it is cordoned was between the pod and the scheduler.
                        let barred = node.unschedulable.filter(|reason| *reason != Unschedulable::Cordoned);
                        let (answer, _) = NodeAnswer::planned(node, &without_quotas, barred, false);
                        explanation.verdict = match &answer.reason {
                            None => {
                                format!("node {name} has free GPUs for the pod and hasn't reported its allocation yet")
                            }
                            Some(reason) if answer.fits == Fits::Barred => format!("node {name}: {reason}"),
                            Some(reason) => format!("node {name} has no GPUs for the pod: {reason}"),
                        };
                        explanation.fitting = (answer.fits == Fits::Now).into();
                        explanation.nodes.push(answer);
                    }
                    None => explanation.verdict = NotReserved::UnknownNode(name.clone()).to_string(),
                }
            }
            State::Given { .. } | State::Ended | State::NoCards | State::Contradicts { .. } => {}
        }
    }

    /// Scores nodes by the expected requests, if they are ranked so.
    fn look_ahead(&self, query: &Query<'_>, said: &mut [NodeResult]) -> Option<Expectation> {
        let fitting: Vec<NodeRef> = said.iter().filter(|said| said.score.is_some()).map(|said| said.asked).collect();
        if fitting.is_empty() {
            return None;
        }
        let scores = self.foresee(query, &fitting)?;
        let scores: HashMap<usize, NodeScore> = scores.into_iter().map(|(asked, score)| (asked.name, score)).collect();
        for said in said {
            said.score = scores.get(&said.asked.name).copied();
        }
        self.expectation(MOST_EXPECTED)
    }
}

/// Nodes with their ranks and scores, the best first; then the others, in the order of [`Fits`].
fn in_order(said: Vec<NodeResult>) -> Vec<NodeAnswer> {
    let (mut nodes, scores): (Vec<NodeAnswer>, Vec<Option<NodeScore>>) =
        said.into_iter().map(|said| (said.answer, said.score)).unzip();
    let mut fitting: Vec<(usize, NodeScore)> =
        scores.into_iter().enumerate().filter_map(|(at, score)| Some((at, score?))).collect();
    for (at, rank, score) in ranked(&mut fitting) {
        (nodes[*at].rank, nodes[*at].score) = (Some(rank + 1), score);
    }
    nodes.sort_by(|one, other| {
        let order = |node: &NodeAnswer| (node.fits, node.rank);
        order(one).cmp(&order(other)).then_with(|| one.name.cmp(&other.name))
    });
    nodes
}

/// Feasibility by the answers of all nodes.
fn feasibility(nodes: &[NodeAnswer]) -> Feasibility {
    let fitting = nodes.iter().filter(|node| node.fits == Fits::Now);
    let is_certain = nodes.iter().all(|node| node.fits != Fits::Unknown);
    Feasibility {
        now: if fitting.clone().next().is_some() { Some(true) } else { is_certain.then_some(false) },
        ever: nodes.iter().any(|node| node.fits != Fits::Never),
        best: fitting.take(MOST_NAMED).map(|node| node.name.as_str().into()).collect(),
        nodes: nodes.len(),
        asked: nodes.len(),
        reasons: grouped(nodes.iter().filter_map(|node| node.reason.as_deref().map(Arc::from))),
        ..Feasibility::default()
    }
}

// === impl Asks ===

impl Asks {
    fn new(pod: &PodView, demand: &Demand) -> Self {
        let requests = || demand.containers.iter().filter_map(|container| Some((container, container.request?)));
        let containers = requests().map(|(ContainerRequest { name, kind, profile, .. }, request)| ContainerAsks {
            name: name.clone(),
            kind: *kind,
            profile: profile.clone(),
            cards: request.cards,
            memory: request.memory,
            cores: request.cores,
            exclusive: request.is_exclusive() || demand.preferences.wants_instances(),
        });
        let Totals { count, memory, percent, cores } =
            peak(requests().map(|(container, request)| (container.kind, request.totals())));
        let peak = Peak { cards: count, memory_mi: memory, memory_percent: percent, cores };
        let wish = |key: &&str| Some(((*key).to_owned(), pod.annotations.get(*key)?.clone()));
        let wishes = INPUTS.iter().filter_map(wish).collect();
        let dialect = pod.annotations.get(DialectAnnotation::KEY).and_then(|text| annotation::decode(text).ok());
        Self { containers: containers.collect(), peak, wishes, dialect }
    }
}

// === impl State ===

impl State {
    fn new(pod: &PodView, demand: &Result<Option<Demand>, BadDemand>) -> Self {
        let node = match (demand, &pod.node) {
            _ if pod.ended => return Self::Ended,
            (Err(reason), _) => return Self::Contradicts { reason: reason.to_string() },
            (Ok(None), _) => return Self::NoCards,
            (Ok(Some(_)), None) => return Self::Waiting { nominated: pod.nominated.clone() },
            (Ok(Some(_)), Some(node)) => node.clone(),
        };
        let given = pod.annotations.get(CARDS).and_then(|text| annotation::decode::<Cards>(text).ok());
        if let Some(cards) = given {
            return Self::Given { node, cards };
        }
        Self::Bound { planned: pod.planned().filter(|planned| planned.node == node), node }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { .. } => f.write_str("the pod waits for a node"),
            Self::Bound { node, .. } => write!(f, "the pod is bound to node {node}"),
            Self::Given { node, .. } => write!(f, "node {node} has allocated GPUs to the pod"),
            Self::Ended => f.write_str("the pod has ended and holds no GPUs"),
            Self::NoCards => f.write_str("the pod requests no GPUs"),
            Self::Contradicts { reason } => write!(f, "the pod is invalid: {reason}"),
        }
    }
}
