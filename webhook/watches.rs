//! Watches of pods, Nodes, `GpuNode`s, `GpuQuota`s and `PodGroup`s, which fill the cluster state; nothing else is kept of the objects.
//!
//! While the API server is away, the state stays as it is. Afterwards all objects are listed, and those that are gone are
//! deleted.

mod objects;
mod pod_groups;
mod reflector;
mod reservations;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use divvy_api::gpunode::GpuNodeReport;
use divvy_api::gpuquota::GpuQuota;
use divvy_index::Index;
use divvy_runtime::api_server::ApiServer;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DeserializeGuard;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use self::objects::{NodeObject, PodObject};
use self::pod_groups::{Coscheduling, Kubernetes, PodGroupObject};
pub use self::reservations::Reservations;
use crate::aggregated_api::shared_store::SharedStore;

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pods that haven't ended.
    Pods,
    /// Nodes: whether they exist, are cordoned and ready.
    Nodes,
    /// Reports of the daemons.
    GpuNodes,
    /// What namespaces may hold of GPUs of some models.
    GpuQuotas,
    /// Kubernetes' own groups of pods that are scheduled together.
    PodGroups,
    /// Those of the coscheduling plugin.
    CoschedulingPodGroups,
}

/// Whether each watch has synced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncStatus {
    kinds: [KindStatus; Kind::ALL.len()],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KindStatus {
    /// Whether all objects have been listed once.
    listed: bool,
    /// Whether the list of a kind of somebody else was refused: nobody waits for it.
    is_waived: bool,
    /// Why the watch fails now.
    problem: Option<String>,
}

/// Keeps the cluster state up to date.
#[derive(Clone)]
pub struct Watches {
    api_server: ApiServer,
    index: Arc<Index>,
    /// Objects of the aggregated API, where it is served.
    aggregated: Option<SharedStore>,
    sync_status: Arc<watch::Sender<SyncStatus>>,
}

/// An object of a watched kind, and what becomes of it.
trait Entry: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static {
    const KIND: Kind;
    /// Whether all is well without the kind: few API servers have it, or its definition is younger than others.
    const IS_OPTIONAL: bool = false;
    /// Whether somebody else defines the kind: where its list is refused, for whatever reason, the rest goes on without it.
    const IS_FOREIGN: bool = false;
    /// Key in the cluster state.
    fn key(&self) -> Cow<'_, str>;
    fn apply(self, to: &Watches);
    fn delete(&self, from: &Watches);
    /// Deletes what isn't listed.
    fn keep(watches: &Watches, listing: &Listing);
    /// Deletes all: the API server doesn't have this optional kind.
    fn undefined(watches: &Watches) {
        Self::keep(watches, &Listing::default());
    }
}

/// All objects of a kind, as they come page by page.
#[derive(Default)]
struct Listing {
    /// Keys of the listed objects.
    keys: HashSet<String>,
    /// Pods that were known when the list was requested. Others may be younger than the list, and reserved meanwhile.
    pods_before: HashSet<Arc<str>>,
}

/// Selects pods that may hold GPUs: ended ones outnumber them where Jobs run.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

// === impl Kind ===

impl Kind {
    const ALL: [Self; 6] =
        [Self::Pods, Self::Nodes, Self::GpuNodes, Self::GpuQuotas, Self::PodGroups, Self::CoschedulingPodGroups];

    /// Plural name, as kubectl takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
            Self::GpuNodes => "gpunodes",
            Self::GpuQuotas => "gpuquotas",
            Self::PodGroups => "podgroups.scheduling.k8s.io",
            Self::CoschedulingPodGroups => "podgroups.scheduling.x-k8s.io",
        }
    }
}

// === impl SyncStatus ===

impl SyncStatus {
    /// Whether all kinds have been listed once, but those of somebody else that can't be.
    pub fn has_synced(&self) -> bool {
        self.kinds.iter().all(|kind| kind.listed || kind.is_waived)
    }

    /// Kinds that have been listed once.
    pub fn listed(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| self.kinds[*kind as usize].listed)
    }

    /// Kinds that haven't been listed yet.
    pub fn unlisted(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| !self.kinds[*kind as usize].listed)
    }

    /// Whether nobody waits for the list of a kind, as somebody else defines it and it was refused.
    pub fn is_waived(&self, kind: Kind) -> bool {
        let status = &self.kinds[kind as usize];
        status.is_waived && !status.listed
    }

    /// Why the watch of a kind fails now.
    pub fn problem(&self, kind: Kind) -> Option<&str> {
        self.kinds[kind as usize].problem.as_deref()
    }
}

// === impl Watches ===

impl Watches {
    /// Prepares to fill this index from this API server, and the objects of the aggregated API where it is served.
    pub fn new(api_server: ApiServer, index: Arc<Index>, aggregated: Option<SharedStore>) -> Self {
        Self { api_server, index, aggregated, sync_status: Arc::default() }
    }

