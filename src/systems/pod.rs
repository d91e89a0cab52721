//! What is read of a pod. Everything may be absent.

use std::collections::BTreeMap;

/// Quantities by resource, as written.
pub type Amounts = BTreeMap<String, String>;

/// A pod, or the template of one, as its author wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Init containers, then app containers.
    pub containers: Vec<Container>,
}

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Where it stands: `spec.containers[0]`.
    pub field: String,
    /// Name, unique in the pod.
    pub name: String,
    /// Whether it is one of `spec.containers`.
    pub is_app: bool,
    /// Whether its amounts are totals that Divvy has written, and its request is known.
    pub is_totalled: bool,
    /// `resources.limits`.
    pub limits: Amounts,
    /// `resources.requests`.
    pub requests: Amounts,
    /// Environment variables; without a text if that comes from elsewhere (`valueFrom`).
    pub variables: BTreeMap<String, Option<String>>,
}

// === impl Container ===

impl Container {
    /// Whether it has a limit or request of this resource.
    pub(crate) fn names(&self, resource: &str) -> bool {
        self.limits.contains_key(resource) || self.requests.contains_key(resource)
    }

    /// The text of an environment variable.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name)?.as_deref()
    }

    /// Where it names the resource.
    pub(crate) fn field_of(&self, resource: &str) -> String {
        let list = if self.limits.contains_key(resource) { "limits" } else { "requests" };
        format!("{}.resources.{list}[{resource}]", self.field)
    }
}
