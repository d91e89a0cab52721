//! What the core needs of the world: a source of pods, a container's preparation, and somebody who counts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use divvy_api::{CardId, Share, Terms, Tier};

use crate::ledger::reconcile::FoundContainer;
use crate::ledger::{Holding, Nonce};
use crate::pod::{CgroupState, DeviceRecord, Pod, PodList, PodRef};

/// Tells which pods this node has, by the kubelet and by the API server, and what they were given.
///
/// Nothing is decided here: which of these questions are asked, and what follows, is said in `candidates` and
/// `recovery`.
pub trait PodSource: Send + Sync {
    /// The kubelet's own pods, the one under admission included.
    fn kubelet_pods(&self) -> impl Future<Output = Result<PodList, PodSourceError>> + Send;

    /// The same, waited for as long as the pod under admission may wait: nothing else tells which one it is.
    fn kubelet_pods_late(&self) -> impl Future<Output = Result<PodList, PodSourceError>> + Send {
        self.kubelet_pods()
    }

    /// Every pod bound to this node at some moment after the question, without mirrors of static pods; `None` where there
    /// is no API server to ask. Has a deadline of its own.
    fn bound_pods(&self) -> impl Future<Output = Result<Option<Vec<Arc<Pod>>>, PodSourceError>> + Send;

    /// What the kubelet has on record for each of these pods, if it answers within `limit`; `None` for a pod that it doesn't
    /// have, or that is over. It has a pod from just before its admission on. Ordinary init containers are never shown.
    fn device_records(
        &self,
        pods: &[PodRef],
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<Option<Vec<DeviceRecord>>>, PodSourceError>> + Send;

    /// All devices that the kubelet has on record. Asked before the daemon registers and never later: the kubelet releases
    /// devices of ended pods when it answers, also under an Allocate in flight (kubernetes#137534).
    fn all_device_records(&self) -> impl Future<Output = Result<NodeRecords, PodSourceError>> + Send;

    /// What the cgroups of these pods show, by UID.
    fn cgroups(&self, uids: Vec<String>) -> impl Future<Output = HashMap<String, CgroupState>> + Send;

    /// Looks for the cgroups of these pods, which are in the ledger, and forgets all others.
    fn watch_cgroups(&self, uids: HashSet<String>) -> impl Future<Output = ()> + Send;

    /// Time since the kubelet started.
    fn kubelet_age(&self) -> Duration;
}

/// Counts what the core does.
pub trait CoreMetrics: fmt::Debug + Send + Sync {
    /// A container whose pod was identified among those of this list.
    fn identified(&self, by: PodOrigin);
}

/// Whose list of pods it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodOrigin {
    /// The kubelet's own.
    Kubelet,
    /// The API server's, compared with PodResources.
    ApiServer,
}

/// Devices that the kubelet has on record for all pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRecords {
    /// Slots of cards, and devices of other systems.
    pub slots: Vec<DeviceRecord>,
    /// Units of memory and compute, where those are devices.
    pub units: Vec<DeviceRecord>,
}

/// A source of pods that gave no answer, with what it said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodSourceError {
    /// The kubelet doesn't list its pods.
    #[error("{0}")]
    KubeletPods(String),
    /// The API server doesn't list the pods bound to this node.
    #[error("{0}")]
    BoundPods(String),
    /// The kubelet doesn't answer PodResources.
    #[error("{0}")]
    DeviceRecords(String),
    /// The kubelet takes too long to answer PodResources for all pods in question.
    #[error("the kubelet's PodResources doesn't answer within {0:?}")]
    Timeout(Duration),
    /// A pod that the API server doesn't show, such as a static one.
    #[error("pod {pod} has devices on the kubelet's record and isn't one of the API server's")]
    NotBound {
        /// `namespace/name`.
        pod: String,
    },
}

/// Makes containers ready for the cards that they were given: directories, limits, devices and what enforces the shares.
pub trait ContainerSetup: fmt::Debug + Send + Sync {
    /// The isolation tier of this node.
    fn tier(&self) -> Tier;

    /// The strongest tier that holds on all of these cards.
    fn tier_on(&self, shares: &[(CardId, Share)]) -> Tier;

    /// Why no container can be prepared for the node's tier just now.
    fn problem(&self) -> Option<String>;

    /// Makes the container's directories, writes its limits and answers what the runtime adds to it. Can be repeated.
    fn prepare(&self, container: &AllocatedContainer<'_>) -> Result<ContainerResponse, SetupError>;

    /// Whether some container could be prepared: makes and removes the directories of one.
    fn try_preparing(&self) -> Result<(), SetupError>;

    /// Writes the limits of a container that is about to start, and what else it was given where that is gone.
    fn write_limits(&self, container: &AllocatedContainer<'_>) -> Result<(), SetupError>;

    /// Writes the limits of a container that may be running, if it has its directories and no limits of a newer build.
    fn renew_limits(&self, container: &AllocatedContainer<'_>) -> Result<(), SetupError>;

    /// What a container's directories show, found by the pod's UID and the container's name; the weakest terms and no shares,
    /// where a newer build wrote the limits.
    fn find(&self, pod_uid: &str, container: &str) -> Option<FoundContainer>;

    /// Puts the directories of containers that have ended away, at once; what tenants left there is removed later, by
    /// somebody else. Those that stay are left to [`Self::remove_all_but`].
    fn remove(&self, ended: Vec<Nonce>);

    /// Does the same with the directories of all containers but these. Those of the pods in `unmatched`, by UID, stay too, as do
    /// those whose limits can't be read: a newer build may have written them for a container that runs.
    fn remove_all_but(&self, live: &HashSet<Nonce>, unmatched: &HashSet<String>) -> Result<(), SetupError>;
}

/// A container as the ledger has it, for its preparation.
#[derive(Clone, Debug)]
pub struct AllocatedContainer<'a> {
    /// The container's pod.
    pub pod: &'a PodRef,
    /// Name of the container.
    pub name: &'a str,
    /// Name of its directories.
    pub nonce: Nonce,
    /// At least one card, each once.
    pub shares: Vec<(CardId, Share)>,
    /// How the shares are enforced: by the node's tier, by a weaker one that the container was made for, or by the hardware.
    pub terms: Terms,
}

impl<'a> AllocatedContainer<'a> {
    /// A holding on a node that serves this tier.
    pub fn new(pod: &'a PodRef, name: &'a str, holding: &Holding, served: Tier) -> Self {
        let shares = holding.parts.iter().map(|part| (part.card.clone(), part.share)).collect();
        Self { pod, name, nonce: holding.nonce, shares, terms: holding.terms_under(served) }
    }
}

/// What the runtime adds to a container: the answer to `Allocate`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerResponse {
    /// Environment variables.
    pub envs: BTreeMap<String, String>,
    /// Mounts of what is there on the host.
    pub mounts: Vec<Mount>,
    /// Annotations of the container, for the runtime.
    pub annotations: BTreeMap<String, String>,
    /// Qualified names of CDI devices.
    pub cdi_devices: Vec<String>,
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where the container sees it.
    pub container_path: String,
    /// Where it is on the host.
    pub host_path: String,
    /// Whether the container may not write to it.
    pub read_only: bool,
}

/// A container that can't be prepared: what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub String);
