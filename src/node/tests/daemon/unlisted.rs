//! A kubelet that doesn't list its pods, beside an API server that knows those bound to its node.

use std::collections::BTreeMap;
use std::time::Duration;

use divvy_testkit::pods::GPU;
use fake_kubelet::{Admission, PodsFault, Workload};
use hyper::StatusCode;

use crate::bench::{Bench, MEMORY, Stderr, part, pod};

const FORBIDDEN: PodsFault = PodsFault::Status(StatusCode::FORBIDDEN);

// === impl Bench ===

impl Bench {
    fn list(&self, fault: PodsFault) {
        self.kubelet.set_faults(|faults| faults.pods = fault);
    }

    /// A node whose kubelet lists no pods from the start on.
    async fn unlisted(fault: PodsFault) -> Self {
        let mut bench = Self::joined().await;
        bench.define();
        bench.set_key("kubeletSettleTime", "1ms");
        bench.set_key("kubeletTimeout", "100ms");
        bench.list(fault);
        bench.start(Stderr::Log).await;
        bench.ready().await;
        bench
    }

    /// Waits until the API server shows the pod in this phase, or shows it no more.
    async fn until_phase(&self, uid: &str, phase: Option<&str>) {
        self.until_shown("the phase", |view| {
            let pod = view.list("Pod").into_iter().find(|pod| pod["metadata"]["uid"] == uid);
            (pod.as_ref().map(|pod| pod["status"]["phase"].as_str().unwrap_or_default()) == phase).then_some(())
        })
        .await;
    }

    /// Containers that were told from all others, by whose list.
    async fn identified(&self) -> BTreeMap<String, u64> {
        let (_, text) = self.page("/metrics").await.expect("it answers");
        let lines = text.lines().filter_map(|line| line.strip_prefix("divvy_identified_containers_total{source=\""));
        let counts =
            lines.map(|line| line.split_once("\"} ").unwrap()).map(|(by, n)| (by.to_owned(), n.parse().unwrap()));
        counts.filter(|(_, n)| *n > 0).collect()
    }
}

#[tokio::test]
async fn from_the_start_on_pods_are_served() {
    let bench = Bench::unlisted(FORBIDDEN).await;
    for mib in [1000, 2000, 3000] {
        let uid = bench.run(part(&mib.to_string())).await;
        assert_eq!(bench.given(&uid)[0].1, mib);
    }
    assert_eq!(bench.identified().await, [("api-server".to_owned(), 3)].into());
    bench.until_booked(&[1000, 2000, 3000]).await;
}

#[tokio::test]
async fn list_outage_and_return_are_logged_once_each() {
    let bench = Bench::publishing().await;
    bench.run(part("1000")).await;
    bench.list(FORBIDDEN);
    for mib in [2000, 3000] {
        let uid = bench.run(part(&mib.to_string())).await;
        assert_eq!(bench.given(&uid)[0].1, mib);
    }
    let (status, ready) = bench.page("/readyz").await.expect("it answers");
    assert!(status == 200 && ready.starts_with("ok\nidentifying pods by the API server"), "{status} {ready}");
    bench.list(PodsFault::None);
    bench.run(part("4000")).await;
    assert_eq!(bench.page("/readyz").await, Some((200, "ok\n".to_owned())));
    bench.until_booked(&[1000, 2000, 3000, 4000]).await;
    let by = [("api-server".to_owned(), 2), ("kubelet".to_owned(), 2)];
    assert_eq!(bench.identified().await, by.into());
    for said in ["identifying pods by the API server", "the kubelet lists its pods again"] {
        assert_eq!(bench.log().matches(said).count(), 1, "{}", bench.log());
    }
}

#[tokio::test]
async fn slow_list_is_not_awaited() {
    let bench = Bench::unlisted(PodsFault::Slow(Duration::from_secs(60))).await;
    let uid = bench.run(part("1000")).await;
    assert_eq!(bench.given(&uid)[0].1, 1000);
}

#[tokio::test]
async fn slow_list_is_awaited_if_nothing_replaces_it() {
    let slow = PodsFault::Slow(Duration::from_secs(1));
    let bench = Bench::unlisted(PodsFault::None).await;
    bench.kubelet.set_faults(|faults| (faults.no_get, faults.pods) = (true, slow));
    let first = bench.run(part("1000")).await;
    bench.kubelet.set_faults(|faults| (faults.no_get, faults.pods) = (false, PodsFault::None));
    bench.server().fail("list", "/api/v1/pods", usize::MAX, StatusCode::FORBIDDEN);
    bench.run(part("2000")).await;
    bench.list(slow);
    let second = bench.run(part("3000")).await;
    assert_eq!((bench.given(&first)[0].1, bench.given(&second)[0].1), (1000, 3000));
    assert_eq!(bench.identified().await, [("kubelet".to_owned(), 3)].into());
}

