//! What the page shows, as JSON, with the number of the change that it is of: each page is sent what is newer than it has.

mod nodes;
mod pods;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use divvy_api::gpunode::GpuNodeReport;
use divvy_index::Index;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde::Serialize;
use tokio::sync::watch;

use self::nodes::NodeEntry;
use self::pods::PodEntry;
use crate::cluster::Refusal;
use crate::view::inspect::NodeView;

/// Kinds of objects that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    GpuNodes,
    Nodes,
    Pods,
}

/// An object of a watch.
pub(super) enum Object {
    GpuNode(Box<GpuNodeReport>),
    Node(Box<NodeView>),
    Pod(Box<Pod>),
}

/// The cluster as far as it is watched.
pub(super) struct DashboardState {
    index: Index,
    inner: Mutex<Inner>,
    /// Number of the last change.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    nodes: BTreeMap<Arc<str>, NodeEntry>,
    /// By UID.
    pods: HashMap<Arc<str>, PodEntry>,
    watches: BTreeMap<Kind, Watch>,
    /// Whether all Nodes have been listed, so that one that isn't here is gone.
    hosts_are_known: bool,
    /// Number of the last change of anything.
    version: u64,
    /// That of the last change of `watches`.
    watches_version: u64,
}

/// How a watch does.
#[derive(Default)]
struct Watch {
    /// Whether all objects have been listed once, or can't be.
    is_complete: bool,
    problem: Option<String>,
}

/// A part of the page's content that has changed: JSON by key, and the keys that are gone.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) nodes: Vec<(Arc<str>, Arc<str>)>,
    pub(super) gone_nodes: Vec<Arc<str>>,
    pub(super) pods: Vec<(Arc<str>, Arc<str>)>,
    pub(super) gone_pods: Vec<Arc<str>>,
    pub(super) status: Option<Status>,
}

/// Whether the content is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    /// Everything has been listed once.
    pub(super) synced: bool,
    /// What isn't up to date, or isn't known, and why.
    pub(super) problems: Vec<String>,
}

/// What a page has been sent.
#[derive(Default)]
pub(super) struct Sent {
    version: u64,
    nodes: HashSet<Arc<str>>,
    pods: HashSet<Arc<str>>,
}

/// Time between two looks at where waiting pods fit.
const VERDICTS: Duration = Duration::from_secs(2);
/// Longest look at where pods fit, during which no page is answered. Pods that weren't reached have their turn next time.
const JUDGING: Duration = Duration::from_millis(250);

// === impl DashboardState ===

impl DashboardState {
    pub(super) fn new(index: Index) -> Self {
        Self { index, inner: Mutex::default(), changed: watch::Sender::new(0) }
    }

    /// An object that was listed, added or changed.
    pub(super) fn apply(&self, object: Object) {
        self.change(|inner, version| match object {
            Object::GpuNode(object) => inner.apply_gpu_node(&self.index, *object, version),
            Object::Node(node) => inner.apply_node(&self.index, *node, version),
            Object::Pod(pod) => inner.apply_pod(&self.index, &pod, version),
        });
    }

    /// An object that was deleted, or is no longer selected.
    pub(super) fn delete(&self, object: &Object) {
        let kind = object.kind();
        let key = object.key();
        self.change(|inner, version| inner.remove(&self.index, kind, &key, version));
    }

    /// All objects of a kind have been listed: others are gone.
    pub(super) fn keep(&self, kind: Kind, listed: &HashSet<String>) {
        self.change(|inner, version| {
            for gone in inner.keys(kind).into_iter().filter(|key| !listed.contains(&**key)) {
                inner.remove(&self.index, kind, &gone, version);
            }
            if kind == Kind::Nodes {
                self.index.keep_nodes(listed);
                inner.hosts_are_known(&self.index, version);
            }
            inner.watches.insert(kind, Watch { is_complete: true, problem: None });
            inner.watches_version = version;
        });
    }

    /// A watch has failed, and is tried again.
    pub(super) fn fails(&self, kind: Kind, why: &Refusal) {
        self.change(|inner, version| {
            let watch = inner.watches.entry(kind).or_default();
            watch.is_complete |= matches!(why, Refusal::Forbidden(_) | Refusal::UnknownKind);
            watch.problem = Some(kind.problem(why));
            inner.watches_version = version;
        });
    }

    /// Says for each waiting pod where it fits, again and again, as others come and go.
    pub(super) async fn keep_verdicts(&self) {
        let mut seen = 0;
        let mut is_done = true;
        loop {
            tokio::time::sleep(VERDICTS).await;
            let now = self.lock().version;
            if now != seen || !is_done {
                self.change(|inner, version| is_done = inner.judge_pods(&self.index, JUDGING, version));
                seen = self.lock().version;
            }
        }
    }

