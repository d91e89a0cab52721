//! The answer to every call of the kubelet: where pods, ledger, cards and the preparation of containers meet.
//!
//! Plain and synchronous, behind one lock ([`SharedAllocator`]). Pod lists and device records are fetched by the caller.
//!
//! | file | decides |
//! |---|---|
//! | `propose` | `GetPreferredAllocation`: plans the whole pod, and answers slots on planned cards |
//! | `grant` | `Allocate`: judges the slots, writes them down, prepares the container |
//! | `forgotten` | `Allocate` for a container of which the kubelet has lost its record |
//! | `foreign` | what is known of pods of other systems |
//! | `reconcile` | what pod lists and device records change in the ledger |
//! | `units` | calls for units of memory and compute (`advertise: devices`) |
//! | `contenders` | the containers that a call may be for where one alone isn't left |
//! | `admission` | the pod under admission and its plan |
//! | `fits` | whether a container fits on cards that the kubelet chose |
//! | `unplaced` | pods that were refused for lack of room, until they fit |

mod admission;
mod contenders;
mod fits;
mod foreign;
mod forgotten;
mod grant;
mod propose;
mod reconcile;
pub mod refusal;
mod units;
mod unplaced;

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use divvy_api::annotation::Preferences;
use divvy_api::gpunode::Oversubscription;
use divvy_api::request::{Defaults, Sharing};
use divvy_api::{Card, ContainerRequest, ResourceName, ResourceNames, Share, SlotId, Tier};
use divvy_placement::{Held, NodeState, Policy};
use tracing::warn;

use self::admission::{Admission, Allocated};
pub use self::contenders::Call;
use self::foreign::ForeignPods;
pub use self::foreign::{ForeignHeld, ForeignPod};
use self::grant::Grant;
pub use self::grant::allocated_share;
pub use self::reconcile::ListRequest;
use self::reconcile::Reconciliation;
pub use self::refusal::Refusal;
use self::units::GivenUnits;
use self::unplaced::UnplacedPods;
use crate::identity::{self, AdmissionOrder, CallHistory, ContainerUnderAdmission, Question, SlotState, Unresolved};
use crate::inventory::Inventory;
use crate::ledger::{Ledger, Nonce, Part, PodEntry};
use crate::pod::{Pod, PodRef};
use crate::ports::{AllocatedContainer, ContainerResponse, ContainerSetup};

/// Allocator, shared by all tasks of the daemon. Locked for microseconds, never across an await.
pub type SharedAllocator = Arc<Mutex<Allocator>>;

/// Locks the allocator. A panic elsewhere can't have left it half changed: it is changed by whole steps.
pub fn lock(allocator: &SharedAllocator) -> MutexGuard<'_, Allocator> {
    allocator.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rewrites the ledger's journal if it is mostly history. Takes as long as the disk takes; the lock is held for moments.
pub fn rewrite_journal(allocator: &SharedAllocator) {
    let Some(rewrite) = lock(allocator).ledger.begin_rewrite() else { return };
    let written = rewrite.write();
    lock(allocator).ledger.finish_rewrite(written);
    rewrite.sync_directory();
}

/// Configuration that decides allocations.
#[derive(Clone, Debug)]
pub struct AllocationSettings {
    /// This node, as plans name it.
    pub node_name: String,
    /// Names of the four resources.
    pub names: ResourceNames,
    /// Amounts of requests that don't name them.
    pub defaults: Defaults,
    /// Placement policy of pods that name none.
    pub policy: Policy,
    /// Namespaces whose pods may ask for tier `accounting`.
    pub accounting_namespaces: BTreeSet<String>,
}

/// Decides the answer to every call of the kubelet. Owns the ledger.
#[derive(Debug)]
pub struct Allocator {
    settings: AllocationSettings,
    ledger: Ledger,
    inventory: Arc<Inventory>,
    containers: Arc<dyn ContainerSetup>,
    /// What follows from the order of the kubelet's calls.
    history: CallHistory,
    /// The pod under admission. Others don't come between, but if one does this is only planned again.
    admission: Option<Admission>,
    reconciliation: Reconciliation,
    foreign: ForeignPods,
    units: GivenUnits,
    unplaced: UnplacedPods,
    /// Holdings that have ended, and whose directories are still there.
    ended: Vec<Nonce>,
}

