//! A node without processes: its allocator, and the kubelet's side of every call.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use divvy_api::annotation::PolicyName;
use divvy_api::request::Defaults;
use divvy_api::{
    ContainerKind, ContainerRequest, ContainerSpec, GpuRequest, Memory, ResourceNames, Share, SlotId, Tier,
};
use divvy_placement::{Link, Links, Policy};
use divvy_proto::deviceplugin::ContainerAllocateResponse;

use crate::allocation::{AllocationSettings, Allocator, Choice, Refusal};
use crate::config::{DeviceListStrategy, Strategy};
use crate::container::isolation::tests::{mps, shim};
use crate::container::isolation::{Accounting, Isolation, Mig};
use crate::container::{ContainerOptions, Containers, LIMITS_FILE, Limits};
use crate::inventory::{CardHealth, CardInfo, Inventory, MigInstance};
use crate::kubelet::client::PodList;
use crate::kubelet::pods::{ContainerState, Phase, PodView};
use crate::ledger::{Holding, Ledger, Nonce, Origin, Part, Terms};

/// MiB of each card.
const MEMORY: u64 = 1000;
/// Of each card.
const SLOTS: u32 = 4;
/// The node's name in plans.
pub(super) const NODE: &str = "node";

/// All of it.
pub(super) struct Node {
    pub(super) allocator: Allocator,
    /// What the kubelet lists.
    pub(super) pods: Vec<Arc<PodView>>,
    /// Slots that the kubelet has on record for nobody.
    free: BTreeSet<SlotId>,
    cards: Vec<CardInfo>,
    pub(super) directory: tempfile::TempDir,
}

