//! Writes the Node: amounts and devices that can be requested here, and labels.

pub(super) mod facts;
pub(super) mod labels;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use divvy_api::request::Totals;
use divvy_api::{NodeCards, ResourceName};
use divvy_node_core::amounts::allocatable;
use divvy_node_core::ledger::Allocations;
use divvy_runtime::api_server::ApiServer;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) use self::facts::{FEATURE_DISCOVERY, NodeFacts, NodeView};
use super::PublishSettings;
use super::attempts::Attempts;
use super::latest::{self, Cached, Latest};
use super::removal::Removal;
use super::view::View;

/// Time for which an amount on the Node may stay above what is free, once shares in other forms were allocated: most of these
/// changes are then part of another write. The daemon itself goes by its ledger.
const SHRINK_DELAY: Duration = Duration::from_secs(10);
/// [`SHRINK_DELAY`] of a node where the extender has placed all pods: schedulers that ask it don't rely on the amounts, and
/// most changes are part of another write before that.
const PLANNED_SHRINK_DELAY: Duration = Duration::from_secs(600);
const PATCH_NODE: &str = "patch nodes/status";
/// Not with the amounts: a policy of before (`deploy/manifests/policy.yaml`) refuses devices.
const PATCH_DEVICES: &str = "patch devices in nodes/status";

/// Writes the Node, and remembers what it wrote.
pub(super) struct NodeWriter {
    settings: Arc<PublishSettings>,
    nodes: Api<NodeView>,
    pub(super) latest: Latest<NodeView>,
    attempts: Attempts,
    /// Amounts that the Node last had from this daemon.
    offered: BTreeMap<String, u64>,
    /// Amounts that the node had then with nothing allocated.
    capacity: BTreeMap<String, u64>,
    /// Time since which the Node offers more than is free.
    shrunk: Option<Instant>,
    /// Whether the daemon has ever been registered: before, nothing may be sent to the node.
    has_registered: bool,
    /// Whether the Node has yet to offer the devices: the kubelet's next status, which has them too, takes up to 10 s.
    are_devices_due: bool,
}

/// The labels of a node.
pub async fn node_labels(client: Client, name: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let node = find_node(client, name).await?.with_context(|| format!("Node {name} doesn't exist"))?;
    Ok(node.metadata.labels.unwrap_or_default())
}

/// The Node of this name. Listed, because the permission to watch a Node doesn't include the permission to get it.
pub(super) async fn find_node(client: Client, name: &str) -> kube::Result<Option<NodeView>> {
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(Api::all(client).list(&only).await?.items.pop())
}

// === impl NodeWriter ===

impl NodeWriter {
    pub(super) fn new(settings: Arc<PublishSettings>, api_server: &ApiServer, stop: &CancellationToken) -> Self {
        let nodes = Api::all(api_server.client.clone());
        Self {
            latest: latest::watch(nodes.clone(), "nodes", &settings.node_name, &api_server.requests, stop),
            settings,
            nodes,
            attempts: Attempts::new(api_server.requests.clone()),
            offered: BTreeMap::new(),
            capacity: BTreeMap::new(),
            shrunk: None,
            has_registered: false,
            are_devices_due: false,
        }
    }

    /// Name of the Node.
    pub(super) fn name(&self) -> &str {
        &self.settings.node_name
    }

    /// Makes the Node show what can be requested here; while the daemon ends, nothing. `last`: the view of the last round.
    pub(super) async fn write(&mut self, view: &View, last: &View) {
        self.has_registered |= view.registered;
        // The kubelet's next status would say the same, up to 10 s later.
        self.are_devices_due |= view.registered && !last.registered;
        self.are_devices_due |= view.serving.is_some() || last.serving.is_some();
        self.are_devices_due |= view.is_full() != last.is_full();
        if view.draining {
            if !last.draining {
                self.attempts.forget(PATCH_NODE);
            }
            self.withdraw(view).await;
        } else {
            self.offer(view).await;
        }
    }

    /// Writes the Node between two rounds. That of a daemon that ends offers nothing, and stays so.
    pub(super) async fn write_between(&mut self, view: &View) {
        if !view.draining {
            self.are_devices_due |= view.is_full();
            self.offer(view).await;
        }
    }

    /// Takes the devices of the last view off the Node once more, of a daemon that has ended.
    pub(super) async fn leave(mut self, last: &View) {
        let devices: BTreeMap<&str, Option<u64>> = last.devices.keys().map(|name| (name.as_str(), None)).collect();
        if self.settings.writes_node && !devices.is_empty() {
            self.patch(PATCH_DEVICES, Some(json!({ "status": { "allocatable": devices } }))).await;
        }
    }

