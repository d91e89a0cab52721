//! Taints that lead pods without GPUs away from free GPUs, on a real API server with the rights and policies that are
//! installed.

use anyhow::ensure;
use divvy_api::names::taint::{CPU_FOR_GPUS, EFFECT, FREE_GPUS, SOFT};
use divvy_e2e::cluster::{Cluster, NODE_PATH, PATIENCE};
use divvy_e2e::node::NODE;
use serde_json::json;

/// Somebody else's.
const FOREIGN: &str = "example.com/slow-disk";

/// They come and go beside another taint, and the account that writes them may write nothing else.
pub(crate) async fn beside_others(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    cluster.kubectl.run(&["taint", "node", NODE, &format!("{FOREIGN}:{EFFECT}")]).await?;
    until_tainted(cluster, &[FOREIGN, FREE_GPUS]).await?;
    may_do_no_more(cluster).await?;
    cluster.webhook.configure(&json!({"softTaints": "off"})).await?;
    until_tainted(cluster, &[FOREIGN]).await?;
    cluster.webhook.configure(&json!({"softTaints": "on"})).await?;
    until_tainted(cluster, &[FOREIGN, FREE_GPUS]).await?;
    cluster.stop_webhook().await?;
    for key in SOFT.iter().chain([&FOREIGN]) {
        // As the documentation says for the end; kubectl fails where a node doesn't carry the taint.
        let said = cluster.kubectl.run(&["taint", "nodes", "--all", &format!("{key}-")]).await;
        let said = said.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(said.is_empty() || (*key == CPU_FOR_GPUS && said.contains("not found")), "{said}");
    }
    until_tainted(cluster, &[]).await
}

async fn until_tainted(cluster: &mut Cluster, keys: &[&str]) -> anyhow::Result<()> {
    cluster
        .until(&format!("taints {keys:?}"), PATIENCE, async |this| {
            let node = this.api.get(NODE_PATH).await?;
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let present: Vec<&str> = taints.iter().filter_map(|taint| taint["key"].as_str()).collect();
            ensure!(present == keys, "there are {present:?}");
            Ok(Some(()))
        })
        .await
}

async fn may_do_no_more(cluster: &Cluster) -> anyhow::Result<()> {
    let webhook = cluster.kubectl.with(&cluster.files.at("divvy-webhook.kubeconfig"));
    let cases: [(&[&str], _); 4] = [
        (&["label", "node", NODE, "a=b"], "not metadata labels"),
        (&["patch", "node", NODE, "--patch", r#"{"spec": {"unschedulable": true}}"#], "not spec unschedulable"),
        (&["taint", "node", NODE, "example.com/slow-disk-"], "leaves others as they are"),
        (&["taint", "node", NODE, "divvy.dev/free-gpus:NoSchedule"], "leaves others as they are"),
    ];
    for (args, words) in cases {
        let said = webhook.run(args).await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(said.contains(words), "kubectl {}: \"{said}\" doesn't say \"{words}\"", args.join(" "));
    }
    Ok(())
}
