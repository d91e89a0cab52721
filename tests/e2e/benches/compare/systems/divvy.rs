//! divvy-webhook: two replicas, of which the leader is asked.

use anyhow::Context as _;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use fake_apiserver::endpoints::first_endpoint;
use serde_json::{Value, json};

const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/divvy-system/endpointslices/divvy-extender";

/// Starts both, and returns the entry that our manifests show. The leader is asked without the Service in between, as the others
/// are.
pub(super) async fn start(cluster: &mut Cluster) -> anyhow::Result<Value> {
    cluster.webhook.configure(&json!({"logLevel": "info"})).await?;
    cluster.webhook_ready().await?;
    let leader = cluster.until("leader", PATIENCE, async |this| Ok(this.webhook.leader().await)).await?;
    println!("  divvy-webhook {leader} leads");
    let leader = cluster
        .until("the leader's address", PATIENCE, async |this| Ok(first_endpoint(&this.api.get(SLICE).await?)))
        .await?;
    let mut extender = cluster.extender().await?;
    extender["urlPrefix"] = json!(format!("https://{leader}"));
    Ok(extender)
}

/// Ends both. Returns the leader's resident memory in MiB.
pub(super) async fn stop(cluster: &mut Cluster) -> anyhow::Result<Option<u64>> {
    let leader = cluster.webhook.leader().await.context("nobody leads")?;
    let memory = cluster.webhook.replicas[leader].program.memory().map(|[now, _]| now);
    for program in cluster.webhook.programs() {
        program.kill().await?;
    }
    Ok(memory)
}
