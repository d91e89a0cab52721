//! Tier `mps`, as the cluster sees it. MPS is up while its lock is held, as divvy-mps holds it.

use std::fs::{self, File};
use std::process;

use divvy_api::Tier;
use divvy_api::gpunode::GpuNodeStatus;
use divvy_mps::MpsDirectory;

use crate::bench::{Bench, part};

/// Takes the lock, which ends with what is returned.
fn service(bench: &Bench) -> File {
    let run = bench.path("run");
    let ready = MpsDirectory::new(&run).pipe().with_file_name("ready");
    fs::create_dir_all(run.join("mps")).unwrap();
    fs::write(&ready, process::id().to_string()).unwrap();
    let lock = File::open(ready).unwrap();
    lock.lock().unwrap();
    lock
}

fn is_ready(node: &GpuNodeStatus, status: &str, reason: &str) -> bool {
    let ready = node.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.is_some_and(|ready| ready.status == status && ready.reason == reason)
}

#[tokio::test]
async fn node_without_its_tier_takes_no_pods() {
    let mut bench = Bench::publishing().await;
    fs::write(bench.path("libdivvy.so"), b"\x7fELF").unwrap();
    let up = service(&bench);
    bench.killed(|_| {}).await;
    bench.until_told("it serves", |node| node.tier == Tier::Mps && is_ready(node, "True", "Registered")).await;
    let uid = bench.run(part("100").annotation("divvy.dev/tier", "mps")).await;
    let given = bench.kubelet.view().pods[&uid].containers[0].given.clone().expect("it was started");
    assert_eq!(given.envs["CUDA_MPS_PIPE_DIRECTORY"], "/var/run/divvy/mps");
    assert_eq!(given.envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0=100M");
    assert!(given.mounts.iter().any(|mount| mount.container_path == "/dev/shm" && !mount.read_only));
    let annotation = bench.until_annotated(&uid).await;
    assert!(annotation.to_string().contains("\"mps\""), "{annotation}");
    drop(up);
    bench.until_told("it doesn't", |node| node.tier == Tier::Mps && is_ready(node, "False", "TierNotServed")).await;
    let refused = bench.refused(part("100")).await;
    assert!(refused.contains("tier mps can't be served now: CUDA's MPS is not up"), "{refused}");
    let _up = service(&bench);
    bench.until_told("it does again", |node| is_ready(node, "True", "Registered")).await;
    bench.run(part("100")).await;
}
