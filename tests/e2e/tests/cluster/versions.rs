//! What older versions of Kubernetes lack.

use anyhow::Context as _;
use divvy_e2e::cluster::{Cluster, NODE_PATH};
use divvy_e2e::{node, view};
use serde_json::json;

/// Whether PodResources has `Get` as it comes, and leaves out the pods that the kubelet has rejected: both since
/// Kubernetes 1.34.
pub(crate) async fn has_get(cluster: &Cluster) -> anyhow::Result<bool> {
    let minor = minor(cluster).await?;
    if minor < 34 {
        println!(
            "  not on Kubernetes 1.{minor}: PodResources has no Get, or with a feature gate one that has rejected pods"
        );
    }
    Ok(minor >= 34)
}

/// Lets PodResources answer `Get`.
pub(crate) async fn open_get(cluster: &mut Cluster) -> anyhow::Result<()> {
    println!("  from here on with the kubelet's feature gate KubeletPodResourcesGet");
    node::configure_kubelet(&cluster.files, &json!({"featureGates": {"KubeletPodResourcesGet": true}}))?;
    cluster.restart_kubelet().await
}

/// The kubelet's minor version.
async fn minor(cluster: &Cluster) -> anyhow::Result<u32> {
    let node = cluster.api.get(NODE_PATH).await?;
    let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str().context("a Node has its kubelet's version")?;
    view::minor_version(version)
}
