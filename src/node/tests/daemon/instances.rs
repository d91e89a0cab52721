//! Tier `mig`: whole instances, for pods that want nothing else and on nodes that give nothing else.

use std::fs;

use divvy_api::Tier;
use divvy_api::gpunode::{GpuNodeStatus, HealthStatus};
use divvy_node::container::limits::{Limits, read};
use divvy_testkit::pods::GPU;
use fake_kubelet::{RestartOptions, Workload};
use fake_nvml::MigScenario;

use crate::bench::{Bench, Stderr, part, pod};

/// MiB of the instances into which the first of two cards is cut.
const SMALL: u64 = 4 << 10;
const LARGE: u64 = 8 << 10;

/// A node whose daemon serves this tier and publishes.
async fn bench(tier: &str) -> Bench {
    let mut bench = Bench::joined().await;
    bench.define();
    bench.change_scenario(|scenario| {
        scenario.cards[0].mig = Some(MigScenario::cut(&[("2g.8gb", LARGE << 20), ("1g.4gb", SMALL << 20)]));
    });
    bench.set_key("migStrategy", "single");
    bench.set_key("tier", tier);
    bench.start(Stderr::Log).await;
    bench.until_told("three cards", |status| status.cards.len() == 3).await;
    let offered = if tier == "mig" { 64 } else { 96 };
    bench.until("its slots", |view| view.healthy.get(GPU).is_some_and(|slots| slots.len() == offered)).await;
    bench
}

fn by_hardware(workload: Workload) -> Workload {
    workload.annotation("divvy.dev/tier", "mig")
}

fn limits(bench: &Bench, uid: &str) -> Limits {
    let view = bench.kubelet.view();
    let given = view.pods[uid].containers[0].given.as_ref().expect("it was started");
    let mount = given.mounts.iter().find(|mount| mount.container_path == "/var/run/divvy/limits").expect("mounted");
    read(&fs::read_to_string(format!("{}/limits", mount.host_path)).unwrap()).unwrap()
}

#[tokio::test]
async fn pod_with_tier_mig_gets_smallest_instance_and_tier_is_shown() {
    let mut bench = bench("accounting").await;
    let uid = bench.run(by_hardware(part("3000"))).await;
    let given = bench.given(&uid);
    assert_eq!(given[0].1, SMALL);
    assert!(given[0].0.starts_with("MIG-"), "{given:?}");
    let said = limits(&bench, &uid);
    assert_eq!((said.terms.tier, said.cards[0].1.exclusive), (Tier::Mig, true));
    assert_eq!(bench.until_annotated(&uid).await["tier"], "mig");
    let metric = async |line: &str| {
        let (_, metrics) = bench.page("/metrics").await.unwrap();
        assert!(metrics.lines().any(|found| found.contains(line)), "{line}: {metrics}");
    };
    metric(r#"divvy_share_tier_info{namespace="default""#).await;
    metric(r#"container="main",tier="mig"} 1.0"#).await;
    let is_told = |status: &GpuNodeStatus| status.shares.iter().any(|share| share.share.exclusive);
    let told = bench.until_told("the share", is_told).await;
    assert_eq!(told.tier, Tier::Accounting, "that is the least of the node");
    assert!(told.cards.iter().filter(|card| card.mig.is_some()).all(|card| card.plain), "{told:#?}");
    // 3000 of the share, and what is free: the other instance and the GPU.
    bench.until_offered([3000 + LARGE + (16 << 10), 200, 200]).await;

    let refused = bench.refused(by_hardware(part("9000"))).await;
    assert!(refused.contains("1 not a MIG instance") && refused.contains("2 too small, largest 8Gi"), "{refused}");
    let other = bench.run(part("3000")).await;
    assert_ne!(bench.given(&other)[0].0, given[0].0, "nobody shares it");
    assert_eq!(limits(&bench, &other).terms.tier, Tier::Accounting);

    bench.gone(&other).await;

    bench.killed(|_| {}).await;
    let before = bench.kubelet.view().registrations.len();
    bench.kubelet.restart(RestartOptions { lose_checkpoint: true, ..RestartOptions::default() }).await.unwrap();
    bench.registered(before).await;
    bench.until_booked(&[SMALL]).await;
    let last = bench.run(by_hardware(pod(&[(GPU, "1"), ("nvidia.com/gpucores", "10")]))).await;
    assert_eq!((bench.given(&last)[0].1, limits(&bench, &last).terms.tier), (LARGE, Tier::Mig), "the other one");
}

#[tokio::test]
async fn tier_mig_gives_whole_instances_alone() {
    let mut bench = bench("mig").await;
    let told = bench.until_told("the GPU's health", |status| status.cards[2].health == HealthStatus::Unhealthy).await;
    let reason = told.cards[2].reason.as_deref();
    assert_eq!(reason, Some("not a MIG instance, which tier mig requires: partition the GPU, or set tier to auto"));
    assert_eq!(told.tier, Tier::Mig);
    let uid = bench.run(part("100")).await;
    assert_eq!((bench.given(&uid)[0].1, limits(&bench, &uid).terms.tier), (SMALL, Tier::Mig));
    let refused = bench.refused(part("9000")).await;
    assert!(refused.contains("1 unhealthy"), "{refused}");
    bench.killed(|_| {}).await;
    bench.until_booked(&[SMALL]).await;
    let whole = bench.run(pod(&[(GPU, "1")])).await;
    assert_eq!(bench.given(&whole)[0].1, LARGE);
    let (_, config) = bench.admin_page("/config").await.unwrap();
    assert!(config.starts_with("# tier in effect: mig (configured)"), "{config}");
    let refused = bench.refused(part("1")).await;
    assert!(refused.contains("Available: 0"), "instances that are held offer no slots: {refused}");
}
