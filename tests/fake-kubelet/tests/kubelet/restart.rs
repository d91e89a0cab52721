//! Registration, its clashes, and what a kubelet's restart does to everybody.

use std::time::Duration;

use divvy_proto::deviceplugin as dp;
use fake_kubelet::{Admission, KubeletOptions, KubeletView, Method, Phase, RestartOptions, Workload};
use tonic::Code;

use crate::plugin::{GPU, Script, TestPlugin, healthy, options, slots};
use crate::{Bench, gpus, pod};

fn no_devices(view: &KubeletView) -> bool {
    view.healthy.get(GPU).is_some_and(std::collections::BTreeSet::is_empty)
}

fn all_devices(view: &KubeletView) -> bool {
    view.healthy.get(GPU).is_some_and(|ids| *ids == slots())
}

#[tokio::test]
async fn a_registration_is_refused_with_the_kubelets_words() {
    let bench = Bench::new(options(false, false)).await;
    let refused = |result: Result<(), tonic::Status>| result.expect_err("refused").message().to_owned();
    assert!(refused(bench.plugin.register("kubernetes.io/gpu").await).contains("is invalid"));
    let nobody = TestPlugin::serve(&bench.script, bench.kubelet.plugin_dir(), "gone.sock");
    std::fs::remove_file(bench.kubelet.plugin_dir().join("gone.sock")).unwrap();
    assert!(refused(nobody.register("nvidia.com/other").await).contains("failed to dial device plugin"));
}

#[tokio::test]
async fn each_list_replaces_the_one_before() {
    let bench = Bench::new(options(false, false)).await;
    let mut devices = healthy(slots());
    devices.truncate(3);
    devices[0].health = dp::UNHEALTHY.to_owned();
    bench.script.devices.send_replace(devices);
    bench.until("the second list", |view| view.healthy[GPU].len() == 2).await;
}

#[tokio::test]
async fn a_list_above_4_mib_ends_the_plugin() {
    let bench = Bench::new(options(false, false)).await;
    // 13 bytes and the ID for each device.
    let long = |number: usize| healthy((0..number).map(|n| format!("{n:087}")));
    bench.script.devices.send_replace(long(41_943));
    bench.until("a list of just under 4 MiB", |view| view.healthy[GPU].len() == 41_943).await;
    bench.script.devices.send_replace(long(41_944));
    bench.until("the end of the plugin", no_devices).await;
    let (_, message) = bench.rejected(pod("late", "1")).await;
    assert!(message.contains("no healthy devices present"), "{message}");
}

#[tokio::test]
async fn the_end_of_a_stream_fails_new_pods_and_the_start_of_containers() {
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

/// kubernetes#121994.
#[tokio::test]
async fn the_end_of_an_old_stream_stops_the_new_registration() {
    let bench = Bench::new(options(false, false)).await;
    let successor = Script::new(options(false, false));
    let second = TestPlugin::serve(&successor, bench.kubelet.plugin_dir(), "second.sock");
    second.register(GPU).await.expect("a second registration of one name");
    bench.until("its list", |view| view.registrations.len() == 2).await;
    bench.script.end_streams();
    bench.until("the new one to be stopped", no_devices).await;
    successor.devices.subscribe().borrow_and_update();
    second.register(GPU).await.expect("again");
    bench.until("its devices", all_devices).await;
}

#[tokio::test]
async fn a_restart_deletes_every_socket_and_keeps_its_port_and_the_pods() {
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
async fn before_the_plugin_is_back_containers_start_with_the_cached_answer_and_no_pre_start() {
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
async fn a_pod_whose_init_container_is_done_fails_at_a_restart_without_the_plugin() {
    let bench = Bench::new(options(false, false)).await;
    let uid = bench.admit(Workload::new("initial").init("load", &gpus("1")).app("main", &gpus("1"))).await;
    bench.running(&uid).await;
    bench.kubelet.restart(RestartOptions::default()).await.unwrap();
    bench.until("the pod to fail", |view| view.pods[&uid].phase == Phase::Failed).await;
    bench.until("its containers to end", |view| !view.pods[&uid].containers[1].state.is_running()).await;
    let failure = bench.kubelet.view().pods[&uid].failure.clone().expect("a reason");
    assert!(failure.message.contains("no healthy devices present"), "{failure:?}");
}

#[tokio::test]
async fn with_the_checkpoint_lost_ids_of_running_containers_are_handed_out_again() {
    let mut bench = Bench::new(options(false, true)).await;
    let old = bench.admit(pod("old", "32")).await;
    bench.running(&old).await;
    let lost = RestartOptions { lose_checkpoint: true, down_for: Duration::from_millis(20) };
    bench.kubelet.restart(lost).await.unwrap();
    bench.plugin = TestPlugin::serve(&bench.script, bench.kubelet.plugin_dir(), "gpu.sock");
    bench.plugin.register(GPU).await.unwrap();
    bench.until("its devices", all_devices).await;
    let new = bench.admit(pod("new", "32")).await;
    assert_eq!(bench.held(&new, "main"), slots());
    assert_eq!(bench.kubelet.view().pods[&old].phase, Phase::Running);
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
async fn a_pod_under_admission_when_the_kubelet_dies_is_admitted_again() {
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
