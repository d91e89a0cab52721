//! Registration, its clashes, and what a kubelet's restart does to everybody.

use std::time::Duration;

use fake_kubelet::{Admission, KubeletOptions, KubeletView, Method, Phase, RestartOptions};
use tonic::Code;

use crate::plugin::{GPU, Script, TestPlugin, options, slots};
use crate::{Bench, pod};

fn no_devices(view: &KubeletView) -> bool {
    view.healthy.get(GPU).is_some_and(std::collections::BTreeSet::is_empty)
}

fn all_devices(view: &KubeletView) -> bool {
    view.healthy.get(GPU).is_some_and(|ids| *ids == slots())
}

#[tokio::test]
async fn end_of_stream_fails_pods_and_container_starts() {
    let bench = Bench::new(options(true, false)).await;
    let uid = bench.admit(pod("old", "1")).await;
    bench.running(&uid).await;
    bench.script.end_streams();
    bench.until("unhealthy devices", no_devices).await;
    bench.rejected(pod("new", "1")).await;
    bench.kubelet.restart_container(&uid, "main").unwrap();
    let stopped =
        |view: &KubeletView| format!("{:?}", view.pods[&uid].containers[0].state).contains("has been stopped");
    bench.until("PreStartContainer to be refused", stopped).await;
    bench.plugin.register(GPU).await.expect("it may come back");
    bench.until("its devices", all_devices).await;
    bench.running(&uid).await;
}

#[tokio::test]
async fn registration_at_once_after_a_disconnect_is_stopped_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut kubelet = KubeletOptions::new(directory.path(), "node", 1);
    kubelet.timing.close = Duration::from_secs(4); // the third one's list must come before
    let bench = Bench::with(kubelet, directory, options(false, false)).await;
    let successor = Script::new(options(false, false));
    let second = TestPlugin::serve(&successor, bench.kubelet.plugin_dir(), "second.sock");
    second.register(GPU).await.expect("a second registration of one name");
    bench.until("its list", |view| view.registrations.len() == 2).await;
    bench.script.end_streams();
    bench.until("the new one to be stopped", no_devices).await;
    second.register(GPU).await.expect("at once");
    bench.until("its list", |view| view.registrations.len() == 3).await;
    bench.until("the third one to be stopped", no_devices).await;
}

#[tokio::test]
async fn restart_deletes_sockets_and_keeps_port_and_pods() {
    let mut bench = Bench::new(options(true, true)).await;
    let uid = bench.admit(pod("steady", "2")).await;
    bench.running(&uid).await;
    let (held, address) = (bench.held(&uid, "main"), bench.kubelet.address());
    let directory = bench.kubelet.plugin_dir().to_owned();
    std::fs::write(directory.join("DEPRECATION"), "").unwrap();
    bench.kubelet.restart(RestartOptions::default()).await.expect("it starts again");
    assert!(!directory.join("gpu.sock").exists() && directory.join("kubelet.sock").exists());
    assert!(directory.join("DEPRECATION").exists() && directory.join("kubelet_internal_checkpoint").exists());
    assert_eq!(bench.kubelet.address(), address);
    bench.plugin = TestPlugin::serve(&bench.script, &directory, "gpu.sock");
    bench.plugin.register(GPU).await.expect("it is taken again");
    let both_back = |view: &KubeletView| view.pods[&uid].listed && view.registrations.len() == 2;
    bench.until("pod and plugin to be back", both_back).await;
    let view = bench.kubelet.view();
    assert!(view.boots[1] < view.registrations[1].connected);
    assert_eq!(bench.held(&uid, "main"), held);
    assert_eq!((view.pods[&uid].phase, view.pods[&uid].containers[0].starts), (Phase::Running, 1));
    assert_eq!(bench.script.allocated.borrow().len(), 1, "never asked again");
}

