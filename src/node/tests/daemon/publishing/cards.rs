//! Cards that fall ill, as the cluster hears of it.

use divvy_api::gpunode::HealthStatus;
use fake_nvml::{CardState, Scenario};

use crate::bench::cluster::events;
use crate::bench::{Bench, MEMORY, Stderr, part};

#[tokio::test]
async fn unhealthy_gpu_and_its_recovery_are_published() {
    let mut bench = Bench::publishing().await;
    let uid = bench.run(part("4096")).await;
    bench.until_offered([2 * MEMORY, 175, 200]).await;
    let held = bench.given(&uid)[0].0.clone();
    bench.change_scenario(|scenario| scenario.cards.iter_mut().for_each(|card| card.state = CardState::Lost));
    // What is held stays on offer; nothing is free.
    bench.until_offered([4096, 0, 0]).await;
    let told = bench
        .until_told("the cards", |status| status.cards.iter().all(|card| card.health == HealthStatus::Unhealthy))
        .await;
    assert!(told.cards.iter().all(|card| card.reason.is_some()) && told.summary.cards == "0/2", "{told:#?}");
    let said = |reason: &'static str| {
        move |view: &fake_apiserver::View<'_>| Some(events(view, reason)).filter(|all| all.len() == 2)
    };
    let all = bench.until_shown("an event for each card", said("GpuUnhealthy")).await;
    for card in &told.cards {
        let (name, note) = all.iter().find(|(_, note)| note.contains(card.uuid.as_str())).expect("an event names it");
        let pods = u8::from(card.uuid.as_str() == held);
        assert!(name == "node" && note.ends_with(&format!("pods with a share of it: {pods}")), "{note}");
    }
    bench.change_scenario(|scenario| scenario.cards.iter_mut().for_each(|card| card.state = CardState::Present));
    bench.until_offered([2 * MEMORY, 175, 200]).await;
    bench.until_shown("their recovery", said("GpuHealthy")).await;
}

#[tokio::test]
async fn nvlink_clique_is_published_as_feature_discovery_labels_it() {
    let mut bench = Bench::joined().await;
    bench.define();
    bench.change_scenario(|scenario| {
        let fabric = Scenario::gb200_nvl72(0x5f, 7).cards[0].fabric;
        scenario.cards.iter_mut().for_each(|card| card.fabric = fabric);
    });
    bench.start(Stderr::Log).await;
    bench.ready().await;
    let clique = "5f5f5f5f-5f5f-5f5f-5f5f-5f5f5f5f5f5f.7";
    bench.until_told("the clique", |status| status.clique.as_deref() == Some(clique)).await;
    let label = |view: &fake_apiserver::View<'_>| {
        let node = view.get("Node", "", "node")?;
        Some(node["metadata"]["labels"]["nvidia.com/gpu.clique"].as_str()?.to_owned())
    };
    assert_eq!(bench.until_shown("the label", label).await, clique);
    // In several cliques it would be true of some GPUs only.
    bench.change_scenario(|scenario| scenario.cards[0].fabric.as_mut().unwrap().clique = 8);
    bench.until_shown("no label", |view| label(view).is_none().then_some(())).await;
    bench.until_told("no clique", |status| status.clique.is_none()).await;
}

#[tokio::test]
async fn failed_event_is_retried() {
    let mut bench = Bench::publishing().await;
    bench.run(part("4096")).await;
    bench.server().fail("create", "/events", 3, hyper::StatusCode::INTERNAL_SERVER_ERROR);
    bench.change_scenario(|scenario| scenario.cards[0].state = CardState::Lost);
    bench.until_shown("the event", |view| (events(view, "GpuUnhealthy").len() == 1).then_some(())).await;
    assert_eq!(bench.log().matches("create events failed: 500 ").count(), 1, "{}", bench.log());
}
