//! A GPU that shares the processor's memory, of which NVML tells nothing (DGX Spark).

use divvy_testkit::pods::GPU;
use fake_kubelet::Workload;
use fake_nvml::Scenario;
use serde_json::{Value, json};

use crate::bench::{Bench, MEMORY, Stderr, part, pod};

/// A node with a GB10 beside another GPU, and no daemon yet.
async fn spark(overrides: Value) -> Bench {
    let mut bench = Bench::joined().await;
    bench.define();
    bench.set_key("cardOverrides", overrides);
    bench.change_scenario(|scenario| {
        let card = scenario.card_mut(&Scenario::uuid(0)).unwrap();
        (card.model, card.unified_memory) = ("NVIDIA GB10".to_owned(), true);
    });
    bench
}

fn on_gb10(workload: Workload) -> Workload {
    workload.annotation("divvy.dev/card-model", "GB10")
}

#[tokio::test]
async fn pod_runs_on_gpu_with_configured_memory() {
    let mut bench = spark(json!([{ "model": "NVIDIA GB10", "memory": "110Gi" }])).await;
    bench.start(Stderr::Log).await;
    bench.ready().await;
    let uid = bench.run(on_gb10(part("65536"))).await;
    assert_eq!(bench.given(&uid), [(Scenario::uuid(0), 65_536)]);
    let short = bench.refused(on_gb10(part("65536"))).await;
    assert!(short.contains("1 short of memory, largest free 46Gi"), "{short}");
    bench.until_offered([(110 << 10) + MEMORY, 41 + 100, 200]).await;
    let told = bench.until_told("the share", |status| status.shares.len() == 1).await;
    assert_eq!(told.summary.memory, "64Gi/126Gi");
    bench.gone(&uid).await;
    let whole = bench.run(on_gb10(pod(&[(GPU, "1")]))).await;
    assert_eq!(bench.given(&whole), [(Scenario::uuid(0), 110 << 10)]);
    let (_, metrics) = bench.page("/metrics").await.expect("it answers");
    let of_gb10 =
        |name: &str| metrics.lines().filter(|line| line.starts_with(name) && line.contains(&Scenario::uuid(0))).count();
    assert_eq!((of_gb10("divvy_gpu_memory_used_bytes{"), of_gb10("divvy_gpu_memory_bytes{")), (0, 1));
    // Its share outlives the daemon, whatever the configuration says of the GPU by then.
    bench.set_key("cardOverrides", json!([]));
    bench.killed(|_| {}).await;
    bench.until_booked(&[110 << 10]).await;
    bench.kubelet.restart_container(&whole, "main").unwrap();
    bench.until("another start", |view| view.pods[&whole].containers[0].starts == 2).await;
    assert_eq!(bench.given(&whole), [(Scenario::uuid(0), 110 << 10)]);
}

#[tokio::test]
async fn gpu_without_configured_memory_takes_no_pods() {
    let mut bench = spark(json!("[{model: NVIDIA Thor, memory: 100Gi}]")).await;
    bench.start(Stderr::Log).await;
    let told = bench.until_told("both GPUs", |status| status.cards.len() == 2).await;
    let reason = told.cards.iter().find_map(|card| card.reason.clone());
    insta::assert_snapshot!(reason.unwrap_or_default(), @r#"NVML reports no memory for this GPU: set memory for model "NVIDIA GB10" in cardOverrides of the daemon's configuration"#);
    let refused = bench.refused(on_gb10(part("100"))).await;
    assert!(refused.contains("(1 unhealthy; 1 of a model that the pod doesn't allow)"), "{refused}");
    let uid = bench.run(part("100")).await;
    assert_eq!(bench.given(&uid), [(Scenario::uuid(1), 100)]);
}