#[tokio::test]
async fn twenty_pods_at_once_are_told_apart() {
    const PODS: u64 = 20;
    let bench = Bench::unlisted(FORBIDDEN).await;
    let own = |number: u64| 100 + number;
    let uids: Vec<(u64, String)> =
        (0..PODS).map(|number| (own(number), bench.cluster().create(part(&own(number).to_string())))).collect();
    for (mib, uid) in &uids {
        bench.kubelet.arrived(uid).await;
        assert_eq!(bench.kubelet.admitted(uid).await, Ok(Admission::Admitted), "{}", bench.log());
        bench.until("its start", |view| view.pods[uid].containers[0].given.is_some()).await;
        assert_eq!(bench.given(uid)[0].1, *mib);
    }
    assert_eq!(bench.identified().await, [("api-server".to_owned(), PODS)].into());
}

#[tokio::test]
async fn several_containers_of_equal_pods_each_get_their_own() {
    let bench = Bench::unlisted(FORBIDDEN).await;
    let limits = |mib| [(GPU, "1"), ("nvidia.com/gpumem", mib)];
    let both = |name: &str| Workload::new(name).app("a", &limits("700")).app("b", &limits("900"));
    let uids = ["x", "y", "z"].map(|name| bench.cluster().create(both(name)));
    for uid in &uids {
        bench.kubelet.arrived(uid).await;
        assert_eq!(bench.kubelet.admitted(uid).await, Ok(Admission::Admitted), "{}", bench.log());
        bench.until("its start", |view| view.pods[uid].containers[0].given.is_some()).await;
        assert_eq!(bench.given(uid)[0].1, 700);
    }
}

#[tokio::test]
async fn pod_unknown_to_api_server_gets_nothing_and_takes_nothing() {
    let bench = Bench::unlisted(FORBIDDEN).await;
    let foreign = bench.kubelet.add_pod(part("1000").pod()).unwrap();
    // It waits behind that one, and is all that the API server shows.
    let waits = bench.add(part("2000")).await;
    let Ok(Admission::Rejected(refusal)) = bench.kubelet.admitted(&foreign).await else { panic!("{}", bench.log()) };
    assert!(refusal.message.contains("divvy: identity-nobody: no listed pod"), "{}", refusal.message);
    assert!(refusal.message.contains("answered 403 Forbidden"), "{}", refusal.message);
    assert_eq!(bench.kubelet.admitted(&waits).await, Ok(Admission::Admitted), "{}", bench.log());
    bench.until_booked(&[2000]).await;
}

#[tokio::test]
async fn pod_fails_with_both_reasons_without_any_list() {
    let bench = Bench::unlisted(FORBIDDEN).await;
    bench.server().fail("list", "/api/v1/pods", usize::MAX, StatusCode::FORBIDDEN);
    let message = bench.refused(part("1000")).await;
    assert!(
        message.contains("/pods: answered 403 Forbidden: the service account needs \"get\" on nodes/pods"),
        "{message}"
    );
    assert!(message.contains(": list pods of node node: 403 "), "{message}");
    assert!(message.contains("deploy/fallback/node-pod-list.yaml grants it"), "{message}");
    bench.list(PodsFault::None);
    bench.serving().await;
    bench.list(FORBIDDEN);
    bench.server().go_away().await;
    let message = bench.refused(part("1000")).await;
    assert!(message.contains("divvy: pod-list: "), "{message}");
    bench.server().come_back().await;
    bench.list(PodsFault::None);
    bench.serving().await;
    bench.run(part("1000")).await;
}

#[tokio::test]
async fn kubelet_without_pod_resources_get_is_never_guessed() {
    let bench = Bench::unlisted(FORBIDDEN).await;
    bench.kubelet.set_faults(|faults| faults.no_get = true);
    let message = bench.refused(part("1000")).await;
    assert!(message.contains("Get answered"), "{message}");
    assert!(message.contains("needs Kubernetes 1.34"), "{message}");
}

#[tokio::test]
async fn shares_end_by_pod_resources_and_cgroups() {
    let bench = Bench::unlisted(FORBIDDEN).await;
    let whole = || pod(&[(GPU, "2")]);
    let done = bench.run(whole()).await;
    bench.kubelet.finish(&done, true).unwrap();
    bench.until_phase(&done, Some("Succeeded")).await;
    let gone = bench.run(whole()).await;
    bench.until_phase(&gone, Some("Running")).await;
    bench.gone(&gone).await;
    bench.until_phase(&gone, None).await;
    let uid = bench.run(whole()).await;
    assert_eq!(bench.given(&uid).len(), 2);
    let message = bench.refused(part(&MEMORY.to_string())).await;
    assert!(message.contains("Available: 0"), "a live pod keeps its share: {message}");
}

#[tokio::test]
async fn ledger_is_rebuilt_from_records_and_pods() {
    let mut bench = Bench::unlisted(FORBIDDEN).await;
    let uid = bench.run(part("1000")).await;
    bench.killed(|bench| std::fs::remove_dir_all(bench.path("state")).unwrap()).await;
    bench.ready().await;
    bench.until_booked(&[1000]).await;
    bench.run(part("2000")).await;
    bench.until_booked(&[1000, 2000]).await;
    bench.gone(&uid).await;
}
