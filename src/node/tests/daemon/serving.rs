//! A node that can serve no pod: it says so, offers what is held, and comes back by itself.

use std::fs;

use divvy_api::gpunode::GpuNodeStatus;
use divvy_testkit::pods::GPU;
use fake_apiserver::View;
use fake_kubelet::{Phase, PodsFault, RestartOptions};
use hyper::StatusCode;

use crate::bench::cluster::amounts;
use crate::bench::{Bench, MEMORY, length, part};

/// Reason and message of the condition `Ready`, unless it holds.
fn not_ready(status: &GpuNodeStatus) -> Option<(&str, &str)> {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    (ready.status == "False").then_some((&ready.reason, &ready.message))
}

/// Devices that the Node offers.
fn devices(view: &View<'_>) -> Option<String> {
    Some(view.get("Node", "", "node")?["status"]["allocatable"][GPU].as_str()?.to_owned())
}

// === impl Bench ===

impl Bench {
    /// Waits until nothing but what a pod of 4096 MiB holds is offered, for this reason, which the message explains.
    async fn until_closed(&self, reason: &str, said: &str) {
        self.until("one device", |view| view.healthy.get(GPU).is_some_and(|healthy| healthy.len() == 1)).await;
        let status = self.until_told(reason, |status| not_ready(status).is_some_and(|(why, _)| why == reason)).await;
        let (_, message) = not_ready(&status).unwrap();
        assert!(message.contains(said), "{message}");
        self.until_offered([4096, 0, 0]).await;
        self.until_shown("one device", |view| (devices(view)? == "1").then_some(())).await;
        let (code, text) = self.page("/readyz").await.unwrap();
        assert!(code == 503 && text.contains(said), "{code} {text}");
        let (_, metrics) = self.page("/metrics").await.unwrap();
        assert!(metrics.contains("\ndivvy_serving{} 0.0\n"), "{metrics}");
    }

    /// Waits until all is offered again, and a pod runs.
    async fn until_open(&self) {
        self.serving().await;
        self.until_told("that it serves", |status| not_ready(status).is_none()).await;
        self.until_shown("amounts", |view| amounts(view).filter(|[memory, ..]| *memory == 2 * MEMORY)).await;
        self.until_shown("devices", |view| (devices(view)? == "64").then_some(())).await;
        assert_eq!(self.page("/readyz").await, Some((200, "ok\n".to_owned())));
        self.run(part("1000")).await;
    }
}

#[tokio::test]
async fn node_without_any_pod_list_accepts_no_pods() {
    let bench = Bench::publishing().await;
    let uid = bench.run(part("4096")).await;
    let given = bench.given(&uid);
    bench.server().fail("list", "/api/v1/pods", usize::MAX, StatusCode::FORBIDDEN);
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::Status(StatusCode::FORBIDDEN));
    bench.until_closed("PodsNotListed", "pods can't be identified: kubelet pod list https://").await;
    // A kubelet that restarts admits running pods again, against what is offered now.
    let before = bench.kubelet.view().registrations.len();
    bench.kubelet.restart(RestartOptions::default()).await.unwrap();
    bench.registered(before).await;
    bench.until("the pod to be listed again", |view| view.pods[&uid].listed).await;
    assert_eq!(bench.kubelet.view().pods[&uid].phase, Phase::Running, "{:?}", bench.kubelet.view().pods[&uid].failure);
    assert_eq!(bench.given(&uid), given);
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::None);
    bench.until_open().await;
}

#[tokio::test]
async fn node_with_a_full_state_dir_accepts_no_pods() {
    let bench = Bench::publishing().await;
    bench.run(part("4096")).await;
    bench.limit_file_size(Some(length(&bench.journal()) + 100)).await;
    bench.refused(part("2000")).await;
    bench.until_closed("JournalNotWritable", "shares can't be recorded: ").await;
    bench.limit_file_size(None).await;
    bench.until_open().await;
}

#[tokio::test]
async fn node_with_an_unusable_run_dir_accepts_no_pods() {
    let bench = Bench::publishing().await;
    bench.run(part("4096")).await;
    let (containers, aside) = (bench.path("run/containers"), bench.path("aside"));
    fs::rename(&containers, &aside).unwrap();
    fs::write(&containers, "").unwrap();
    bench.refused(part("2000")).await;
    bench.until_closed("ContainersNotPrepared", "containers can't be prepared: ").await;
    fs::remove_file(&containers).unwrap();
    fs::rename(&aside, &containers).unwrap();
    bench.until_open().await;
}

#[tokio::test]
async fn refusal_that_a_second_look_does_not_find_closes_nothing() {
    let bench = Bench::publishing().await;
    bench.server().fail("list", "/api/v1/pods", usize::MAX, StatusCode::FORBIDDEN);
    bench.refused_once(PodsFault::CutShort).await;
    bench.until_told("the pod", |status| status.shares.len() == 1).await;
    assert!(!bench.log().contains("accepting no new pods"), "{}", bench.log());
}
