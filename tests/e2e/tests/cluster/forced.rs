//! Pods that are deleted by force: API server and kubelet forget them at once, and their processes run on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::node::CARDS;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::{containers, view};
use divvy_testkit::books;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

/// What the kubelet leaves to processes that ignore its request to end, in seconds.
const GRACE: u64 = 4;
/// After so long a controller has made a refused pod anew.
const AGAIN: Duration = Duration::from_millis(500);
/// A whole card each.
const COUNT: usize = CARDS as usize;

/// What happens to the kubelet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kubelet {
    Runs,
    /// It has listed its pods since it started anew, for a moment.
    HasRestarted,
    /// Down meanwhile: when it is back it never lists the pods.
    IsDown,
}

/// Pods that were deleted, and what was seen since.
struct Deleted {
    uids: BTreeSet<String>,
    at: Instant,
    /// When a process of theirs was last seen, by card.
    lived: BTreeMap<String, Duration>,
    /// When the last of their shares had ended.
    released: Option<Duration>,
    /// Pods that the node refused meanwhile.
    refused: usize,
}

/// However soon new pods come after those deleted by force, no card has two living holders.
pub(crate) async fn replaced_at_once(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.restart_daemon(&json!({})).await?;
    for kubelet in [Kubelet::Runs, Kubelet::HasRestarted, Kubelet::IsDown] {
        let deleted = replace(cluster, kubelet).await.with_context(|| format!("{kubelet:?}"))?;
        let lived: Vec<f32> = deleted.lived.values().map(Duration::as_secs_f32).collect();
        let most = lived.iter().copied().fold(0.0, f32::max);
        let released = deleted.released.unwrap_or_default();
        println!(
            "  kubelet {kubelet:?}: {} cards occupied for {most:.1}s, their shares for {released:.1?}",
            lived.len()
        );
        println!("    {} refused until all run, {:.1?} after the deletion", deleted.refused, deleted.at.elapsed());
        cluster.agree().await?;
        cluster.clear().await?;
    }
    Ok(())
}

/// Fills all cards, deletes those pods by force, and fills the cards again.
async fn replace(cluster: &mut Cluster, kubelet: Kubelet) -> anyhow::Result<Deleted> {
    for number in 0..COUNT {
        cluster.api.create(PODS, &stubborn(&format!("old-{number}"))?).await?;
    }
    cluster.all_running(COUNT).await?;
    let uids = cluster.agree().await?.running.into_keys().map(|(uid, _)| uid).collect();
    if kubelet != Kubelet::Runs {
        cluster.kubelet.kill().await?;
    }
    if kubelet == Kubelet::HasRestarted {
        cluster.kubelet.start()?;
        cluster.daemon_ready().await?;
    }
    cluster.api.delete(PODS).await?;
    let mut deleted = Deleted { uids, at: Instant::now(), lived: BTreeMap::new(), released: None, refused: 0 };
    if kubelet == Kubelet::IsDown {
        cluster.kubelet.start()?;
    }
    let (mut made, mut tried) = (0, None::<Instant>);
    loop {
        deleted.look(cluster).await?;
        let pods = cluster.list().await?;
        if pods.len() == COUNT && pods.iter().all(view::is_ready) {
            return Ok(deleted);
        }
        ensure!(deleted.at.elapsed() < PATIENCE, "not all run: {:?}", view::failures(&pods));
        if tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
            continue;
        }
        tried = Some(Instant::now());
        let failed: Vec<&Value> = pods.iter().filter(|pod| view::is_over(pod)).collect();
        for pod in &failed {
            cluster.api.delete(&format!("{PODS}/{}", view::name(pod))).await?;
        }
        deleted.refused += failed.len();
        for _ in pods.len() - failed.len()..COUNT {
            cluster.api.create(PODS, &stubborn(&format!("new-{made}"))?).await?;
            made += 1;
        }
    }
}

fn stubborn(name: &str) -> anyhow::Result<Value> {
    // A container's first process ignores SIGTERM as long as it doesn't handle it.
    let mut pod = pods::object(PodShape::new(name).with(App, "main", &[("gpu", "1")]))?;
    pod["spec"]["terminationGracePeriodSeconds"] = json!(GRACE);
    Ok(pod)
}

// === impl Deleted ===

impl Deleted {
    /// Fails where a card has two holders that live.
    async fn look(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        let mut running = containers::running(&view::minors(&cluster.scenario)?);
        // Who was found first may have ended when the last one was found.
        running.retain(|_, container| container.lives());
        let mut holders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for ((uid, _), container) in &running {
            for card in container.given.named.values().flatten() {
                holders.entry(card).or_default().insert(uid);
            }
        }
        for (card, uids) in holders {
            ensure!(uids.len() == 1, "{:.1?} after the deletion {card} has holders {uids:?}", self.at.elapsed());
            if uids.iter().any(|uid| self.uids.contains(*uid)) {
                self.lived.insert(card.to_owned(), self.at.elapsed());
            }
        }
        let booked = books::read(cluster.daemon.address).await?;
        if self.released.is_none() && !booked.keys().any(|(pod, ..)| pod.starts_with("default/old-")) {
            self.released = Some(self.at.elapsed());
        }
        Ok(())
    }
}
