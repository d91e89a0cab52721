//! The daemon without its sockets: what it decides with, and what its plugin service does between the calls.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use divvy_api::gpunode::{Oversubscription, Scales};
use divvy_api::request::Defaults;
use divvy_api::{Card, Links, Memory, MigInstance, NodeCards, ResourceName, ResourceNames, SlotId, Tier};
use divvy_node::config::{AbsolutePath, DeviceListStrategy, Strategy};
use divvy_node::container::isolation::{Accounting, Isolation};
use divvy_node::container::{ContainerOptions, Containers, limits};
use divvy_node::kubelet::response::response;
use divvy_node_core::allocator::{AllocationSettings, Allocator, Choice, ListRequest, Refusal, lock};
use divvy_node_core::inventory::{DeviceInfo, Inventory, MigPlace};
use divvy_node_core::ledger::Ledger;
use divvy_node_core::pod::{CgroupState, DeviceRecord, Pod, PodList, PodRef};
use divvy_node_core::ports::{CoreMetrics, NodeRecords, PodOrigin, PodSource, PodSourceError};
use divvy_placement::Policy;
use divvy_proto::deviceplugin::ContainerAllocateResponse;
use futures::FutureExt as _;
use proptest::sample::Index;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::shapes::{CARDS, NODE, card, instance};

/// Few, so that they run out.
pub(crate) const SLOTS: u32 = 4;
/// A kubelet that has settled is much older.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// What survives the process.
pub(crate) struct Disk {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) volume_mounts: bool,
    /// How the configuration oversubscribes memory; then the node's tier is `shim`.
    pub(crate) oversubscription: Option<Oversubscription>,
}

/// Tier `shim` as far as the allocator knows it: nothing is enforced.
#[derive(Debug)]
struct Unenforced;

/// The process.
pub(crate) struct Daemon(divvy_node_core::Daemon<ShownPods>);

/// Counts nothing.
#[derive(Debug)]
struct Uncounted;

/// What the kubelet shows just now.
#[derive(Default)]
struct ShownPods(Mutex<Shown>);

/// What the kubelet shows to those who ask it.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    pub(crate) list: PodList,
    pub(crate) settled: bool,
    /// PodResources.
    pub(crate) assigned: Vec<DeviceRecord>,
    /// Pods that it has rejected and that don't look so yet, by UID.
    pub(crate) rejected: HashSet<String>,
    /// The API server's pods of this node, while the list is refused.
    pub(crate) bound: Option<Vec<Arc<Pod>>>,
}

/// A machine's cards: three of one size and a small one, on two sockets, and two instances of another. `differ`: in what is
/// configured for them, too.
pub(crate) fn cards(differ: bool) -> Vec<Card> {
    let memory = |number| Memory::mib(if number == 3 { 600 } else { 1000 });
    let gpu = |number| Card {
        model: "H100".into(),
        numa: Some(number / 2),
        slots: if differ && number == 2 { 2 } else { SLOTS },
        tier: if differ && number == 3 { Tier::Accounting } else { Tier::Shim },
        scales: if differ && number == 1 { Scales { memory: 50, cores: 150 } } else { Scales::WHOLE },
        ..Card::healthy(card(number), memory(number))
    };
    let mig = || MigInstance { profile: "1g.10gb".parse().unwrap(), by_profile: true };
    let instance = |ci| Card { id: instance(ci), memory: Memory::mib(400), mig: Some(mig()), ..gpu(0) };
    (0..CARDS).map(gpu).chain((0..2).map(instance)).collect()
}

// === impl Disk ===

impl Disk {
    fn journal(&self) -> PathBuf {
        self.directory.path().join("state/journal")
    }

