//! Containers of a real kubelet and containerd, held to their shares.

use anyhow::{Context as _, bail, ensure};
use divvy_api::container::{LIBRARY, PRELOAD_FILE};
use divvy_api::usage::{ContainerUsage, NodeUsage};
use divvy_e2e::cluster::Cluster;
use divvy_e2e::pages::page;
use serde_json::json;

use crate::guests::{self, Guests};

/// Pods on one card: GiB of its memory, percent of its time.
const PODS: [(&str, u64, u32); 2] = [("small", 8, 25), ("large", 16, 75)];
/// Where the daemon shows usage.
const ADMIN: &str = "127.0.0.1:9404";
/// How often it is measured who works how much, at most: this machine has other work too.
const WINDOWS: usize = 6;
/// How far a part may be off, in percent of the card.
const TOLERANCE: f64 = 4.0;

/// Two pods have the memory that they were promised, to the byte, and of the card's time what they were promised: at first,
/// after daemon and kubelet were killed, and after their own processes were.
pub(crate) async fn two_on_one_card(cluster: &mut Cluster) -> anyhow::Result<()> {
    let guests = Guests::install(cluster).await?;
    let library = guests::library().await?;
    let keys = json!({"tier": "shim", "libdivvyPath": library, "deviceListStrategy": "envvar", "adminAddress": ADMIN});
    cluster.restart_daemon(&keys).await?;
    let pods = PODS.map(|(name, gib, cores)| guests.pod(name, gib, cores));
    cluster.create_objects(pods.into_iter().collect::<anyhow::Result<_>>()?).await?;
    cluster.all_running(PODS.len()).await?;
    let mut tenants = cluster.agree().await?.running;
    tenants.retain(|_, running| running.given.limits.is_some());
    for running in tenants.values() {
        let missing = [LIBRARY, PRELOAD_FILE].into_iter().find(|point| !running.mounts.contains(*point));
        ensure!(missing.is_none(), "{missing:?} isn't mounted: {:?}", running.mounts);
    }
    have_their_memory(&guests, cluster, 0).await?;
    have_their_time(&guests, cluster).await?;
    are_accounted_for(cluster).await?;
    cluster.kill_daemon().await?;
    cluster.kubelet.kill().await?;
    // Nobody says who else is at work: time counts in full, which is never too little.
    let alone = guests.parts(cluster, PODS.map(|(name, ..)| name)).await?;
    let above = alone.iter().zip(PODS).any(|(part, (_, _, cores))| *part > f64::from(cores) + TOLERANCE);
    ensure!(!above, "without a daemon {alone:.1?} of the card's time, promised {PODS:?}");
    println!("  without daemon and kubelet: {alone:.1?} of the card's time");
    cluster.kubelet.start()?;
    cluster.node_ready().await?;
    cluster.start_daemon().await?;
    have_their_time(&guests, cluster).await.context("after daemon and kubelet were killed")?;
    are_accounted_for(cluster).await?;
    for key in tenants.keys() {
        cluster.restart_container(key).await?;
    }
    have_their_memory(&guests, cluster, 1).await?;
    have_their_time(&guests, cluster).await.context("after the containers were killed")?;
    cluster.renew().await
}

/// Programs that preload another allocator are held to their shares too, and have both libraries.
pub(crate) async fn beside_allocators(cluster: &mut Cluster) -> anyhow::Result<()> {
    const GIB: u64 = 4;
    let guests = Guests::install(cluster).await?;
    if guests.allocators.is_empty() {
        println!("  skipped: this machine has neither jemalloc nor tcmalloc");
        return cluster.renew().await;
    }
    let library = guests::library().await?;
    let keys = json!({"tier": "shim", "libdivvyPath": library, "deviceListStrategy": "envvar", "adminAddress": ADMIN});
    cluster.restart_daemon(&keys).await?;
    let mut pods = Vec::new();
    for (at, allocator) in guests.allocators.iter().enumerate() {
        let mut pod = guests.pod(&format!("preloads-{at}"), GIB, 20)?;
        let variables = pod["spec"]["containers"][0]["env"].as_array_mut().context("variables")?;
        variables.push(json!({"name": "LD_PRELOAD", "value": allocator}));
        pods.push(pod);
    }
    let count = pods.len();
    cluster.create_objects(pods).await?;
    cluster.all_running(count).await?;
    cluster.agree().await?;
    for (at, allocator) in guests.allocators.iter().enumerate() {
        let name = format!("preloads-{at}");
        guests.has_memory(cluster, &name, GIB, 0).await?;
        let maps = Guests::maps(cluster, &name)?;
        let missing = [allocator, LIBRARY].into_iter().find(|library| !maps.contains(*library));
        ensure!(missing.is_none(), "{missing:?} isn't loaded:\n{maps}");
        println!("  {name}: {allocator} and {LIBRARY} are both loaded");
    }
    cluster.renew().await
}

async fn have_their_memory(guests: &Guests, cluster: &mut Cluster, life: u32) -> anyhow::Result<()> {
    for (name, gib, _) in PODS {
        guests.has_memory(cluster, name, gib, life).await?;
    }
    Ok(())
}

async fn have_their_time(guests: &Guests, cluster: &Cluster) -> anyhow::Result<()> {
    let mut seen = Vec::new();
    for _ in 0..WINDOWS {
        let parts = guests.parts(cluster, PODS.map(|(name, ..)| name)).await?;
        if parts.iter().zip(PODS).all(|(part, (_, _, cores))| (part - f64::from(cores)).abs() <= TOLERANCE) {
            println!("  {parts:.1?} of the card's time");
            return Ok(());
        }
        seen.push(parts);
    }
    bail!("of the card's time {seen:.1?}, promised {PODS:?}")
}

/// Books, driver and promise say the same, and nobody is reported.
async fn are_accounted_for(cluster: &mut Cluster) -> anyhow::Result<()> {
    let usage = cluster
        .until("pods that are accounted for", std::time::Duration::from_secs(30), async |_| {
            let usage: NodeUsage = serde_json::from_str(&page(ADMIN.parse()?, "usage").await?)?;
            ensure!(usage.containers.len() == PODS.len(), "{usage:?}");
            for ContainerUsage { of, share, region, driver_bytes, .. } in &usage.containers {
                let (held, promised) = (region.map(|region| region.used_bytes), share.memory.as_mib() << 20);
                let agree = held == Some(promised) && *driver_bytes == held;
                ensure!(agree, "{}: {held:?} bytes by its books, {driver_bytes:?} by the driver", of.pod);
            }
            Ok(Some(usage))
        })
        .await?;
    ensure!(usage.findings.is_empty(), "nothing is wrong, and yet: {:?}", usage.findings);
    let processes: Vec<_> = usage.containers.iter().filter_map(|container| Some(container.region?.processes)).collect();
    println!("  books, driver and promises agree; processes: {processes:?}");
    Ok(())
}
