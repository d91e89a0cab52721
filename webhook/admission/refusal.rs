//! Reasons for which a pod is refused, in words for its author.

use std::fmt;
use std::sync::Arc;

use divvy_api::ResourceName;
use divvy_api::annotation::AnnotationError;
use divvy_api::limits::RequestError;

/// Why a request is refused. Every variant names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The review, or what it carries, isn't what the API server would send.
    #[error("{field}: {problem}")]
    Malformed { field: String, problem: String },
    #[error(transparent)]
    GpuRequest(#[from] RequestError),
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    #[error(transparent)]
    Dialect(#[from] divvy_systems::Refusal),
    #[error("{field}: {value} without a limit: set the limit, and the request follows it")]
    RequestAlone { field: String, value: String },
    #[error("{field}: {value} is not the limit, which is {limit}: leave the request out, and it follows the limit")]
    RequestDiffers { field: String, value: String, limit: String },
    #[error("{field}: an ephemeral container can't request GPUs: request them in spec.containers")]
    Ephemeral { field: String },
    #[error("{field}: \"{name}\" is the name of another container too, and requests are kept by name")]
    SameName { field: String, name: String },
    #[error(
        "{field}: {value} selects GPUs, but a container sees those that its limits request: remove the variable; \
         CUDA_VISIBLE_DEVICES can choose among them"
    )]
    NamesCards { field: String, value: String },
    #[error(
        "{field}: {name} loads code ahead of what keeps the container to its share of a GPU: remove the variable, or \
         request whole GPUs"
    )]
    Preloads { field: String, name: String },
    #[error("{field}: Divvy mounts {path}: choose another path")]
    Mounts { field: String, path: String },
    #[error("annotation {key}: only Divvy writes it: leave it as it is")]
    OutputChanged { key: &'static str },
    #[error(
        "annotation {key}: pods of namespace \"{namespace}\" may not use \"{value}\": an administrator can add the namespace to favouredNamespaces"
    )]
    Namespace { key: &'static str, value: &'static str, namespace: String },
    #[error(
        "annotation {key}: needs an amount of memory, of which a part can be in host memory, and all GPUs are requested \
         whole: set {memory} or {percentage}, and {cores} below 100, or remove the annotation"
    )]
    NothingToOversubscribe { key: &'static str, memory: ResourceName, percentage: ResourceName, cores: ResourceName },
    #[error(
        "annotation {key}: container \"{container}\" requests {cards} GPUs: every container can request one, or remove the annotation"
    )]
    SeveralGpus { key: &'static str, container: String, cards: u32 },
    #[error(
        "annotation {key}: {limit} is less than the {cores} cores of container \"{container}\": set {cores} to 100"
    )]
    BelowGuarantee { key: &'static str, limit: u32, container: String, cores: u32 },
    #[error("{0}: kubectl divvy quota shows what is held")]
    Quota(Arc<str>),
    #[error("spec.nodeName: {0}, and a pod that names its node isn't scheduled: remove the field")]
    NodeNamed(Arc<str>),
    #[error("annotation {key}: the pod has its node and GPUs: delete the pod, and create it with the new value")]
    Fixed { key: &'static str },
    #[error(
        "{pointer}: Divvy's mutating webhook would change this: either it wasn't called, or another webhook came after \
         it and it wasn't called again, which its reinvocationPolicy IfNeeded asks for"
    )]
    Mutated { pointer: String },
}

// === impl Refusal ===

impl Refusal {
    pub(super) fn malformed(field: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self::Malformed { field: field.into(), problem: problem.to_string() }
    }

    /// Code and reason of the `metav1.Status`, as the API server itself would choose them.
    pub(super) fn status(&self) -> (u16, &'static str) {
        match self {
            Self::Malformed { .. } => (400, "BadRequest"),
            Self::GpuRequest(_)
            | Self::Annotation(_)
            | Self::Dialect(_)
            | Self::RequestAlone { .. }
            | Self::RequestDiffers { .. }
            | Self::Ephemeral { .. }
            | Self::SameName { .. }
            | Self::NothingToOversubscribe { .. }
            | Self::SeveralGpus { .. }
            | Self::BelowGuarantee { .. }
            | Self::Fixed { .. }
            | Self::Mutated { .. } => (422, "Invalid"),
            Self::NamesCards { .. }
            | Self::Preloads { .. }
            | Self::Mounts { .. }
            | Self::OutputChanged { .. }
            | Self::Quota(_)
            | Self::NodeNamed(_)
            | Self::Namespace { .. } => (403, "Forbidden"),
        }
    }
}
