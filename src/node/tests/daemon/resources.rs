//! Several resources: units of memory and compute as devices, and MIG instances by their profile.

use std::collections::BTreeSet;

use divvy_testkit::pods::GPU;
use fake_kubelet::{KubeletView, Phase, RestartOptions, Workload};
use fake_nvml::MigScenario;
use serde_json::{Value, json};

use crate::bench::{Bench, CARDS, MEMORY, Stderr, pod};

const CORES: &str = "nvidia.com/gpucores";
const UNITS: &str = "nvidia.com/gpumem-256mi";

const SMALL: &str = "nvidia.com/mig-1g.4gb";
const LARGE: &str = "nvidia.com/mig-2g.8gb";
/// MiB of a small instance.
const SMALL_MEMORY: u64 = 4 << 10;

/// The first card is cut into two small instances, the second one is whole.
async fn bench_of_instances(strategy: &str) -> Bench {
    let mut bench = Bench::stopped(json!({"migStrategy": strategy})).await;
    cut(&mut bench, &[("1g.4gb", SMALL_MEMORY << 20), ("1g.4gb", SMALL_MEMORY << 20)]);
    bench.start(Stderr::Log).await;
    bench
}

fn cut(bench: &mut Bench, instances: &[(&str, u64)]) {
    bench.change_scenario(|scenario| scenario.cards[0].mig = Some(MigScenario::cut(instances)));
}

/// Waits until so many slots of each resource are healthy.
async fn healthy_slots(bench: &Bench, slots: &[(&str, usize)]) {
    let healthy = |view: &KubeletView, name: &str| view.healthy.get(name).map_or(0, BTreeSet::len);
    let all = |view: &KubeletView| slots.iter().all(|(name, count)| healthy(view, name) == *count);
    bench.until(&format!("{slots:?} slots"), all).await;
}

async fn bench_of_units() -> Bench {
    let bench = Bench::with(json!({"advertise": "devices"})).await;
    healthy(&bench, [CARDS as usize * 100, CARDS as usize * 64]).await;
    bench
}

