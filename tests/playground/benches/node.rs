//! The daemon's figures (docs/ARCHITECTURE.md, "Figures"): its own part of Allocate, the pod list, registration, memory.
//!
//! Times are p50 and p99 of one run; the machine's speed cancels in ratios only.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use divvy_contract::claim::Defaults;
use divvy_contract::{CardId, Cores, Memory, ResourceNames, SlotId, Tier};
use divvy_node::allocation::{AllocationSettings, Allocator, Choice};
use divvy_node::delivery::{Delivery, DeliveryOptions, Strategy};
use divvy_node::inventory::{CardHealth, CardInfo, Inventory};
use divvy_node::kubelet::client::{KubeletEndpoint, PodList, PodListClient};
use divvy_node::kubelet::pods::PodView;
use divvy_node::kubelet::tls::Trust;
use divvy_node::ledger::Ledger;
use divvy_placement::Policy;
use divvy_playground::binaries::Binaries;
use divvy_playground::cluster::{Node, own_machines};
use divvy_playground::kubelet::{Kubelet, RestartOptions, Workload};

const PODS: usize = 100;
const CARDS: usize = 8;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let directory = tempfile::Builder::new().prefix("divvy-bench-").tempdir()?;
        let binaries = Binaries::get(false).await?;
        println!("{:<58} {:>10} {:>10}   budget", "", "p50", "p99");
        let mut node = start(directory.path(), &binaries).await?;
        fill(&node.kubelet).await?;
        resident(&node)?;
        own_part(directory.path(), &node.kubelet).await?;
        registration(&mut node).await
    })
}

/// A node with eight cards, registered.
async fn start(directory: &Path, binaries: &Binaries) -> anyhow::Result<Node> {
    let machine = own_machines(1, 1).pop().context("one machine")?;
    let mut node = Node::start(machine, 0, directory, binaries, 1, None).await?;
    node.registered(0).await?;
    node.healthy().await?;
    Ok(node)
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
fn resident(node: &Node) -> anyhow::Result<()> {
    let pid = node.daemon.id().context("the daemon is up")?;
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
        trust: Trust::Authorities(kubelet.ca_file()),
        timeout: Duration::from_secs(5),
    })?;
    let mut bench = Bench::new(directory)?;
    let listed = client.list().await?.pods;
    for pod in listed.iter().filter(|pod| pod.name.starts_with("pod-")) {
        bench.admit(&listed, pod)?;
    }

    let like = listed.iter().find(|pod| pod.name == "pod-0").context("pod-0 is listed")?;
    let (mut propose, mut allocate) = (Vec::new(), Vec::new());
    for round in 0..3000 {
        let (proposed, allocated) = bench.admit(&listed, &newcomer(like, round))?;
        propose.push(proposed);
        allocate.push(allocated);
        bench.forget(&listed)?;
    }
    row("GetPreferredAllocation, own part", propose, "");
    row("Allocate, own part", allocate, "p99 ≤ 100 µs");

    let (mut bare, mut whole) = (Vec::new(), Vec::new());
    for round in 0..300 {
        let started = Instant::now();
        client.raw().await?;
        bare.push(started.elapsed());
        let started = Instant::now();
        let list = client.list().await?;
        bench.reconcile(&list)?;
        let asked = started.elapsed();
        let (proposed, allocated) = bench.admit(&list.pods, &newcomer(like, round))?;
        whole.push(asked + proposed + allocated);
        bench.forget(&listed)?;
    }
    let ratio = median(&whole).as_secs_f64() / median(&bare).as_secs_f64();
    row("bare pod list of 100 pods", bare, "");
    row("Allocate with that list (list, decode, reconcile, plan, book)", whole, "");
    println!("{:<58} {ratio:>10.2} {:>10}   ≤ 1.1", "  ratio of the medians, 300 interleaved pairs", "");
    Ok(())
}

/// A pod under admission: listed last, without statuses.
fn newcomer(like: &PodView, number: usize) -> PodView {
    let mut pod = like.clone();
    (pod.uid, pod.name) = (format!("new-{number}"), format!("new-{number}"));
    pod
}

/// An allocator with nothing around it.
struct Bench {
    allocator: Allocator,
    slots: Vec<SlotId>,
    /// Removed at the end.
    _tmpfs: tempfile::TempDir,
}

