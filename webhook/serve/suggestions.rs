//! What would let a waiting pod run, with the Nodes and pods that it names as the API server has them: the index keeps no
//! labels, taints or names.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use divvy_index::Index;
use divvy_index::explain::{Explanation, Fits, KnownPod, Objects, Suggestion};
use divvy_index::node_selection::NodeSelection;
use divvy_index::pod::PodView;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Api, Client};
use serde::Deserialize;

use super::apart::apart;

/// Longest search for one set of suggestions, and longest wait for the objects that they name.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most fitting nodes that are asked whether the pod may run there; where it may on none of them, others may still do.
const MOST_FITTING: usize = 64;
/// Sets of suggestions, each without the nodes that the last one named and the pod may not run on.
const ROUNDS: usize = 4;
/// Nodes that are read at once.
const AT_ONCE: usize = 8;

/// Objects for the suggestions of one pod.
struct Lookup<'a> {
    /// `None`: nothing may be read.
    client: Option<&'a Client>,
    selection: &'a NodeSelection,
    objects: Objects,
    /// Nodes that have been read, or can't be.
    asked: HashSet<String>,
}

#[derive(Deserialize)]
struct Pods {
    items: Vec<PodView>,
}

/// Suggestions for a pod that was explained so; without a client by GPUs alone, and pods by their UIDs.
pub(super) async fn suggestions(
    index: &Arc<Index>,
    client: Option<&Client>,
    pod: &Arc<PodView>,
    explanation: &Explanation,
) -> Vec<Suggestion> {
    let selection = &pod.scheduling.selection;
    let objects = Objects::default();
    let mut lookup = Lookup { client, selection, objects, asked: HashSet::new() };
    let fitting = explanation.nodes.iter().take_while(|node| node.fits == Fits::Now).take(MOST_FITTING);
    let fitting: Vec<String> = fitting.map(|node| node.name.clone()).collect();
    for some in fitting.chunks(AT_ONCE) {
        lookup.read_nodes(some).await;
        // One that the pod may run on leaves nothing to suggest.
        if some.iter().any(|name| !lookup.objects.kept_off.contains_key(name)) {
            break;
        }
    }
    for _ in 0..ROUNDS {
        let index = Arc::clone(index);
        let pod = Arc::clone(pod);
        let objects = lookup.objects.clone();
        let found = apart(move || index.suggest(&pod, &objects, PATIENCE)).await;
        let found = found.unwrap_or_default();
        let named = found.iter().filter_map(|suggestion| suggestion.node.clone());
        let unknown: HashSet<String> = named.filter(|name| !lookup.asked.contains(name)).collect();
        if unknown.is_empty() {
            return found;
        }
        let unknown: Vec<String> = unknown.into_iter().collect();
        lookup.read_nodes(&unknown).await;
        lookup.read_pods(&unknown).await;
    }
    Vec::new()
}

// === impl Lookup ===

impl Lookup<'_> {
    /// Reads these nodes; what can't be read in time counts as unknown.
    async fn read_nodes(&mut self, names: &[String]) {
        self.asked.extend(names.iter().cloned());
        let Some(client) = self.client else { return };
        let nodes = Api::<Node>::all(client.clone());
        let read = async |name: &String| nodes.get(name).await;
        let mut reads = std::pin::pin!(futures::stream::iter(names).map(read).buffer_unordered(AT_ONCE));
        let _elapsed = tokio::time::timeout(PATIENCE, async {
            while let Some(node) = reads.next().await {
                self.objects.kept_off.extend(node.ok().and_then(|node| kept_off(self.selection, node)));
            }
        })
        .await;
    }

    /// Reads the pods on these nodes, likewise.
    async fn read_pods(&mut self, nodes: &[String]) {
        let Some(client) = self.client else { return };
        let read = async |node: &String| pods_of(client, node).await;
        let mut reads = std::pin::pin!(futures::stream::iter(nodes).map(read).buffer_unordered(AT_ONCE));
        let _elapsed = tokio::time::timeout(PATIENCE, async {
            while let Some(pods) = reads.next().await {
                let known = |pod: PodView| (pod.uid, KnownPod { name: pod.name, end: pod.end });
                self.objects.pods.extend(pods.unwrap_or_default().into_iter().map(known));
            }
        })
        .await;
    }
}

/// The node's name, and why the pod may not run there.
fn kept_off(selection: &NodeSelection, Node { metadata, spec, .. }: Node) -> Option<(String, String)> {
    let name = metadata.name?;
    let labels = metadata.labels.unwrap_or_default();
    let taints = spec.and_then(|spec| spec.taints).unwrap_or_default();
    let reason = selection.mismatch(&name, &labels, &taints)?;
    Some((name, reason))
}

async fn pods_of(client: &Client, node: &str) -> kube::Result<Vec<PodView>> {
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let request = Request::new("/api/v1/pods").list(&params).map_err(kube::Error::BuildRequest)?;
    Ok(client.request::<Pods>(request).await?.items)
}
