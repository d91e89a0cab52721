//! What a migration has to know of a cluster.

use kube::api::ListParams;

use super::read::{MigrateInput, Template};
use crate::admin::limits::Limit;
use crate::cluster::{Cluster, Refusal};

/// Nodes, pods that haven't ended, `ResourceQuota`s and `LimitRange`s. What can't be read is said in remarks; pods must be.
pub(super) async fn objects(cluster: &Cluster, remarks: &mut Vec<String>) -> anyhow::Result<MigrateInput> {
    let live = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods: Vec<Template> = cluster.pods(None, live).await?;
    Ok(MigrateInput {
        nodes: or_remark(cluster.list_at("/api/v1/nodes", ListParams::default()).await, remarks),
        pods: pods.into_iter().map(Template::found).collect(),
        limits: or_remark(Limit::list(cluster).await, remarks),
    })
}

fn or_remark<T>(read: Result<Vec<T>, Refusal>, remarks: &mut Vec<String>) -> Vec<T> {
    read.unwrap_or_else(|refused| {
        remarks.push(refused.to_string());
        Vec::new()
    })
}
