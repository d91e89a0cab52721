//! The node's state at one moment, which everything that is published is made of.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use divvy_api::ResourceNames;
use divvy_api::names::annotation::PLANNED;
use divvy_api::request::Totals;
use divvy_api::usage::NodeUsage;
use divvy_node_core::allocator::{ForeignPod, SharedAllocator, lock};
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::Allocations;
use divvy_node_core::pod::{Pod, PodRef};
use divvy_node_core::serving::ServingProblem;
use tokio::sync::watch;

use super::desired::Desired;
use crate::kubelet::registration::RegistrationStatus;
use crate::states::States;

/// Snapshot of the node's state, published after the allocator is unlocked.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Revision of the ledger.
    pub(super) revision: u64,
    /// All allocations.
    pub(super) allocations: Arc<Allocations>,
    /// GPUs of the node.
    pub(super) inventory: Arc<Inventory>,
    /// Pods as the kubelet last listed them.
    pub(super) listed: Vec<Arc<Pod>>,
    /// Those of them that request memory or compute without a GPU.
    pub(super) unasked: Vec<PodRef>,
    /// Pods that another system's device plugin has served, or that name its resources.
    pub(super) foreign: Vec<ForeignPod>,
    /// Whether the device plugin is registered with the kubelet.
    pub(super) registered: bool,
    /// Evidence of another device plugin that serves the same GPUs.
    pub(super) conflict: Option<String>,
    /// Why no pod can be served now.
    pub(super) serving: Option<ServingProblem>,
    /// Why the node's tier can't be served now.
    pub(super) tier_problem: Option<String>,
    /// UUIDs of cordoned GPUs that this node doesn't have.
    pub(super) unknown_cards: Vec<String>,
    /// Measured use of the containers.
    pub(super) usage: Arc<NodeUsage>,
    /// Whether the daemon is about to stop.
    pub(super) draining: bool,
    /// What the scheduler counts for each pod that was refused for lack of room and still doesn't fit.
    pub(super) unplaced: Vec<Totals>,
    /// Devices that the kubelet may allocate: how many, by resource.
    pub(super) devices: BTreeMap<String, u64>,
}

/// Where the state comes from.
pub(super) struct Observer {
    pub(super) allocator: SharedAllocator,
    pub(super) states: States,
    pub(super) desired: watch::Sender<Desired>,
    pub(super) draining: watch::Receiver<bool>,
    /// Resources that pods request memory and compute by.
    pub(super) names: ResourceNames,
}

// === impl View ===

impl View {
    /// Whether every healthy device is held, so that the kubelet refuses whatever comes.
    pub(super) fn is_full(&self) -> bool {
        let healthy: u64 = self.devices.values().sum();
        let held: BTreeSet<_> = self.allocations.slots_on_record().map(|(slot, _)| slot).collect();
        healthy > 0 && healthy <= held.len() as u64
    }

    /// Whether the extender has placed every pod that holds a share.
    pub(super) fn is_planned(&self) -> bool {
        let planned = self.listed.iter().filter(|pod| pod.annotations.contains_key(PLANNED));
        let planned: HashSet<&str> = planned.map(|pod| &*pod.uid).collect();
        self.allocations.pods().all(|entry| planned.contains(&*entry.pod.uid))
    }
}

// === impl Observer ===

impl Observer {
    /// The state now; `last`, the one before, shares what hasn't changed.
    pub(super) fn view(&self, last: &View) -> View {
        let (registered, conflict) = match &*self.states.registration.borrow() {
            RegistrationStatus::Unregistered => (false, None),
            RegistrationStatus::Registered => (true, None),
            RegistrationStatus::Conflict(conflict) => (false, Some(conflict.clone())),
        };
        let devices =
            self.states.offers.borrow().iter().map(|offer| (offer.resource.to_string(), offer.healthy())).collect();
        let mut allocator = lock(&self.allocator);
        let unplaced = allocator.unplaced();
        let ledger = allocator.ledger();
        let revision = ledger.revision();
        let is_unchanged = revision == last.revision;
        let allocations =
            if is_unchanged { Arc::clone(&last.allocations) } else { Arc::new(ledger.allocations().clone()) };
        let inventory = Arc::clone(allocator.inventory());
        let listed = allocator.listed().to_vec();
        let tier_problem = allocator.containers().problem();
        let foreign = allocator.foreign_pods();
        drop(allocator);
        // Before all cards are known, any may be among those to come.
        let is_whole = inventory.problem.is_none();
        let unknown_cards = if is_whole { self.desired.borrow().unknown_cards(&inventory) } else { Vec::new() };
        let is_unasked = |pod: &&Arc<Pod>| !pod.has_ended() && pod.asks_for_amounts_alone(&self.names);
        View {
            revision,
            allocations,
            unasked: listed.iter().filter(is_unasked).map(|pod| pod.reference()).collect(),
            inventory,
            listed,
            foreign,
            registered,
            conflict,
            serving: self.states.serving.borrow().clone(),
            tier_problem,
            unknown_cards,
            usage: Arc::clone(&self.states.usage.borrow()),
            draining: *self.draining.borrow(),
            unplaced,
            devices,
        }
    }
}
