//! GPUs of one node that are shared in different ways.

use std::fs;

use divvy_api::Tier;
use divvy_api::gpunode::Scales;
use divvy_testkit::pods::GPU;
use fake_kubelet::{KubeletView, Workload};
use fake_nvml::Scenario;
use serde_json::{Value, json};

use crate::bench::{Bench, MEMORY, Stderr, part, pod};

fn slots_of(view: &KubeletView, card: u32) -> usize {
    let listed = view.listed.get(GPU).into_iter().flatten();
    listed.filter(|id| id.starts_with(&Scenario::uuid(card))).count()
}

async fn with(overrides: Value) -> Bench {
    let mut bench = Bench::joined().await;
    bench.define();
    fs::write(bench.path("libdivvy.so"), b"\x7fELF").unwrap();
    bench.set_key("tier", "shim");
    bench.set_key("cardOverrides", overrides);
    bench
}

fn on(workload: Workload, card: u32) -> Workload {
    workload.annotation("divvy.dev/card-uuid", Scenario::uuid(card))
}

#[tokio::test]
async fn gpus_have_slots_scales_and_tiers_of_their_own() {
    let mut bench = with(json!([
        { "uuid": Scenario::uuid(0), "slotsPerCard": 2, "tier": "accounting" },
        { "index": 1, "memoryScale": 0.5, "coresScale": 1.5 },
    ]))
    .await;
    bench.start(Stderr::Log).await;
    bench.until("2 and 32 slots", |view| (slots_of(view, 0), slots_of(view, 1)) == (2, 32)).await;
    bench.until_offered([MEMORY + MEMORY / 2, 150, 250]).await;
    let told = bench.until_told("both GPUs", |status| status.cards.len() == 2).await;
    assert_eq!((told.tier, told.slots_per_card), (Tier::Accounting, Some(32)));
    let own = |at: usize| (told.cards[at].tier, told.cards[at].slots, told.cards[at].scales);
    assert_eq!(own(0), (None, Some(2), None));
    assert_eq!(own(1), (Some(Tier::Shim), None, Some(Scales { memory: 50, cores: 150 })));

    let limits = |bench: &Bench, uid: &str| {
        let given = bench.kubelet.view().pods[uid].containers[0].given.clone().expect("it was started");
        let mount = given.mounts.iter().find(|mount| mount.container_path == "/var/run/divvy/limits").expect("mounted");
        fs::read_to_string(format!("{}/limits", mount.host_path)).unwrap()
    };
    let free = bench.run(on(part("100"), 0)).await;
    assert!(limits(&bench, &free).contains("\ntier accounting\n"));
    let held = bench.run(part("100").annotation("divvy.dev/tier", "shim")).await;
    assert_eq!(bench.given(&held), [(Scenario::uuid(1), 100)]);
    assert!(limits(&bench, &held).contains("\ntier shim\n"));
    let both = bench.run(pod(&[(GPU, "2"), ("nvidia.com/gpumem", "100")])).await;
    assert!(limits(&bench, &both).contains("\ntier shim\n"), "its share of one of them has to be enforced");

    let refused = bench.refused(on(part("100"), 0).annotation("divvy.dev/tier", "shim")).await;
    assert!(refused.contains("1 of a weaker tier than the pod requests"), "{refused}");
    let third = bench.refused(on(part("100"), 0)).await;
    assert!(third.contains("1 without free slots"), "{third}");
    let large = bench.refused(on(part(&(MEMORY / 2).to_string()), 1)).await;
    assert!(large.contains("1 short of memory"), "{large}");

    // Fewer slots than pods hold: their IDs stay listed until they end.
    bench.set_key("cardOverrides", json!([{ "model": "NVIDIA L4", "slotsPerCard": 1 }]));
    bench.killed(|_| {}).await;
    bench.until_booked(&[100, 100, 100, 100]).await;
    bench.until("held slots beside one", |view| slots_of(view, 0) == 2).await;
    for uid in [&free, &held, &both] {
        bench.kubelet.restart_container(uid, "main").unwrap();
        bench.until("another start", |view| view.pods[uid].containers[0].starts == 2).await;
    }
    assert!(limits(&bench, &free).contains("\ntier accounting\n"), "as it was started");
}

#[tokio::test]
async fn unknown_gpus_of_overrides_are_named_in_the_log() {
    let mut bench = with(json!([{ "uuid": "GPU-elsewhere", "slotsPerCard": 1 }])).await;
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench.until_said("cardOverrides: this node has no GPU with uuid GPU-elsewhere").await;
}

#[tokio::test]
async fn contradictory_overrides_exit_with_64() {
    let mut bench = Bench::stopped(json!({})).await;
    for (keys, what) in [
        (
            json!({ "cardOverrides": [{ "index": 0, "model": "L4", "slotsPerCard": 1 }] }),
            "an entry has model and index",
        ),
        (json!({ "cardOverrides": [{ "index": 0, "tier": "shim" }] }), "tier shim can't be served: libdivvyPath"),
        (
            json!({ "tier": "mig", "migStrategy": "mixed", "cardOverrides": [{ "index": 0, "coresScale": 2 }] }),
            "cardOverrides, index 0: on a node of tier mig all GPUs have the same tier, memoryScale and coresScale",
        ),
    ] {
        for (key, value) in keys.as_object().unwrap() {
            bench.set_key(key, value.clone());
        }
        bench.start(Stderr::Log).await;
        assert_eq!(bench.ended().await.code(), Some(64));
        assert!(bench.log().contains(what), "{}", bench.log());
    }
}
