//! The allocator in this process, over a kubelet's real list: what Allocate costs beside asking for that list.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use divvy_api::config::SLOTS_PER_CARD;
use divvy_api::request::Defaults;
use divvy_api::{Card, CardId, Cores, Links, Memory, ResourceNames, SlotId};
use divvy_node::config::{AbsolutePath, DeviceListStrategy, Strategy};
use divvy_node::container::isolation::Accounting;
use divvy_node::container::{ContainerOptions, Containers};
use divvy_node::kubelet::client::PodListClient;
use divvy_node_core::allocator::{AllocationSettings, Allocator, Choice};
use divvy_node_core::inventory::{DeviceInfo, Inventory};
use divvy_node_core::ledger::Ledger;
use divvy_node_core::pod::{Pod, PodList};
use divvy_placement::Policy;

const CARDS: usize = 8;

/// Times of the same rounds.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// The request for the pod list, not decoded.
    pub bare: Vec<Duration>,
    /// List, decode, reconcile, plan, book.
    pub whole: Vec<Duration>,
}

/// An allocator with nothing around it.
#[derive(Debug)]
pub struct OwnPart {
    allocator: Allocator,
    slots: Vec<SlotId>,
    /// Removed at the end.
    _tmpfs: tempfile::TempDir,
}

// === impl OwnPart ===

impl OwnPart {
    /// An allocator whose journal lies in `directory`.
    pub fn new(directory: &Path) -> anyhow::Result<Self> {
        let tmpfs = tempfile::tempdir_in("/dev/shm").context("a tmpfs")?;
        let card = |number: usize| -> anyhow::Result<(Card, DeviceInfo)> {
            let card = Card {
                model: "NVIDIA H100 80GB HBM3".into(),
                slots: SLOTS_PER_CARD,
                ..Card::healthy(format!("GPU-{number}").parse()?, Memory::mib(81_559))
            };
            Ok((card, DeviceInfo::default()))
        };
        let cards = (0..CARDS).map(card).collect::<anyhow::Result<Vec<_>>>()?;
        let ids: Vec<CardId> = cards.iter().map(|(card, _)| card.id.clone()).collect();
        let delivery = Containers::new(
            ContainerOptions {
                // As the default, /run, is.
                run_dir: tmpfs.path().to_owned(),
                device_list_strategy: DeviceListStrategy::These([Strategy::VolumeMounts].into()),
                cdi_dir: directory.join("cdi"),
                host_root: AbsolutePath::new("/"),
                driver_root: AbsolutePath::new("/"),
                nvidia_cdi_hook: "/nonexistent".into(),
                procfs: "/proc".into(),
            },
            Box::new(Accounting),
        );
        let settings = AllocationSettings {
            node_name: "bench".to_owned(),
            names: ResourceNames::default(),
            defaults: Defaults { memory: None, cores: Cores::ZERO },
            policy: Policy::default(),
            accounting_namespaces: BTreeSet::new(),
        };
        let (ledger, _) = Ledger::open(&directory.join("own-ledger"))?;
        let mut allocator = Allocator::new(settings, ledger, Arc::new(delivery));
        allocator.set_inventory(Arc::new(Inventory::new(cards, Links::default())));
        let slots = ids.iter().flat_map(|card| (0..SLOTS_PER_CARD).map(|number| card.slot(number))).collect();
        Ok(Self { allocator, slots, _tmpfs: tmpfs })
    }

    /// GetPreferredAllocation and Allocate for one pod; how long each took.
    pub fn admit(&mut self, listed: &[Arc<Pod>], pod: &Pod) -> anyhow::Result<(Duration, Duration)> {
        // A pod that the ledger doesn't know, listed while another is served, counts as passed over.
        let known = |other: &&Arc<Pod>| self.allocator.ledger().allocations().pod(&other.uid).is_some();
        let mut pods: Vec<Arc<Pod>> = listed.iter().filter(known).cloned().collect();
        let mut pod = pod.clone();
        (pod.phase, pod.states) = Default::default();
        pods.push(Arc::new(pod));
        let choice = Choice { available: self.slots.iter().cloned().collect(), required: [].into(), size: 1 };
        let started = Instant::now();
        let slots = self.allocator.propose(&ResourceNames::default().count, &pods, &choice)?;
        let proposed = started.elapsed();
        let started = Instant::now();
        self.allocator.allocate_proposed(&slots).context("the slots were just proposed")??;
        Ok((proposed, started.elapsed()))
    }

    /// Ends what isn't listed.
    pub fn forget(&mut self, listed: &[Arc<Pod>]) -> anyhow::Result<()> {
        self.reconcile(&PodList { pods: listed.to_vec(), connection: None })
    }

    /// Reconciles with a list as the daemon does before it decides.
    pub fn reconcile(&mut self, list: &PodList) -> anyhow::Result<()> {
        let now = self.allocator.begin_list();
        self.allocator.reconcile(list, now, true, &HashMap::new())?;
        let ended = self.allocator.take_ended();
        self.allocator.containers().remove(ended);
        Ok(())
    }

    /// Times the bare pod list against everything that a pod like `like` takes, in turns.
    pub async fn pairs(&mut self, client: &PodListClient, like: &Pod) -> anyhow::Result<Pairs> {
        let listed = client.list().await?.pods;
        let (mut bare, mut whole) = (Vec::new(), Vec::new());
        for round in 0..300 {
            let started = Instant::now();
            client.raw().await?;
            bare.push(started.elapsed());
            let started = Instant::now();
            let list = client.list().await?;
            self.reconcile(&list)?;
            let asked = started.elapsed();
            let (proposed, allocated) = self.admit(&list.pods, &newcomer(like, round))?;
            whole.push(asked + proposed + allocated);
            self.forget(&listed)?;
        }
        Ok(Pairs { bare, whole })
    }
}

/// A pod under admission: listed last, without statuses.
pub fn newcomer(like: &Pod, number: usize) -> Pod {
    let mut pod = like.clone();
    (pod.uid, pod.name) = (format!("new-{number}"), format!("new-{number}"));
    pod
}

/// Prints p50 and p99.
pub fn row(what: &str, mut times: Vec<Duration>, budget: &str) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!("{what:<58} {:>10.1?} {:>10.1?}   {budget}", at(50), at(99));
}

/// The median.
pub fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2]
}
