//! A node as readers see it: a new one at every change.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::Arc;

use divvy_api::pod::wire::Resources;
use divvy_api::{Card, MigProfile, Tier};
use divvy_placement::{FreeCapacity, Held, NodeState, Taken};
use foldhash::fast::FixedState;

use crate::demand::{Demand, Exceeded};
use crate::nodes::{NodeObject, Unschedulable};
use crate::pod::SchedulingTerms;

/// Cards of one node, with the shares of its ledger and the reservations on top.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the node.
    pub name: Arc<str>,
    /// Number that grows with every change of any node.
    pub revision: u64,
    /// Cards with what is held of them, so that the next pod can be placed.
    pub state: NodeState,
    /// Pods that hold or have reserved shares.
    pub holders: Box<[Holder]>,
    /// Why the node takes no pods, whatever is free.
    pub closed: Option<Arc<str>>,
    /// Why the scheduler gives it no pods, by its Node object.
    pub unschedulable: Option<Unschedulable>,
    /// The strongest isolation tier of its cards.
    pub tier: Tier,
    /// NVLink domain and clique of its cards, where NVLink reaches other nodes.
    pub clique: Option<Arc<str>>,
    /// What pods may still request of it; `None` if that isn't known.
    pub free: Option<Resources>,
    /// Node object, if there is one.
    pub object: Option<Arc<NodeObject>>,
    /// Revision of the ledger that is shown.
    pub ledger_revision: u64,
    /// Number of the hardware kind, by card.
    pub(crate) hardware: Arc<[u16]>,
}

/// Resource of which every pod takes one (`v1.ResourcePods`).
pub(crate) const PODS: &str = "pods";

/// A pod on a node.
#[derive(Clone, Debug)]
pub struct Holder {
    /// UID of the pod.
    pub uid: Arc<str>,
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Priority of the pod; the highest where the pod isn't known, so that it isn't evicted.
    pub priority: i32,
    /// Whether it is only nominated: its share is kept until it is bound.
    pub is_nominated: bool,
    /// Shares at its peak, by card.
    pub on: Box<[Taken]>,
}

// === impl Node ===

impl Node {
    /// The node's GPUs and MIG instances.
    pub fn cards(&self) -> &[Card] {
        self.state.cards()
    }

    /// The cards as they would be without some of the holders.
    pub fn state_without(&self, is_gone: impl Fn(&Holder) -> bool) -> NodeState {
        let bare = |held: &Held| Held { busy: held.busy, ..Held::default() };
        let mut state = NodeState { held: self.state.held.iter().map(bare).collect(), ..self.state.clone() };
        let staying = self.holders.iter().filter(|holder| !is_gone(holder));
        state.hold(staying.flat_map(|holder| holder.on.iter().copied()));
        state
    }

    /// Free cards and CPU.
    pub(crate) fn remains(&self) -> FreeCapacity {
        FreeCapacity::new(self.free.as_ref().map(|free| free.cpu_milli), &self.state, &self.hardware)
    }

    /// The node as it would be without the pod's reservation.
    pub(crate) fn without(&self, demand: &Demand) -> Self {
        let state = self.state_without(|holder| holder.uid == demand.uid);
        let mut free = self.free.clone();
        if let Some(free) = &mut free {
            free.add(&demand.requests);
        }
        Self { state, free, ..self.clone() }
    }

    /// Why the node doesn't serve the pod now, whatever is free.
    pub fn refusal(&self, demand: &Demand) -> Option<Arc<str>> {
        self.closed.clone().or_else(|| self.never(demand))
    }

    /// Why the node will never serve the pod.
    pub(crate) fn never(&self, demand: &Demand) -> Option<Arc<str>> {
        let tier = demand.preferences.tier.filter(|wanted| !self.tier.serves(*wanted, || self.has_instances()));
        let tier = tier.map(|wanted| match wanted {
            Tier::Mig => "node(s) had no MIG instances (tier mig requested)".into(),
            _ => format!("node(s) had tier {} (tier {wanted} requested)", self.tier).into(),
        });
        tier.or_else(|| self.host_memory_refusal().filter(|_| demand.preferences.oversubscribe))
    }

