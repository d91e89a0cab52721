//! Nodes: what their daemons and the API server say of them, and what is published of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use divvy_api::Tier;
use divvy_api::gpunode::GpuNodeReport;
use divvy_api::names::CLIQUE;
use divvy_api::pod::PodSum;
use divvy_api::pod::wire::Resources;
use divvy_placement::{CardTable, NodeState, Taken};

use super::report::{Report, Reported};
use super::{ClusterState, Source, Touched, Unusable};
use crate::nodes::{Holder, Node, NodeObject, Unschedulable};

// === impl ClusterState ===

impl ClusterState {
    /// Publishes nodes that have changed to readers, and wakes the planner.
    pub(crate) fn publish(&mut self, touched: Touched) {
        self.table.know(self.shared.hardware());
        for name in touched {
            let Some(node) = self.node(&name) else { continue };
            let nothing = NodeState::default();
            let card_table = CardTable::new(if node.closed.is_none() { &node.state } else { &nothing });
            if self.view().find(&name).is_none_or(|before| node.has_gained(before)) {
                self.gained.insert(name);
            }
            self.table.publish(node, card_table);
        }
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Applies a `GpuNode` that was added or changed, and publishes its node.
    pub(crate) fn apply_gpu_node(&mut self, name: &str, read: GpuNodeReport) {
        let before = self.view().find(name).cloned();
        let touched = self.report(name, read);
        self.publish(touched);
        let now = self.view().find(name);
        if let Some(now) = now.filter(|now| before.is_none_or(|before| now.has_gained(&before))) {
            self.freed = Some(Arc::clone(&now.name));
        }
    }

    fn report(&mut self, name: &str, read: GpuNodeReport) -> Touched {
        let report = Report::new(read, &self.config, &mut self.shared);
        let name: Arc<str> = self.reports.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        if let Ok(report) = &report {
            self.shared.add(&report.hardware);
        }
        if let Some(Ok(before)) = self.reports.insert(Arc::clone(&name), report) {
            self.shared.remove(&before.hardware);
        }
        let reserved: Vec<Arc<str>> = self.reserved.get(&name).into_iter().flatten().cloned().collect();
        for uid in &reserved {
            self.confirm(uid, &name);
        }
        self.renew_nominations(&name, &reserved);
        [name].into()
    }

    /// Applies a Node that was added or changed. Heartbeats change nothing.
    pub(crate) fn apply_node(&mut self, name: &str, object: NodeObject) -> Touched {
        if self.node_objects.get(name).is_some_and(|known| **known == object) {
            return Touched::new();
        }
        let object = Arc::new(object);
        let before = self.node_objects.insert(name.to_owned(), Arc::clone(&object));
        let is_news = before.is_none_or(|before| !before.schedules_like(&object));
        self.known_node(name).filter(|_| is_news).into_iter().collect()
    }

    /// Removes a Node that was deleted.
    pub(crate) fn delete_node(&mut self, name: &str) -> Touched {
        self.node_objects.remove(name);
        self.known_node(name).into_iter().collect()
    }

    /// Removes Nodes that aren't in this complete list; from the first list on a node without a Node is gone.
    pub(crate) fn keep_nodes(&mut self, names: &HashSet<String>) -> Touched {
        let is_first = !std::mem::replace(&mut self.has_listed_nodes, true);
        let before = self.node_objects.len();
        self.node_objects.retain(|name, _| names.contains(name));
        if !is_first && self.node_objects.len() == before {
            return Touched::new();
        }
        self.reports.keys().filter(|name| !self.node_objects.contains_key(&***name)).cloned().collect()
    }

    /// Why the scheduler gives a node no pods.
    fn unschedulable(&self, name: &str) -> Option<Unschedulable> {
        let object = self.node_objects.get(name);
        object.map_or(self.has_listed_nodes.then_some(Unschedulable::Gone), |object| object.unschedulable)
    }

    /// Why a report is out of date: the kubelet has no devices of GPUs that are healthy by the report.
    fn without_plugin(&self, name: &str, report: &Report) -> Option<Arc<str>> {
        let devices = self.node_objects.get(name)?.allocatable_gpus?;
        let is_expected = report.node.cards.iter().any(|card| card.is_healthy() && card.requested_profile().is_none());
        (devices == 0 && is_expected).then(|| {
            let resource = &self.config.names.count;
            format!("divvy-node isn't registered there: the kubelet has 0 allocatable {resource}").into()
        })
    }

    /// Nodes whose report is out of date, and why.
    pub(crate) fn all_without_plugin(&self) -> impl Iterator<Item = (Arc<str>, Arc<str>)> {
        let readable = self.reports.iter().filter_map(|(name, report)| Some((name, report.as_ref().ok()?)));
        readable.filter_map(|(name, report)| Some((Arc::clone(name), self.without_plugin(name, report)?)))
    }

    /// Node objects by name.
    pub(crate) fn node_objects(&self) -> &HashMap<String, Arc<NodeObject>> {
        &self.node_objects
    }

    /// NVLink domain and clique of a node: by its Node, else as its daemon reports.
    fn clique(&self, name: &str, report: &Report) -> Option<Arc<str>> {
        let label = self.node_objects.get(name).and_then(|object| object.labels.get(CLIQUE));
        label.map(|clique| clique.as_str().into()).or_else(|| report.clique.clone())
    }

    /// What pods may still request on a node; `None` if what is allocatable isn't known.
    pub(super) fn free(&self, name: &str) -> Option<Resources> {
        Some(self.requested.free(name, self.node_objects.get(name)?.allocatable.as_ref()?))
    }

    /// Removes nodes whose `GpuNode` isn't in this complete list.
    pub(crate) fn keep_gpu_nodes(&mut self, names: &HashSet<String>) {
        let gone: Vec<Arc<str>> = self.reports.keys().filter(|name| !names.contains(&***name)).cloned().collect();
        for name in &gone {
            self.delete_gpu_node(name);
        }
    }

    /// Removes a node whose `GpuNode` was deleted. Pods that are there, or on their way, still count for quotas.
    pub(crate) fn delete_gpu_node(&mut self, name: &str) {
        self.table.withdraw(name);
        if let Some(Ok(report)) = self.reports.remove(name) {
            self.shared.remove(&report.hardware);
        }
        self.quotas.retain(name, |uid| self.requested.is_on(uid, name));
    }

    pub(super) fn known_node(&self, name: &str) -> Option<Arc<str>> {
        self.reports.get_key_value(name).map(|(name, _)| Arc::clone(name))
    }

    /// The node to publish; `None` if there is none.
    pub(super) fn node(&mut self, name: &Arc<str>) -> Option<Node> {
        self.revision += 1;
        let revision = self.revision;
        let report = match self.reports.get(name)? {
            Ok(report) => report,
            Err(unusable) => {
                let unschedulable = self.unschedulable(name);
                return Some(Node { unschedulable, ..unusable_node(name, unusable, revision) });
            }
        };
        let holders = self.holders(name, report);
        // A node may report what it likes: a namespace is charged for pods that the API server shows there. A reservation puts
        // its pod there at once.
        let is_there = |holder: &&Holder| self.requested.is_of(&holder.uid, &holder.namespace, name);
        // A pod that is only nominated holds nothing yet.
        let is_only_nominated = |holder: &&Holder| {
            self.reservation_of(&holder.uid).is_some_and(|reservation| reservation.source == Source::Nomination)
        };
        let there = holders.iter().filter(is_there).filter(|holder| !is_only_nominated(holder));
        let there: Vec<&Holder> = there.collect();
        self.quotas.hold(name, &report.node.cards, &there);
        let mut state = report.empty();
        state.hold(holders.iter().flat_map(|holder| holder.on.iter().copied()));
        Some(Node {
            name: Arc::clone(name),
            revision,
            state,
            holders,
            closed: self.without_plugin(name, report).or_else(|| report.closed.clone()),
            tier: report.tier,
            clique: self.clique(name, report),
            unschedulable: self.unschedulable(name),
            free: self.free(name),
            object: self.node_objects.get(&**name).cloned(),
            hardware: Arc::clone(&report.hardware),
            ledger_revision: report.ledger_revision,
        })
    }

    /// Pods of the ledger and those with a reservation. A pod that the ledger shows in part takes what it holds or what it has
    /// reserved, whichever is more.
    fn holders(&self, name: &Arc<str>, report: &Report) -> Box<[Holder]> {
        let mut reserved: BTreeMap<&Arc<str>, Vec<Taken>> = BTreeMap::new();
        for uid in self.reserved.get(name).into_iter().flatten() {
            let takes = self.reservation_of(uid).and_then(|reservation| reservation.takes(&report.node));
            reserved.insert(uid, takes.unwrap_or_default());
        }
        let in_ledger = report.pods.iter().map(|Reported { uid, namespace, on, .. }| {
            let on = reserved.remove(uid).map_or_else(|| on.clone(), |reserved| either(on, &reserved));
            self.holder(uid, Arc::clone(namespace), on)
        });
        let mut holders: Vec<Holder> = in_ledger.collect();
        let rest = reserved.into_iter().filter(|(_, on)| !on.is_empty());
        let rest = rest.filter_map(|(uid, on)| {
            let demand = &self.reservation_of(uid)?.demand;
            Some(self.holder(uid, demand.namespace.as_str().into(), on.into()))
        });
        holders.extend(rest);
        holders.into()
    }

    fn holder(&self, uid: &Arc<str>, namespace: Arc<str>, on: Box<[Taken]>) -> Holder {
        Holder {
            uid: Arc::clone(uid),
            namespace,
            priority: self.pods.get(uid).map_or(i32::MAX, |pod| pod.priority),
            is_nominated: self.reservation_of(uid).is_some_and(|reservation| !reservation.is_announced()),
            on,
        }
    }
}

fn unusable_node(name: &Arc<str>, unusable: &Unusable, revision: u64) -> Node {
    Node {
        name: Arc::clone(name),
        revision,
        state: NodeState::default(),
        holders: Box::default(),
        closed: Some(unusable.to_string().into()),
        unschedulable: None,
        tier: Tier::default(),
        clique: None,
        free: None,
        object: None,
        hardware: Arc::default(),
        ledger_revision: 0,
    }
}

/// The larger share of both, card by card.
fn either(one: &[Taken], other: &[Taken]) -> Box<[Taken]> {
    let mut taken: BTreeMap<usize, Taken> = one.iter().map(|taken| (taken.card, *taken)).collect();
    for more in other {
        let known = taken.entry(more.card).or_insert(*more);
        (known.share, known.slots) = (known.share.max(more.share), known.slots.max(more.slots));
    }
    taken.into_values().collect()
}