    /// Number of the last change, to wait for the next one; what is there already counts as one.
    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        let mut changed = self.changed.subscribe();
        changed.mark_changed();
        changed
    }

    /// What a page lacks; it counts as sent.
    pub(super) fn news(&self, sent: &mut Sent) -> Changes {
        let inner = self.lock();
        let mut changes = Changes::default();
        let is_new = |version: u64| version > sent.version;
        for (name, node) in inner.nodes.iter().filter(|(_, node)| is_new(node.version)) {
            changes.nodes.extend(node.json.clone().map(|json| (Arc::clone(name), json)));
        }
        for (uid, pod) in inner.pods.iter().filter(|(_, pod)| is_new(pod.version)) {
            changes.pods.extend(pod.json.clone().map(|json| (Arc::clone(uid), json)));
        }
        if is_new(inner.watches_version) || sent.version == 0 {
            changes.status = Some(inner.status());
        }
        let has_node = |name: &Arc<str>| inner.nodes.get(name).is_some_and(|node| node.json.is_some());
        changes.gone_nodes.extend(sent.nodes.extract_if(|name| !has_node(name)));
        let has_pod = |uid: &Arc<str>| inner.pods.get(uid).is_some_and(|pod| pod.json.is_some());
        changes.gone_pods.extend(sent.pods.extract_if(|uid| !has_pod(uid)));
        sent.nodes.extend(changes.nodes.iter().map(|(name, _)| Arc::clone(name)));
        sent.pods.extend(changes.pods.iter().map(|(uid, _)| Arc::clone(uid)));
        sent.version = inner.version;
        changes
    }

    fn change(&self, change: impl FnOnce(&mut Inner, u64)) {
        let version = {
            let mut inner = self.lock();
            inner.version += 1;
            let version = inner.version;
            change(&mut inner, version);
            version
        };
        self.changed.send_replace(version);
    }

    /// What the lock guards is never left half changed.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Inner ===

impl Inner {
    fn keys(&self, kind: Kind) -> Vec<Arc<str>> {
        let nodes = |is_of: fn(&NodeEntry) -> bool| {
            self.nodes.iter().filter(|(_, node)| is_of(node)).map(|(name, _)| Arc::clone(name)).collect()
        };
        match kind {
            Kind::GpuNodes => nodes(NodeEntry::is_reported),
            Kind::Nodes => nodes(NodeEntry::has_host),
            Kind::Pods => self.pods.keys().cloned().collect(),
        }
    }

    fn remove(&mut self, index: &Index, kind: Kind, key: &str, version: u64) {
        match kind {
            Kind::GpuNodes => self.remove_gpu_node(index, key, version),
            Kind::Nodes => self.remove_node(index, key, version),
            Kind::Pods => self.remove_pod(index, key, version),
        }
    }

    fn status(&self) -> Status {
        let all = [Kind::GpuNodes, Kind::Nodes, Kind::Pods];
        Status {
            synced: all.iter().all(|kind| self.watches.get(kind).is_some_and(|watch| watch.is_complete)),
            problems: self.watches.values().filter_map(|watch| watch.problem.clone()).collect(),
        }
    }
}

// === impl Kind ===

impl Kind {
    fn problem(self, why: &Refusal) -> String {
        let what = match self {
            Self::GpuNodes => "GPUs and what pods hold of them aren't up to date",
            Self::Nodes => "whether the Nodes themselves are alive isn't known",
            Self::Pods => "pods that wait aren't known",
        };
        format!("{what}: {why}")
    }
}

// === impl Object ===

impl Object {
    fn kind(&self) -> Kind {
        match self {
            Self::GpuNode(_) => Kind::GpuNodes,
            Self::Node(_) => Kind::Nodes,
            Self::Pod(_) => Kind::Pods,
        }
    }

    /// What tells it from others of its kind.
    pub(super) fn key(&self) -> String {
        match self {
            Self::GpuNode(object) => object.name_any(),
            Self::Node(node) => node.name_any(),
            Self::Pod(pod) => pod.uid().unwrap_or_default(),
        }
    }
}

impl From<GpuNodeReport> for Object {
    fn from(object: GpuNodeReport) -> Self {
        Self::GpuNode(object.into())
    }
}

impl From<NodeView> for Object {
    fn from(node: NodeView) -> Self {
        Self::Node(node.into())
    }
}

impl From<Pod> for Object {
    fn from(pod: Pod) -> Self {
        Self::Pod(pod.into())
    }
}
