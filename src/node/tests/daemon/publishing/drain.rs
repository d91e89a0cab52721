//! The end of a daemon, announced.

use divvy_api::gpunode::GpuNodeStatus;

use crate::bench::cluster::status;
use crate::bench::{Bench, Stderr, part};

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
