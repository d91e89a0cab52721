//! A kubelet that doesn't say which pods it has.

use std::time::Duration;

use divvy_testkit::pods::GPU;
use fake_kubelet::PodsFault;
use hyper::StatusCode;
use serde_json::json;

use crate::bench::{Bench, Stderr, part};

#[tokio::test]
async fn broken_pod_list_fails_the_pod_with_url_and_reason() {
    let mut bench = Bench::new().await;
    let url = format!("kubelet pod list https://{}/pods: ", bench.kubelet.address());
    let faults = [
        (PodsFault::Status(StatusCode::UNAUTHORIZED), "answered 401 Unauthorized: the token isn't accepted"),
        (
            PodsFault::Status(StatusCode::FORBIDDEN),
            "answered 403 Forbidden: the service account needs \"get\" on nodes/pods",
        ),
        (PodsFault::Status(StatusCode::INTERNAL_SERVER_ERROR), "answered 500 Internal Server Error"),
        (PodsFault::CutShort, "peer closed connection without sending TLS close_notify"),
        // Longer than anything is waited for.
        (PodsFault::Slow(Duration::from_secs(60)), "no answer within 500ms"),
        (PodsFault::Refused, "Connection refused"),
    ];
    for (fault, reason) in faults {
        let message = bench.refused_once(fault).await;
        assert!(message.contains(&url) && message.contains(reason), "{fault:?}: {message}");
    }
    assert!(bench.runs());
}

#[tokio::test]
async fn kubelet_with_untrusted_certificate_is_refused() {
    let mut bench = Bench::stopped(json!({})).await;
    let other = Bench::stopped(json!({})).await;
    bench.set_key("kubeletCa", other.kubelet.ca_file().to_str().unwrap());
    bench.start(Stderr::Log).await;
    bench.until_said("not registering with the kubelet yet: kubelet pod list https://").await;
    bench.until_said("the kubelet's certificate is not trusted: it is of \"CN=").await;
    assert_eq!(bench.kubelet.view().registrations.len(), 0);
    bench.kill().await;
    bench.set_key("kubeletCa", bench.kubelet.ca_file().to_str().unwrap().to_owned());
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench.run(part("100")).await;
}

#[tokio::test]
async fn known_pods_are_served_while_token_review_fails() {
    let mut bench = Bench::new().await;
    let uid = bench.run(part("100")).await;
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::Status(StatusCode::UNAUTHORIZED));
    bench.killed(|bench| std::fs::remove_dir_all(bench.path("run")).unwrap()).await;
    bench.until("what is held", |view| view.healthy.get(GPU).is_some_and(|healthy| healthy.len() == 1)).await;
    let starts = bench.kubelet.view().pods[&uid].containers[0].starts;
    bench.kubelet.restart_container(&uid, "main").unwrap();
    bench.until("the container's return", |view| view.pods[&uid].containers[0].starts > starts).await;
    assert_eq!(bench.given(&uid)[0].1, 100, "its limits were written again");
    let message = bench.refused(part("200")).await;
    assert!(message.contains("requested number of devices unavailable"), "{message}");
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::None);
    bench.serving().await;
    bench.run(part("300")).await;
    bench.until_booked(&[100, 300]).await;
}