    /// Why the node oversubscribes memory for nobody, if so.
    fn host_memory_refusal(&self) -> Option<Arc<str>> {
        if self.tier != Tier::Shim {
            let tier = self.tier;
            return Some(
                format!("node(s) had tier {tier}, which can't limit host memory (oversubscribe requested)").into(),
            );
        }
        let gives_none = !self.cards().is_empty() && self.state.node.oversubscription.is_none();
        gives_none.then(|| "node(s) didn't oversubscribe memory (oversubscribe requested)".into())
    }

    /// Whether the scheduler would give it the pod by all that it knows: the pod's node selection, taints, and sums of requests.
    pub(crate) fn takes(&self, demand: &Demand) -> bool {
        let is_enough = |free: &Resources| free.lacks(&demand.requests).is_none() && free.amount(PODS) != Some(0);
        self.free.as_ref().is_none_or(is_enough) && self.is_open_to(demand)
    }

    /// The same, whatever is free.
    pub(crate) fn is_open_to(&self, demand: &Demand) -> bool {
        let SchedulingTerms { selection, .. } = &*demand.scheduling;
        let is_open = match self.unschedulable {
            None => true,
            Some(Unschedulable::Cordoned) => selection.tolerates_cordon(),
            Some(Unschedulable::NotReady | Unschedulable::Gone) => false,
        };
        let matches = |object: &Arc<NodeObject>| selection.matches(&self.name, &object.labels, &object.taints);
        is_open && self.object.as_ref().is_none_or(matches)
    }

    /// Whether a pod may find more room on it than before.
    pub(crate) fn has_gained(&self, before: &Self) -> bool {
        let another = |(now, before): (&Card, &Card)| now.id != before.id || now.is_healthy() && !before.is_healthy();
        let is_changed = match (&self.object, &before.object) {
            (Some(now), Some(before)) => !Arc::ptr_eq(now, before) && !now.schedules_like(before),
            (now, before) => now.is_some() != before.is_some(),
        };
        let has_more_free = match (&self.free, &before.free) {
            (Some(now), Some(before)) => before.lacks(now).is_some(),
            (now, before) => now.is_some() != before.is_some(),
        };
        self.closed.is_none()
            && (has_more_free
                || before.closed.is_some()
                || is_changed
                || self.unschedulable != before.unschedulable
                || self.kind() != before.kind()
                || self.cards().iter().zip(before.cards()).any(another)
                || self.state.held.iter().zip(&before.state.held).any(|(now, before)| is_less(now, before)))
    }

    /// Those of these models that the node has GPUs of.
    pub(crate) fn exceeded<'e>(&self, exceeded: &'e [Exceeded]) -> impl Iterator<Item = &'e Exceeded> {
        exceeded.iter().filter(|exceeded| self.cards().iter().any(|card| card.model == exceeded.model))
    }

    fn has_instances(&self) -> bool {
        self.cards().iter().any(|card| card.id.is_instance())
    }

    /// Whether the node hasn't reported its cards: it may have any.
    pub(crate) fn is_silent(&self) -> bool {
        self.cards().is_empty() && self.closed.is_some()
    }

    /// Number of the node's kind: nodes of one kind could run the same pods if they were empty.
    pub(crate) fn kind(&self) -> u64 {
        let mut state = FixedState::default().build_hasher();
        for card in self.cards() {
            let Card { id, model, memory, numa, slots, tier, scales, .. } = card;
            (tier, model, card.requested_profile().map(MigProfile::as_str), id.is_instance(), numa).hash(&mut state);
            (memory.as_mib(), scales, slots).hash(&mut state);
        }
        let node = &self.state.node;
        (Arc::as_ptr(&node.links).addr(), node.oversubscription, self.tier, self.is_silent()).hash(&mut state);
        state.finish()
    }
}

/// Whether less of a card is held in any respect.
fn is_less(now: &Held, before: &Held) -> bool {
    now.memory < before.memory
        || now.cores < before.cores
        || now.host < before.host
        || !now.exclusive && before.exclusive
        || now.pods < before.pods
        || now.slots < before.slots
}
