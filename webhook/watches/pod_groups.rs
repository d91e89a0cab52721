//! `PodGroup`s, of Kubernetes and of the coscheduling plugin: how many of their pods start together.

use std::borrow::Cow;
use std::fmt::Debug;
use std::marker::PhantomData;

use divvy_index::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde_json::Value;

use super::{Entry, Kind, Listing, Watches, name_of, namespace_of, namespaced};

/// An API that has a kind `PodGroup`.
pub(super) trait Definition: Clone + Debug + Send + Sync + 'static {
    const KIND: Kind;
    const API: PodGroupApi;
}

/// A `PodGroup` of the API `A`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PodGroupObject<A> {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(skip)]
    api: PhantomData<A>,
}

/// Kubernetes' own.
#[derive(Clone, Debug)]
pub(super) enum Kubernetes {}

/// The coscheduling plugin's.
#[derive(Clone, Debug)]
pub(super) enum Coscheduling {}

// === impl Definition ===

impl Definition for Kubernetes {
    const KIND: Kind = Kind::PodGroups;
    const API: PodGroupApi = PodGroupApi::Kubernetes;
}

impl Definition for Coscheduling {
    const KIND: Kind = Kind::CoschedulingPodGroups;
    const API: PodGroupApi = PodGroupApi::Coscheduling;
}

// === impl PodGroupObject ===

impl<A: Definition> PodGroupObject<A> {
    fn group(&self) -> PodGroup {
        let namespace = namespace_of(&self.metadata).to_owned();
        let name = name_of(&self.metadata).to_owned();
        PodGroup { api: A::API, namespace, name }
    }
}

impl<A: Definition> Resource for PodGroupObject<A> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "PodGroup".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        A::API.group().into()
    }

    fn version((): &()) -> Cow<'_, str> {
        A::API.version().into()
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

impl<A: Definition> Entry for PodGroupObject<A> {
    const KIND: Kind = A::KIND;
    const IS_OPTIONAL: bool = true;
    const IS_FOREIGN: bool = true;

    fn key(&self) -> Cow<'_, str> {
        namespaced(namespace_of(&self.metadata), name_of(&self.metadata)).into()
    }

    fn apply(self, to: &Watches) {
        to.index.apply_pod_group(self.group(), PodGroupSpec::read(A::API, &self.spec));
    }

    fn delete(&self, from: &Watches) {
        from.index.delete_pod_group(&self.group());
    }

    fn keep(watches: &Watches, listing: &Listing) {
        let is_listed = |group: &PodGroup| listing.keys.contains(&namespaced(&group.namespace, &group.name));
        watches.index.keep_pod_groups(A::API, is_listed);
        watches.index.serves_pod_groups(A::API, true);
    }

    fn undefined(watches: &Watches) {
        watches.index.keep_pod_groups(A::API, |_| false);
        watches.index.serves_pod_groups(A::API, false);
    }
}
