//! Reads the requested nodes from the API server.

use std::collections::{BTreeSet, HashMap};

use anyhow::bail;
use divvy_api::gpunode::GpuNodeReport;
use kube::Api;
use kube::ResourceExt as _;

use super::host::{Host, NodeView};
use crate::cluster::{Cluster, Refusal};

/// One node as the API server shows it.
#[derive(Clone, Debug)]
pub struct FoundNode {
    /// Name of the Node.
    pub name: String,
    /// The `GpuNode`, of any version of divvy-node.
    pub gpu_node: GpuNodeReport,
    /// The Node.
    pub host: Host,
}

/// What was found, and what wasn't.
pub(crate) struct Answer {
    pub(crate) nodes: Vec<FoundNode>,
    /// Nodes without a `GpuNode`.
    pub(crate) missing: Vec<Refusal>,
    pub(super) remarks: Vec<String>,
}

/// Reads the `GpuNode`s of these names, or all; of Nodes with certain labels only.
pub(crate) async fn fetch(cluster: &Cluster, names: &[String], selector: Option<&str>) -> anyhow::Result<Answer> {
    let gpu_nodes = cluster.gpu_nodes();
    let mut answer = Answer { nodes: Vec::new(), missing: Vec::new(), remarks: Vec::new() };
    let mut objects = Vec::new();
    if names.is_empty() {
        objects = cluster.list(&gpu_nodes, None).await.map_err(Refusal::of_gpu_nodes)?;
    }
    for name in names.iter().collect::<BTreeSet<_>>() {
        match cluster.get(&gpu_nodes, name).await {
            Ok(object) => objects.push(object),
            Err(missing @ Refusal::NotFound(_)) => answer.missing.push(missing),
            Err(refused) => return Err(refused.of_gpu_nodes()),
        }
    }
    // After the GpuNodes, so that one whose Node is not among them has lost it.
    let hosts = if names.is_empty() { hosts(cluster, selector).await } else { named_hosts(cluster, &objects).await };
    let mut hosts = match hosts {
        Ok(hosts) => Some(hosts),
        Err(Refusal::Forbidden(message)) if selector.is_some() => {
            bail!("Error from server (Forbidden): {message}. --selector asks for the right to list nodes")
        }
        Err(refused) if selector.is_some() => return Err(refused.into()),
        Err(refused) => {
            answer.remarks.push(format!("warning: whether the nodes themselves are alive isn't known: {refused}"));
            None
        }
    };
    for gpu_node in objects {
        let name = gpu_node.name_any();
        let host = match &mut hosts {
            None => Host::Unknown,
            Some(hosts) => hosts.remove(&name).map_or(Host::Gone, |node| Host::There(Box::new(node))),
        };
        if selector.is_none() || !matches!(host, Host::Gone) {
            answer.nodes.push(FoundNode { name, gpu_node, host });
        }
    }
    Ok(answer)
}

async fn hosts(cluster: &Cluster, selector: Option<&str>) -> Result<HashMap<String, NodeView>, Refusal> {
    let nodes = cluster.list(&Api::<NodeView>::all(cluster.client()), selector).await?;
    Ok(nodes.into_iter().map(|node| (node.name_any(), node)).collect())
}

async fn named_hosts(cluster: &Cluster, of: &[GpuNodeReport]) -> Result<HashMap<String, NodeView>, Refusal> {
    let nodes: Api<NodeView> = Api::all(cluster.client());
    let mut hosts = HashMap::new();
    for object in of {
        let name = object.name_any();
        hosts.extend(cluster.find(&nodes, &name).await?.map(|node| (name, node)));
    }
    Ok(hosts)
}
