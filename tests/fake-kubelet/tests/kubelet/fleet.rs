//! Many kubelets in one process.

use fake_kubelet::{Phase, RestartOptions};

use crate::plugin::{GPU, TestPlugin, options};
use crate::{Bench, pod};

/// One node's day: pods, a restart in the middle, more pods.
async fn day(seed: u64) {
    let mut bench = Bench::seeded(options(true, true), seed).await;
    let mut uids = Vec::new();
    for half in ["before", "after"] {
        uids.extend((0..8).map(|_| bench.kubelet.add_pod(pod(half, "1").pod()).unwrap()));
        bench.until("all to run", |view| uids.iter().all(|uid| view.pods[uid].phase == Phase::Running)).await;
        if half == "before" {
            bench.kubelet.restart(RestartOptions::default()).await.unwrap();
            bench.plugin = TestPlugin::serve(&bench.script, bench.kubelet.plugin_dir(), "gpu.sock");
            bench.plugin.register(GPU).await.unwrap();
            bench.until("the list", |view| view.registrations.len() == 2).await;
        }
    }
    bench.kubelet.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_dozen_kubelets_live_in_one_process() {
    let days: Vec<_> = (0..24).map(|seed| tokio::spawn(day(seed))).collect();
    for day in days {
        day.await.unwrap();
    }
}