/// Free devices of a `GetPreferredAllocation` call.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Devices that are free and healthy to the kubelet, `required` included.
    pub available: BTreeSet<SlotId>,
    /// Devices that the answer must contain: the kubelet reuses them from an init container.
    pub required: BTreeSet<SlotId>,
    /// Number of devices to choose, `required` included.
    pub size: usize,
}

// === impl Allocator ===

impl Allocator {
    /// An allocator over this ledger. Until [`Self::set_inventory`] it has no cards.
    pub fn new(settings: AllocationSettings, ledger: Ledger, containers: Arc<dyn ContainerSetup>) -> Self {
        Self {
            settings,
            ledger,
            containers,
            inventory: Arc::default(),
            history: CallHistory::default(),
            admission: None,
            reconciliation: Reconciliation::default(),
            foreign: ForeignPods::default(),
            units: GivenUnits::default(),
            unplaced: UnplacedPods::default(),
            ended: Vec::new(),
        }
    }

    /// Ledger of this node's shares.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Pods of the last list.
    pub fn listed(&self) -> &[Arc<Pod>] {
        &self.reconciliation.listed
    }

    /// Cards of the last inventory.
    pub fn inventory(&self) -> &Arc<Inventory> {
        &self.inventory
    }

    /// Port that prepares containers.
    pub fn containers(&self) -> &Arc<dyn ContainerSetup> {
        &self.containers
    }

    /// Replaces the cards by what the inventory found.
    pub fn set_inventory(&mut self, inventory: Arc<Inventory>) {
        self.inventory = inventory;
    }

    /// Starts over after a restart of the kubelet: nothing follows from its earlier order of calls any more.
    pub fn begin_session(&mut self) {
        self.history.begin();
        self.admission = None;
    }

    /// Answers `GetPreferredAllocation`: slots on the cards planned for the container under admission.
    pub fn propose(
        &mut self,
        resource: &ResourceName,
        pods: &[Arc<Pod>],
        choice: &Choice,
    ) -> Result<Vec<SlotId>, Refusal> {
        let question = self.question(resource, choice.size);
        let state = |slot: &SlotId| self.slot_state(choice, slot);
        let resolved = identity::resolve_choice(pods, self.ledger.allocations(), &self.history, &question, state);
        let (subject, again) = resolved.inspect_err(|unresolved| self.pass_over(unresolved, pods))?;
        self.history.identified(subject, pods, self.ledger.allocations(), &self.settings.names);
        self.enter(subject)?;
        let result = self.propose_for(subject, choice, again);
        self.remember_refusal(&subject.pod.uid, result)
    }

    /// Answers `Allocate` for slots that were just proposed: the container is known without a pod list.
    pub fn allocate_proposed(&mut self, slots: &[SlotId]) -> Option<Result<ContainerResponse, Refusal>> {
        let admission = self.admission.as_mut()?;
        let asked: BTreeSet<&SlotId> = slots.iter().collect();
        // Good for one call: the pod's next container may be given the same slots, from an init container.
        let proposed = admission.proposed.take().filter(|proposed| asked.into_iter().eq(&proposed.slots))?;
        let uid = admission.pod.uid.clone();
        let planned = proposed.planned_on.is_some_and(|basis| basis == self.basis());
        let result = self.grant(&Grant { container: proposed.container, slots, again: proposed.again, planned });
        Some(self.remember_refusal(&uid, result))
    }