    /// Takes everything that pods request here off the Node. Nothing is sent from then on, and the kubelet admits what was sent
    /// (`run/drain.rs` says why).
    async fn withdraw(&mut self, view: &View) {
        let Cached::Present(node) = self.latest.get() else { return };
        if !self.settings.writes_node {
            return;
        }
        // Every pod requests devices, so they are what counts; the kubelet brings them back with each status, and no amounts.
        let devices: Vec<&str> = view.devices.keys().map(String::as_str).collect();
        self.patch(PATCH_DEVICES, node.without_devices(&devices)).await;
        let names = &self.settings.names;
        let amounts = [&names.memory, &names.memory_percentage, &names.cores].map(ResourceName::as_str);
        self.patch(PATCH_NODE, node.without_amounts(&amounts)).await;
    }

    async fn offer(&mut self, view: &View) {
        let Cached::Present(node) = self.latest.get() else { return };
        if !self.settings.writes_node {
            self.patch(PATCH_NODE, self.stale_amounts(&node)).await;
            return;
        }
        if self.are_devices_due && view.registered {
            self.show_devices(view, &node).await;
        }
        self.write_amounts(view, &node).await;
    }

    /// Offers the devices on the Node, where the kubelet has them by now but has yet to say so.
    async fn show_devices(&mut self, view: &View, node: &NodeView) {
        let patch = node.with_devices(&view.devices);
        self.are_devices_due = patch.is_some() && !self.patch(PATCH_DEVICES, patch).await;
    }

    /// Writes amounts and labels, if the Node should have any other.
    async fn write_amounts(&mut self, view: &View, node: &NodeView) {
        let facts = self.facts(view, node);
        let capacity = self.amounts(&Allocations::default(), &view.inventory.node, &[]);
        let patch = facts.patch(node);
        // Pods that there is nothing for come as soon as the Node shows more than is free.
        let may_wait = patch.is_some() && view.serving.is_none() && view.unplaced.is_empty();
        if may_wait && facts.only_shrink(node, &self.offered) {
            let is_planned = self.capacity == capacity && view.is_planned();
            let delay = if is_planned { PLANNED_SHRINK_DELAY } else { SHRINK_DELAY };
            if self.shrunk.get_or_insert_with(Instant::now).elapsed() < delay {
                return;
            }
        }
        if patch.is_none() || self.patch(PATCH_NODE, patch).await {
            self.shrunk = None;
            self.offered = facts.amounts;
            self.capacity = capacity;
        }
    }

    /// Makes the patch, if there is one; returns whether it was made.
    async fn patch(&mut self, request: &'static str, patch: Option<Value>) -> bool {
        let Some(patch) = patch else { return false };
        let Self { settings, nodes, attempts, latest, .. } = self;
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        let written = nodes.patch_status(&settings.node_name, &params, &patch);
        let Some(answer) = attempts.make(request, written).await else { return false };
        latest.answered(Cached::Present(Box::new(answer)));
        true
    }

    fn amounts(&self, allocations: &Allocations, node: &NodeCards, unplaced: &[Totals]) -> BTreeMap<String, u64> {
        let amounts = allocatable(allocations, node, unplaced, &self.settings.names);
        amounts.map(|(name, amount)| (name.to_owned(), amount)).into()
    }

    /// Removal of amounts that a daemon wrote that was configured otherwise. Compute is the kubelet's own by now.
    fn stale_amounts(&self, node: &NodeView) -> Option<Value> {
        let names = &self.settings.names;
        let removal = Removal::new(node, &[&names.memory, &names.memory_percentage]);
        (node.is_marked() && !removal.what.is_empty()).then_some(removal.patch)
    }

    /// What the Node should say.
    fn facts(&self, view: &View, node: &NodeView) -> NodeFacts {
        // Nothing is free where no pod can be served.
        let nothing = NodeCards::default();
        let cards = if view.serving.is_some() { &nothing } else { &*view.inventory.node };
        let mut amounts = self.amounts(&view.allocations, cards, &view.unplaced);
        // What an earlier daemon took off the Node stays off until pods can be served. What it left there is kept right.
        amounts.retain(|name, _| self.has_registered || node.status.capacity.contains_key(name));
        NodeFacts { amounts, labels: labels::labels(&view.inventory) }
    }
}
