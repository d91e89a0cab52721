//! The gpushare extender, as its manifests start it but with a quiet log. Its API client makes 5 calls a second, after 10 at
//! once, and no flag changes that.

use std::path::PathBuf;

use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::pods;
use divvy_e2e::program::Program;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

use super::{free_address, listens};
use crate::nodes::{CARD_MEMORY, CARDS};

/// The variable that names its program.
pub(crate) const PROGRAM: &str = "DIVVY_COMPARE_GPUSHARE";
/// What it expects of a node: memory in GiB, and the number of GPUs.
pub(crate) const AMOUNTS: [(&str, u32); 2] = [(MEMORY, CARDS * (CARD_MEMORY >> 10)), ("aliyun.com/gpu-count", CARDS)];
/// GPU memory in GiB.
pub(crate) const MEMORY: &str = "aliyun.com/gpu-mem";

/// A pod with so many GiB of one GPU.
pub(crate) fn pod(name: String, memory: u32) -> anyhow::Result<Value> {
    let mut pod = pods::object(PodShape::new(name).with(App, "main", &[]))?;
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {MEMORY: memory.to_string()}});
    Ok(pod)
}

/// Starts it, and returns its entry in a scheduler's configuration.
pub(crate) async fn start(cluster: &mut Cluster, path: PathBuf) -> anyhow::Result<(Program, Value)> {
    let address = free_address()?;
    let kubeconfig = cluster.kubectl.kubeconfig().display().to_string();
    let mut program = Program::new("gpushare", path, Vec::new(), &cluster.files.logs())
        .env("KUBECONFIG", kubeconfig)
        .env("PORT", address.port().to_string())
        .env("LOG_LEVEL", "warn");
    program.start()?;
    listens(cluster, &mut program, address).await?;
    let extender = json!({
        "urlPrefix": format!("http://{address}/gpushare-scheduler"), "filterVerb": "filter", "bindVerb": "bind",
        "nodeCacheCapable": true, "managedResources": [{"name": MEMORY, "ignoredByScheduler": false}],
    });
    Ok((program, extender))
}
