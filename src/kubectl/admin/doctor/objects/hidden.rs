//! Namespaces in which GPUs are hidden that have pods which must not wait for the webhook.

use divvy_systems::CRITICAL;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde::Deserialize;

use super::{Fact, Reader};

/// A pod, as far as it says whether `hide.divvy.dev` leaves it alone.
#[derive(Clone, Debug, Deserialize)]
struct Placed {
    spec: PlacedSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PlacedSpec {
    host_network: bool,
    priority_class_name: String,
}

// === impl Reader ===

impl Reader<'_> {
    /// Which of these namespaces have pods on the host's network or of the system's priority classes.
    pub(super) async fn needed_first(&self, namespaces: &Fact<Vec<Namespace>>) -> Fact<Vec<String>> {
        let mut found = Vec::new();
        for name in namespaces.iter().flatten().map(Namespace::name_any) {
            let pods: Vec<Placed> = self.cluster.pods(Some(&name), ListParams::default()).await?;
            if pods.iter().any(Placed::is_needed_first) {
                found.push(name);
            }
        }
        Ok(found)
    }
}

// === impl Placed ===

impl Placed {
    fn is_needed_first(&self) -> bool {
        self.spec.host_network || CRITICAL.contains(&&*self.spec.priority_class_name)
    }
}
