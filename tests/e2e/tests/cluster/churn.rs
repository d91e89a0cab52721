//! Many short lives.

use std::time::{Duration, Instant};

use anyhow::ensure;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::pods::{self, JOBS, PODS};
use divvy_e2e::{runner, view};
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use serde_json::json;

use crate::bursts::{say, say_pods};

/// Pods that may live at a time.
const MOST: usize = 60;

/// Whatever comes and goes, no card is ever overfilled; at the end nothing is left over.
pub(crate) async fn pods_and_jobs(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.restart_daemon(&json!({})).await?;
    let (end, mut number) = (Instant::now() + runner::seconds("DIVVY_E2E_CHURN", 60), 0);
    let mut looked = Instant::now();
    while Instant::now() < end {
        let living = cluster.list().await?;
        match rand::rng().random_range(0..100) {
            0..45 if living.len() < MOST => cluster.create([pods::mixed(number)]).await?,
            0..70 if living.len() < MOST => {
                cluster.api.create(JOBS, &pods::job(pods::mixed(number))?).await?;
            }
            _ => {
                if let Some(pod) = living.choose(&mut rand::rng()) {
                    cluster.api.delete(&format!("{PODS}/{}", view::name(pod))).await?;
                }
            }
        }
        number += 1;
        if looked.elapsed() > Duration::from_secs(2) {
            cluster.sound().await?;
            looked = Instant::now();
        }
        // The rate of the churn.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let pods = cluster.all_settled(0).await?;
    println!("  {number} steps");
    say_pods(&pods);
    cluster.agree().await?;
    let calls = cluster.calls().await?;
    say(&calls);
    // So few pods always fit: what is full is full of shares that should have ended.
    let no_fit = calls.keys().find(|(_, outcome)| outcome == "no-fit");
    ensure!(no_fit.is_none(), "pods didn't fit: {calls:?}");
    cluster.clear().await
}
