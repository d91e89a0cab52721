//! Starts, restarts and ends of pods, and what becomes of their IDs.

use std::collections::BTreeSet;
use std::sync::Arc;

use divvy_proto::podresources as pr;
use divvy_proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use fake_apiserver::ApiServer;
use fake_kubelet::{ContainerState, KubeletView, Method, Phase, Workload};
use serde_json::json;
use tonic::Status;

use crate::plugin::{options, unix};
use crate::{Bench, gpus, pod};

/// Calls of one method for one pod.
fn count(bench: &Bench, method: Method, uid: &str) -> usize {
    bench.kubelet.calls().iter().filter(|call| call.method == method && call.pod == uid).count()
}

#[tokio::test]
async fn pre_start_of_several_pods_runs_at_the_same_time() {
    let bench = Bench::new(options(true, false)).await;
    bench.script.pre_starts.forget_permits(usize::MAX);
    for name in ["a", "b", "c"] {
        bench.admit(pod(name, "1")).await;
    }
    let all_waiting = bench.script.pre_started.subscribe().wait_for(|all| all.len() == 3).await.map(|all| all.len());
    assert_eq!(all_waiting.ok(), Some(3), "three are in flight and none is answered");
}

#[tokio::test]
async fn a_failed_pre_start_waits_and_is_tried_again() {
    let bench = Bench::new(options(true, false)).await;
    *bench.script.pre_start.lock().unwrap() = Err(Status::unavailable("not yet"));
    let uid = bench.admit(pod("patient", "1")).await;
    let waiting = |view: &KubeletView| match &view.pods[&uid].containers[0].state {
        ContainerState::Waiting { reason, message } => {
            *reason == "CreateContainerConfigError" && message.contains("not yet")
        }
        _ => false,
    };
    bench.until("the error to show", waiting).await;
    *bench.script.pre_start.lock().unwrap() = Ok(());
    bench.running(&uid).await;
    assert_eq!(count(&bench, Method::Allocate, &uid), 1);
    assert!(count(&bench, Method::PreStartContainer, &uid) > 1);
}

#[tokio::test]
async fn a_restarted_container_is_prestarted_again_and_never_allocated_again() {
    let bench = Bench::new(options(true, false)).await;
    let uid = bench.admit(pod("crash", "1")).await;
    bench.running(&uid).await;
    bench.kubelet.restart_container(&uid, "main").unwrap();
    bench.until("a second start", |view| view.pods[&uid].containers[0].starts == 2).await;
    assert_eq!(count(&bench, Method::Allocate, &uid), 1);
    assert_eq!(count(&bench, Method::PreStartContainer, &uid), 2);
}

#[tokio::test]
async fn init_containers_run_one_after_another_before_the_apps() {
    let bench = Bench::new(options(true, false)).await;
    let pod = Workload::new("steps").init("one", &gpus("1")).sidecar("log", &[]).init("two", &gpus("1"));
    let uid = bench.admit(pod.app("main", &gpus("1"))).await;
    bench.running(&uid).await;
    let view = bench.kubelet.view();
    let running = |name: &str| view.pods[&uid].container(name).unwrap().state.is_running();
    assert_eq!(["one", "log", "two", "main"].map(running), [false, true, false, true]);
    let calls = bench.kubelet.calls();
    let starts = calls.iter().filter(|call| call.method == Method::PreStartContainer);
    assert_eq!(starts.map(|call| call.container.as_str()).collect::<Vec<_>>(), ["one", "two", "main"]);
}

#[tokio::test]
async fn a_finished_pod_stays_listed_until_it_is_deleted() {
    let bench = Bench::new(options(false, false)).await;
    for (success, phase) in [(true, Phase::Succeeded), (false, Phase::Failed)] {
        let uid = bench.admit(Workload::new("job").sidecar("log", &[]).app("main", &gpus("1"))).await;
        bench.running(&uid).await;
        bench.kubelet.finish(&uid, success).unwrap();
        bench.until("its end", |view| view.pods[&uid].phase == phase).await;
        assert!(bench.kubelet.view().pods[&uid].listed);
        bench.kubelet.delete(&uid).unwrap();
        bench.gone(&uid).await;
    }
}

