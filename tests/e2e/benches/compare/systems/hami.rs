//! HAMi's scheduler extender, over TLS as its chart has it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context as _;
use divvy_e2e::api::{Api, Part};
use divvy_e2e::cluster::Cluster;
use divvy_e2e::program::Program;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::task::AbortHandle;

use super::{free_address, listens};
use crate::nodes::{CARD_MEMORY, CARDS, uuid};

/// The variable that names the directory of its programs.
pub(crate) const DIRECTORY: &str = "DIVVY_COMPARE_HAMI";
/// The node annotation that a pod has from its binding to its `Allocate`.
const LOCK: &str = "hami.io/mutex.lock";
/// Of the vendors whose plugins it asks of every node whether they are there.
const HANDSHAKES: [&str; 5] = ["", "-dcu", "-xpu", "-va", "-biren"];

/// What its plugins would have written to a node: its GPUs, and that the scheduler has asked for each vendor's plugin. Without
/// the latter it writes five annotations to each node first.
pub(crate) fn annotations(node: usize) -> Value {
    let card = |number: u32| {
        json!({
            "id": uuid(node, number), "index": number, "count": 32, "devmem": CARD_MEMORY, "devcore": 100,
            "type": "NVIDIA-NVIDIA H100 80GB HBM3", "mode": "hami-core", "health": true,
        })
    };
    let cards: Vec<Value> = (0..CARDS).map(card).collect();
    let mut annotations = json!({"hami.io/node-nvidia-register": Value::from(cards).to_string()});
    for vendor in HANDSHAKES {
        annotations[format!("hami.io/node-handshake{vendor}")] = json!("Requesting_2026-01-01 00:00:00");
    }
    annotations
}

/// The part of its device configuration that is about NVIDIA, with the chart's values.
pub(crate) fn device_config(replicas: u32) -> Value {
    json!({"nvidia": {
        "resourceCountName": "nvidia.com/gpu", "resourceMemoryName": "nvidia.com/gpumem",
        "resourceMemoryPercentageName": "nvidia.com/gpumem-percentage", "resourceCoreName": "nvidia.com/gpucores",
        "resourcePriorityName": "nvidia.com/priority", "overwriteEnv": false, "defaultMemory": 0, "defaultCores": 0,
        "defaultGPUNum": 1, "memoryFactor": 1, "deviceSplitCount": replicas, "deviceMemoryScaling": 1,
        "deviceCoreScaling": 1, "preConfiguredDeviceMemory": 0, "enableNumaTopology": false,
        "gpuCorePolicy": "default", "libCudaLogLevel": "1",
    }})
}

/// Starts it, and returns its entry in a scheduler's configuration.
pub(crate) async fn start(
    cluster: &mut Cluster,
    path: PathBuf,
    is_as_shipped: bool,
) -> anyhow::Result<(Program, Value)> {
    let (address, metrics) = (free_address()?, free_address()?);
    let directory = cluster.files.at("pki");
    let pki = |name: &str| directory.join(name).display().to_string();
    let devices = cluster.files.write("hami-devices.yaml", device_config(32).to_string())?;
    let mut args = vec![
        format!("--http_bind={address}"),
        format!("--cert_file={}", pki("apiserver.crt")),
        format!("--key_file={}", pki("apiserver.key")),
        format!("--metrics-bind-address={metrics}"),
        format!("--device-config-file={}", devices.display()),
    ];
    let own = if is_as_shipped { ["--debug", "-v=4"] } else { ["--kube-qps=5000", "--kube-burst=10000"] };
    args.extend(own.map(str::to_owned));
    let program = Program::new("hami-scheduler", path, args, &cluster.files.logs());
    let mut program = program.env("KUBECONFIG", cluster.kubectl.kubeconfig().display().to_string());
    program.start()?;
    listens(cluster, &mut program, address).await?;
    let managed = ["gpu", "gpumem", "gpucores", "gpumem-percentage", "priority"]
        .map(|name| json!({"name": format!("nvidia.com/{name}"), "ignoredByScheduler": true}));
    let extender = json!({
        "urlPrefix": format!("https://{address}"), "enableHTTPS": true,
        "tlsConfig": {"caFile": pki("ca.crt")}, "filterVerb": "filter", "bindVerb": "bind",
        "nodeCacheCapable": true, "weight": 1, "httpTimeout": "30s", "managedResources": managed,
    });
    Ok((program, extender))
}

/// Takes a node's lock away, as its device plugin does when it has answered `Allocate`.
pub(crate) async fn release(api: &Api, node: &str) -> anyhow::Result<()> {
    let change = json!({"metadata": {"annotations": {LOCK: null}}});
    api.patch(&format!("/api/v1/nodes/{node}"), Part::Object, &change).await.map(drop)
}

/// Plays the device plugins of nodes that nobody runs: each takes its node's lock away at once when a pod is bound there.
pub(crate) struct Plugins(AbortHandle);

// === impl Plugins ===

impl Plugins {
    /// Follows the pods of the cluster.
    pub(crate) fn start(cluster: &Cluster) -> anyhow::Result<Self> {
        let template = r#"jsonpath={.metadata.uid} {.spec.nodeName}{"\n"}"#;
        let kubeconfig = format!("--kubeconfig={}", cluster.kubectl.kubeconfig().display());
        let mut command = Command::new(divvy_e2e::files::Programs::find()?.get("kubectl"));
        command.args([&*kubeconfig, "get", "pods", "--namespace=default", "--watch", "--output", template]);
        command.env("HOME", cluster.files.at(".")).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("starting kubectl")?;
        let output = child.stdout.take().context("kubectl has an output")?;
        let api = cluster.api.clone();
        let task = tokio::spawn(async move {
            let (mut lines, mut known) = (BufReader::new(output).lines(), BTreeSet::new());
            while let Ok(Some(line)) = lines.next_line().await {
                let Some((uid, node)) = line.split_once(' ').filter(|(_, node)| !node.is_empty()) else { continue };
                if known.insert(uid.to_owned()) {
                    // A lock that stays shows as a pod that isn't bound.
                    let _stays = release(&api, node).await;
                }
            }
            drop(child);
        });
        Ok(Self(task.abort_handle()))
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        self.0.abort();
    }
}
