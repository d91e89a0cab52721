//! The few fields of a pod, or of a pod template, that are read here. Everything may be absent or null.

mod container;

use std::collections::{BTreeMap, HashSet};

use divvy_api::ContainerKind;
use divvy_api::annotation::RequestAnnotation;
use divvy_api::names::{GATE, PREFIX};
use divvy_index::pod_group;
use divvy_systems::Dialect;
use serde::Deserialize;
use serde_json::Value;

use super::Settings;
use super::patch::{self, Changes};
use container::Container;
pub(super) use container::{Amounts, EnvVar, Place, Quantity};

/// A pod as it lies in the review.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Pod {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Metadata {
    name: Option<String>,
    generate_name: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Spec {
    node_name: Option<String>,
    scheduler_name: Option<String>,
    scheduling_gates: Option<Vec<SchedulingGate>>,
    scheduling_group: Option<SchedulingGroup>,
    init_containers: Option<Vec<Container>>,
    containers: Option<Vec<Container>>,
    ephemeral_containers: Option<Vec<Container>>,
    volumes: Option<Vec<Volume>>,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<Toleration>>,
}

/// `key` or `effect` empty: all; `operator` empty: `Equal`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Toleration {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SchedulingGroup {
    pod_group_name: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct SchedulingGate {
    name: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Volume {
    host_path: Option<HostPath>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
struct HostPath {
    path: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct Affinity {
    pub(super) node_affinity: Option<NodeAffinity>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct NodeAffinity {
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(super) preferred: Option<Vec<Value>>,
}

// === impl Toleration ===

impl Toleration {
    /// Whether it tolerates a taint of this key and effect without a value (`ToleratesTaint` of k8s.io/api).
    pub(super) fn tolerates(&self, key: &str, effect: &str) -> bool {
        let is = |field: &Option<String>, wanted: &str| {
            field.as_deref().is_none_or(|field| field.is_empty() || field == wanted)
        };
        let has_no_value = self.value.as_deref().unwrap_or_default().is_empty();
        let exists = self.operator.as_deref() == Some("Exists");
        is(&self.effect, effect) && is(&self.key, key) && (exists || has_no_value)
    }
}

// === impl SchedulingGate ===

impl SchedulingGate {
    /// Whether it is that of pods which the leader still has to plan.
    pub(super) fn is_ours(&self) -> bool {
        self.name.as_deref() == Some(GATE)
    }
}

// === impl Pod ===

impl Pod {
    /// Init containers, then app containers: the order in which the kubelet admits them.
    pub(super) fn containers(&self) -> impl Iterator<Item = Place<'_>> {
        let init = |container: &Container| match container.restart_policy.as_deref() {
            Some("Always") => ContainerKind::Sidecar,
            _ => ContainerKind::Init,
        };
        let places = self.places("spec.initContainers", |spec| &spec.init_containers, init);
        places.chain(self.places("spec.containers", |spec| &spec.containers, |_| ContainerKind::App))
    }

    /// What `kubectl debug` adds to a pod. They run beside its app containers, and request nothing.
    pub(super) fn ephemeral_containers(&self) -> impl Iterator<Item = Place<'_>> {
        self.places("spec.ephemeralContainers", |spec| &spec.ephemeral_containers, |_| ContainerKind::App)
    }

    /// Those that `old` lacks; the others can't be changed any more.
    pub(super) fn added_ephemeral_containers<'p>(&'p self, old: &'p Self) -> impl Iterator<Item = Place<'p>> {
        let known: HashSet<&str> = old.ephemeral_containers().map(|place| place.name()).collect();
        self.ephemeral_containers().filter(move |place| !known.contains(place.name()))
    }

    fn places<'p>(
        &'p self,
        list: &'static str,
        containers: fn(&Spec) -> &Option<Vec<Container>>,
        kind: fn(&Container) -> ContainerKind,
    ) -> impl Iterator<Item = Place<'p>> {
        let all = self.spec.iter().flat_map(containers).flatten().enumerate();
        all.map(move |(index, container)| Place { container, kind: kind(container), list, index })
    }

    /// A template may have none.
    pub(super) fn has_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    pub(super) fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()?.annotations.as_ref()
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations()?.get(key).map(String::as_str)
    }

    /// The annotations with our prefix.
    pub(super) fn our_annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.annotations().into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
        all.filter(|(key, _)| key.starts_with(PREFIX))
    }

    /// The pod's name, or what the API server makes one from.
    pub(super) fn name(&self) -> &str {
        let metadata = self.metadata.as_ref();
        let name = metadata.and_then(|metadata| metadata.name.as_deref().or(metadata.generate_name.as_deref()));
        name.unwrap_or_default()
    }

    pub(super) fn node(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
    }

    pub(super) fn affinity(&self) -> Option<&Affinity> {
        self.spec.as_ref()?.affinity.as_ref()
    }

    pub(super) fn tolerations(&self) -> Option<&[Toleration]> {
        self.spec.as_ref()?.tolerations.as_deref()
    }

    /// Paths on the node that volumes show, with the fields that say so.
    pub(super) fn host_paths(&self) -> impl Iterator<Item = (String, &str)> {
        let volumes = self.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten().enumerate();
        volumes.filter_map(|(index, volume)| {
            Some((format!("spec.volumes[{index}].hostPath.path"), volume.host_path.as_ref()?.path.as_deref()?))
        })
    }

    /// The one that it names.
    pub(super) fn scheduler(&self) -> Option<&str> {
        self.spec.as_ref()?.scheduler_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Has it name this scheduler.
    pub(super) fn reschedule(&mut self, scheduler: &str) {
        if let Some(spec) = &mut self.spec {
            spec.scheduler_name = Some(scheduler.to_owned());
        }
    }

    pub(super) fn scheduling_gates(&self) -> Option<&[SchedulingGate]> {
        self.spec.as_ref()?.scheduling_gates.as_deref()
    }

    /// Whether it names a `PodGroup`.
    pub(super) fn has_group(&self) -> bool {
        let own = self.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref()?.pod_group_name.as_ref());
        let label = || self.metadata.as_ref()?.labels.as_ref()?.get(pod_group::LABEL);
        pod_group::named(own, label).is_some()
    }

    /// Whether Divvy has anything to do with it. The match conditions say the same in CEL, except that they let any
    /// resource through that begins like a MIG profile's.
    pub(super) fn is_ours(&self, settings: &Settings) -> bool {
        let Settings { names, dialects, .. } = settings;
        let theirs: Vec<String> = dialects.iter().flat_map(|dialect| dialect.resources(names)).collect();
        let is_read = |name: &str| names.is_ours(name) || theirs.iter().any(|theirs| theirs == name);
        let mut all = self.containers().chain(self.ephemeral_containers());
        let asks = |all| dialects.iter().any(|dialect: &Dialect| dialect.requesting(all).next().is_some());
        all.any(|place| place.resources().any(is_read))
            || self.our_annotations().next().is_some()
            || self.scheduling_gates().into_iter().flatten().any(SchedulingGate::is_ours)
            || self.annotations().is_some_and(asks)
    }

    /// What dialects read of it. Containers that the annotation names come with amounts that we have written.
    pub(super) fn as_written(&self, request: Option<&RequestAnnotation>) -> divvy_systems::Pod {
        let metadata = self.metadata.as_ref();
        let is_totalled = |name: &str| request.is_some_and(|request| request.containers.contains_key(name));
        divvy_systems::Pod {
            annotations: self.annotations().cloned().unwrap_or_default(),
            labels: metadata.and_then(|metadata| metadata.labels.clone()).unwrap_or_default(),
            containers: self.containers().map(|place| place.as_written(is_totalled(place.name()))).collect(),
        }
    }

    /// Changes its annotations.
    pub(super) fn annotate(&mut self, changes: &Changes) {
        if let Some(metadata) = &mut self.metadata {
            let annotations = metadata.annotations.get_or_insert_default();
            patch::apply(changes, annotations, str::to_owned);
        }
    }

    /// Changes limits and requests of a container, by its position in [`containers`](Self::containers).
    pub(super) fn change_amounts(&mut self, container: usize, limits: &Changes, requests: &Changes) {
        let lists = self.spec.iter_mut().flat_map(|spec| [&mut spec.init_containers, &mut spec.containers]);
        if let Some(container) = lists.flatten().flatten().nth(container) {
            container.change_amounts(limits, requests);
        }
    }
}
