//! Refused calls. The text reaches the pod's status and its events.

use divvy_api::annotation::AnnotationError;
use divvy_api::limits::RequestError;
use divvy_api::{CardId, ResourceName, SlotId, Tier};
use divvy_placement::{Misfit, NoPlan};

use crate::identity::Unresolved;
use crate::ledger::LedgerError;
use crate::ports::{PodSourceError, SetupError};

/// A refused call.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The call itself makes no sense.
    #[error("{0}")]
    Call(String),
    /// The kubelet names a slot that was never registered.
    #[error("slot {slot} was never registered by this daemon: recreate the pod")]
    UnknownSlot {
        /// As the kubelet wrote it.
        slot: String,
    },
    /// Two slots of one card for one container.
    #[error("the kubelet chose two slots of {card}, but a container's GPUs must be distinct: recreate the pod")]
    SameCard {
        /// The card.
        card: CardId,
    },
    /// The container that the call is for is unknown or ambiguous.
    #[error(transparent)]
    Identity(#[from] Unresolved),
    /// A source of pods gave no answer.
    #[error(transparent)]
    Pods(#[from] PodSourceError),
    /// Neither the kubelet's list nor the API server with PodResources gave an answer.
    #[error("{list}; without that list: {instead}")]
    Unlisted {
        /// What the kubelet answered.
        list: PodSourceError,
        /// What the API server or PodResources answered.
        instead: Box<Self>,
    },
    /// The container that the call is for is unknown or ambiguous among the pods of the API server.
    #[error("{unresolved} (the kubelet's pod list failed: {list}; used the API server's list instead)")]
    IdentityUnlisted {
        /// What those pods leave open.
        unresolved: Unresolved,
        /// What the kubelet answered.
        list: PodSourceError,
    },
    /// Several pods lack devices, and PodResources didn't tell which of them the kubelet has rejected.
    #[error("{unresolved} (PodResources could not tell which of them the kubelet has rejected: {records})")]
    IdentityUntold {
        /// What the kubelet's list leaves open.
        unresolved: Unresolved,
        /// What PodResources answered.
        records: PodSourceError,
    },
    /// The limits contradict one another.
    #[error(transparent)]
    GpuRequest(#[from] RequestError),
    /// An annotation can't be read.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// The node can't enforce what the pod demands.
    #[error(
        "annotation divvy.dev/tier: {wanted} requested, this node offers {offered}{}",
        if *.wanted == Tier::Mig { " and no MIG instances" } else { "" }
    )]
    Tier {
        /// What the pod demands.
        wanted: Tier,
        /// What the node has.
        offered: Tier,
    },
    /// The tier enforces no part in host memory.
    #[error(
        "annotation divvy.dev/oversubscribe: refused, because tier {tier} cannot count host memory against the pod"
    )]
    Oversubscribe {
        /// What the node has.
        tier: Tier,
    },
    /// The node allocates no more memory than its cards have.
    #[error(
        "annotation divvy.dev/oversubscribe: refused, because this node doesn't oversubscribe memory: remove the \
         annotation, or set memoryScale and oversubscribeHostMemory of divvy-node"
    )]
    NotOversubscribed,
    /// The pod doesn't fit on this node.
    #[error(transparent)]
    NoPlan(#[from] NoPlan),
    /// Slots of cards that can't take the container; the kubelet hands out what live pods hold.
    #[error("the container doesn't fit on the GPUs that the kubelet chose: {0}; recreate the pod")]
    Misfit(#[from] Misfit),
    /// The container's directories or devices can't be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The ledger can't be written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// No pod in the ledger holds the slots of a container that starts.
    #[error("no pod holds device {}: container start refused until the ledger is reconciled; delete the pod if this persists", list(.slots))]
    UnknownHolder {
        /// The slots.
        slots: Vec<SlotId>,
    },
    /// Units of memory or compute for a container that asks for no card.
    #[error("{container} requests {resource} but no GPU: set {count} as well")]
    UnitsAlone {
        /// The pod and its container.
        container: String,
        /// What it asks for.
        resource: ResourceName,
        /// What it should ask for.
        count: ResourceName,
    },
    /// Another call came between the two calls for one container.
    #[error("another pod was admitted between the two kubelet calls; recreate the pod")]
    Stale,
}

// === impl Refusal ===

impl Refusal {
    /// Whether no source lists the pods.
    pub fn is_unlisted(&self) -> bool {
        matches!(self, Self::Pods(PodSourceError::KubeletPods(_)) | Self::Unlisted { .. })
    }

    /// Whether the pod's GPUs weren't found, be it for lack of room or for what the pod requires beside amounts.
    pub(super) fn found_no_gpus(&self) -> bool {
        matches!(self, Self::NoPlan(_) | Self::Misfit(_))
    }

    /// The kind, for metrics and reports.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Call(_) => "call",
            Self::UnknownSlot { .. } => "unknown-slot",
            Self::SameCard { .. } => "same-card",
            Self::Identity(unresolved)
            | Self::IdentityUnlisted { unresolved, .. }
            | Self::IdentityUntold { unresolved, .. } => match unresolved {
                Unresolved::Nobody { .. } => "identity-nobody",
                Unresolved::Ambiguous { .. } => "identity-ambiguous",
            },
            Self::Pods(_) | Self::Unlisted { .. } => "pod-list",
            Self::GpuRequest(_) => "request",
            Self::Annotation(_) => "annotation",
            Self::Tier { .. } => "tier",
            Self::Oversubscribe { .. } | Self::NotOversubscribed => "oversubscribe",
            Self::NoPlan(NoPlan::GaveUp { .. }) => "gave-up",
            Self::NoPlan(_) | Self::Misfit(_) => "no-fit",
            Self::Setup(_) => "delivery",
            Self::Ledger(_) => "ledger",
            Self::UnknownHolder { .. } => "unknown-holder",
            Self::UnitsAlone { .. } => "units-alone",
            Self::Stale => "stale",
        }
    }
}

/// Slots, separated by commas.
pub(super) fn list(slots: &[SlotId]) -> String {
    slots.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
