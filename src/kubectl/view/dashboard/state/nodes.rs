//! Nodes with their GPUs, what pods hold of them, and what is reserved for pods on their way.

use std::collections::HashSet;
use std::sync::Arc;

use divvy_api::gpunode::GpuNodeReport;
use divvy_api::{CardId, Share};
use divvy_index::Index;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::Inner;
use super::pods::PodEntry;
use crate::view::explain::fetch::apply_machine;
use crate::view::inspect::{FoundNode, Host, NodeReport, NodeView};

/// A node as the page shows it.
#[derive(Default)]
pub(super) struct NodeEntry {
    /// The `GpuNode`.
    reported: Option<GpuNodeReport>,
    host: Option<NodeView>,
    /// UIDs of the pods that the `GpuNode` has shares of.
    holders: HashSet<String>,
    /// What the page is sent; none without a `GpuNode`.
    pub(super) json: Option<Arc<str>>,
    /// Number of the change that it is of.
    pub(super) version: u64,
}

/// A node's report, with the GPUs' reservations.
#[derive(Serialize)]
struct Content<'a> {
    #[serde(flatten)]
    report: NodeReport,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reservations: Vec<Reservation<'a>>,
}

/// What is reserved of a GPU for a pod on its way.
#[derive(Serialize)]
struct Reservation<'a> {
    card: CardId,
    uid: &'a str,
    namespace: &'a str,
    pod: &'a str,
    #[serde(flatten)]
    share: Share,
}

// === impl NodeEntry ===

impl NodeEntry {
    /// Whether there is a `GpuNode`.
    pub(super) fn is_reported(&self) -> bool {
        self.reported.is_some()
    }

    /// Whether there is a Node.
    pub(super) fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// Whether the node's report shows the pod's shares.
    pub(super) fn holds(&self, uid: &str) -> bool {
        self.holders.contains(uid)
    }
}

// === impl Inner ===

impl Inner {
    pub(super) fn apply_gpu_node(&mut self, index: &Index, mut reported: GpuNodeReport, version: u64) {
        let name: Arc<str> = reported.name_any().into();
        reported.metadata = ObjectMeta::default();
        index.apply_gpu_node(&name, reported.clone());
        let entry = self.nodes.entry(Arc::clone(&name)).or_default();
        entry.holders = reported.shares.iter().map(|share| share.pod_uid.clone()).collect();
        entry.reported = Some(reported);
        self.render_node(index, &name, version);
        self.render_pods_of(&name, version);
    }

    pub(super) fn remove_gpu_node(&mut self, index: &Index, name: &str, version: u64) {
        index.delete_gpu_node(name);
        if let Some(entry) = self.nodes.get_mut(name) {
            (entry.reported, entry.json, entry.version) = (None, None, version);
            entry.holders.clear();
            let is_left = entry.has_host();
            if !is_left {
                self.nodes.remove(name);
            }
        }
    }

    pub(super) fn apply_node(&mut self, index: &Index, mut node: NodeView, version: u64) {
        let name: Arc<str> = node.name_any().into();
        apply_machine(index, &node);
        node.metadata.managed_fields = None;
        node.metadata.annotations = None;
        let entry = self.nodes.entry(Arc::clone(&name)).or_default();
        entry.host = Some(node);
        self.render_node(index, &name, version);
    }

    pub(super) fn remove_node(&mut self, index: &Index, name: &str, version: u64) {
        index.delete_node(name);
        let Some(entry) = self.nodes.get_mut(name) else { return };
        entry.host = None;
        if entry.is_reported() {
            self.render_node(index, name, version);
        } else {
            self.nodes.remove(name);
        }
    }

    /// All Nodes are known from now on: one that isn't there is gone.
    pub(super) fn hosts_are_known(&mut self, index: &Index, version: u64) {
        self.hosts_are_known = true;
        let without = self.nodes.iter().filter(|(_, node)| !node.has_host()).map(|(name, _)| Arc::clone(name));
        for name in without.collect::<Vec<_>>() {
            self.render_node(index, &name, version);
        }
    }

    /// Writes a node's content anew.
    pub(super) fn render_node(&mut self, index: &Index, name: &str, version: u64) {
        let hosts_are_known = self.hosts_are_known;
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let Some(gpu_node) = entry.reported.clone() else { return };
        let host = match &entry.host {
            Some(node) => Host::There(Box::new(node.clone())),
            None if hosts_are_known => Host::Gone,
            None => Host::Unknown,
        };
        let report = NodeReport::new(&FoundNode { name: name.to_owned(), gpu_node, host }, Timestamp::now());
        let reservations = reservations(index, name, entry, &self.pods);
        let json: Arc<str> = serde_json::to_string(&Content { report, reservations })
            .expect("texts, numbers and lists always serialise")
            .into();
        if entry.json.as_ref() != Some(&json) {
            (entry.json, entry.version) = (Some(json), version);
        }
    }
}

/// What the index has reserved on a node for pods that its report doesn't show yet.
fn reservations<'a>(
    index: &Index,
    name: &str,
    entry: &NodeEntry,
    pods: &'a std::collections::HashMap<Arc<str>, PodEntry>,
) -> Vec<Reservation<'a>> {
    let Some(node) = index.snapshot().node(name).cloned() else { return Vec::new() };
    let on_their_way = node.holders.iter().filter(|holder| !entry.holds(&holder.uid));
    let known = on_their_way.filter_map(|holder| Some((holder, pods.get_key_value(&holder.uid)?)));
    let parts = known.flat_map(|(holder, pod)| holder.on.iter().map(move |taken| (taken, pod)));
    let reservations = parts.filter_map(|(taken, (uid, PodEntry { namespace, name, .. }))| {
        let card = node.cards().get(taken.card)?.id.clone();
        Some(Reservation { card, uid, namespace, pod: name, share: taken.share })
    });
    reservations.collect()
}
