//! A pod's containers in the order in which the kubelet admits them, and Kubernetes' arithmetic over that order.

pub mod wire;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContainerKind {
    /// Runs to its end before the next container starts.
    Init,
    /// An init container with `restartPolicy: Always`: runs on beside everything that follows it.
    Sidecar,
    /// An ordinary container.
    #[default]
    App,
}

/// The part of a container's spec that a request is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Unique in its pod, init containers included.
    pub name: String,
    /// Which list it stands in, and how it restarts.
    pub kind: ContainerKind,
    /// Position in its own list (`spec.initContainers` or `spec.containers`), for error messages.
    pub index: usize,
    /// `resources.limits`, as written.
    pub limits: BTreeMap<String, String>,
}

/// Amount that adds up over a pod's containers.
pub trait PodSum: Clone + Default {
    /// Sum of amounts needed side by side.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// Larger of amounts needed one after another, part by part.
    #[must_use]
    fn max(self, other: Self) -> Self;
}

/// What a pod needs at its peak: the largest init step with the sidecars started before it, or all sidecars and app
/// containers together, whichever is more (KEP-753; `k8s.io/component-helpers/resource.PodRequests`).
///
/// `containers` come in admission order: init containers as listed, then app containers.
pub fn peak<A: PodSum>(containers: impl IntoIterator<Item = (ContainerKind, A)>) -> A {
    let mut running = A::default();
    let mut peak = A::default();
    for (kind, amount) in containers {
        match kind {
            ContainerKind::Init => peak = peak.max(running.clone().plus(amount)),
            ContainerKind::Sidecar | ContainerKind::App => running = running.plus(amount),
        }
    }
    peak.max(running)
}

// === impl ContainerKind ===

impl ContainerKind {
    /// The field of a pod spec that lists containers of this kind.
    pub fn list_field(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "spec.initContainers",
            Self::App => "spec.containers",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ContainerKind::{App, Init, Sidecar};
    use super::*;
    use crate::quantity::{Cores, Memory};
    use crate::share::Share;

    fn memory(mib: u64) -> Share {
        Share { memory: Memory::mib(mib), cores: Cores::ZERO, ..Share::default() }
    }

    #[test]
    fn pod_sum_is_the_larger_of_init_peak_and_the_rest() {
        assert_eq!(peak([(Init, memory(9)), (Init, memory(4)), (App, memory(3)), (App, memory(3))]), memory(9));
        assert_eq!(peak([(Init, memory(5)), (App, memory(3)), (App, memory(3))]), memory(6));
        assert_eq!(peak::<Share>([]), Share::default());
    }

    #[test]
    fn sidecars_add_to_later_init_containers() {
        assert_eq!(peak([(Sidecar, memory(2)), (Init, memory(5)), (App, memory(3))]), memory(7));
        assert_eq!(peak([(Init, memory(5)), (Sidecar, memory(2)), (App, memory(3))]), memory(5));
        assert_eq!(peak([(Sidecar, memory(2)), (App, memory(3)), (Sidecar, memory(1))]), memory(6));
    }
}
