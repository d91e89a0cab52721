//! How long a pod takes from its creation until it is bound, where pods come one after another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::pods::{self, PODS};
use divvy_runtime::api_server;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::fleet::{self, Fleet, LONG};
use crate::rounds::{self, WAYS};

/// Pods a second, and pods.
const PACES: [(u32, usize); 2] = [(1, 20), (50, 500)];

/// When a watch has shown each pod bound, by name.
type Bound = Arc<Mutex<HashMap<String, Instant>>>;

/// Each way at each pace once a round; prints percentiles of all rounds.
pub(super) async fn compare(cluster: &mut Cluster, fleet: &mut Fleet, rounds: usize) -> anyhow::Result<()> {
    let (_watch, bound) = watch(cluster).await?;
    let mut waited: Vec<[Vec<Duration>; 2]> = WAYS.iter().map(|_| Default::default()).collect();
    for round in 0..rounds {
        for (variant, waited) in WAYS.iter().zip(&mut waited) {
            rounds::prepare(cluster, variant).await?;
            rounds::probe(cluster, fleet).await?;
            for ((pace, pods), waited) in PACES.into_iter().zip(waited) {
                let name = format!("paced-{pace}");
                waited.extend(
                    run(cluster, &bound, &name, (pace, pods))
                        .await
                        .with_context(|| format!("round {round}, {}, {pace} pods a second", variant.name()))?,
                );
                let first = fleet.counted().await?;
                fleet::delete(cluster, (0..pods).map(|number| format!("{name}-{number}"))).await?;
                fleet.until(cluster, "pods that have all ended", |counted| counted.ended >= first.ended + pods).await?;
                rounds::quiet(cluster, fleet).await?;
                lock(&bound).clear();
            }
        }
    }
    for (variant, waited) in WAYS.iter().zip(&mut waited) {
        for ((pace, _), waited) in PACES.into_iter().zip(waited) {
            waited.sort();
            let at = |percent: usize| waited[(waited.len() * percent).div_ceil(100).saturating_sub(1)].as_millis();
            println!(
                "  {}, {pace} pods a second, {} pods: creation to bound, ms: p50 {}, p99 {}, most {}",
                variant.name(),
                waited.len(),
                at(50),
                at(99),
                at(100)
            );
        }
    }
    Ok(())
}

/// Creates pods at this pace, and waits until all are bound.
async fn run(
    cluster: &mut Cluster,
    bound: &Bound,
    name: &str,
    (pace, pods): (u32, usize),
) -> anyhow::Result<Vec<Duration>> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / pace);
    let (mut created, mut creations) = (HashMap::new(), JoinSet::new());
    for number in 0..pods {
        ticks.tick().await;
        let shape = fleet::pod(name, number);
        let (api, pod) = (cluster.api.clone(), pods::object(shape)?);
        created.insert(format!("{name}-{number}"), Instant::now());
        creations.spawn(async move { api.create(PODS, &pod).await });
    }
    creations.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    cluster
        .until("pods that are all bound", LONG, async |_| {
            let bound = lock(bound);
            Ok(created.keys().all(|name| bound.contains_key(name)).then_some(()))
        })
        .await?;
    let bound = lock(bound);
    Ok(created.iter().map(|(name, created)| bound[name].duration_since(*created)).collect())
}

async fn watch(cluster: &Cluster) -> anyhow::Result<(AbortOnDropHandle<()>, Bound)> {
    let kubeconfig = cluster.files.at("admin.kubeconfig");
    let client = api_server::connect(Some(&kubeconfig)).await?.context("no API server")?.client;
    let (pods, bound) = (Api::<Pod>::namespaced(client, "default"), Bound::default());
    let seen = Arc::clone(&bound);
    let watch = tokio::spawn(async move {
        let events = watcher(pods, watcher::Config::default()).default_backoff().applied_objects();
        let is_bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let bound = events.into_stream().filter_map(async |pod| pod.ok().filter(is_bound));
        bound.for_each(async |pod| _ = lock(&seen).entry(pod.name_any()).or_insert_with(Instant::now)).await;
    });
    Ok((AbortOnDropHandle::new(watch), bound))
}

fn lock(bound: &Bound) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
    bound.lock().unwrap_or_else(PoisonError::into_inner)
}
