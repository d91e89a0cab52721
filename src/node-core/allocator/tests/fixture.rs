//! A node without processes: its allocator, and the kubelet's side of every call.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use divvy_api::annotation::PolicyName;
use divvy_api::gpunode::Oversubscription;
use divvy_api::request::Defaults;
use divvy_api::{
    Card, CardId, ContainerKind, ContainerRequest, ContainerSpec, GpuRequest, Health, Link, Links, Memory, MigInstance,
    ResourceNames, Share, SlotId, Terms, Tier,
};
use divvy_placement::Policy;

use crate::allocator::{AllocationSettings, Allocator, Choice, Refusal};
use crate::inventory::{DeviceInfo, Inventory, MigPlace};
use crate::ledger::reconcile::FoundContainer;
use crate::ledger::{Holding, Ledger, Nonce, Origin, Part};
use crate::pod::{ContainerState, Phase, Pod, PodList};
use crate::ports::{AllocatedContainer, ContainerResponse, ContainerSetup, SetupError};

/// MiB of each card.
const MEMORY: u64 = 1000;
/// Of each card.
const SLOTS: u32 = 4;
/// The node's name in plans.
pub(crate) const NODE: &str = "node";

/// All of it.
pub(crate) struct Node {
    pub(crate) allocator: Allocator,
    /// What the kubelet lists.
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Slots that the kubelet has on record for nobody.
    free: BTreeSet<SlotId>,
    cards: Vec<(Card, DeviceInfo)>,
    /// What lies on disk for containers.
    pub(crate) limits: Arc<Mutex<BTreeMap<Nonce, Limits>>>,
    directory: tempfile::TempDir,
    oversubscription: Option<Oversubscription>,
}

/// What a container reads of its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pod_uid: String,
    container: String,
    pub(crate) shares: Vec<(CardId, Share)>,
    pub(crate) tier: Tier,
    terms: Terms,
}

/// Keeps limits in memory.
#[derive(Debug)]
struct Containers {
    tier: Tier,
    limits: Arc<Mutex<BTreeMap<Nonce, Limits>>>,
}

