//! The daemon's figures (docs/benchmarks.md): its own part of Allocate, the pod list, registration, memory, and a busy disk.
//!
//! With the word `busy` the last part alone. Times are p50 and p99 of one run; the machine's speed cancels in ratios only.

#[path = "node/busy.rs"]
mod busy;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use divvy_node::kubelet::client::{KubeletEndpoint, PodListClient};
use divvy_node::kubelet::tls::Trust;
use divvy_testkit::binaries::Binaries;
use divvy_testkit::daemon::{self, NodeFiles};
use divvy_testkit::outside::SLOTS_PER_CARD;
use divvy_testkit::own_part::{OwnPart, Pairs, median, newcomer, row};
use divvy_testkit::pods::GPU;
use divvy_testkit::process::{Process, own_address};
use fake_kubelet::{Kubelet, KubeletOptions, KubeletView, RestartOptions, Workload};
use fake_nvml::Scenario;

const PODS: usize = 100;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let directory = tempfile::Builder::new().prefix("divvy-bench-").tempdir()?;
        let binaries = Binaries::get(false).await?;
        println!("{:<58} {:>10} {:>10}   budget", "", "p50", "p99");
        // The daemon's journal is on a disk; `runDir` isn't by default, and what the stand-ins write doesn't count.
        let memory = tempfile::tempdir_in("/dev/shm").context("a tmpfs")?;
        let (kubelet, daemon) = start(memory.path(), directory.path(), &binaries).await?;
        fill(&kubelet).await?;
        if !std::env::args().any(|word| word == "busy") {
            resident(&daemon)?;
            own_part(directory.path(), &kubelet).await?;
            registration(&kubelet).await?;
        }
        busy::beside_removal(&kubelet, directory.path(), &memory.path().join("0/run")).await
    })
}

/// A kubelet, and a daemon with eight cards that are all registered.
async fn start(directory: &Path, state: &Path, binaries: &Binaries) -> anyhow::Result<(Kubelet, Process)> {
    let mut files = NodeFiles::new(directory.join("0"));
    files.keys.insert("stateDir".to_owned(), state.join("state").display().to_string().into());
    // A machine that is busy with syncing may keep the stand-in for longer than a node keeps its kubelet.
    files.keys.insert("kubeletTimeout".to_owned(), "30s".into());
    std::fs::create_dir_all(&files.root)?;
    let scenario = Scenario::hgx_h100();
    scenario.write(&files.scenario)?;
    scenario.write_sysfs(&files.root.join("host/sys"))?;
    let kubelet = Kubelet::start(KubeletOptions::new(files.root.join("k"), "node-0", 1)).await?;
    kubelet.add_pod(Workload::new("divvy-node-0").namespace("divvy-system").app("divvy-node", &[]).pod())?;
    let daemon = daemon::start(binaries, &files, &kubelet, (own_address(), 9402).into(), "volume-mounts")?;
    registered(&kubelet, 0).await;
    let slots = scenario.cards.len() * SLOTS_PER_CARD as usize;
    kubelet.wait_until(|view| view.healthy.get(GPU).is_some_and(|ids| ids.len() == slots)).await;
    Ok((kubelet, daemon))
}

/// Waits until the daemon has registered more than `before` times and has listed its slots.
async fn registered(kubelet: &Kubelet, before: usize) {
    let listed = |view: &KubeletView| view.listed.get(GPU).is_some_and(|ids| !ids.is_empty());
    kubelet.wait_until(|view| view.registrations.len() > before && listed(view)).await;
}

fn pod(name: &str) -> Workload {
    let limits = [("nvidia.com/gpu", "1"), ("nvidia.com/gpumem", "4Gi"), ("nvidia.com/gpucores", "7")];
    Workload::new(name).app("main", &limits)
}

/// A hundred pods that hold shares, as the daemon's own admission made them.
async fn fill(kubelet: &Kubelet) -> anyhow::Result<()> {
    for number in 0..PODS {
        let uid = kubelet.add_pod(pod(&format!("pod-{number}")).pod())?;
        kubelet.admitted(&uid).await?;
    }
    kubelet.wait_until(|view| view.pods.values().filter(|pod| pod.containers[0].starts > 0).count() >= PODS).await;
    Ok(())
}

/// Resident memory of the real process, from /proc.
fn resident(daemon: &Process) -> anyhow::Result<()> {
    let pid = daemon.id().context("the daemon is up")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = |field: &str| -> Option<f64> {
        let line = status.lines().find(|line| line.starts_with(field))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| kib / 1024.0)
    };
    let (now, peak) = (value("VmRSS:").context("VmRSS")?, value("VmHWM:").context("VmHWM")?);
    println!("{:<58} {now:>6.1} MiB {peak:>6.1} MiB   ≤ 15 MiB", "resident with 8 cards and 100 pods (now, highest)");
    Ok(())
}

/// The allocator in this process, over the kubelet's real list: what Allocate costs beside asking for that list.
async fn own_part(directory: &Path, kubelet: &Kubelet) -> anyhow::Result<()> {
    let client = PodListClient::new(KubeletEndpoint {
        url: format!("https://{}", kubelet.address()),
        token_file: kubelet.token_file(),
        trust: Trust { authorities: kubelet.ca_file(), certificate: kubelet.certificate_file() },
        timeout: Duration::from_secs(5),
    })?;
    let mut own = OwnPart::new(directory)?;
    let listed = client.list().await?.pods;
    for pod in listed.iter().filter(|pod| pod.name.starts_with("pod-")) {
        own.admit(&listed, pod)?;
    }

    let like = listed.iter().find(|pod| pod.name == "pod-0").context("pod-0 is listed")?;
    let (mut propose, mut allocate) = (Vec::new(), Vec::new());
    for round in 0..3000 {
        let (proposed, allocated) = own.admit(&listed, &newcomer(like, round))?;
        propose.push(proposed);
        allocate.push(allocated);
        own.forget(&listed)?;
    }
    row("GetPreferredAllocation, own part", propose, "");
    row("Allocate, own part", allocate, "p99 ≤ 100 µs");

    let Pairs { bare, whole } = own.pairs(&client, like).await?;
    let ratio = median(&whole).as_secs_f64() / median(&bare).as_secs_f64();
    row("bare pod list of 100 pods", bare, "");
    row("Allocate with that list (list, decode, reconcile, plan, book)", whole, "");
    println!("{:<58} {ratio:>10.2} {:>10}   ≤ 1.1", "  ratio of the medians, 300 interleaved pairs", "");
    Ok(())
}

/// From the kubelet's socket to our registration, over restarts of the kubelet.
async fn registration(kubelet: &Kubelet) -> anyhow::Result<()> {
    for _ in 0..20 {
        let before = kubelet.view().registrations.len();
        kubelet.restart(RestartOptions { down_for: Duration::from_millis(200), lose_checkpoint: false }).await?;
        registered(kubelet, before).await;
    }
    let view = kubelet.view();
    let boots = view.boots.iter().skip(1);
    let after = |boot: &Instant| view.registrations.iter().map(|r| r.connected).find(|at| at >= boot);
    let mut times: Vec<Duration> = boots.filter_map(|boot| Some(after(boot)? - *boot)).collect();
    times.sort_unstable();
    let p95 = times[times.len() * 95 / 100 - 1];
    let (count, p50) = (times.len(), median(&times));
    println!(
        "{:<58} {p50:>10.1?} {p95:>10.1?}   p95 ≤ 20 ms",
        format!("registered after kubelet.sock returned ({count} restarts; p95)")
    );
    Ok(())
}
