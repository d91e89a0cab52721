//! Evictions for pods that are planned here, as kube-scheduler would evict for those that it plans itself: pods of lower
//! priority whose cards make room. Gangs evict nobody.

use std::cmp::Reverse;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_placement::plan;

use super::Index;
use super::planning::Step;
use crate::demand::Demand;
use crate::fit::Query;
use crate::nodes::Node;
use crate::state::{ClusterState, REPORTED_WITHIN, Reservation, Source, Touched};

/// A pod to evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// UID of the pod.
    pub uid: Arc<str>,
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Name of the pod.
    pub name: Arc<str>,
}

/// Nodes that are compared for one pod, as many as kube-scheduler compares at least
/// (`minCandidateNodesAbsolute` of `DefaultPreemptionArgs`).
const MOST_CANDIDATES: usize = 100;
/// How long a pod is left out of evictions that a PodDisruptionBudget has kept.
const SPARED_FOR: Duration = Duration::from_secs(30);
/// Evictions that are tried one after another, of pods that budgets keep.
const MOST_SPARED: usize = 256;
/// Longest search for victims of one pod.
const PATIENCE: Duration = Duration::from_millis(50);

// === impl Index ===

impl Index {
    fn preempts(&self, demand: &Demand) -> bool {
        self.config.preempts && !demand.scheduling.never_preempts && demand.scheduling.has_our_gate()
    }

    /// Whether evictions on this node may make room for a pod.
    pub(super) fn may_preempt_on(&self, query: &Query<'_>, node: &Node) -> bool {
        self.preempts(query.demand) && node.is_open_to(query.demand) && node.may_be_cleared_for(query)
    }

    /// Pods whose eviction makes room for one that finds none, and what they leave is kept for it.
    pub(super) fn preempt(&self, demand: &Arc<Demand>, now: Instant) -> Option<Step> {
        if !self.preempts(demand) {
            return None;
        }
        let snapshot = self.snapshot_for(demand);
        let allowed = demand.avoiding(snapshot.exceeded());
        let query = Query::new(&allowed, &self.config);
        let mut nodes: Vec<&Arc<Node>> = snapshot.nodes().collect();
        // From another one each time, as kube-scheduler does (`GetOffsetAndNumCandidates`): the first may be of no use.
        let start = usize::try_from(RandomState::new().hash_one(&demand.uid)).unwrap_or(0);
        let start = start.checked_rem(nodes.len()).unwrap_or(0);
        nodes.rotate_left(start);
        let deadline = Instant::now() + PATIENCE;
        let candidates = nodes.into_iter().filter(|node| self.may_preempt_on(&query, node));
        let with_victims = candidates.take(MOST_CANDIDATES);
        let with_victims = with_victims.filter_map(|node| Some((node, query.victims(node, &[], deadline)?)));
        let with_victims: Vec<(&Arc<Node>, Vec<String>)> = with_victims.collect();
        let mut state = self.state();
        let on_node = |(node, uids): (&Arc<Node>, Vec<String>)| {
            let victims = uids.iter().map(|uid| state.victim(node, uid)).collect::<Option<Vec<_>>>()?;
            state.has_sums_without(node, demand, &victims).then(|| (Arc::clone(node), victims))
        };
        let priority = |node: &Node, victim: &Victim| {
            node.holders.iter().find(|holder| holder.uid == victim.uid).map_or(i32::MAX, |holder| holder.priority)
        };
        // As kube-scheduler chooses (`pickOneNodeForPreemption`), without budgets: those are kept by the API server.
        let cost = |(node, victims): &(Arc<Node>, Vec<Victim>)| {
            let mut priorities: Vec<i32> = victims.iter().map(|victim| priority(node, victim)).collect();
            priorities.sort_by_key(|priority| Reverse(*priority));
            (priorities.first().copied(), priorities.len(), priorities, Arc::clone(&node.name))
        };
        let (node, victims) = with_victims.into_iter().filter_map(on_node).min_by_key(cost)?;
        let cleared = node.state_without(|holder| victims.iter().any(|victim| victim.uid == holder.uid));
        let plan = plan(&cleared, &allowed.request(), &query.policies.cards).ok()?;
        let source = Source::Nomination;
        let deadline = now + REPORTED_WITHIN;
        let kept = Reservation::new(source, Arc::clone(demand), &node.name, (node.cards(), &plan), deadline);
        let touched = state.reserve(&demand.uid, kept);
        state.publish(touched);
        let uids = victims.iter().map(|victim| Arc::clone(&victim.uid)).collect();
        state.victims.insert(Arc::clone(&demand.uid), uids);
        Some(Step::Evict { demand: Arc::clone(demand), node: Arc::clone(&node.name), victims })
    }

