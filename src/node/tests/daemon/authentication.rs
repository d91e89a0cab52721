//! A token that is taken back. These tests take a minute each: their name lets them begin first.

use std::time::Duration;

use fake_kubelet::PodsFault;
use hyper::StatusCode;

use crate::bench::cluster::amounts;
use crate::bench::{Bench, MEMORY, part};

/// The client reads its token's file again after 50 s; then the next write, at most half a minute later, goes through.
const NOTICED: Duration = Duration::from_secs(120);

#[tokio::test]
async fn rotated_token_is_used() {
    let bench = Bench::publishing().await;
    bench.rotate_token("of-the-daemon-2");
    bench.run(part("4096")).await;
    bench.until_said("patch nodes/status failed: 401 ").await;
    let log = bench.log();
    assert!(log.contains("Unauthorized"), "{log}");
    bench
        .until_shown_within(NOTICED, "the amounts", |view| (amounts(view)? == [2 * MEMORY, 175, 200]).then_some(()))
        .await;
    bench.until_told("the share", |status| status.shares.len() == 1).await;
    let lines = bench.log().matches(" patch nodes/status failed").count();
    assert!((1..=3).contains(&lines), "at once, after 10 s and 70 s: {}", bench.log());
}

#[tokio::test]
async fn token_that_nobody_accepts_ends_the_daemon() {
    let mut bench = Bench::publishing().await;
    bench.run(part("1000")).await;
    bench.server().refuse(crate::bench::cluster::TOKEN);
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::Status(StatusCode::UNAUTHORIZED));
    assert_eq!(bench.ended().await.code(), Some(1), "{}", bench.log());
    let (log, file) = (bench.log(), bench.kubelet.token_file());
    let said = [
        "has answered 401 Unauthorized for ".to_owned(),
        format!("it doesn't accept the token in {}: replace it", file.display()),
        "/pods: answered 401 Unauthorized: nor does the API server accept the token".to_owned(),
    ];
    assert!(said.iter().all(|said| log.contains(said)), "{log}");
}
