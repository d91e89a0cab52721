//! What would let a waiting pod run, the smallest change first. Every change has been tried with the nodes' own placement
//! code: a node would take the pod afterwards, and with less of the change it wouldn't. What takes too long to try isn't named.

mod annotations;
mod nodes;
mod pods;
mod requests;
#[cfg(test)]
mod tests;
mod text;

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use divvy_api::names::GATE;
use divvy_api::{CardId, GpuRequest};
use divvy_placement::{NodeState, plan};
use serde::Serialize;

use crate::cluster::Index;
use crate::demand::{Demand, SchedulingConfig};
use crate::fit::Query;
use crate::nodes::{Holder, Node, View};
use crate::pod::{PodEnd, PodView};

/// A change that would let the pod run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestion {
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// The node that would take the pod then; absent where none was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// GPUs that the node would give it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<CardId>,
    /// The change in a sentence.
    pub text: String,
    /// A command that makes it, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// What has to change, in the order of how little it takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Change {
    /// Scheduling gates are removed by the controllers that have set them.
    RemoveSchedulingGates {
        /// Names of the gates.
        gates: Vec<String>,
    },
    /// A Node is uncordoned.
    Uncordon,
    /// GPUs are taken off `spec.unschedulableCards` of their `GpuNode`.
    UncordonGpus {
        /// Which.
        gpus: Vec<CardId>,
    },
    /// The pod's node selector, affinity or tolerations, or a Node's labels or taints: the node has free GPUs for it.
    NodeSelection {
        /// What keeps the pod off.
        reason: String,
    },
    /// The scheduler evicts pods of lower priority.
    Preempt {
        /// Which.
        pods: Vec<EndingPod>,
    },
    /// Pods end, or are deleted.
    EndOfPods {
        /// Which.
        pods: Vec<EndingPod>,
    },
    /// A `GpuQuota` of the pod's namespace allows more, or pods of the namespace end.
    Quota {
        /// Which, and by how much it is exceeded.
        reason: String,
    },
    /// The pod asks for less.
    SmallerRequest {
        /// Containers and their requests.
        containers: Vec<ChangedRequest>,
    },
    /// The pod is created without an annotation.
    DropAnnotation {
        /// Key of the annotation.
        key: &'static str,
        /// Value of the annotation.
        value: String,
    },
    /// A node becomes ready.
    NodeReady {
        /// Why it isn't.
        reason: String,
    },
    /// GPUs become healthy.
    HealthyGpus {
        /// Which.
        gpus: Vec<CardId>,
    },
}

/// A pod whose end frees GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndingPod {
    /// UID of the pod.
    pub uid: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod; empty where only the UID is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it ends.
    #[serde(flatten)]
    pub end: PodEnd,
}

/// A container's request as it is, and as it could be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedRequest {
    /// Name of the container.
    pub container: String,
    /// Request that it has.
    pub from: GpuRequest,
    /// The most that fits now, of what is changed; where several containers ask for less, in steps of a percent.
    pub to: GpuRequest,
}

/// What is known beyond the index of the nodes and pods that suggestions may name.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Why the pod may not run on a node whatever its GPUs, by the node's name. Nodes that aren't here are open to it.
    pub kept_off: HashMap<String, String>,
    /// Names and ends of pods, by UID.
    pub pods: HashMap<String, KnownPod>,
}

/// A pod that holds shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPod {
    /// Name of the pod.
    pub name: String,
    /// When it ends.
    pub end: PodEnd,
}

/// One pod, tried on nodes that are changed for it.
struct Search<'a> {
    config: &'a SchedulingConfig,
    objects: &'a Objects,
    view: &'a View,
    /// The pod, without models of which its namespace may have no more.
    demand: &'a Demand,
    query: Query<'a>,
    deadline: Instant,
}

/// Suggestions of one kind, at most.
const MOST: usize = 3;

// === impl Index ===

