//! `v1.Pod` as the API writes it. A pod is decoded in every call of the scheduler, so nothing is copied that isn't kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_api::names::PREFIX;
use divvy_api::names::condition::PLACED;
use divvy_api::pod::wire::{Container, FilteredMap, KeyFilter, Resources, containers, requested};
use k8s_openapi::api::core::v1::{Affinity, PodSchedulingGate, Toleration};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer};

use super::{ListedPod, PodEnd, PodView, SchedulingTerms};
use crate::node_selection::NodeSelection;
use crate::pod_group::{self, LABEL, PodGroup};

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
    #[serde(borrow)]
    status: Option<Status<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    creation_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
    annotations: Option<FilteredMap<Annotations>>,
    labels: Option<FilteredMap<GroupLabel>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    node_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    scheduler_name: Option<Cow<'a, str>>,
    priority: Option<i32>,
    active_deadline_seconds: Option<i64>,
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
    resources: Option<PodResources>,
    overhead: Option<Resources>,
    #[serde(borrow)]
    scheduling_group: Option<SchedulingGroup<'a>>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
    #[serde(borrow)]
    preemption_policy: Option<Cow<'a, str>>,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<Toleration>>,
}

/// `spec.resources`, of the pod as a whole (KEP-2837).
#[derive(Deserialize)]
struct PodResources {
    requests: Option<Resources>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchedulingGroup<'a> {
    #[serde(borrow)]
    pod_group_name: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    phase: Option<Cow<'a, str>>,
    #[serde(borrow)]
    nominated_node_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    start_time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Deserialize)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
}

/// Filter for annotations with Divvy's prefix.
struct Annotations;

/// Filter for the label that names a group.
struct GroupLabel;

/// When a pod ends that is deleted at this time, if it is; that has so many seconds from its start, if that is known; and
/// that has this restart policy, which an API server always fills in.
fn end(deleted: Option<&str>, deadline: Option<(i64, &str)>, restart_policy: Option<&str>) -> PodEnd {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    if let Some(at) = deleted.and_then(time) {
        return PodEnd::Deleted { at };
    }
    let at =
        deadline.and_then(|(seconds, start)| Some(time(start)?.saturating_add(SignedDuration::from_secs(seconds))));
    match (at.and_then(Result::ok), restart_policy) {
        (Some(at), _) => PodEnd::Deadline { at },
        (None, Some("Never" | "OnFailure")) => PodEnd::Completes,
        (None, Some(_)) => PodEnd::Open,
        (None, None) => PodEnd::Unknown,
    }
}

// === impl PodView ===

impl<'de> Deserialize<'de> for PodView {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Pod::deserialize(source).map(Self::from)
    }
}

impl<'de> Deserialize<'de> for ListedPod {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let pod = Pod::deserialize(source)?;
        let version = pod.metadata.as_ref().and_then(|metadata| metadata.resource_version.clone());
        Ok(Self { pod: pod.into(), resource_version: version.map(Cow::into_owned) })
    }
}

impl From<Pod<'_>> for PodView {
    fn from(pod: Pod<'_>) -> Self {
        let metadata = pod.metadata.unwrap_or_default();
        let spec = pod.spec.unwrap_or_default();
        let Status { phase, nominated_node_name, start_time, conditions } = pod.status.unwrap_or_default();
        let conditions = conditions.unwrap_or_default();
        let condition = |kind| conditions.iter().find(|condition| condition.kind.as_deref() == Some(kind));
        let phase = phase.unwrap_or_default();
        let node = |name: Option<Cow<'_, str>>| name.map(Cow::into_owned).filter(|name| !name.is_empty());
        let owned = |text: Option<Cow<'_, str>>| text.unwrap_or_default().into_owned();
        let namespace = owned(metadata.namespace);
        let own = spec.scheduling_group.and_then(|group| group.pod_group_name).map(Cow::into_owned);
        let labelled = || metadata.labels.map(FilteredMap::entries).unwrap_or_default().remove(LABEL);
        let group = pod_group::named(own, labelled);
        let scheduling = SchedulingTerms {
            scheduler: owned(spec.scheduler_name),
            created: metadata.creation_timestamp.and_then(|time| time.parse().ok()),
            gates: spec.scheduling_gates.unwrap_or_default().into_iter().map(|gate| gate.name).collect(),
            selection: NodeSelection::new(spec.node_selector, spec.affinity, spec.tolerations),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        };
        Self {
            uid: owned(metadata.uid),
            group: group.map(|(api, name)| Arc::new(PodGroup { api, namespace: namespace.clone(), name })),
            namespace,
            name: owned(metadata.name),
            node: node(spec.node_name),
            nominated: node(nominated_node_name),
            is_unschedulable: condition("PodScheduled")
                .is_some_and(|condition| condition.reason.as_deref() == Some("Unschedulable")),
            is_placed: condition(PLACED).is_some_and(|condition| condition.status.as_deref() == Some("True")),
            priority: spec.priority.unwrap_or(0),
            ended: matches!(&*phase, "Succeeded" | "Failed"),
            end: end(
                metadata.deletion_timestamp.as_deref(),
                spec.active_deadline_seconds.zip(start_time.as_deref()),
                spec.restart_policy.as_deref(),
            ),
            requests: requested(
                spec.init_containers.as_deref(),
                spec.containers.as_deref(),
                spec.resources.and_then(|resources| resources.requests),
                spec.overhead,
            ),
            scheduling: scheduling.into(),
            annotations: metadata.annotations.map(FilteredMap::entries).unwrap_or_default(),
            containers: containers(spec.init_containers, spec.containers),
        }
    }
}

// === impl Annotations ===

impl KeyFilter for Annotations {
    fn wants(key: &str) -> bool {
        key.starts_with(PREFIX)
    }
}

// === impl GroupLabel ===

impl KeyFilter for GroupLabel {
    fn wants(key: &str) -> bool {
        key == LABEL
    }
}