impl Bench {
    fn new(directory: &Path) -> anyhow::Result<Self> {
        let tmpfs = tempfile::tempdir_in("/dev/shm").context("a tmpfs")?;
        let card = |number: usize| -> anyhow::Result<CardInfo> {
            Ok(CardInfo {
                id: format!("GPU-{number}").parse()?,
                model: "NVIDIA H100 80GB HBM3".to_owned(),
                memory: Memory::mib(81_559),
                pci_bus_id: String::new(),
                minor: None,
                numa: None,
                health: CardHealth::Healthy,
                memory_used: None,
                utilization: None,
            })
        };
        let cards = (0..CARDS).map(card).collect::<anyhow::Result<Vec<_>>>()?;
        let ids: Vec<CardId> = cards.iter().map(|card| card.id.clone()).collect();
        let delivery = Delivery::new(DeliveryOptions {
            // As the default, /run, is.
            run_dir: tmpfs.path().to_owned(),
            device_list_strategy: divvy_node::delivery::Choice::These([Strategy::VolumeMounts].into()),
            cdi_dir: directory.join("cdi"),
            cdi_annotation_prefix: "cdi.k8s.io/".to_owned(),
            nvidia_cdi_hook_path: "/nonexistent".into(),
            driver_root: "/".into(),
            driver_root_ctr_path: "/".into(),
            dev_root: "/".into(),
        });
        let settings = AllocationSettings {
            node_name: "bench".to_owned(),
            names: ResourceNames::default(),
            defaults: Defaults { memory: None, cores: Cores::ZERO },
            slots_per_card: 32,
            memory_scale: 100,
            cores_scale: 100,
            policy: Policy::default(),
            tier: Tier::Accounting,
        };
        let (ledger, _) = Ledger::open(&directory.join("own-ledger"))?;
        let mut allocator = Allocator::new(settings, ledger, delivery);
        allocator.set_inventory(Arc::new(Inventory { cards, ..Inventory::default() }));
        let slots = ids.iter().flat_map(|card| (0..32).map(|number| card.slot(number))).collect();
        Ok(Self { allocator, slots, _tmpfs: tmpfs })
    }

    /// GetPreferredAllocation and Allocate for one pod; how long each took.
    fn admit(&mut self, listed: &[PodView], pod: &PodView) -> anyhow::Result<(Duration, Duration)> {
        // A pod that the books don't know, listed while another is served, counts as passed over.
        let known = |other: &&PodView| self.allocator.ledger().book().pod(&other.uid).is_some();
        let mut pods: Vec<PodView> = listed.iter().filter(known).cloned().collect();
        let mut pod = pod.clone();
        (pod.phase, pod.states) = Default::default();
        pods.push(pod);
        let choice = Choice { available: self.slots.iter().cloned().collect(), required: [].into(), size: 1 };
        let started = Instant::now();
        let slots = self.allocator.propose(&pods, &choice)?;
        let proposed = started.elapsed();
        let started = Instant::now();
        self.allocator.allocate_proposed(&slots).context("the slots were just proposed")??;
        Ok((proposed, started.elapsed()))
    }

    /// Ends what isn't listed.
    fn forget(&mut self, listed: &[PodView]) -> anyhow::Result<()> {
        self.reconcile(&PodList { pods: listed.to_vec(), connection: None })
    }

    /// Hears a list as the daemon does before it decides.
    fn reconcile(&mut self, list: &PodList) -> anyhow::Result<()> {
        let now = self.allocator.ledger().revision();
        self.allocator.reconcile(list, now, true, &HashSet::new())?;
        let over = self.allocator.take_over();
        self.allocator.delivery().remove_all(&over);
        Ok(())
    }
}

/// From the kubelet's socket to our registration, over restarts of the kubelet.
async fn registration(node: &mut Node) -> anyhow::Result<()> {
    for _ in 0..20 {
        let before = node.registrations();
        node.kubelet.restart(RestartOptions { down_for: Duration::from_millis(200), lose_checkpoint: false }).await?;
        node.registered(before).await?;
    }
    let view = node.kubelet.view();
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

fn row(what: &str, mut times: Vec<Duration>, budget: &str) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!("{what:<58} {:>10.1?} {:>10.1?}   {budget}", at(50), at(99));
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2]
}