#[tokio::test]
async fn a_deleted_pod_is_listed_and_holds_its_ids_until_its_containers_are_gone() {
    let bench = Bench::new(options(false, false)).await;
    let uid = bench.admit(pod("slow", "1")).await;
    bench.running(&uid).await;
    bench.kubelet.delete(&uid).unwrap();
    let view = bench.kubelet.view();
    let pod = &view.pods[&uid];
    assert!(pod.deleting && pod.listed && pod.containers[0].state.is_running());
    bench.gone(&uid).await;
}

#[tokio::test]
async fn an_evicted_pod_is_failed_while_its_containers_still_run() {
    let bench = Bench::new(options(false, false)).await;
    let uid = bench.admit(pod("evicted", "1")).await;
    bench.running(&uid).await;
    bench.kubelet.evict(&uid).unwrap();
    let view = bench.kubelet.view();
    assert_eq!(view.pods[&uid].phase, Phase::Failed);
    assert!(view.pods[&uid].containers[0].state.is_running());
    bench.until("the containers' end", |view| !view.pods[&uid].containers[0].state.is_running()).await;
}

#[tokio::test]
async fn ids_of_a_dead_pod_are_freed_by_the_next_admission_only() {
    let bench = Bench::new(options(false, false)).await;
    let uid = bench.admit(pod("dead", "32")).await;
    bench.kubelet.delete(&uid).unwrap();
    bench.gone(&uid).await;
    let checkpoint = bench.kubelet.plugin_dir().join("kubelet_internal_checkpoint");
    let names_it = || std::fs::read_to_string(&checkpoint).unwrap().contains(&uid);
    assert!(names_it(), "nobody swept");
    bench.admit(Workload::new("without").app("main", &[])).await;
    assert!(names_it(), "a container without a plugin resource sweeps nothing");
    bench.admit(pod("next", "32")).await;
    assert!(!names_it());
}

/// kubernetes#137534.
#[tokio::test]
async fn a_list_during_an_allocate_makes_its_ids_free_for_the_next_pod() {
    let bench = Bench::new(options(false, true)).await;
    let dead = bench.admit(pod("dead", "1")).await;
    bench.running(&dead).await;
    bench.script.allocates.forget_permits(usize::MAX);
    let first = bench.kubelet.add_pod(pod("first", "2").pod()).unwrap();
    bench.script.allocated.subscribe().wait_for(|all| all.len() == 2).await.unwrap();
    bench.kubelet.finish(&dead, true).unwrap();
    bench.until("the end of the first pod", |view| view.pods[&dead].phase == Phase::Succeeded).await;
    let mut lister = PodResourcesListerClient::new(unix(bench.kubelet.pod_resources_socket()).await);
    lister.list(pr::ListPodResourcesRequest {}).await.expect("a list");
    bench.script.allocates.add_permits(2);
    bench.kubelet.admitted(&first).await.unwrap();
    let held = bench.held(&first, "main");
    let again = held.iter().cloned().collect::<Vec<_>>();
    bench.script.prefer(move |_| again.clone());
    let second = bench.admit(pod("second", "2")).await;
    assert_eq!(bench.held(&second, "main"), held, "handed out twice, both pods alive");
}

#[tokio::test]
async fn without_the_race_live_pods_never_share_an_id() {
    let bench = Bench::new(options(true, true)).await;
    let mut lister = PodResourcesListerClient::new(unix(bench.kubelet.pod_resources_socket()).await);
    let mut uids = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        uids.push(bench.admit(pod(name, "4")).await);
        lister.list(pr::ListPodResourcesRequest {}).await.expect("within the burst");
    }
    let all: Vec<_> = uids.iter().flat_map(|uid| bench.held(uid, "main")).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}

#[tokio::test]
async fn a_pod_that_is_deleted_the_moment_it_comes_is_removed_from_the_api_server() {
    let bench = Bench::new(options(false, false)).await;
    let server = Arc::new(ApiServer::start(&[]).await.unwrap());
    let _member = bench.kubelet.join(&server).unwrap();
    server.create(&json!(pod("brief", "1").pod())).unwrap();
    server.delete("Pod", "default", "brief", None).unwrap();
    server.wait_for(|view| view.get("Pod", "default", "brief").is_none().then_some(())).await;
}