    /// Subscribes to the status of the watches.
    pub fn sync_status(&self) -> watch::Receiver<SyncStatus> {
        self.sync_status.subscribe()
    }

    /// Watches all kinds, for ever.
    pub async fn run(self) {
        tokio::join!(
            self.follow::<PodObject>(NOT_ENDED),
            self.follow::<NodeObject>(""),
            self.follow::<GpuNodeReport>(""),
            self.follow::<DeserializeGuard<GpuQuota>>(""),
            self.follow::<PodGroupObject<Kubernetes>>(""),
            self.follow::<PodGroupObject<Coscheduling>>(""),
        );
    }

    /// Prepares to list the reservations that pods carry.
    pub fn reservations(&self) -> Reservations {
        Reservations::new(self.api_server.client.clone(), Arc::clone(&self.index))
    }

    fn note(&self, kind: Kind, change: impl FnOnce(&mut KindStatus)) {
        self.sync_status.send_if_modified(|sync_status| {
            let kind = &mut sync_status.kinds[kind as usize];
            let before = kind.clone();
            change(kind);
            *kind != before
        });
    }
}

// === impl Listing ===

impl Listing {
    /// A list that is about to be requested.
    fn before<E: Entry>(index: &Index) -> Self {
        let pods_before = if E::KIND == Kind::Pods { index.pods() } else { HashSet::new() };
        Self { keys: HashSet::new(), pods_before }
    }
}

// === impl Entry ===

impl Entry for PodObject {
    const KIND: Kind = Kind::Pods;

    fn key(&self) -> Cow<'_, str> {
        self.pod.uid.as_str().into()
    }

    fn apply(self, to: &Watches) {
        to.index.apply_pod(&self.pod, Instant::now());
    }

    fn delete(&self, from: &Watches) {
        from.index.delete_pod(&self.pod.uid);
    }

    fn keep(watches: &Watches, listing: &Listing) {
        let gone = listing.pods_before.iter().filter(|uid| !listing.keys.contains(&***uid));
        gone.for_each(|uid| watches.index.delete_pod(uid));
        watches.index.expect_counted();
    }
}

impl Entry for NodeObject {
    const KIND: Kind = Kind::Nodes;

    fn key(&self) -> Cow<'_, str> {
        name_of(&self.metadata).into()
    }

    fn apply(self, to: &Watches) {
        to.index.apply_node(name_of(&self.metadata), self.view(to.index.config()));
    }

    /// The node's `GpuNode` stays until it is deleted itself: the watches run apart, and this may be late news of a Node that has
    /// been made again and reported since.
    fn delete(&self, from: &Watches) {
        from.index.delete_node(name_of(&self.metadata));
    }

    fn keep(watches: &Watches, listing: &Listing) {
        watches.index.keep_nodes(&listing.keys);
    }
}

impl Entry for GpuNodeReport {
    const KIND: Kind = Kind::GpuNodes;

    fn key(&self) -> Cow<'_, str> {
        name_of(&self.metadata).into()
    }

    fn apply(self, to: &Watches) {
        if let Some(aggregated) = &to.aggregated {
            aggregated.apply(&self);
        }
        let name = name_of(&self.metadata).to_owned();
        to.index.apply_gpu_node(&name, self);
    }

    fn delete(&self, from: &Watches) {
        if let Some(aggregated) = &from.aggregated {
            aggregated.delete(name_of(&self.metadata));
        }
        from.index.delete_gpu_node(name_of(&self.metadata));
    }

    fn keep(watches: &Watches, listing: &Listing) {
        if let Some(aggregated) = &watches.aggregated {
            aggregated.keep(&listing.keys);
        }
        watches.index.keep_gpu_nodes(&listing.keys);
    }
}

impl Entry for DeserializeGuard<GpuQuota> {
    const KIND: Kind = Kind::GpuQuotas;
    const IS_OPTIONAL: bool = true;

    fn key(&self) -> Cow<'_, str> {
        namespaced(namespace_of(self.meta()), name_of(self.meta())).into()
    }

    fn apply(self, to: &Watches) {
        let spec = self.0.as_ref().map(|quota| &quota.spec).map_err(|invalid| invalid.error.clone());
        to.index.apply_quota(namespace_of(self.meta()), name_of(self.meta()), spec);
    }

    fn delete(&self, from: &Watches) {
        from.index.delete_quota(namespace_of(self.meta()), name_of(self.meta()));
    }

    fn keep(watches: &Watches, listing: &Listing) {
        let names = watches.index.quota_names().into_iter();
        let gone = names.filter(|(namespace, name)| !listing.keys.contains(&namespaced(namespace, name)));
        gone.for_each(|(namespace, name)| watches.index.delete_quota(&namespace, &name));
    }
}

fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// Key of an object of a namespace.
fn namespaced(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

fn namespace_of(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or_default()
}
