//! MIG instances, asked for by their profile.

use anyhow::ensure;
use divvy_api::ContainerKind::{App, Init};
use divvy_e2e::cluster::{Cluster, Look};
use divvy_e2e::node::CARDS;
use divvy_e2e::{containers, view};
use divvy_testkit::outside::SLOTS_PER_CARD;
use divvy_testkit::pods::{GPU, PodShape};
use fake_nvml::MigScenario;
use serde_json::json;

const SMALL: &str = "nvidia.com/mig-1g.10gb";
const MIDDLE: &str = "nvidia.com/mig-2g.20gb";
const LARGE: &str = "nvidia.com/mig-3g.40gb";
const SLOTS: u64 = SLOTS_PER_CARD as u64;

/// Scheduler, kubelet and daemon count instances of each profile, parts of them are given like parts of cards, and a card
/// that is cut anew serves with what it has then.
pub(crate) async fn given_by_profile(cluster: &mut Cluster) -> anyhow::Result<()> {
    cut(cluster, &[("1g.10gb", 10 << 30), ("1g.10gb", 10 << 30), ("3g.40gb", 40 << 30)])?;
    cluster.restart_daemon(&json!({"migStrategy": "mixed"})).await?;
    offers(cluster, &[(GPU, u64::from(CARDS) - 1), (SMALL, 2), (LARGE, 1)]).await?;
    let part: &[(&str, &str)] = &[("mig-1g.10gb", "1"), ("gpumem", "2Gi"), ("gpucores", "20")];
    let pod = |name: &str| PodShape::new(name);
    let pods = [
        pod("small").with(App, "main", &[("mig-1g.10gb", "1")]),
        pod("large").with(App, "main", &[("mig-3g.40gb", "1")]),
        pod("card").with(App, "main", &[("gpu", "1")]),
        pod("part").with(App, "main", part),
        pod("percent").with(App, "main", &[("mig-1g.10gb", "1"), ("gpumem-percentage", "25")]),
        pod("both")
            .with(Init, "warm-up", part)
            .with(App, "main", &[("gpu", "1"), ("gpumem", "4Gi")])
            .with(App, "beside", part),
    ];
    cluster.create(pods).await?;
    cluster.all_running(6).await?;
    let before = cluster.agree().await?;
    ensure!(on_instances(&before) == 5, "{} containers have an instance, 5 should", on_instances(&before));
    cluster.create([pod("many").with(App, "main", &[("mig-1g.10gb", "65")])]).await?;
    let said = cluster.until_pod("many", view::unschedulable).await?;
    println!("  scheduler: {said}");
    ensure!(said.contains(&format!("Insufficient {SMALL}")), "the scheduler says: {said}");
    cluster.api.delete("/api/v1/namespaces/default/pods/many").await?;
    cluster.restart_kubelet().await?;
    cluster.create([pod("later").with(App, "main", part)]).await?;
    cluster.all_running(7).await?;
    cluster.kill_daemon().await?;
    cluster.start_daemon().await?;
    cluster.amounts_ready_beside_pods().await?;
    let look = cluster.agree().await?;
    containers::keep_their_shares(&before.running, &look.running)?;
    println!(
        "  {} containers on instances of two profiles, as before kubelet and daemon were killed",
        on_instances(&look)
    );
    cluster.end_pods().await?;
    cut(cluster, &[("2g.20gb", 20 << 30), ("2g.20gb", 20 << 30)])?;
    offers(cluster, &[(SMALL, 0), (LARGE, 0), (MIDDLE, 2)]).await?;
    let anew = [pod("anew").with(App, "main", &[("mig-2g.20gb", "2"), ("gpumem", "8Gi")])];
    cluster.create(anew.into_iter().chain([pod("whole").with(App, "main", &[("gpu", "1")])])).await?;
    cluster.all_running(2).await?;
    cluster.agree().await?;
    cluster.renew().await
}

/// Instances made anew have names of their own.
fn cut(cluster: &mut Cluster, profiles: &[(&str, u64)]) -> anyhow::Result<()> {
    cluster.change_cards(|scenario| {
        let mut mig = MigScenario::cut(profiles);
        for (number, instance) in mig.instances.iter_mut().enumerate() {
            instance.uuid = Some(format!("MIG-{}-{number}", instance.profile.replace('.', "-")));
        }
        scenario.cards[0].mig = Some(mig);
    })
}

/// Waits until the kubelet offers slots of so many cards of each resource.
async fn offers(cluster: &mut Cluster, cards: &[(&str, u64)]) -> anyhow::Result<()> {
    for (resource, count) in cards {
        cluster.until_allocatable(resource, count * SLOTS).await?;
    }
    Ok(())
}

fn on_instances(look: &Look) -> usize {
    let cards = look.running.values().map(|running| running.given.named.values().flatten());
    cards.filter(|cards| cards.clone().any(|card| card.starts_with("MIG-"))).count()
}
