//! A daemon that is gone for longer than a restart takes.

use anyhow::ensure;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::node::NODE;
use serde_json::json;

/// The account that may say so.
const WEBHOOK: &str = "--as=system:serviceaccount:divvy-system:divvy-webhook";

/// The `GpuNode` says that nobody knows, until the daemon is back; its account may write nothing else there.
pub(crate) async fn is_seen(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    until_ready_is(cluster, "True").await?;
    cluster.kill_daemon().await?;
    until_ready_is(cluster, "Unknown").await?;
    println!("  {}", cluster.kubectl.run(&["get", "gpunodes"]).await?.trim_end().replace('\n', "\n  "));
    for status in [json!({"ledgerRevision": 1}), json!({"cards": []}), json!({"conditions": []})] {
        let forged = json!({
            "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": NODE}, "status": status,
        });
        let file = cluster.files.write("forged.json", forged.to_string())?.display().to_string();
        let args =
            ["apply", "--server-side", "--force-conflicts", "--subresource=status", "--filename", &file, WEBHOOK];
        let said = cluster.kubectl.run(&args).await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(said.contains("writes nothing else of it"), "{status}: {said}");
    }
    cluster.start_daemon().await?;
    until_ready_is(cluster, "True").await?;
    cluster.stop_webhook().await
}

async fn until_ready_is(cluster: &mut Cluster, wanted: &str) -> anyhow::Result<()> {
    cluster
        .until(&format!("condition Ready that is {wanted}"), PATIENCE, async |this| {
            let conditions = this.gpu_node().await?.status.unwrap_or_default().conditions;
            Ok(conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == wanted)
                .then_some(()))
        })
        .await
}