    /// Answers `Allocate` for any other slots: reused from an init container, or chosen by the kubelet itself.
    pub fn allocate(
        &mut self,
        resource: &ResourceName,
        pods: &[Arc<Pod>],
        slots: &[SlotId],
    ) -> Result<ContainerResponse, Refusal> {
        let question = self.question(resource, slots.len());
        let resolved = identity::resolve(pods, self.ledger.allocations(), &self.history, &question);
        let subject = resolved.inspect_err(|unresolved| self.pass_over(unresolved, pods))?;
        self.history.identified(subject, pods, self.ledger.allocations(), &self.settings.names);
        self.enter(subject)?;
        let asked = Grant { container: subject.container, slots, again: false, planned: false };
        let result = self.certain(resource, subject, pods, slots).and_then(|()| self.grant(&asked));
        self.remember_refusal(&subject.pod.uid, result)
    }

    /// Rules out all pods of an ambiguous refusal: the kubelet doesn't ask again for the one that it refused, nor for those
    /// whose admission was over before.
    fn pass_over(&mut self, unresolved: &Unresolved, pods: &[Arc<Pod>]) {
        if let Unresolved::Ambiguous { .. } = unresolved {
            self.history.pass_over(pods, None, self.ledger.allocations(), &self.settings.names);
        }
    }

    fn question<'a>(&'a self, resource: &'a ResourceName, count: usize) -> Question<'a> {
        Question { names: &self.settings.names, resource, count }
    }

    /// Tier that this node serves.
    pub fn tier(&self) -> Tier {
        self.containers.tier()
    }

    /// Whether cards are allocated whole or not at all: the hardware enforces nothing less.
    fn gives_whole(&self) -> bool {
        self.inventory.node.undivided
    }

    /// How requests of a pod with these preferences become shares.
    fn sharing(&self, preferences: &Preferences) -> Sharing {
        let memory_scale = self.oversubscription().map(|oversubscription| oversubscription.memory_scale);
        preferences.sharing(self.gives_whole(), memory_scale)
    }

    /// How the node oversubscribes memory, if it does.
    pub fn oversubscription(&self) -> Option<Oversubscription> {
        self.inventory.node.oversubscription
    }

    /// Names of the pods that may still ask for cards.
    pub fn waiting(&self, pods: &[Arc<Pod>]) -> Vec<String> {
        let waiting = identity::waiting(pods, self.ledger.allocations(), &self.history, &self.settings.names);
        waiting.map(ToString::to_string).collect()
    }

    /// The pod whose containers are being served, if there is one, and what is known of those before it.
    pub fn under_admission(&self) -> (Option<&PodRef>, AdmissionOrder) {
        (self.admission.as_ref().map(|admission| &admission.pod), self.history.read())
    }

    /// Answers `PreStartContainer`: writes the limits of every container that holds these slots, or that held them before
    /// the kubelet allocated them a second time. Writing what the ledger says is harmless however often it's done.
    pub fn pre_start(&self, slots: &[SlotId]) -> Result<(), Refusal> {
        let mut written = 0;
        for entry in self.ledger.allocations().pods() {
            for (container, holding) in entry.holdings() {
                if slots.iter().any(|slot| holding.parts.iter().any(|part| part.concerns(slot))) {
                    let container = AllocatedContainer::new(&entry.pod, container, holding, self.tier());
                    // What was written before the ledger lost the share is right, and this isn't.
                    if !holding.parts.iter().any(Part::is_of_unknown_size) {
                        self.containers.write_limits(&container)?;
                    }
                    written += 1;
                }
            }
        }
        if written == 0 { Err(Refusal::UnknownHolder { slots: slots.to_vec() }) } else { Ok(()) }
    }

    /// Updates the files of live containers after a change of the configuration: the tier in their limits, and what the
    /// tier needs. Containers that never had directories get none.
    pub fn renew_limits(&self) {
        for entry in self.ledger.allocations().pods() {
            for (name, holding) in entry.holdings() {
                if holding.parts.iter().any(Part::is_of_unknown_size) {
                    continue;
                }
                let container = AllocatedContainer::new(&entry.pod, name, holding, self.tier());
                if let Err(error) = self.containers.renew_limits(&container) {
                    warn!(
                        %error, pod = %entry.pod, container = name,
                        "failed to rewrite the container's limits; keeping the previous file"
                    );
                }
            }
        }
    }