    /// Has pods tried again for which others were evicted, as soon as they fit; as those have gone, but what they left was taken by
    /// others; or as the node takes such pods no more.
    pub(super) fn resume_preemptors(&self) {
        if !self.config.preempts {
            return;
        }
        let mut state = self.state();
        for demand in state.preemptors() {
            let name = state.reservation_of(&demand.uid).map(|kept| kept.planned.node.clone());
            let node = name.and_then(|name| state.view().find(&name).cloned());
            let node = node.filter(|node| node.refusal(&demand).is_none() && node.is_open_to(&demand));
            let fits = |node: Node| node.takes(&demand) && Query::new(&demand, &self.config).fits(&node, &node.state);
            if node.is_none_or(|node| state.has_lost_victims(&demand.uid, &node) || fits(node.without(&demand))) {
                state.victims.remove(&demand.uid);
                let touched = state.failed(&demand.uid);
                state.publish(touched);
            }
        }
    }
}

impl Index {
    /// A PodDisruptionBudget keeps a pod from being evicted in this step: it is left out for half a minute, and others are looked
    /// for.
    pub fn kept_by_budget(&self, step: &Step, victim: &Arc<str>, now: Instant) {
        self.spare(victim, now);
        self.change(|state| state.kept_by_budget(step.uid(), now));
    }

    /// A pod can't be evicted: it is left out for half a minute.
    pub fn spare(&self, victim: &Arc<str>, now: Instant) {
        self.state().spared.insert(Arc::clone(victim), now + SPARED_FOR);
    }
}

// === impl ClusterState ===

impl ClusterState {
    /// A pod that no scheduler has bound yet is spared: evicted, it would be gone, where it only had to wait.
    fn victim(&self, node: &Node, uid: &str) -> Option<Victim> {
        if self.spared.contains_key(uid) || self.reservation_of(uid).is_some_and(|reservation| !reservation.bound) {
            return None;
        }
        let holder = node.holders.iter().find(|holder| *holder.uid == *uid)?;
        let uid = Arc::clone(&holder.uid);
        let namespace = Arc::clone(&holder.namespace);
        Some(Victim { uid, namespace, name: Arc::clone(self.name_of(&holder.uid)?) })
    }

    /// A budget keeps one of the pods that were to be evicted for another one: others are looked for at once.
    fn kept_by_budget(&mut self, uid: &Arc<str>, now: Instant) -> Touched {
        if self.spared.len() > MOST_SPARED {
            return self.refused(uid, Some(Source::Nomination), now);
        }
        self.failed_as(uid, Source::Nomination)
    }

    /// Whether all pods that were evicted for this one have gone, by the API server and by the node.
    fn has_lost_victims(&self, uid: &str, node: &Node) -> bool {
        let is_there = |victim: &Arc<str>| {
            self.name_of(victim).is_some() || node.holders.iter().any(|holder| holder.uid == *victim)
        };
        self.victims.get(uid).is_some_and(|victims| !victims.iter().any(is_there))
    }

    /// Whether a node has what a pod requests in sum once these have gone.
    fn has_sums_without(&self, node: &Node, demand: &Demand, victims: &[Victim]) -> bool {
        let Some(mut free) = node.free.clone() else { return true };
        for requests in victims.iter().filter_map(|victim| self.requests_of(&victim.uid)) {
            free.add(requests);
        }
        free.lacks(&demand.requests).is_none()
    }
}