    /// Directories of containers, by nonce, with the UID of the pod whose limits are there.
    pub(crate) fn containers(&self) -> Vec<(String, Option<String>)> {
        let container = |path: PathBuf| {
            let limits = fs::read_to_string(path.join("limits/limits")).ok().and_then(|text| limits::read(&text).ok());
            (path.file_name().unwrap().to_str().unwrap().to_owned(), limits.map(|limits| limits.pod_uid))
        };
        let entries = fs::read_dir(self.directory.path().join("run/containers"));
        entries.into_iter().flatten().map(|entry| container(entry.unwrap().path())).collect()
    }

    /// Takes bytes from the journal's last record, all of it at most, as a death while it was written does.
    pub(crate) fn tear(&self, cut: Index) {
        let bytes = fs::read(self.journal()).unwrap();
        // A record begins with a newline and ends with one.
        let begin = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
        fs::write(self.journal(), &bytes[..begin + cut.index(bytes.len() - begin)]).unwrap();
    }

    /// Starts the process.
    pub(crate) fn open(&self) -> Daemon {
        let (ledger, recovery) = Ledger::open(&self.directory.path().join("state")).unwrap();
        assert_eq!(recovery.damaged, [], "a torn record damages no other");
        let settings = AllocationSettings {
            node_name: NODE.to_owned(),
            names: ResourceNames::default(),
            defaults: Defaults::default(),
            policy: Policy::default(),
            accounting_namespaces: BTreeSet::new(),
        };
        let isolation: Box<dyn Isolation> =
            if self.oversubscription.is_some() { Box::new(Unenforced) } else { Box::new(Accounting) };
        let containers = Containers::new(self.options(), isolation);
        let mut allocator = Allocator::new(settings, ledger, Arc::new(containers));
        let node = NodeCards { oversubscription: self.oversubscription, ..NodeCards::default() };
        allocator.set_inventory(Arc::new(Inventory { node: Arc::new(node), ..Inventory::default() }));
        Daemon(divvy_node_core::Daemon::new(
            Arc::new(Mutex::new(allocator)),
            ShownPods::default(),
            Arc::new(Uncounted),
            SETTLE_TIME,
        ))
    }

    fn options(&self) -> ContainerOptions {
        let path = |name: &str| self.directory.path().join(name);
        let strategy = if self.volume_mounts { Strategy::VolumeMounts } else { Strategy::Envvar };
        ContainerOptions {
            run_dir: path("run"),
            device_list_strategy: DeviceListStrategy::These([strategy].into()),
            cdi_dir: path("cdi"),
            host_root: AbsolutePath::new("/"),
            driver_root: AbsolutePath::new("/"),
            nvidia_cdi_hook: path("hook"),
            procfs: "/proc".into(),
        }
    }
}

// === impl Unenforced ===

impl Isolation for Unenforced {
    fn tier(&self) -> Tier {
        Tier::Shim
    }
}

// === impl Daemon ===

