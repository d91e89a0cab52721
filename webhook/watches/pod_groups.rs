//! `PodGroup`s, of Kubernetes and of the coscheduling plugin: how many of their pods start together.

use std::borrow::Cow;
use std::fmt::Debug;
use std::time::Duration;

use divvy_index::Index;
use divvy_index::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Entry, Kind, Listing, name_of, namespace_of};

/// An API that has a kind `PodGroup`.
pub(super) trait Definition: Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    const KIND: Kind;
    const API: PodGroupApi;
    const GROUP: &str;
    const VERSION: &str;
    /// The least number of pods that start together, and how long they wait for one another, where the group says so.
    fn gang(&self) -> (Option<u32>, Option<u32>);
}

/// A `PodGroup`; `S` is its `spec`. What a later version has beside that is passed over.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PodGroupObject<S> {
    metadata: ObjectMeta,
    #[serde(default = "Option::default")]
    spec: Option<S>,
}

/// `spec` of `scheduling.k8s.io`: a gang, or pods that are only named together.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kubernetes {
    scheduling_policy: Option<SchedulingPolicy>,
}

#[derive(Clone, Debug, Deserialize)]
struct SchedulingPolicy {
    gang: Option<GangPolicy>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GangPolicy {
    min_count: Option<u32>,
}

/// `spec` of `scheduling.x-k8s.io`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Coscheduling {
    min_member: Option<u32>,
    schedule_timeout_seconds: Option<u32>,
}

// === impl Definition ===

impl Definition for Kubernetes {
    const KIND: Kind = Kind::PodGroups;
    const API: PodGroupApi = PodGroupApi::Kubernetes;
    const GROUP: &str = "scheduling.k8s.io";
    const VERSION: &str = "v1alpha2";

    fn gang(&self) -> (Option<u32>, Option<u32>) {
        let gang = self.scheduling_policy.as_ref().and_then(|policy| policy.gang.as_ref());
        (gang.and_then(|gang| gang.min_count), None)
    }
}

impl Definition for Coscheduling {
    const KIND: Kind = Kind::CoschedulingPodGroups;
    const API: PodGroupApi = PodGroupApi::Coscheduling;
    const GROUP: &str = "scheduling.x-k8s.io";
    const VERSION: &str = "v1alpha1";

    fn gang(&self) -> (Option<u32>, Option<u32>) {
        (self.min_member, self.schedule_timeout_seconds)
    }
}

// === impl PodGroupObject ===

impl<S: Definition> PodGroupObject<S> {
    fn group(&self) -> PodGroup {
        group::<S>(namespace_of(&self.metadata), name_of(&self.metadata))
    }

    fn spec(&self) -> PodGroupSpec {
        let (min, wait) = self.spec.as_ref().map_or((None, None), S::gang);
        PodGroupSpec {
            min: min.and_then(|min| min.try_into().ok()).unwrap_or(1),
            wait: wait.map_or(PodGroupSpec::WAIT, |seconds| Duration::from_secs(seconds.into())),
        }
    }
}

fn group<S: Definition>(namespace: &str, name: &str) -> PodGroup {
    PodGroup { api: S::API, namespace: namespace.to_owned(), name: name.to_owned() }
}

impl<S: Definition> Resource for PodGroupObject<S> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "PodGroup".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        S::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        S::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "podgroups".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<S: Definition> Entry for PodGroupObject<S> {
    const KIND: Kind = S::KIND;
    const IS_OPTIONAL: bool = true;

    fn key(&self) -> Cow<'_, str> {
        format!("{}/{}", namespace_of(&self.metadata), name_of(&self.metadata)).into()
    }

    fn apply(&self, index: &Index) {
        index.apply_pod_group(self.group(), self.spec());
    }

    fn delete(&self, index: &Index) {
        index.delete_pod_group(&self.group());
    }

    fn keep(index: &Index, listing: &Listing) {
        let is_listed = |group: &PodGroup| listing.keys.contains(&format!("{}/{}", group.namespace, group.name));
        index.keep_pod_groups(S::API, is_listed);
        index.serves_pod_groups(S::API, true);
    }

    fn undefined(index: &Index) {
        index.keep_pod_groups(S::API, |_| false);
        index.serves_pod_groups(S::API, false);
    }
}
