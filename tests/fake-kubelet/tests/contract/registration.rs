//! Registration, its clashes, and what a kubelet's restart does to everybody.

use std::collections::BTreeSet;
use std::time::Duration;

use divvy_api::ContainerKind::{App, Init};
use divvy_proto::deviceplugin as dp;
use divvy_testkit::pods::PodShape;

use crate::kubelet::{Bench, is_running, phase, pod, statuses};
use crate::plugin::{GPU, Script, TestPlugin, healthy, options, slots};

const ONE: &[(&str, &str)] = &[("gpu", "1")];

pub(crate) async fn invalid_registration_is_refused_with_a_reason(bench: &mut Bench) {
    let refused = |result: Result<(), tonic::Status>| result.expect_err("refused").message().to_owned();
    let message = refused(bench.plugin.register("kubernetes.io/gpu").await);
    assert!(message.contains("is invalid"), "{message}");
    let directory = bench.kubelet.plugin_dir();
    let nobody = TestPlugin::serve(&bench.script, &directory, "gone.sock");
    std::fs::remove_file(directory.join("gone.sock")).unwrap();
    let message = refused(nobody.register("nvidia.com/other").await);
    assert!(message.contains("failed to dial device plugin"), "{message}");
}

pub(crate) async fn each_list_replaces_the_one_before(bench: &mut Bench) {
    let mut devices = healthy(slots());
    devices.truncate(3);
    dp::UNHEALTHY.clone_into(&mut devices[0].health);
    bench.script.devices.send_replace(devices);
    bench.until_healthy(|ids| ids.len() == 2).await;
}

pub(crate) async fn list_above_4_mib_ends_the_plugin(bench: &mut Bench) {
    // 13 bytes and the ID for each device.
    let long = |number: usize| healthy((0..number).map(|n| format!("{n:087}")));
    bench.script.devices.send_replace(long(41_943));
    bench.until_healthy(|ids| ids.len() == 41_943).await;
    bench.script.devices.send_replace(long(41_944));
    bench.until_healthy(BTreeSet::is_empty).await;
    let (_, message) = bench.rejected(&pod("late", "1")).await;
    assert!(message.contains("no healthy devices present"), "{message}");
}

pub(crate) async fn end_of_stream_fails_new_pods(bench: &mut Bench) {
    bench.run(&pod("old", "1")).await;
    bench.script.end_streams();
    bench.until_healthy(BTreeSet::is_empty).await;
    bench.rejected(&pod("new", "1")).await;
    bench.plugin.register(GPU).await.expect("it may come back");
    bench.until_healthy(|ids| *ids == slots()).await;
    assert!(bench.find("old").await.is_some_and(|pod| is_running(&pod, "main")));
}

/// kubernetes#121994.
pub(crate) async fn end_of_an_old_stream_stops_the_new_plugin(bench: &mut Bench) {
    let successor = Script::new(options(false, false));
    successor.devices.send_replace(healthy(slots().into_iter().take(5)));
    let second = TestPlugin::serve(&successor, &bench.kubelet.plugin_dir(), "second.sock");
    second.register(GPU).await.expect("a second registration of one name");
    bench.until_healthy(|ids| ids.len() == 5).await;
    bench.script.end_streams();
    bench.until_healthy(BTreeSet::is_empty).await;
    // The kubelet may stop a registration too, or refuse it, while it still closes the connection before it.
    bench.until("a registration that lasts", async |this| stays_registered(this, &second, 5).await.then_some(())).await;
}

/// Registers a plugin at once and tells whether all its devices are healthy for a while.
async fn stays_registered(bench: &Bench, plugin: &TestPlugin, devices: usize) -> bool {
    if plugin.register(GPU).await.is_err() {
        return false;
    }
    let mut healthy = 0;
    for _look in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        healthy = bench.healthy().await.len();
        if healthy == 0 {
            break;
        }
    }
    healthy == devices
}

pub(crate) async fn restart_deletes_sockets_and_keeps_pods(bench: &mut Bench) {
    bench.run(&pod("steady", "2")).await;
    let held = bench.held("steady", "main").await;
    let directory = bench.kubelet.plugin_dir();
    std::fs::write(directory.join("DEPRECATION"), "").unwrap();
    bench.kubelet.restart(false).await;
    assert!(!directory.join("gpu.sock").exists() && directory.join("kubelet.sock").exists());
    assert!(directory.join("DEPRECATION").exists() && directory.join("kubelet_internal_checkpoint").exists());
    bench.plugin_returns().await;
    bench.until_pod("steady", |pod| is_running(pod, "main").then_some(())).await;
    assert_eq!(bench.held("steady", "main").await, held);
    let pod = bench.find("steady").await.expect("listed");
    assert_eq!(statuses(&pod).map(|status| status.restart_count).collect::<Vec<_>>(), [0]);
    assert_eq!(bench.script.allocated.borrow().len(), 1, "never asked again");
}

pub(crate) async fn restart_fails_pods_past_their_init_containers(bench: &mut Bench) {
    bench.run(&PodShape::new("initial").with(Init, "load", ONE).with(App, "main", ONE)).await;
    bench.kubelet.restart(false).await;
    let message = bench
        .until_pod("initial", |pod| {
            let status = pod.status.clone().filter(|_| phase(pod) == "Failed")?;
            Some(status.message.unwrap_or_default())
        })
        .await;
    assert!(message.contains("no healthy devices present"), "{message}");
}

pub(crate) async fn lost_checkpoint_hands_out_held_ids_again(bench: &mut Bench) {
    bench.run(&pod("old", "16")).await;
    let held = bench.held("old", "main").await;
    bench.kubelet.restart(true).await;
    bench.plugin_returns().await;
    bench.until_healthy(|ids| *ids == slots()).await;
    let again: Vec<String> = held.iter().cloned().collect();
    bench.script.prefer(move |_| again.clone());
    bench.run(&pod("new", "16")).await;
    assert_eq!(bench.held("new", "main").await, held);
    assert!(bench.find("old").await.is_some_and(|pod| is_running(&pod, "main")));
}

pub(crate) async fn lost_checkpoint_rejects_more_than_is_allocatable(bench: &mut Bench) {
    bench.run(&pod("old", "32")).await;
    bench.kubelet.restart(true).await;
    bench.plugin_returns().await;
    bench.until_healthy(|ids| *ids == slots()).await;
    let (reason, message) = bench.rejected(&pod("new", "32")).await;
    // The real kubelet's is a static pod: as a critical one it would preempt others, and says that this doesn't help.
    let critical = message.contains("no set of running pods found to reclaim resources: [(res: nvidia.com/gpu, q: 32)");
    let expected = if critical { "UnexpectedAdmissionError" } else { "OutOfnvidia.com/gpu" };
    assert_eq!(reason, expected);
    assert!(critical || message.contains("nvidia.com/gpu, requested: 32, used: 32, capacity: 32"), "{message}");
    assert_eq!(bench.script.allocated.borrow().len(), 2, "the plugin was asked before");
    assert!(bench.find("old").await.is_some_and(|pod| is_running(&pod, "main")));
}
