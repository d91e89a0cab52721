//! Starts, restarts and ends of pods, and what becomes of their IDs.

use std::collections::BTreeSet;
use std::sync::Arc;

use divvy_proto::podresources as pr;
use divvy_proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use fake_apiserver::ApiServer;
use fake_kubelet::{Method, Phase, Workload};
use serde_json::json;

use crate::plugin::{options, unix};
use crate::{Bench, gpus, pod};

/// Calls of one method for one pod.
fn count(bench: &Bench, method: Method, uid: &str) -> usize {
    bench.kubelet.calls().iter().filter(|call| call.method == method && call.pod == uid).count()
}

#[tokio::test]
async fn container_restart_calls_pre_start_but_not_allocate() {
    let bench = Bench::new(options(true, false)).await;
    let uid = bench.admit(pod("crash", "1")).await;
    bench.running(&uid).await;
    bench.kubelet.restart_container(&uid, "main").unwrap();
    bench.until("a second start", |view| view.pods[&uid].containers[0].starts == 2).await;
    assert_eq!(count(&bench, Method::Allocate, &uid), 1);
    assert_eq!(count(&bench, Method::PreStartContainer, &uid), 2);
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
async fn deleted_pod_holds_its_ids_until_its_containers_end() {
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

/// kubernetes#137534.
#[tokio::test]
async fn list_during_allocate_frees_the_ids_in_flight() {
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
async fn pod_deleted_before_admission_leaves_the_api_server() {
    let bench = Bench::new(options(false, false)).await;
    let server = Arc::new(ApiServer::start(&[]).await.unwrap());
    let _member = bench.kubelet.join(&server).unwrap();
    server.create(&json!(pod("brief", "1").pod())).unwrap();
    server.delete("Pod", "default", "brief", None).unwrap();
    server.wait_for(|view| view.get("Pod", "default", "brief").is_none().then_some(())).await;
}