#[tokio::test]
async fn container_starts_from_the_cache_before_the_plugin_returns() {
    let bench = Bench::new(options(true, false)).await;
    let uid = bench.admit(pod("gap", "1")).await;
    bench.running(&uid).await;
    bench.kubelet.restart(RestartOptions::default()).await.unwrap();
    bench.until("the pod to be listed", |view| view.pods[&uid].listed).await;
    bench.kubelet.restart_container(&uid, "main").unwrap();
    bench.until("a second start", |view| view.pods[&uid].containers[0].starts == 2).await;
    assert_eq!(bench.script.pre_started.borrow().len(), 1, "the first start's");
    assert!(bench.kubelet.view().pods[&uid].containers[0].given.as_ref().unwrap().envs.contains_key("SLOTS"));
}

#[tokio::test]
async fn a_plugin_that_stays_away_loses_its_resource() {
    let directory = tempfile::tempdir().unwrap();
    let mut kubelet = KubeletOptions::new(directory.path(), "node", 1);
    kubelet.timing.endpoint_grace = Duration::ZERO;
    let bench = Bench::with(kubelet, directory, options(false, false)).await;
    bench.script.end_streams();
    bench.until("unhealthy devices", no_devices).await;
    let (reason, message) = bench.rejected(pod("late", "1")).await;
    assert_eq!(reason, "OutOfnvidia.com/gpu");
    assert!(message.contains("requested: 1, used: 0, capacity: 0"), "{message}");
}

#[tokio::test]
async fn a_start_in_a_directory_without_files_zeroes_the_amounts() {
    let bench = Bench::new(options(false, false)).await;
    bench.kubelet.set_allocatable("nvidia.com/gpumem", Some(80_000));
    let amount = || bench.kubelet.view().allocatable["nvidia.com/gpumem"];
    bench.kubelet.restart(RestartOptions::default()).await.unwrap();
    assert_eq!(amount(), 80_000, "the checkpoint is a file");
    let lost = RestartOptions { lose_checkpoint: true, ..RestartOptions::default() };
    let kept = bench.kubelet.plugin_dir().join("DEPRECATION");
    std::fs::write(&kept, "").unwrap();
    bench.kubelet.restart(lost).await.unwrap();
    assert_eq!(amount(), 80_000, "any file will do");
    std::fs::remove_file(&kept).unwrap();
    bench.kubelet.restart(lost).await.unwrap();
    assert_eq!(amount(), 0);
}

#[tokio::test]
async fn pod_under_admission_is_admitted_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut kubelet = KubeletOptions::new(directory.path(), "node", 1);
    // Long enough for the plugin to be back before the kubelet looks at the pod.
    kubelet.timing.admit_after_boot = Duration::from_secs(1);
    let mut bench = Bench::with(kubelet, directory, options(false, false)).await;
    bench.script.allocates.forget_permits(usize::MAX);
    let uid = bench.kubelet.add_pod(pod("torn", "1").pod()).unwrap();
    bench.script.allocated.subscribe().wait_for(|all| all.len() == 1).await.unwrap();
    bench.kubelet.restart(RestartOptions::default()).await.unwrap();
    bench.script.allocates.add_permits(8);
    bench.plugin = TestPlugin::serve(&bench.script, bench.kubelet.plugin_dir(), "gpu.sock");
    bench.plugin.register(GPU).await.unwrap();
    assert_eq!(bench.kubelet.admitted(&uid).await, Ok(Admission::Admitted));
    assert_eq!(bench.script.allocated.borrow().len(), 2);
    let allocates = bench.kubelet.calls().iter().filter(|call| call.method == Method::Allocate).count();
    assert_eq!(allocates, 1, "the first one never ended");
}

#[tokio::test]
async fn a_killed_plugin_is_an_error_of_the_call_in_flight() {
    let bench = Bench::new(options(false, false)).await;
    bench.script.allocates.forget_permits(usize::MAX);
    let uid = bench.kubelet.add_pod(pod("caught", "1").pod()).unwrap();
    bench.script.allocated.subscribe().wait_for(|all| all.len() == 1).await.unwrap();
    bench.plugin.kill();
    let Ok(Admission::Rejected(refusal)) = bench.kubelet.admitted(&uid).await else { panic!("it can't be admitted") };
    assert!(refusal.message.contains("rpc error: code = "), "{refusal:?}");
    assert_ne!(format!("{:?}", Code::Ok), refusal.reason);
}
