//! What one write of a `GpuNode`'s status costs the API server, by the number of shares in it. All else is what a daemon of eight
//! GPUs has published.

use std::collections::BTreeMap;

use anyhow::Context as _;
use divvy_api::gpunode::GpuNode;
use divvy_e2e::cluster::Cluster;
use futures::future::try_join_all;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{RUN, bindings, start};
use crate::figures::spread;
use crate::fleet::number;
use crate::play::{self, CARDS};
use crate::rounds::{self, count};

/// Nodes, each of which writes one status at a time.
const NODES: usize = 8;
/// Shares that a status has.
const SHARES: [usize; 3] = [0, 8, 32];

/// Writes the same changes with each number of shares in each round, and prints the processor time of each.
pub(super) async fn compare(cluster: &mut Cluster) -> anyhow::Result<()> {
    let (writes, rounds) = (number("DIVVY_E2E_PODS", RUN)?, number("DIVVY_E2E_ROUNDS", 10)?);
    let mut fleet = start(cluster, NODES).await?;
    cluster.restart_scheduler(true).await?;
    rounds::probe(cluster, &mut fleet).await?;
    fleet.kill().await?;
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let api = Api::<GpuNode>::all(play::daemon_of(&cluster.files.at("admin.kubeconfig"), number).await?);
        let status = api.get(&play::name(number)).await?.status.context("a GpuNode without status")?;
        // UUIDs as long as NVML's.
        let text = serde_json::to_string(&status)?.replace("GPU-fake", "GPU-3b9c2e54-7a31-4f0e-9d5b-2c8f1e6a");
        nodes.push((api, play::name(number), serde_json::from_str::<Value>(&text)?));
    }
    let mut runs: BTreeMap<usize, [Vec<f64>; 2]> = BTreeMap::new();
    for round in 0..rounds {
        for shares in SHARES {
            let before = bindings::spent(cluster);
            let all = nodes.iter().map(async |(api, name, status)| {
                for turn in 0..writes / NODES {
                    write(api, name, &with(status, shares, turn)).await?;
                }
                anyhow::Ok(())
            });
            try_join_all(all).await?;
            let after = bindings::spent(cluster);
            let spent = [0, 1].map(|at: usize| (after[at] - before[at]) * 1e3 / count(writes));
            let bytes = with(&nodes[0].2, shares, 0).to_string().len();
            println!("  round {round}, {shares} shares, {bytes} bytes: API server and etcd, ms a write: {spent:.2?}");
            let [api, etcd] = runs.entry(shares).or_default();
            api.push(spent[0]);
            etcd.push(spent[1]);
        }
    }
    for (shares, [api, etcd]) in runs {
        println!(
            "  {shares} shares: API server {} ms of processors a write, etcd {}",
            spread(&api, 2),
            spread(&etcd, 2)
        );
    }
    Ok(())
}

/// The status with so many shares, another one each turn.
fn with(status: &Value, shares: usize, turn: usize) -> Value {
    let share = |number: usize| {
        json!({
            "podUid": format!("7d2f6a41-3c58-4e0b-9a17-{number:012}"), "namespace": "default", "pod": format!("run-{number}"),
            "container": "main", "kind": "app", "card": status["cards"][number % CARDS]["uuid"], "memoryMi": 8192, "cores": 10,
        })
    };
    let mut changed = status.clone();
    changed["ledgerRevision"] = json!(turn);
    changed["shares"] = (0..shares).map(share).collect();
    changed
}

async fn write(api: &Api<GpuNode>, name: &str, status: &Value) -> anyhow::Result<()> {
    let params = PatchParams { field_manager: Some("divvy-node".to_owned()), ..PatchParams::default() };
    let written = api.patch_status(name, &params, &Patch::Merge(json!({ "status": status }))).await;
    written.map(drop).with_context(|| format!("status of {name}"))
}
