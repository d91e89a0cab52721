//! One node: the daemon's allocator, and the kubelet's side of its calls.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use divvy_api::annotation::PolicyName;
use divvy_api::request::Defaults;
use divvy_api::{Card, CardId, Links, Memory, ResourceNames, Share, SlotId, Tier};
use divvy_node_core::allocator::{AllocationSettings, Allocator, Choice, SharedAllocator, lock};
use divvy_node_core::inventory::{DeviceInfo, Driver, Inventory};
use divvy_node_core::ledger::reconcile::FoundContainer;
use divvy_node_core::ledger::{Ledger, Nonce};
use divvy_node_core::pod::{CgroupState, Pod, PodList};
use divvy_node_core::ports::{AllocatedContainer, ContainerResponse, ContainerSetup, SetupError};
use divvy_placement::Policy;

/// GPUs of each node.
pub(crate) const CARDS: usize = 8;
/// MiB of each GPU.
pub(crate) const MEMORY: u64 = 80 * 1024;
/// Device IDs of each GPU.
pub(crate) const SLOTS: u32 = 32;

/// A node without processes.
#[derive(Debug)]
pub(super) struct Node {
    /// The daemon's.
    pub(super) allocator: SharedAllocator,
    /// The kubelet's list.
    pods: Vec<Arc<Pod>>,
}

/// Containers that nobody runs.
#[derive(Debug)]
struct Nothing;

fn inventory(name: &str) -> anyhow::Result<Inventory> {
    let card = |number: usize| {
        let id: CardId = format!("GPU-{name}-{number}").parse().context("UUID of a GPU")?;
        let model = "NVIDIA H100 80GB HBM3".into();
        let card = Card { model, slots: SLOTS, tier: Tier::Shim, ..Card::healthy(id, Memory::mib(MEMORY)) };
        anyhow::Ok((card, DeviceInfo::default()))
    };
    let cards: Vec<_> = (0..CARDS).map(card).collect::<Result<_, _>>()?;
    let driver = Driver { version: "580.95.05".to_owned(), cuda: Some("13.0".to_owned()) };
    Ok(Inventory { driver: Some(driver), ..Inventory::new(cards, Links::nvswitch(CARDS, 18)) })
}

/// Slots that nobody holds.
fn free(allocator: &Allocator) -> BTreeSet<SlotId> {
    let free = |card: &Card| {
        let held = allocator.ledger().allocations().slots_held(&card.id, None);
        let id = card.id.clone();
        (0..SLOTS).filter(move |slot| !held.contains(slot)).map(move |slot| id.slot(slot))
    };
    allocator.inventory().cards().iter().flat_map(free).collect()
}

// === impl Node ===

impl Node {
    /// An empty node whose ledger is in `directory`.
    pub(super) fn new(name: &str, directory: &Path) -> anyhow::Result<Self> {
        let settings = AllocationSettings {
            node_name: name.to_owned(),
            names: ResourceNames::default(),
            defaults: Defaults::default(),
            policy: Policy { name: PolicyName::default(), seed: 0 },
            accounting_namespaces: BTreeSet::new(),
        };
        let (ledger, _) = Ledger::open(directory).context("opening the ledger")?;
        let mut allocator = Allocator::new(settings, ledger, Arc::new(Nothing));
        allocator.set_inventory(Arc::new(inventory(name)?));
        Ok(Self { allocator: Arc::new(Mutex::new(allocator)), pods: Vec::new() })
    }

    /// Whether the pod is on the kubelet's list.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.pods.iter().any(|pod| pod.uid == uid)
    }

    /// UIDs of the pods on the kubelet's list.
    pub(super) fn uids(&self) -> Vec<String> {
        self.pods.iter().map(|pod| pod.uid.clone()).collect()
    }

    /// Admits a pod as the kubelet does: `GetPreferredAllocation` and `Allocate` for each container with GPUs.
    pub(super) fn admit(&mut self, pod: Arc<Pod>) -> anyhow::Result<()> {
        let count = ResourceNames::default().count;
        let sizes: Vec<usize> =
            pod.containers.iter().filter_map(|spec| spec.limits.get(count.as_str())?.parse().ok()).collect();
        self.pods.push(pod);
        self.look()?;
        for size in sizes {
            let mut allocator = lock(&self.allocator);
            let choice = Choice { available: free(&allocator), required: BTreeSet::new(), size };
            let slots = allocator.propose(&count, &self.pods, &choice)?;
            allocator.allocate_proposed(&slots).context("slots that were just proposed are refused")??;
        }
        Ok(())
    }

    /// Takes a pod from the kubelet's list; its cgroup is gone.
    pub(super) fn end(&mut self, uid: &str) -> anyhow::Result<()> {
        self.pods.retain(|pod| pod.uid != uid);
        self.look()
    }

    fn look(&self) -> anyhow::Result<()> {
        let mut allocator = lock(&self.allocator);
        let request = allocator.begin_list();
        let gone = allocator.missing(&self.pods).into_iter().map(|uid| (uid, CgroupState::Removed));
        let gone: HashMap<String, CgroupState> = gone.collect();
        let list = PodList { pods: self.pods.clone(), connection: None };
        allocator.reconcile(&list, request, true, &gone)?;
        allocator.take_ended();
        Ok(())
    }
}

// === impl Nothing ===

impl ContainerSetup for Nothing {
    fn tier(&self) -> Tier {
        Tier::Shim
    }

    fn tier_on(&self, _: &[(CardId, Share)]) -> Tier {
        Tier::Shim
    }

    fn problem(&self) -> Option<String> {
        None
    }

    fn prepare(&self, _: &AllocatedContainer<'_>) -> Result<ContainerResponse, SetupError> {
        Ok(ContainerResponse::default())
    }

    fn try_preparing(&self) -> Result<(), SetupError> {
        Ok(())
    }

    fn write_limits(&self, _: &AllocatedContainer<'_>) -> Result<(), SetupError> {
        Ok(())
    }

    fn renew_limits(&self, _: &AllocatedContainer<'_>) -> Result<(), SetupError> {
        Ok(())
    }

    fn find(&self, _: &str, _: &str) -> Option<FoundContainer> {
        None
    }

    fn remove(&self, _: Vec<Nonce>) {}

    fn remove_all_but(&self, _: &HashSet<Nonce>, _: &HashSet<String>) -> Result<(), SetupError> {
        Ok(())
    }
}
