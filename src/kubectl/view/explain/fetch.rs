//! Reads a pod and the objects that decide where it fits from the API server, and builds an index of them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use divvy_api::gpuquota::GpuQuota;
use divvy_index::demand::SchedulingConfig;
use divvy_index::explain::{Explanation, GroupAnswer, KnownPod, Objects, State};
use divvy_index::node_selection::NodeSelection;
use divvy_index::pod::{PodEnd, PodView};
use divvy_index::pod_group::{PodGroup, PodGroupSpec};
use divvy_index::{Index, NodeObject, Unschedulable};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, ResourceExt as _};
use serde::Deserialize as _;

use super::file::FilePod;
use crate::cluster::{Cluster, Refusal};
use crate::view::inspect::NodeView;

/// An explanation, and what it takes to put it into words.
#[derive(Debug)]
pub(super) struct FoundExplanation {
    pub(super) explanation: Explanation,
    /// What isn't known.
    pub(super) remarks: Vec<String>,
}

/// How long nodes are asked, one after another.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long changes are tried that would let the pod run.
const SUGGESTING: Duration = Duration::from_secs(5);
/// Field selector of pods that hold or wait for something.
pub(crate) const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The pod of this name.
pub(super) async fn pod(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<PodView> {
    let pods: Api<DynamicObject> = Api::namespaced_with(cluster.client(), namespace, &ApiResource::erase::<Pod>(&()));
    let pod = serde_json::to_value(cluster.get(&pods, name).await?)?;
    PodView::deserialize(&pod).map_err(|error| anyhow::anyhow!("error: pod {namespace}/{name} can't be read: {error}"))
}

/// A pod from a file, with what admission would fill in.
pub(super) async fn complete(
    cluster: &Cluster,
    written: FilePod,
    namespace: impl Fn() -> String,
    remarks: &mut Vec<String>,
) -> PodView {
    let FilePod { mut pod, priority_class } = written;
    if pod.namespace.is_empty() {
        pod.namespace = namespace();
    }
    if let Some(class) = priority_class {
        match cluster.get(&Api::<PriorityClass>::all(cluster.client()), &class).await {
            Ok(class) => pod.priority = class.value,
            Err(refused) => {
                remarks
                    .push(format!("warning: the value of priority class {class} isn't known, 0 is assumed: {refused}"));
            }
        }
    }
    pod
}

/// Fills an index with the cluster and asks it.
pub(super) async fn explanation(
    cluster: &Cluster,
    pod: &PodView,
    config: SchedulingConfig,
    mut remarks: Vec<String>,
) -> anyhow::Result<FoundExplanation> {
    let index = Index::new(config);
    let now = Instant::now();
    let names = take_nodes(cluster, &index).await.map_err(Refusal::of_gpu_nodes)?;
    let known = |(uid, name)| (uid, KnownPod { name, end: PodEnd::Unknown });
    let mut objects = Objects { pods: names.into_iter().map(known).collect(), ..Objects::default() };
    if let Err(refused) = take_quotas(cluster, &index, Some(&pod.namespace)).await {
        remarks.push(format!("warning: the namespace's GpuQuotas aren't known, and aren't considered: {refused}"));
    }
    match take_machines(cluster, &index).await {
        Ok(nodes) => {
            objects.kept_off = nodes.iter().filter_map(|node| kept_off(&pod.scheduling.selection, node)).collect();
        }
        Err(refused) => {
            remarks.push(format!("warning: whether the Nodes are cordoned or ready isn't known: {refused}"));
        }
    }
    match cluster.pods::<PodView>(None, ListParams::default().fields(NOT_ENDED)).await {
        Ok(pods) => {
            for pod in pods {
                index.apply_pod(&pod, now);
                objects.pods.insert(pod.uid, KnownPod { name: pod.name, end: pod.end });
            }
            index.expect_counted();
        }
        Err(refused) => remarks.push(format!(
            "warning: GPUs reserved for pods that haven't started yet count as free, evictions aren't considered, and \
             nodes are scored by best fit: {refused}"
        )),
    }
    let mut explanation = index.explain(pod, PATIENCE);
    explanation.suggestions = index.suggest(pod, &objects, SUGGESTING);
    if let (Some(group), State::Waiting { .. }) = (&pod.group, &explanation.state) {
        match take_group(cluster, &index, group).await {
            Ok(()) => explanation.group = group_answer(&index, pod),
            Err(refused) => {
                let name = &group.name;
                remarks.push(format!("warning: whether the whole pod group {name} can start isn't known: {refused}"));
            }
        }
    }
    Ok(FoundExplanation { explanation, remarks })
}

/// Tells the index the group of a pod; there is none where the kind isn't defined.
async fn take_group(cluster: &Cluster, index: &Index, group: &PodGroup) -> Result<(), Refusal> {
    let kind = GroupVersionKind::gvk(group.api.group(), group.api.version(), "PodGroup");
    let kind = ApiResource::from_gvk_with_plural(&kind, "podgroups");
    let groups: Api<DynamicObject> = Api::namespaced_with(cluster.client(), &group.namespace, &kind);
    if let Some(object) = cluster.find(&groups, &group.name).await? {
        index.apply_pod_group(group.clone(), PodGroupSpec::read(group.api, &object.data["spec"]));
    }
    Ok(())
}

/// Whether GPUs are free for all pods of the group that start together: as the leader plans them, in an index of our own.
fn group_answer(index: &Index, pod: &PodView) -> Option<GroupAnswer> {
    // Nothing is known of a pod that isn't created yet, nor where pods may not be listed.
    let start = index.start_group(&*index.demand(&pod.uid)?, Instant::now())?;
    Some(GroupAnswer { name: pod.group.as_ref()?.name.clone(), reason: start.err().map(|reason| reason.to_string()) })
}

/// The name of a Node that the pod may not run on, and why.
fn kept_off(selection: &NodeSelection, node: &NodeView) -> Option<(String, String)> {
    let name = node.name_any();
    let reason = selection.mismatch(&name, node.labels(), node.taints())?;
    Some((name, reason))
}

/// Tells the index what the nodes report, and returns the names of pods that hold shares there, by UID.
pub(crate) async fn take_nodes(cluster: &Cluster, index: &Index) -> Result<HashMap<String, String>, Refusal> {
    let mut names = HashMap::new();
    for node in cluster.list(&cluster.gpu_nodes(), None).await? {
        names.extend(node.shares.iter().map(|share| (share.pod_uid.clone(), share.pod.clone())));
        index.apply_gpu_node(&node.name_any(), node);
    }
    Ok(names)
}

/// Tells the index the quotas of a namespace, or of all; there are none where the kind isn't defined.
pub(crate) async fn take_quotas(cluster: &Cluster, index: &Index, namespace: Option<&str>) -> Result<(), Refusal> {
    let kind = ApiResource::erase::<GpuQuota>(&());
    let quotas: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(cluster.client(), namespace, &kind),
        None => Api::all_with(cluster.client(), &kind),
    };
    let quotas = match cluster.list(&quotas, None).await {
        Err(Refusal::UnknownKind) => return Ok(()),
        quotas => quotas?,
    };
    for object in quotas {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let quota = serde_json::to_value(object).and_then(GpuQuota::deserialize);
        let spec = quota.as_ref().map(|quota| &quota.spec).map_err(ToString::to_string);
        index.apply_quota(&namespace, &name, spec);
    }
    Ok(())
}

/// Tells the index which Nodes there are, and what keeps pods away from them. Returns the Nodes.
pub(crate) async fn take_machines(cluster: &Cluster, index: &Index) -> Result<Vec<NodeView>, Refusal> {
    let nodes = cluster.list(&Api::<NodeView>::all(cluster.client()), None).await?;
    let mut names = HashSet::new();
    for node in &nodes {
        apply_machine(index, node);
        names.insert(node.name_any());
    }
    index.keep_nodes(&names);
    Ok(nodes)
}

/// Tells the index what keeps pods away from a Node.
pub(crate) fn apply_machine(index: &Index, node: &NodeView) {
    let reason = Unschedulable::from_node(node.is_cordoned(), node.not_ready(Timestamp::now()).is_none());
    let count = node.allocatable(index.config().names.count.as_str());
    let object = NodeObject {
        unschedulable: reason,
        allocatable: node.all_allocatable().filter(|all| all.cpu_milli > 0),
        allocatable_gpus: count.and_then(|count| count.parse().ok()),
        labels: node.labels().clone(),
        taints: node.taints().to_vec(),
    };
    index.apply_node(&node.name_any(), object);
}