/// A pod that has just come, with app containers `c0`, `c1` and so on, and their limits without `nvidia.com/`.
pub(super) fn pod(name: &str, containers: &[&[(&str, &str)]]) -> Arc<PodView> {
    let container = |(index, limits): (usize, &&[(&str, &str)])| ContainerSpec {
        name: format!("c{index}"),
        kind: ContainerKind::App,
        index,
        limits: limits.iter().map(|(name, amount)| (format!("nvidia.com/{name}"), (*amount).to_owned())).collect(),
    };
    Arc::new(PodView {
        uid: format!("uid-{name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        annotations: BTreeMap::new(),
        containers: containers.iter().enumerate().map(container).collect(),
        phase: Phase::Pending,
        states: BTreeMap::new(),
    })
}

/// A pod with so many MiB of one card.
pub(super) fn part(name: &str, mib: &str) -> Arc<PodView> {
    pod(name, &[&[("gpu", "1"), ("gpumem", mib)]])
}

pub(super) fn annotated(mut pod: Arc<PodView>, key: &str, value: impl Into<String>) -> Arc<PodView> {
    Arc::make_mut(&mut pod).annotations.insert(key.to_owned(), value.into());
    pod
}

pub(super) fn slot(name: &str) -> SlotId {
    name.parse().expect("a slot")
}

/// Cards of slots, such as `GPU-0`.
pub(super) fn cards(slots: &[SlotId]) -> Vec<String> {
    slots.iter().map(|slot| slot.card.to_string()).collect()
}

fn card(number: u32) -> CardInfo {
    CardInfo {
        id: format!("GPU-{number}").parse().expect("a UUID"),
        model: "NVIDIA L4".to_owned(),
        memory: Memory::mib(MEMORY),
        pci_bus_id: String::new(),
        minor: Some(number),
        numa: None,
        mig: None,
        health: CardHealth::Healthy,
        memory_used: None,
        utilization: None,
        processes: None,
    }
}

fn settings(policy: PolicyName) -> AllocationSettings {
    AllocationSettings {
        node_name: NODE.to_owned(),
        names: ResourceNames::default(),
        defaults: Defaults::default(),
        slots_per_card: SLOTS,
        memory_scale: 100,
        cores_scale: 100,
        policy: Policy { name: policy, ..Policy::default() },
    }
}

fn delivery(root: &Path, enforcement: Box<dyn Isolation>) -> Containers {
    Containers::new(
        ContainerOptions {
            run_dir: root.join("run"),
            device_list_strategy: DeviceListStrategy::These([Strategy::VolumeMounts].into()),
            cdi_dir: root.join("cdi"),
            cdi_annotation_prefix: "cdi.k8s.io/".to_owned(),
            nvidia_cdi_hook_path: root.join("hook"),
            driver_root: "/".into(),
            driver_root_ctr_path: "/".into(),
            dev_root: "/".into(),
            procfs: "/proc".into(),
        },
        enforcement,
    )
}

// === impl Node ===

impl Node {
    /// So many empty cards, `GPU-0` and on.
    pub(super) fn new(cards: u32, policy: PolicyName) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(&directory.path().join("state")).expect("an empty ledger");
        let allocator = Allocator::new(settings(policy), ledger, delivery(directory.path(), Box::new(Accounting)));
        let cards: Vec<CardInfo> = (0..cards).map(card).collect();
        let mut node = Self { allocator, pods: Vec::new(), free: BTreeSet::new(), cards, directory };
        node.forget();
        node.show_cards();
        node
    }

    /// Its GPUs are instances of the plain count with so many MiB each, `MIG-0` and on, as long as there are amounts.
    pub(super) fn cut(&mut self, mib: &[u64]) {
        for (number, (card, mib)) in self.cards.iter_mut().zip(mib).enumerate() {
            let (profile, parent) = ("1g.10gb".parse().expect("a profile"), card.id.clone());
            card.mig = Some(MigInstance { profile, parent, gi: 1, ci: 0, by_profile: false });
            card.id = format!("MIG-{number}").parse().expect("a UUID");
            card.memory = Memory::mib(*mib);
        }
        self.forget();
        self.show_cards();
    }

    fn show_cards(&mut self) {
        let links = Links::new(self.cards.len(), |_, _| Link::System);
        let inventory = Inventory { cards: self.cards.clone(), links, ..Inventory::default() };
        self.allocator.set_inventory(Arc::new(inventory));
    }

    pub(super) fn set_health(&mut self, card: usize, health: CardHealth) {
        self.cards[card].health = health;
        self.show_cards();
    }

    /// The kubelet has restarted, and its checkpoint is lost.
    pub(super) fn lose_checkpoint(&mut self) {
        self.allocator.begin_session();
        self.forget();
    }

    /// The next daemon, which serves this tier.
    pub(super) fn restart(&mut self, tier: Tier) {
        // Only one can have the books open.
        self.lose_journal();
        self.start("state", tier);
        self.allocator.renew();
    }

    /// A daemon that finds no journal; the directories are still there.
    pub(super) fn lose_journal(&mut self) {
        self.lose_journal_and_serve(Tier::Accounting);
    }

    /// The same; it serves this tier.
    pub(super) fn lose_journal_and_serve(&mut self, tier: Tier) {
        self.start("another-state", tier);
    }

    /// A daemon with these books, of this tier.
    fn start(&mut self, state: &str, tier: Tier) {
        let root = self.directory.path().to_owned();
        let enforcement: Box<dyn Isolation> = match tier {
            Tier::Accounting => Box::new(Accounting),
            Tier::Shim => shim(&root.join("run"), "library"),
            Tier::Mps => mps(&root.join("run"), "library"),
            Tier::Mig => Box::new(Mig),
        };
        let (ledger, _) = Ledger::open(&root.join(state)).expect("the books");
        self.allocator = Allocator::new(settings(PolicyName::Binpack), ledger, delivery(&root, enforcement));
        self.show_cards();
    }

    fn forget(&mut self) {
        self.free = self.cards.iter().flat_map(|card| (0..SLOTS).map(|number| card.id.slot(number))).collect();
    }

    // --- calls ---

    pub(super) fn propose(&mut self, size: usize) -> Result<Vec<SlotId>, Refusal> {
        let choice = Choice { available: self.free.clone(), required: BTreeSet::new(), size };
        self.allocator.propose(&ResourceNames::default().count, &self.pods, &choice)
    }

    /// Allocate as the plugin service does it, for a container that was never served.
    pub(super) fn allocate(&mut self, slots: &[SlotId]) -> Result<ContainerAllocateResponse, Refusal> {
        let proposed = self.allocator.allocate_proposed(slots);
        let answer =
            proposed.unwrap_or_else(|| self.allocator.allocate(&ResourceNames::default().count, &self.pods, slots))?;
        self.free.retain(|slot| !slots.contains(slot));
        Ok(answer)
    }

    /// Both calls; answers the cards.
    pub(super) fn serve(&mut self, size: usize) -> Result<Vec<String>, Refusal> {
        let slots = self.propose(size)?;
        self.allocate(&slots)?;
        Ok(cards(&slots))
    }

    /// Reads a whole list of the pods that there are.
    pub(super) fn look(&mut self) {
        let asked = self.allocator.ask();
        let list = PodList { pods: self.pods.clone(), connection: None };
        self.allocator.reconcile(&list, asked, true, &HashMap::new()).expect("written");
    }

    // --- books and disk ---

    /// A share of another pod, which runs and was never admitted here.
    pub(super) fn book(&mut self, name: &str, slot: &SlotId, mib: u64) {
        let pod = pod(name, &[&[]]);
        let request = GpuRequest::whole(1);
        let request = ContainerRequest {
            name: "c0".to_owned(),
            kind: ContainerKind::App,
            request: Some(request),
            profile: None,
            counted: request.totals(),
        };
        let share = Share { memory: Memory::mib(mib), ..Share::default() };
        let part = Part { card: slot.card.clone(), slot: Some(slot.number), lost: None, share };
        let holding =
            Holding { nonce: Nonce::random(), parts: vec![part], origin: Origin::Restored, terms: Terms::default() };
        self.allocator.ledger.allocate(&pod.reference(), &[request], "c0", holding).expect("written");
        self.free.remove(slot);
        let states = [("c0".to_owned(), ContainerState::Running)].into();
        self.pods.push(Arc::new(PodView { phase: Phase::Running, states, ..(*pod).clone() }));
    }

    pub(super) fn holding(&self, pod: &str, container: &str) -> Option<&Holding> {
        self.allocator.ledger().book().pod(&format!("uid-{pod}"))?.holding(container)
    }

    /// Cards and MiB that the container holds.
    pub(super) fn held(&self, pod: &str, container: &str) -> Vec<(String, u64)> {
        let parts = self.holding(pod, container).map_or(&[][..], |holding| &holding.parts);
        parts.iter().map(|part| (part.card.to_string(), part.share.memory.as_mib())).collect()
    }

    /// What the container reads of its limits.
    pub(super) fn written(&self, pod: &str, container: &str) -> Limits {
        let text = std::fs::read_to_string(self.limits(pod, container)).expect("limits");
        text.parse().expect("whole ones")
    }

    /// Where the container's limits lie.
    pub(super) fn limits(&self, pod: &str, container: &str) -> PathBuf {
        let nonce = self.holding(pod, container).expect("held").nonce;
        self.directory.path().join(format!("run/containers/{nonce}/limits")).join(LIMITS_FILE)
    }
}
