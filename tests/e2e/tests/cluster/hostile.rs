//! A container of a real kubelet and containerd that writes into its region whatever it can.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use divvy_api::container::{LIMITS_MOUNT, REGION_MOUNT};
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::files::RUN_DIRECTORY;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

/// Directories that it nests, if there is room.
const DEPTH: usize = 40_000;
/// Directories in one path.
const PATH: usize = 1000;

/// The daemon and another pod go on, and nothing is left: where regions are file systems of their own, where there is room for
/// next to nothing, and where they are directories of `runDir`.
pub(crate) async fn writes_anything(cluster: &mut Cluster) -> anyhow::Result<()> {
    let own = cluster.files.at(RUN_DIRECTORY);
    let nested = writes_and_ends(cluster, &own).await?;
    ensure!(nested == 0, "{nested} directories in a region of 64 inodes");
    println!("  on a file system of its own: no room for {PATH} nested directories");
    cluster.renew().await?;
    let plain = cluster.files.directory("divvy-run-plain")?;
    cluster.restart_daemon(&json!({"runDir": plain})).await?;
    let nested = writes_and_ends(cluster, &plain).await?;
    ensure!(nested == DEPTH, "{nested} directories");
    println!("  in runDir itself: {nested} nested directories");
    cluster.renew().await
}

/// Runs and ends the pod beside another one, with the same daemon, and returns how many directories it nested.
async fn writes_and_ends(cluster: &mut Cluster, run_dir: &Path) -> anyhow::Result<usize> {
    cluster.create_objects(vec![pod("innocent", None)?, pod("hostile", Some(script()))?]).await?;
    cluster.all_running(2).await?;
    let uid = cluster.until_pod("hostile", |pod| Some(view::uid(pod).to_owned())).await?;
    let running = cluster.agree().await?.running.remove(&(uid, "main".to_owned())).context("it runs")?;
    let done = PathBuf::from(format!("/proc/{}/root/tmp/done", running.pid));
    let nested = cluster
        .until("all that it writes", 2 * PATIENCE, async |_| Ok(fs::read_to_string(&done)?.trim().parse().ok()))
        .await?;
    cluster.api.delete(&format!("{PODS}/hostile")).await?;
    let count = |directory: &str| fs::read_dir(run_dir.join(directory)).map_or(0, Iterator::count);
    cluster
        .until("the end of what it wrote", PATIENCE, async |_| {
            ensure!(count("containers") == 1 && count("dead") == 0, "{} containers", count("containers"));
            Ok(Some(()))
        })
        .await?;
    cluster.create_objects(vec![pod("next", None)?]).await?;
    cluster.all_running(2).await?;
    cluster.agree().await?;
    Ok(nested)
}

fn pod(name: &str, script: Option<String>) -> anyhow::Result<Value> {
    let shape = PodShape::new(name).with(divvy_api::ContainerKind::App, "main", &[("gpu", "1"), ("gpumem", "1Gi")]);
    let mut pod = pods::object(shape)?;
    if let Some(script) = script {
        pod["spec"]["containers"][0]["command"] = json!(["/bin/busybox", "sh", "-c", script]);
    }
    Ok(pod)
}

/// Nests directories, links its own limits, and fills what is left. What is nested already is renamed to the end of a path, time
/// and again, as the path of all of it is too long for a call.
fn script() -> String {
    let path = vec!["a"; PATH].join("/");
    format!(
        "cd {REGION_MOUNT}; bb=/bin/busybox; $bb mkfifo fifo; $bb ln -s {LIMITS_MOUNT} link; $bb mkdir deep; i=0; \
         while [ $i -lt {DEPTH} ] && $bb mkdir -p next/{path} && $bb mv deep next/{path}/deep && $bb mv next deep; \
         do i=$((i+{PATH})); done; \
         $bb dd if=/dev/zero of=fill bs=64k count=64; echo $i > /tmp/done; exec $bb sleep 1000000"
    )
}