    /// Holdings that ended since the last call. The caller removes their directories, after it has released the lock.
    pub fn take_ended(&mut self) -> Vec<Nonce> {
        mem::take(&mut self.ended)
    }

    /// Pods bound to this node that may be under admission for `wanted` devices of `resource`, each with the container's name,
    /// when the kubelet doesn't list its pods.
    pub fn lacking(&self, resource: &ResourceName, pods: Vec<Arc<Pod>>, wanted: usize) -> Vec<(Arc<Pod>, String)> {
        let question = self.question(resource, wanted);
        let lacking = |pod: Arc<Pod>| {
            let container = identity::may_lack(&pod, self.ledger.allocations(), &self.history, &question)?;
            let name = pod.containers[container].name.clone();
            Some((pod, name))
        };
        pods.into_iter().filter_map(lacking).collect()
    }

    fn slot_state(&self, choice: &Choice, slot: &SlotId) -> SlotState {
        if choice.available.contains(slot) && !choice.required.contains(slot) {
            SlotState::Free
        } else if self.inventory.node.card(&slot.card).is_some_and(Card::is_healthy) {
            SlotState::Held
        } else {
            SlotState::Hidden
        }
    }

    /// Makes the subject's pod the one under admission, unless it is already.
    fn enter(&mut self, subject: ContainerUnderAdmission<'_>) -> Result<(), Refusal> {
        let pod = subject.pod;
        if self.admission.as_ref().is_some_and(|admission| admission.pod.uid == pod.uid) {
            return Ok(());
        }
        let admission = Admission::read(pod, &self.settings, self.tier(), &self.inventory.node);
        self.admission = Some(self.remember_refusal(&pod.uid, admission)?);
        Ok(())
    }

    /// The node's cards with what every other pod holds, and so many free slots of each.
    fn state(&self, uid: &str, free_slots: impl Fn(&Card) -> usize) -> NodeState {
        let allocations = self.ledger.allocations();
        let node = &self.inventory.node;
        let held = |card: &Card| {
            let free = u32::try_from(free_slots(card)).unwrap_or(u32::MAX);
            Held { slots: card.slots.saturating_sub(free), ..allocations.held(&card.id, Some(uid)) }
        };
        NodeState {
            node: Arc::clone(node),
            held: node.cards.iter().map(held).collect(),
            host_elsewhere: allocations.host_memory(|id| node.card(id).is_none()),
        }
    }

    /// How many of a card's slots no pod holds, or this one, as far as the ledger knows.
    fn unheld(&self, card: &Card, uid: &str) -> usize {
        let held = self.ledger.allocations().slots_held(&card.id, Some(uid));
        (card.slots as usize).saturating_sub(held.len())
    }

    /// What the first `count` containers hold of cards that the inventory shows.
    fn allocated(&self, uid: &str, count: usize) -> Allocated {
        let entry = self.ledger.allocations().pod(uid);
        let Some(admission) = &self.admission else { return Allocated::default() };
        let requests = admission.requests[..count].iter();
        Allocated::new(requests.map(|request| self.allocated_to(request, entry)).collect())
    }

    /// What a container holds of cards that the inventory shows, by their positions.
    fn allocated_to(&self, container: &ContainerRequest, entry: Option<&PodEntry>) -> Vec<(usize, Share)> {
        let ContainerRequest { name, request, .. } = container;
        let parts = entry.and_then(|entry| entry.holding(name)).map_or(&[][..], |holding| &holding.parts);
        let held = |part: &Part| {
            let at = self.inventory.node.position(&part.card)?;
            let asked = request.map(|request| request.share_on(self.inventory.cards()[at].memory));
            Some((at, asked.filter(|_| part.is_of_unknown_size()).unwrap_or(part.share)))
        };
        parts.iter().filter_map(held).collect()
    }

    fn remember_refusal<T>(&mut self, uid: &str, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if let Err(refusal) = &result {
            self.history.refuse(uid);
            if let Some(admission) = self.admission.take().filter(|_| refusal.found_no_gpus()) {
                self.unplaced.remember(admission);
            }
        }
        result
    }
}

#[cfg(test)]
pub(crate) mod tests;
