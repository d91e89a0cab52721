//! `PodGroup`s: pods that are scheduled together.

use serde::Deserialize;
use serde_json::Value;

/// Label by which a pod names the `PodGroup` of the coscheduling plugin (scheduler-plugins,
/// `apis/scheduling/v1alpha1: PodGroupLabel`).
pub const LABEL: &str = "scheduling.x-k8s.io/pod-group";

/// A `PodGroup`, as its pods name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodGroup {
    /// Whose it is.
    pub api: PodGroupApi,
    /// Namespace of the group and of its pods.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// API group of a `PodGroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodGroupApi {
    /// `scheduling.k8s.io`, Kubernetes' own (KEP-4671). Its pods name it in `spec.schedulingGroup.podGroupName`.
    Kubernetes,
    /// `scheduling.x-k8s.io`, of the coscheduling plugin. Its pods name it in a [label](LABEL).
    Coscheduling,
}

/// The part of a `PodGroup` that decides how many pods start together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodGroupSpec {
    /// Pods of which none starts before the others can; 1 where each may start alone.
    pub min: usize,
}

/// `spec` of both APIs, as far as it is read: each has fields of its own. What a later version has beside them is passed over.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    scheduling_policy: Option<SchedulingPolicy>,
    min_member: Option<u32>,
}

#[derive(Deserialize)]
struct SchedulingPolicy {
    gang: Option<GangPolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GangPolicy {
    min_count: Option<u32>,
}

/// The group that a pod names, in its spec or else by its label.
pub fn named<T: AsRef<str>>(own: Option<T>, label: impl FnOnce() -> Option<T>) -> Option<(PodGroupApi, T)> {
    let own = own.map(|name| (PodGroupApi::Kubernetes, name));
    let named = own.or_else(|| Some((PodGroupApi::Coscheduling, label()?)));
    named.filter(|(_, name)| !name.as_ref().is_empty())
}

// === impl PodGroupApi ===

impl PodGroupApi {
    /// API group.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Kubernetes => "scheduling.k8s.io",
            Self::Coscheduling => "scheduling.x-k8s.io",
        }
    }

    /// The version that is read.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Kubernetes => "v1alpha2",
            Self::Coscheduling => "v1alpha1",
        }
    }
}

// === impl PodGroupSpec ===

impl PodGroupSpec {
    /// Reads a `spec`. Each pod may start alone by one that can't be read.
    pub fn read(api: PodGroupApi, spec: &Value) -> Self {
        let Spec { scheduling_policy, min_member } = Spec::deserialize(spec).unwrap_or_default();
        let min = match api {
            // What isn't a gang is only named together.
            PodGroupApi::Kubernetes => scheduling_policy.and_then(|policy| policy.gang?.min_count),
            PodGroupApi::Coscheduling => min_member,
        };
        Self { min: min.and_then(|min| min.try_into().ok()).unwrap_or(1) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn specs_of_both_apis_say_how_many_start_together() {
        let read = |api, spec: Value| PodGroupSpec::read(api, &spec).min;
        let own = |policy: Value| read(PodGroupApi::Kubernetes, json!({ "schedulingPolicy": policy, "minMember": 9 }));
        assert_eq!([own(json!({ "gang": { "minCount": 4 } })), own(json!({ "basic": {} }))], [4, 1]);
        let theirs = |spec: Value| read(PodGroupApi::Coscheduling, spec);
        assert_eq!(theirs(json!({ "minMember": 3, "scheduleTimeoutSeconds": 10, "minResources": {} })), 3);
        for odd in [Value::Null, json!({ "minMember": -1 }), json!({ "minMember": null }), json!("text")] {
            assert_eq!(theirs(odd), 1);
        }
    }
}