/// Waits until so many units of compute and of memory are healthy.
async fn healthy(bench: &Bench, units: [usize; 2]) {
    bench
        .until(&format!("{units:?} units"), |view| {
            [CORES, UNITS].map(|name| view.healthy.get(name).map_or(0, BTreeSet::len)) == units
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
    assert!(message.contains("short of cores, most free 40"), "80 units are left, on two cards: {message}");
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
async fn units_of_a_pod_stay_healthy() {
    let mut bench = bench_of_units().await;
    let uuid = bench.scenario.cards[0].uuid.clone();
    let on_one_card = |workload: Workload| workload.annotation("divvy.dev/card-uuid", &uuid);
    let early = bench.run(on_one_card(in_units("10", "40"))).await;
    let asks = [(GPU, "1"), (CORES, "10"), (UNITS, "16")];
    let late = bench.run(on_one_card(Workload::new("late").init("warm-up", &asks).app("main", &asks))).await;
    bench.gone(&early).await;
    bench.run(on_one_card(pod(&[(GPU, "1"), (CORES, "70")]))).await;
    let units = |view: &KubeletView| {
        let given = view.pods[&late].containers.iter().filter_map(|container| container.devices.get(UNITS));
        given.flatten().cloned().collect::<BTreeSet<_>>()
    };
    assert_eq!(units(&bench.kubelet.view()).len(), 16, "the init container's are lent to the next");
    // Of 64, 45 are held otherwise.
    let all_are_given = |view: &KubeletView| {
        let of_card = view.healthy.get(UNITS).into_iter().flatten().filter(|id| id.starts_with(&uuid));
        let healthy: BTreeSet<String> = of_card.cloned().collect();
        healthy.len() == 19 && units(view).is_subset(&healthy)
    };
    bench.until("19 units, those of the pod among them", all_are_given).await;
    bench.killed(|_| {}).await;
    bench.until("the same after the daemon's restart", all_are_given).await;
    bench.restart_kubelet(false).await;
    bench.until("the same after the kubelet's restart", all_are_given).await;
    assert_eq!(bench.kubelet.view().pods[&late].phase, Phase::Running);
}

#[tokio::test]
async fn units_without_a_card_are_refused() {
    let bench = bench_of_units().await;
    let message = bench.refused(pod(&[(CORES, "30")])).await;
    assert!(message.contains("requests nvidia.com/gpucores but no GPU: set nvidia.com/gpu as well"), "{message}");
    bench.run(in_units("30", "4")).await;
    let beside = in_units("30", "4").app("beside", &[(UNITS, "4")]);
    let message = bench.refused(beside).await;
    assert!(message.contains("container \"beside\""), "{message}");
    bench.run(in_units("30", "4")).await;
}

#[tokio::test]
async fn advertised_devices_write_nothing_to_node_and_remove_amounts() {
    let mut bench = Bench::publishing().await;
    bench.until_offered([u64::from(CARDS) * MEMORY, 200, 200]).await;
    bench.set_key("advertise", "devices");
    bench.killed(|_| {}).await;
    let mark = "divvy.dev/labels";
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

#[tokio::test]
async fn instances_are_asked_for_by_their_profile() {
    let mut bench = bench_of_instances("mixed").await;
    healthy_slots(&bench, &[(GPU, 32), (SMALL, 64)]).await;
    let message = bench.refused(pod(&[(SMALL, "1"), (GPU, "1")])).await;
    assert!(message.contains("excludes nvidia.com/gpu in the same container"), "{message}");
    let card = bench.run(pod(&[(GPU, "1")])).await;
    let whole = bench.run(pod(&[(SMALL, "1")])).await;
    let part = bench.run(pod(&[(SMALL, "1"), ("nvidia.com/gpumem-percentage", "25")])).await;
    let [card, whole, part] = [card, whole, part].map(|uid| bench.given(&uid)[0].clone());
    assert!(card.0.starts_with("GPU-") && card.1 == MEMORY, "{card:?}");
    assert!(whole.0.starts_with("MIG-") && whole.1 == SMALL_MEMORY, "{whole:?}");
    assert!(part.0.starts_with("MIG-") && part.0 != whole.0 && part.1 == SMALL_MEMORY / 4, "of the instance: {part:?}");
    let message = bench.refused(pod(&[(SMALL, "1")])).await;
    assert!(message.contains("1 of another resource"), "{message}");

    let before = bench.kubelet.view().registrations.len();
    bench.kubelet.restart(RestartOptions::default()).await.unwrap();
    bench.registered(before + 1).await;
    // Of the GPU and the instance that are held whole, one slot each.
    healthy_slots(&bench, &[(GPU, 1), (SMALL, 1 + 32)]).await;
    bench.killed(|_| {}).await;
    let both = pod(&[(GPU, "1")]).app("small", &[(SMALL, "1"), ("nvidia.com/gpumem", "1024")]);
    let message = bench.refused(both).await;
    assert!(message.contains("Available: 0"), "as many as before: {message}");
    bench.until_booked(&[SMALL_MEMORY / 4, SMALL_MEMORY, MEMORY]).await;
}

#[tokio::test]
async fn kinds_of_cards_may_stand_side_by_side_in_a_pod() {
    let bench = bench_of_instances("mixed").await;
    healthy_slots(&bench, &[(GPU, 32), (SMALL, 64)]).await;
    let first = Workload::new("both").init("init", &[(SMALL, "1"), ("nvidia.com/gpumem", "1024")]);
    let both = first.app("main", &[(GPU, "1"), ("nvidia.com/gpumem", "2048")]);
    let uid = bench.run(both.app("beside", &[(SMALL, "1"), ("nvidia.com/gpumem", "512")])).await;
    let given: Vec<_> = (0..3).map(|at| bench.given_to(&uid, at)[0].clone()).collect();
    assert_eq!(given[0].0, given[2].0, "the kubelet lends what the init container had to the next of its kind");
    assert!(given[1].0.starts_with("GPU-") && given[1].1 == 2048, "{given:?}");
    assert_eq!((given[0].1, given[2].1), (1024, 512));
}

#[tokio::test]
async fn instances_that_are_made_anew_are_registered_anew() {
    let mut bench = bench_of_instances("mixed").await;
    healthy_slots(&bench, &[(GPU, 32), (SMALL, 64)]).await;
    let uid = bench.run(pod(&[(SMALL, "1"), ("nvidia.com/gpumem", "1024")])).await;
    bench.change_scenario(|scenario| {
        let mut mig = MigScenario::cut(&[("2g.8gb", (2 * SMALL_MEMORY) << 20)]);
        mig.instances[0].uuid = Some("MIG-of-its-own".to_owned());
        scenario.cards[0].mig = Some(mig);
    });
    healthy_slots(&bench, &[(GPU, 32), (SMALL, 0), (LARGE, 32)]).await;
    let large = bench.run(pod(&[(LARGE, "1")])).await;
    assert_eq!(bench.given(&large)[0].1, 2 * SMALL_MEMORY);
    bench.until_booked(&[1024, 2 * SMALL_MEMORY]).await;
    let held = bench.kubelet.view().pods[&uid].containers[0].devices[SMALL].clone();
    assert!(held.is_subset(&bench.kubelet.view().listed[SMALL]), "listed as long as it is held");
}

#[tokio::test]
async fn single_strategy_gives_instances_as_gpus() {
    let bench = bench_of_instances("single").await;
    healthy_slots(&bench, &[(GPU, 96)]).await;
    let two = bench.run(pod(&[(GPU, "2"), ("nvidia.com/gpumem-percentage", "100")])).await;
    let given = bench.given(&two);
    assert_eq!(given.len(), 2);
    assert_eq!(bench.kubelet.view().registrations.len(), 1);
}

#[tokio::test]
async fn without_a_strategy_a_card_in_mig_mode_is_not_given_out() {
    let bench = bench_of_instances("none").await;
    healthy_slots(&bench, &[(GPU, 32)]).await;
    let message = bench.refused(pod(&[(GPU, "2")])).await;
    assert!(message.contains("1 unhealthy"), "{message}");
    assert!(bench.log().contains("set migStrategy to single or mixed"), "{}", bench.log());
}