impl Index {
    /// Suggestions for a pod that waits for a node; none for one that the scheduler can place as things are. No more is tried
    /// after `patience`.
    pub fn suggest(&self, pod: &PodView, objects: &Objects, patience: Duration) -> Vec<Suggestion> {
        let demand = match Demand::read(pod, self.config()) {
            Ok(Some(demand)) if pod.node.is_none() && !pod.ended => demand,
            _ => return Vec::new(),
        };
        let snapshot = self.snapshot_for(&demand);
        let exceeded = snapshot.exceeded();
        let allowed = demand.avoiding(exceeded);
        let search = Search {
            config: self.config(),
            objects,
            view: &snapshot.view,
            demand: &allowed,
            query: Query::new(&allowed, self.config()),
            deadline: Instant::now() + patience,
        };
        let mut suggestions = Vec::new();
        // Ours goes by itself.
        let gates: Vec<String> = pod.scheduling.gates.iter().filter(|gate| *gate != GATE).cloned().collect();
        if !gates.is_empty() {
            suggestions.push(search.suggestion(Change::RemoveSchedulingGates { gates }, None));
        }
        if search.first_fit(&allowed).is_some() {
            return suggestions;
        }
        suggestions.extend(search.by_node());
        suggestions.extend(search.by_quota(&demand, exceeded));
        suggestions.extend(search.by_end_of_pods());
        suggestions.extend(search.by_smaller_request());
        suggestions.extend(search.by_annotation(pod, exceeded));
        suggestions.sort_by_key(|suggestion| suggestion.change.order());
        suggestions
    }
}

// === impl Search ===

impl Search<'_> {
    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Nodes that the scheduler may choose, apart from what their GPUs hold.
    fn open(&self) -> impl Iterator<Item = &Node> {
        let open = self.view.open().filter_map(|asked| self.view.node(asked.place));
        open.filter(|node| !self.objects.kept_off.contains_key(&*node.name)).map(|node| &**node)
    }

    /// The first node that could run a pod now.
    fn first_fit(&self, demand: &Demand) -> Option<&Node> {
        let query = Query::new(demand, self.config);
        for asked in self.view.open() {
            let node = self.view.node(asked.place)?;
            // Upper bound for plans that take a search, the answer for others; but not for a pod with a reservation here.
            let may_fit = query.at_best(self.view, asked.place).is_some() || self.holds(node);
            if !may_fit || self.objects.kept_off.contains_key(&*node.name) {
                continue;
            }
            if self.is_late() {
                return None;
            }
            if query.rate_without_itself(node).is_some() {
                return Some(node);
            }
        }
        None
    }

    /// Whether the pod has a reservation on the node, or is nominated there.
    fn holds(&self, node: &Node) -> bool {
        node.holders.iter().any(|holder| self.is_own(holder))
    }

    fn is_own(&self, holder: &Holder) -> bool {
        holder.uid == self.demand.uid
    }

    /// A change that brings the node into this state for this demand.
    fn found(&self, change: Change, node: &Node, state: &NodeState, demand: &Demand) -> Suggestion {
        let policies = demand.policies(self.config);
        let planned = plan(state, &demand.request(), &policies.cards).ok();
        let chosen = planned.iter().flat_map(|plan| &plan.containers).flat_map(|container| &container.chosen);
        let mut chosen: Vec<usize> = chosen.copied().collect();
        chosen.sort_unstable();
        chosen.dedup();
        let gpus = chosen.iter().filter_map(|at| state.cards().get(*at)).map(|card| card.id.clone()).collect();
        Suggestion { cards: gpus, ..self.suggestion(change, Some(node)) }
    }

    fn suggestion(&self, change: Change, node: Option<&Node>) -> Suggestion {
        let name = node.map_or("", |node| &*node.name);
        let text = text::sentence(&change, name, &self.config.names);
        let command = text::command(&change, name);
        let node = node.map(|node| node.name.to_string());
        Suggestion { change, node, cards: Vec::new(), text, command }
    }
}

// === impl Change ===

impl Change {
    /// What comes first takes less: nothing of what runs or was asked for is lost by it.
    fn order(&self) -> u8 {
        match self {
            Self::RemoveSchedulingGates { .. } => 0,
            Self::Uncordon => 1,
            Self::UncordonGpus { .. } => 2,
            Self::NodeSelection { .. } => 3,
            Self::EndOfPods { pods } if pods.iter().all(|pod| pod.end < PodEnd::Completes) => 4,
            Self::Preempt { .. } => 5,
            Self::Quota { .. } => 6,
            Self::SmallerRequest { .. } => 7,
            Self::EndOfPods { .. } => 8,
            Self::DropAnnotation { .. } => 9,
            Self::NodeReady { .. } => 10,
            Self::HealthyGpus { .. } => 11,
        }
    }
}

// === impl EndingPod ===

impl fmt::Display for EndingPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { f.write_str(&self.uid) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

// === impl Suggestion ===

impl Suggestion {
    /// UIDs of the pods that it is about.
    pub fn pods(&self) -> impl Iterator<Item = &str> {
        let pods = match &self.change {
            Change::Preempt { pods } | Change::EndOfPods { pods } => pods.as_slice(),
            _ => &[],
        };
        pods.iter().map(|pod| &*pod.uid)
    }
}
