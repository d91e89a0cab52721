//! Cards that come and go.

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::node::CARDS;
use divvy_e2e::{containers, pods};
use divvy_testkit::pods::GPU;
use fake_nvml::CardState;

/// New pods keep off a lost card, those on it live on, and it serves again when it is back.
pub(crate) async fn lost_and_returned(cluster: &mut Cluster) -> anyhow::Result<()> {
    const PODS: usize = 20;
    // As many as fit on one card, so all of them do.
    let little = |number: usize| pods::mixed(20 * number);
    cluster.create((0..PODS / 2).map(little)).await?;
    cluster.all_running(PODS / 2).await?;
    let before = cluster.agree().await?;
    let (key, container) = before.running.first_key_value().context("nothing runs")?;
    let lost = container.given.named.values().flatten().next().context("it has no card")?.clone();
    set_state(cluster, &lost, CardState::Lost).await?;
    cluster.restart_container(key).await.context("on the lost card")?;
    cluster.create((PODS / 2..PODS).map(little)).await?;
    cluster.all_running(PODS).await?;
    let look = cluster.agree().await?;
    containers::keep_their_shares(&before.running, &look.running)?;
    let new = look.running.iter().filter(|(key, _)| !before.running.contains_key(*key));
    let on_lost = new.filter(|(_, running)| running.given.named.values().flatten().any(|card| *card == lost)).count();
    ensure!(on_lost == 0, "{on_lost} containers were put on the lost card");
    set_state(cluster, &lost, CardState::Present).await?;
    cluster.agree().await?;
    cluster.clear().await
}

/// Waits until the kubelet shows the slots of the cards that are there as allocatable.
async fn set_state(cluster: &mut Cluster, card: &str, state: CardState) -> anyhow::Result<()> {
    let healthy = CARDS - u32::from(state != CardState::Present);
    cluster.change_cards(|scenario| scenario.card_mut(card).into_iter().for_each(|card| card.state = state))?;
    cluster
        .until(&format!("slots of {healthy} cards"), PATIENCE, async |this| {
            Ok((this.allocatable(GPU).await? == u64::from(healthy) * 32).then_some(()))
        })
        .await
}