impl Daemon {
    pub(crate) fn allocator(&self) -> MutexGuard<'_, Allocator> {
        lock(self.0.allocator())
    }

    pub(crate) fn set_cards(&self, cards: Vec<Card>) {
        let mut allocator = self.allocator();
        let (served, oversubscription) = (allocator.tier(), allocator.oversubscription());
        let found = |(at, card): (u32, Card)| {
            let place = card.mig.as_ref().map(|_| MigPlace { gpu: "GPU-cut".parse().unwrap(), gi: 1, ci: at });
            let minor = Some(if place.is_some() { 0 } else { at });
            (Card { tier: card.tier.min(served), ..card }, DeviceInfo { minor, place, ..DeviceInfo::default() })
        };
        let mut inventory = Inventory::new((0..).zip(cards).map(found), Links::default());
        Arc::make_mut(&mut inventory.node).oversubscription = oversubscription;
        allocator.set_inventory(Arc::new(inventory));
    }

    /// The daemon, in front of a kubelet that shows this.
    fn shown(&self, shown: &Shown) -> &divvy_node_core::Daemon<ShownPods> {
        *self.0.source().0.lock().unwrap() = shown.clone();
        &self.0
    }

    /// What it does before it registers.
    pub(crate) fn recover(&self, shown: &Shown) -> Result<(), Refusal> {
        at_once(self.shown(shown).recover())?;
        self.allocator().remove_stale_directories();
        Ok(())
    }

    pub(crate) fn look(&self, shown: &Shown) -> Result<(), Refusal> {
        match at_once(self.shown(shown).reconcile()) {
            Err(Refusal::Pods(list)) => at_once(self.0.reconcile_unlisted(list)),
            looked => looked.map(drop),
        }
    }

    /// A list that took its time.
    pub(crate) fn look_late(&self, shown: &Shown, request: ListRequest) -> Result<(), Refusal> {
        let mut allocator = self.allocator();
        match &shown.bound {
            None => allocator.reconcile(&shown.list, request, shown.settled, &HashMap::new())?,
            Some(bound) => {
                let gone = allocator.missing(bound).into_iter().filter(|_| shown.settled).collect();
                allocator.reconcile_bound(bound, request, &gone)?
            }
        };
        let ended = allocator.take_ended();
        allocator.containers().remove(ended);
        Ok(())
    }

    pub(crate) fn propose(
        &self,
        resource: &ResourceName,
        shown: &Shown,
        choice: &Choice,
    ) -> Result<Vec<SlotId>, Refusal> {
        at_once(self.shown(shown).propose(resource, choice))
    }

    pub(crate) fn allocate(
        &self,
        resource: &ResourceName,
        shown: &Shown,
        slots: &[SlotId],
    ) -> Result<ContainerAllocateResponse, Refusal> {
        at_once(self.shown(shown).allocate(resource, slots)).map(response)
    }
}

/// The result of work that waits for nothing.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("everything is shown at once")
}

// === impl ShownPods ===

impl ShownPods {
    fn get(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap()
    }
}

impl PodSource for ShownPods {
    async fn kubelet_pods(&self) -> Result<PodList, PodSourceError> {
        let shown = self.get();
        if shown.bound.is_some() {
            Err(PodSourceError::KubeletPods("refused".to_owned()))
        } else {
            Ok(shown.list.clone())
        }
    }

    async fn bound_pods(&self) -> Result<Option<Vec<Arc<Pod>>>, PodSourceError> {
        Ok(self.get().bound.clone())
    }

    async fn device_records(
        &self,
        pods: &[PodRef],
        _: Duration,
    ) -> Result<Vec<Option<Vec<DeviceRecord>>>, PodSourceError> {
        let shown = self.get();
        Ok(pods.iter().map(|pod| shown.records(pod)).collect())
    }

    async fn all_device_records(&self) -> Result<NodeRecords, PodSourceError> {
        Ok(NodeRecords { slots: self.get().assigned.clone(), units: Vec::new() })
    }

    async fn cgroups(&self, _: Vec<String>) -> HashMap<String, CgroupState> {
        HashMap::new()
    }

    async fn watch_cgroups(&self, _: HashSet<String>) {}

    fn kubelet_age(&self) -> Duration {
        if self.get().settled { 1000 * SETTLE_TIME } else { Duration::ZERO }
    }
}

impl CoreMetrics for Uncounted {
    fn identified(&self, _: PodOrigin) {}
}

// === impl Shown ===

impl Shown {
    /// What PodResources' `Get` answers.
    fn records(&self, pod: &PodRef) -> Option<Vec<DeviceRecord>> {
        let is_known = |listed: &Pod| !listed.has_ended() && !self.rejected.contains(&listed.uid);
        let is_known = self.list.pods.iter().any(|listed| listed.has_name_of(pod) && is_known(listed));
        let records = self.assigned.iter().filter(|record| record.pod == pod.name);
        is_known.then(|| records.cloned().collect())
    }

    /// In the order of a Go map.
    pub(crate) fn shuffle(mut self, rng: &mut StdRng) -> Self {
        self.list.pods.shuffle(rng);
        self
    }
}
