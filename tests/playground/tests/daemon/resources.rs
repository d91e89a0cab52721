//! Several resources: units of memory and compute, and MIG instances by their profile.

use divvy_playground::kubelet::Workload;
use divvy_playground::pods::GPU;
use serde_json::{Value, json};

use crate::bench::{Bench, CARDS, MEMORY, pod};

const CORES: &str = "nvidia.com/gpucores";
const UNITS: &str = "nvidia.com/gpumem-256mi";

async fn bench_of_units() -> Bench {
    let bench = Bench::with(json!({"advertise": "devices"})).await;
    healthy(&bench, [CARDS as usize * 100, CARDS as usize * 64]).await;
    bench
}

/// Waits until so many units of compute and of memory are healthy.
async fn healthy(bench: &Bench, units: [usize; 2]) {
    bench
        .until(&format!("{units:?} units"), |view| {
            [CORES, UNITS].map(|name| view.healthy.get(name).map_or(0, |ids| ids.len())) == units
        })
        .await;
}

fn in_units(cores: &str, memory: &str) -> Workload {
    pod(&[(GPU, "1"), (CORES, cores), (UNITS, memory)])
}

#[tokio::test]
async fn slots_settle_the_card_in_whatever_order_units_are_asked_for() {
    let bench = bench_of_units().await;
    for round in 1..=6 {
        let uid = bench.run(in_units("10", "8")).await;
        assert_eq!(bench.given(&uid).len(), 1, "round {round}");
        assert_eq!(bench.given(&uid)[0].1, 2048);
    }
    healthy(&bench, [200, 128]).await;
    let big = bench.run(in_units("60", "16")).await;
    assert_eq!(bench.given(&big)[0].1, 4096);
    let message = bench.refused(in_units("60", "1")).await;
    assert!(message.contains("60 cores wanted, 40 free"), "80 units are left, on two cards: {message}");
}

#[tokio::test]
async fn shares_held_otherwise_come_out_of_the_units() {
    let bench = bench_of_units().await;
    let whole = bench.run(pod(&[(GPU, "1")])).await;
    assert_eq!(bench.given(&whole)[0].1, MEMORY);
    healthy(&bench, [100, 64]).await;
    let part = bench.run(pod(&[(GPU, "1"), (CORES, "25")])).await;
    assert_eq!(bench.given(&part)[0].1, MEMORY / 4, "as much memory as compute");
    healthy(&bench, [100, 48]).await;
    bench.restart_kubelet(false).await;
    bench.until_booked(&[MEMORY / 4, MEMORY]).await;
    bench.gone(&whole).await;
    healthy(&bench, [200, 112]).await;
}

#[tokio::test]
async fn units_without_a_card_are_refused() {
    let bench = bench_of_units().await;
    let message = bench.refused(pod(&[(CORES, "30")])).await;
    assert!(message.contains("asks for nvidia.com/gpucores but for no card: set nvidia.com/gpu as well"), "{message}");
    bench.run(in_units("30", "4")).await;
    let beside = in_units("30", "4").app("beside", &[(UNITS, "4")]);
    let message = bench.refused(beside).await;
    assert!(message.contains("container \"beside\""), "{message}");
    bench.run(in_units("30", "4")).await;
}

#[tokio::test]
async fn nothing_is_written_to_the_node_and_what_another_configuration_wrote_is_taken_off() {
    let mut bench = Bench::publishing().await;
    bench.until_offered([u64::from(CARDS) * MEMORY, 200, 200]).await;
    bench.set_key("advertise", "devices");
    bench.killed(|_| {}).await;
    let mark = "divvy.dev/generation";
    let says = |node: &Value, name: &str| node["status"]["capacity"].get(name).is_some();
    let node = bench.until_shown("a Node without amounts", |view| {
        let node = view.get("Node", "", "node")?;
        let is_clean = !says(&node, "nvidia.com/gpumem") && node["metadata"]["annotations"].get(mark).is_none();
        (is_clean && says(&node, UNITS)).then_some(node)
    });
    let node = node.await;
    assert_eq!(node["status"]["capacity"][CORES], "200", "which the kubelet has written: {node:#}");
    let uid = bench.run(in_units("30", "4")).await;
    bench.until_annotated(&uid).await;
    let now = bench.until_shown("the Node", |view| view.get("Node", "", "node")).await;
    assert!(now["metadata"]["annotations"].get(mark).is_none(), "{now:#}");
}
