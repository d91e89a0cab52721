//! The end of a daemon, announced.

use std::time::Duration;

use divvy_api::gpunode::GpuNodeStatus;
use divvy_testkit::pods::GPU;
use fake_apiserver::View;
use fake_kubelet::{Admission, PodsFault};
use hyper::StatusCode;

use crate::bench::cluster::status;
use crate::bench::{Bench, MEMORY, Stderr, part, pod};

fn is_draining(status: &GpuNodeStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == "Draining" && condition.status == "True")
}

#[tokio::test]
async fn sigterm_sets_draining_and_serves_bound_pods_first() {
    let mut bench = Bench::publishing().await;
    bench.run(part("1000")).await;
    let socket = bench.kubelet.plugin_dir().join("divvy-gpu.sock");
    bench.signal("TERM").await;
    let listens =
        bench.until_shown("the announcement", |view| is_draining(&status(view)?).then(|| socket.exists())).await;
    assert!(listens, "the socket has gone before");
    // Bound a moment before the scheduler heard of it.
    let late = bench.run(part("2000")).await;
    assert_eq!(bench.given(&late)[0].1, 2000);
    assert_eq!(bench.ended().await.code(), Some(0), "{}", bench.log());
    assert!(!socket.exists());
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench.until_told("that it serves again", |status| !is_draining(status) && status.shares.len() == 2).await;
}

#[tokio::test]
async fn sigterm_without_api_server_still_exits() {
    let mut bench = Bench::publishing().await;
    bench.run(part("1000")).await;
    bench.server().go_away().await;
    bench.signal("TERM").await;
    assert_eq!(bench.ended().await.code(), Some(0), "{}", bench.log());
    assert!(bench.log().contains("shutting down without setting Draining: API server unreachable"), "{}", bench.log());
}

/// Divvy's resources that the Node offers, with their amounts.
fn offered(view: &View<'_>) -> Vec<(String, String)> {
    let node = view.get("Node", "", "node").expect("the kubelet has made it");
    let amounts = node["status"]["allocatable"].as_object().expect("amounts");
    let own = amounts.iter().filter(|(name, _)| name.starts_with("nvidia.com/"));
    own.map(|(name, amount)| (name.clone(), amount.as_str().expect("a quantity").to_owned())).collect()
}

#[tokio::test]
async fn pods_in_the_kubelets_queue_are_served_before_the_end() {
    let mut bench = Bench::publishing().await;
    // As installed: the daemon may not list pods.
    bench.server().fail("list", "/api/v1/pods", usize::MAX, StatusCode::FORBIDDEN);
    bench.kubelet.set_faults(|faults| faults.lag = Duration::from_millis(700));
    let request = |number: usize| {
        if number.is_multiple_of(2) { part("1000") } else { pod(&[(GPU, "1"), ("nvidia.com/gpucores", "10")]) }
    };
    let uids: Vec<String> = (0..6).map(|number| bench.cluster().create(request(number))).collect();
    bench.kubelet.arrived(&uids[5]).await;
    bench.signal("TERM").await;
    bench.until_shown("nothing to request", |view| offered(view).is_empty().then_some(())).await;
    for uid in &uids {
        assert_eq!(bench.kubelet.admitted(uid).await, Ok(Admission::Admitted), "{}", bench.log());
    }
    assert_eq!(bench.ended().await.code(), Some(0), "{}", bench.log());
}

#[tokio::test]
async fn bound_pod_is_waited_for_until_the_kubelet_takes_it_up() {
    let mut bench = Bench::publishing().await;
    bench.kubelet.set_faults(|faults| faults.lag = Duration::from_secs(4));
    let uid = bench.cluster().create(part("1000"));
    bench.kubelet.arrived(&uid).await;
    bench.signal("TERM").await;
    assert_eq!(bench.kubelet.admitted(&uid).await, Ok(Admission::Admitted), "{}", bench.log());
    assert_eq!(bench.ended().await.code(), Some(0), "{}", bench.log());
    assert!(bench.log().contains("waiting for pods that the kubelet has yet to take up"), "{}", bench.log());
}

#[tokio::test]
async fn node_offers_nothing_from_sigterm_until_the_next_session() {
    let mut bench = Bench::publishing().await;
    bench.run(part("4096")).await;
    bench.until_offered([2 * MEMORY, 175, 200]).await;
    bench.signal("TERM").await;
    bench.until_shown("nothing to request", |view| offered(view).is_empty().then_some(())).await;
    assert_eq!(bench.ended().await.code(), Some(0), "{}", bench.log());
    // The kubelet's own figure, without a plugin.
    let none = [(GPU.to_owned(), "0".to_owned())];
    bench.until_shown("no devices", |view| (offered(view) == none).then_some(())).await;
    // A daemon that can't find out what runs here doesn't register, and offers nothing.
    bench.server().fail("list", "/api/v1/pods", usize::MAX, StatusCode::FORBIDDEN);
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::Status(StatusCode::FORBIDDEN));
    std::fs::remove_dir_all(bench.path("state")).expect("a directory");
    bench.start(Stderr::Log).await;
    let known = |status: &GpuNodeStatus| !is_draining(status) && status.cards.len() == 2;
    bench.until_told("the daemon's return", known).await;
    assert_eq!(bench.server().read(offered), none);
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::None);
    bench.ready().await;
    bench.until_offered([2 * MEMORY, 175, 200]).await;
    let devices = (GPU.to_owned(), "64".to_owned());
    bench.until_shown("devices", |view| offered(view).contains(&devices).then_some(())).await;
}