/// A pod that has just come, with app containers `c0`, `c1` and so on, and their limits without `nvidia.com/`.
pub(crate) fn pod(name: &str, containers: &[&[(&str, &str)]]) -> Arc<Pod> {
    let container = |(index, limits): (usize, &&[(&str, &str)])| ContainerSpec {
        name: format!("c{index}"),
        kind: ContainerKind::App,
        index,
        limits: limits.iter().map(|(name, amount)| (format!("nvidia.com/{name}"), (*amount).to_owned())).collect(),
    };
    Arc::new(Pod {
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
pub(crate) fn part(name: &str, mib: &str) -> Arc<Pod> {
    pod(name, &[&[("gpu", "1"), ("gpumem", mib)]])
}

pub(crate) fn annotated(mut pod: Arc<Pod>, key: &str, value: impl Into<String>) -> Arc<Pod> {
    Arc::make_mut(&mut pod).annotations.insert(key.to_owned(), value.into());
    pod
}

pub(crate) fn slot(name: &str) -> SlotId {
    name.parse().expect("a slot")
}

/// Cards of slots, such as `GPU-0`.
pub(crate) fn cards(slots: &[SlotId]) -> Vec<String> {
    slots.iter().map(|slot| slot.card.to_string()).collect()
}

fn card(number: u32) -> (Card, DeviceInfo) {
    let id = format!("GPU-{number}").parse().expect("a UUID");
    let card = Card { slots: SLOTS, ..Card::healthy(id, Memory::mib(MEMORY)) };
    (card, DeviceInfo { minor: Some(number), ..DeviceInfo::default() })
}

fn settings(policy: PolicyName) -> AllocationSettings {
    AllocationSettings {
        node_name: NODE.to_owned(),
        names: ResourceNames::default(),
        defaults: Defaults::default(),
        policy: Policy { name: policy, ..Policy::default() },
        accounting_namespaces: BTreeSet::new(),
    }
}

// === impl Containers ===

impl ContainerSetup for Containers {
    fn tier(&self) -> Tier {
        self.tier
    }

    fn tier_on(&self, _: &[(CardId, Share)]) -> Tier {
        self.tier
    }

    fn problem(&self) -> Option<String> {
        None
    }

    fn prepare(&self, container: &AllocatedContainer<'_>) -> Result<ContainerResponse, SetupError> {
        self.write_limits(container)?;
        Ok(ContainerResponse::default())
    }

    fn try_preparing(&self) -> Result<(), SetupError> {
        Ok(())
    }

    fn write_limits(&self, container: &AllocatedContainer<'_>) -> Result<(), SetupError> {
        let limits = Limits {
            pod_uid: container.pod.uid.clone(),
            container: container.name.to_owned(),
            shares: container.shares.clone(),
            tier: container.terms.tier,
            terms: container.terms,
        };
        self.limits.lock().unwrap().insert(container.nonce, limits);
        Ok(())
    }

    fn renew_limits(&self, container: &AllocatedContainer<'_>) -> Result<(), SetupError> {
        let has_directories = self.limits.lock().unwrap().contains_key(&container.nonce);
        if has_directories { self.write_limits(container) } else { Ok(()) }
    }

    fn find(&self, pod_uid: &str, container: &str) -> Option<FoundContainer> {
        let limits = self.limits.lock().unwrap();
        let found = limits.iter().find(|(_, limits)| limits.pod_uid == pod_uid && limits.container == container);
        found.map(|(nonce, Limits { terms, shares, .. })| FoundContainer {
            nonce: *nonce,
            terms: *terms,
            shares: shares.clone(),
        })
    }

    fn remove(&self, ended: Vec<Nonce>) {
        self.limits.lock().unwrap().retain(|nonce, _| !ended.contains(nonce));
    }

    fn remove_all_but(&self, live: &HashSet<Nonce>, unmatched: &HashSet<String>) -> Result<(), SetupError> {
        let mut limits = self.limits.lock().unwrap();
        limits.retain(|nonce, limits| live.contains(nonce) || unmatched.contains(&limits.pod_uid));
        Ok(())
    }
}

// === impl Node ===

impl Node {
    /// So many empty cards, `GPU-0` and on.
    pub(crate) fn new(cards: u32, policy: PolicyName) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(&directory.path().join("state")).expect("an empty ledger");
        let limits = Arc::default();
        let containers = Containers { tier: Tier::Accounting, limits: Arc::clone(&limits) };
        let allocator = Allocator::new(settings(policy), ledger, Arc::new(containers));
        let cards: Vec<(Card, DeviceInfo)> = (0..cards).map(card).collect();
        let oversubscription = None;
        let mut node =
            Self { allocator, pods: Vec::new(), free: BTreeSet::new(), cards, limits, directory, oversubscription };
        node.forget();
        node.show_cards();
        node
    }

    /// Its GPUs are instances of the plain count with so many MiB each, `MIG-0` and on, as long as there are amounts.
    pub(crate) fn cut(&mut self, mib: &[u64]) {
        for (number, ((card, device), mib)) in self.cards.iter_mut().zip(mib).enumerate() {
            device.place = Some(MigPlace { gpu: card.id.clone(), gi: 1, ci: 0 });
            card.mig = Some(MigInstance { profile: "1g.10gb".parse().expect("a profile"), by_profile: false });
            card.id = format!("MIG-{number}").parse().expect("a UUID");
            card.memory = Memory::mib(*mib);
        }
        self.forget();
        self.show_cards();
    }

    pub(crate) fn show_cards(&mut self) {
        self.show(self.cards.clone());
    }

    /// NVML doesn't show the card.
    pub(crate) fn hide(&mut self, card: usize) {
        let mut cards = self.cards.clone();
        cards.remove(card);
        self.show(cards);
    }

    fn show(&mut self, cards: Vec<(Card, DeviceInfo)>) {
        let links = Links::new(cards.len(), |_, _| Link::System);
        let mut inventory = Inventory::new(cards, links);
        let node = Arc::make_mut(&mut inventory.node);
        let tier = self.allocator.tier();
        node.cards.iter_mut().for_each(|card| card.tier = tier);
        (node.undivided, node.oversubscription) = (tier == Tier::Mig, self.oversubscription);
        self.allocator.set_inventory(Arc::new(inventory));
    }

    pub(crate) fn set_health(&mut self, card: usize, health: Health) {
        self.cards[card].0.health = health;
        self.show_cards();
    }

    /// The kubelet has restarted, and its checkpoint is lost.
    pub(crate) fn lose_checkpoint(&mut self) {
        self.allocator.begin_session();
        self.forget();
    }

    /// The next daemon, which serves this tier.
    pub(crate) fn restart(&mut self, tier: Tier) {
        // Only one can have the books open.
        self.lose_journal();
        self.start("state", tier);
        self.allocator.renew_limits();
    }

    /// A daemon that finds no journal; the directories are still there.
    pub(crate) fn lose_journal(&mut self) {
        self.lose_journal_and_serve(Tier::Accounting);
    }

    /// The same; it serves this tier.
    pub(crate) fn lose_journal_and_serve(&mut self, tier: Tier) {
        self.start("another-state", tier);
    }

    /// A daemon with this ledger, of this tier.
    fn start(&mut self, state: &str, tier: Tier) {
        let (ledger, _) = Ledger::open(&self.directory.path().join(state)).expect("the ledger");
        let containers = Containers { tier, limits: Arc::clone(&self.limits) };
        self.allocator = Allocator::new(settings(PolicyName::Binpack), ledger, Arc::new(containers));
        self.show_cards();
    }

    /// The next daemon, of tier `shim`, which oversubscribes memory by this scale in percent, with so many MiB of the host's.
    pub(crate) fn oversubscribe(&mut self, memory_scale: u32, host_mib: u64) {
        self.oversubscribe_from_now_on(memory_scale, host_mib);
        self.restart(Tier::Shim);
    }

    /// The same from the next start of a daemon on.
    pub(crate) fn oversubscribe_from_now_on(&mut self, memory_scale: u32, host_mib: u64) {
        self.oversubscription = Some(Oversubscription { memory_scale, host_memory: Memory::mib(host_mib) });
    }

    fn forget(&mut self) {
        self.free = self.cards.iter().flat_map(|(card, _)| (0..SLOTS).map(|number| card.id.slot(number))).collect();
    }

    // --- calls ---

    pub(crate) fn propose(&mut self, size: usize) -> Result<Vec<SlotId>, Refusal> {
        let choice = Choice { available: self.free.clone(), required: BTreeSet::new(), size };
        self.allocator.propose(&ResourceNames::default().count, &self.pods, &choice)
    }

    /// Allocate as the plugin service does it, for a container that was never served.
    pub(crate) fn allocate(&mut self, slots: &[SlotId]) -> Result<ContainerResponse, Refusal> {
        let proposed = self.allocator.allocate_proposed(slots);
        let answer =
            proposed.unwrap_or_else(|| self.allocator.allocate(&ResourceNames::default().count, &self.pods, slots))?;
        self.free.retain(|slot| !slots.contains(slot));
        Ok(answer)
    }

    /// Both calls; answers the cards.
    pub(crate) fn serve(&mut self, size: usize) -> Result<Vec<String>, Refusal> {
        let slots = self.propose(size)?;
        self.allocate(&slots)?;
        Ok(cards(&slots))
    }

    /// Reads a whole list of the pods that there are.
    pub(crate) fn look(&mut self) {
        let asked = self.allocator.begin_list();
        let list = PodList { pods: self.pods.clone(), connection: None };
        self.allocator.reconcile(&list, asked, true, &HashMap::new()).expect("written");
    }

    // --- books and disk ---

    /// A share of another pod, which runs and was never admitted here.
    pub(crate) fn hold(&mut self, name: &str, slot: &SlotId, mib: u64) {
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
        self.pods.push(Arc::new(Pod { phase: Phase::Running, states, ..(*pod).clone() }));
    }

    pub(crate) fn holding(&self, pod: &str, container: &str) -> Option<&Holding> {
        self.allocator.ledger().allocations().pod(&format!("uid-{pod}"))?.holding(container)
    }

    /// Cards and MiB that the container holds.
    pub(crate) fn held(&self, pod: &str, container: &str) -> Vec<(String, u64)> {
        let parts = self.holding(pod, container).map_or(&[][..], |holding| &holding.parts);
        parts.iter().map(|part| (part.card.to_string(), part.share.memory.as_mib())).collect()
    }

    /// What the container reads of its limits.
    pub(crate) fn written(&self, pod: &str, container: &str) -> Limits {
        let nonce = self.holding(pod, container).expect("held").nonce;
        self.limits.lock().unwrap()[&nonce].clone()
    }
}
