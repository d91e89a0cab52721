//! The books as a plain map, and a node small enough for every clash to happen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use divvy_api::gpunode::Oversubscription;
use divvy_api::names::annotation::OVERSUBSCRIBE;
use divvy_api::pod::{PodSum, peak};
use divvy_api::request::Sharing;
use divvy_api::{
    Card, CardId, ContainerKind, ContainerRequest, ContainerSpec, Cores, GpuRequest, Memory, NodeCards, Share, SlotId,
    Terms,
};
use divvy_placement::Held;
use proptest::prelude::*;

use crate::inventory::Inventory;
use crate::ledger::{Allocations, ContainerEntry, Holding, Nonce, Origin, Part, PodEntry};
use crate::pod::{Phase, Pod, PodRef};

pub(crate) const CARDS: usize = 3;
pub(crate) const SLOTS: u32 = 4;
pub(crate) const MEMORY: Memory = Memory::mib(1000);
/// By which memory is oversubscribed, in percent.
pub(crate) const SCALE: u32 = 150;
/// Host memory for that.
const HOST_MEMORY: Memory = Memory::mib(400);

pub(crate) fn card(number: usize) -> CardId {
    format!("GPU-{number}").parse().expect("uuid")
}

/// So many cards, whose memory is oversubscribed.
pub(crate) fn inventory(cards: usize) -> Inventory {
    let cards = (0..cards).map(|number| Card::healthy(card(number), MEMORY)).collect();
    let oversubscription = Some(Oversubscription { memory_scale: SCALE, host_memory: HOST_MEMORY });
    let node = NodeCards { cards, oversubscription, ..NodeCards::default() };
    Inventory { node: Arc::new(node), ..Inventory::default() }
}

pub(crate) fn capacities() -> Vec<(CardId, Memory, Cores)> {
    (0..CARDS).map(|number| (card(number), MEMORY, Cores::FULL)).collect()
}

/// Whether the pod asks for oversubscription; its UID begins with a number.
fn asks(uid: &str) -> bool {
    uid.starts_with(['1', '3'])
}

/// Every violation of the ledger's invariants, given each card's capacity: no card is overfilled, nor the host memory for
/// what isn't on the cards, which are shared by pods with oversubscribed memory or by others; and every slot has one holder.
pub(crate) fn violations(allocations: &Allocations, cards: &[(CardId, Memory, Cores)]) -> Vec<String> {
    let mut found = Vec::new();
    for (card, memory, cores) in cards {
        let held = allocations.held(card, None);
        if held.memory > *memory || held.cores > *cores || (held.exclusive && held.pods > 1) {
            found.push(format!("{card}: {held:?} of {memory} and {cores} cores"));
        }
        let hosts = allocations.pods().filter_map(|entry| peak_on(entry, card)).map(|share| share.host.is_zero());
        if hosts.collect::<BTreeSet<_>>().len() > 1 {
            found.push(format!("{card}: {held:?} of pods with oversubscribed memory and of others"));
        }
    }
    let host = allocations.host_memory(|_| true);
    if !cards.is_empty() && host > HOST_MEMORY {
        found.push(format!("{host} of {HOST_MEMORY} host memory"));
    }
    let mut holders: BTreeMap<SlotId, &str> = BTreeMap::new();
    for entry in allocations.pods() {
        for slot in slots(entry).collect::<BTreeSet<_>>() {
            if let Some(other) = holders.insert(slot.clone(), &entry.pod.uid) {
                found.push(format!("slot {slot}: held by pods {other} and {}", entry.pod.uid));
            }
        }
    }
    found
}

pub(crate) fn pod_ref(uid: &str) -> PodRef {
    PodRef { uid: uid.to_owned(), namespace: "default".to_owned(), name: format!("pod-{uid}") }
}

fn request() -> impl Strategy<Value = Option<GpuRequest>> {
    let part = (1..=2u32, 1..=60u64, 0..=50u32).prop_map(|(cards, percent, cores)| {
        let memory = format!("{}Mi", percent * 10).parse().expect("amount");
        GpuRequest { cards, memory, cores: Cores::new(cores) }
    });
    prop_oneof![6 => part.prop_map(Some), 1 => Just(Some(GpuRequest::whole(1))), 1 => Just(None)]
}

/// Requests of a pod's containers in admission order, named by position.
pub(crate) fn pod_shape() -> impl Strategy<Value = Vec<ContainerRequest>> {
    let init = (prop_oneof![Just(ContainerKind::Init), Just(ContainerKind::Sidecar)], request());
    let app = request().prop_map(|request| (ContainerKind::App, request));
    (prop::collection::vec(init, 0..3), prop::collection::vec(app, 1..3)).prop_map(|(init, app)| {
        let named = |(at, (kind, request)): (usize, _)| ContainerRequest {
            name: format!("c{at}"),
            kind,
            request,
            profile: None,
            counted: request.map(|request| request.totals()).unwrap_or_default(),
        };
        init.into_iter().chain(app).enumerate().map(named).collect()
    })
}

fn limits(request: Option<GpuRequest>) -> BTreeMap<String, String> {
    let Some(request) = request else { return BTreeMap::new() };
    let count = ("nvidia.com/gpu".to_owned(), request.cards.to_string());
    let whole = request == GpuRequest::whole(request.cards);
    let amounts = [("gpumem", request.memory.to_string()), ("gpucores", request.cores.to_string())];
    let amounts = amounts.into_iter().filter(|(_, text)| !whole && text != "0");
    amounts.map(|(name, text)| (format!("nvidia.com/{name}"), text)).chain([count]).collect()
}

/// The running pod of a booked entry, as a kubelet would list it.
pub(crate) fn view(entry: &PodEntry) -> Arc<Pod> {
    let spec = |(index, container): (usize, &ContainerEntry)| ContainerSpec {
        name: container.request.name.clone(),
        kind: container.request.kind,
        index,
        limits: limits(container.request.request),
    };
    let PodRef { uid, namespace, name } = entry.pod.clone();
    let containers = entry.containers.iter().enumerate().map(spec).collect();
    let wish = asks(&uid).then(|| (OVERSUBSCRIBE.to_owned(), "true".to_owned()));
    let (annotations, states) = (wish.into_iter().collect(), BTreeMap::new());
    Arc::new(Pod { uid, namespace, name, annotations, containers, phase: Phase::Running, states })
}

/// What the books should say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) pods: BTreeMap<String, PodEntry>,
}

impl Model {
    pub(crate) fn hold(&mut self, entry: PodEntry) {
        let taken: BTreeSet<SlotId> = slots(&entry).collect();
        for other in self.pods.values_mut().filter(|other| other.pod.uid != entry.pod.uid) {
            for part in other.containers.iter_mut().flat_map(|c| &mut c.holding).flat_map(|h| &mut h.parts) {
                if part.slot_id().is_some_and(|slot| taken.contains(&slot)) {
                    part.lost = part.slot.take();
                }
            }
        }
        self.pods.insert(entry.pod.uid.clone(), entry);
    }

    pub(crate) fn held(&self, card: &CardId, except: Option<&str>) -> Held {
        let mut sum = Held::default();
        for entry in self.pods.values().filter(|entry| Some(entry.pod.uid.as_str()) != except) {
            if let Some(share) = peak_on(entry, card) {
                sum.memory = sum.memory.saturating_add(share.on_card());
                sum.host = sum.host.saturating_add(share.host);
                sum.cores = sum.cores.saturating_add(share.cores);
                sum.exclusive |= share.exclusive;
                sum.pods += 1;
            }
        }
        sum
    }

    /// The pod's entry after this container got cards that everything fits on, tried from `pick` on; `None` if there
    /// are no such cards. Slots are any: the kubelet may hand out those of others.
    pub(crate) fn plan(
        &self,
        uid: &str,
        requests: &[ContainerRequest],
        at: usize,
        pick: usize,
    ) -> Option<(PodEntry, Holding)> {
        let request = requests[at].request?;
        let cards = (0..request.cards as usize).map(|nth| card((pick + nth) % CARDS));
        let slot = u32::try_from(pick / CARDS).expect("small") % SLOTS;
        let sharing = if asks(uid) { Sharing::Oversubscribed(SCALE) } else { Sharing::Part };
        let share = request.share_of(MEMORY, sharing);
        let parts: Vec<Part> = cards.map(|card| Part { card, slot: Some(slot), lost: None, share }).collect();
        let holding = Holding { nonce: Nonce::random(), parts, origin: Origin::Allocated, terms: Terms::default() };
        let mut entry = self.pods.get(uid).cloned().unwrap_or_else(|| PodEntry {
            pod: pod_ref(uid),
            containers: requests
                .iter()
                .map(|request| ContainerEntry { request: request.clone(), holding: None })
                .collect(),
        });
        entry.containers[at].holding = Some(holding.clone());
        let fits = |card: &CardId| {
            let Some(share) = peak_on(&entry, card) else { return true };
            let others = self.held(card, Some(uid));
            let is_alone = others.pods == 0 || share.host.is_zero() == others.host.is_zero();
            others.memory.saturating_add(share.on_card()) <= MEMORY
                && is_alone
                && others.cores.saturating_add(share.cores) <= Cores::FULL
                && !(others.exclusive || share.exclusive && others.pods > 0)
        };
        let host = |entry: &PodEntry| -> Memory {
            (0..CARDS).filter_map(|number| peak_on(entry, &card(number))).map(|share| share.host).sum()
        };
        let others = self.pods.values().filter(|other| other.pod.uid != uid).map(host);
        let has_host_memory = others.chain([host(&entry)]).sum::<Memory>() <= HOST_MEMORY;
        (has_host_memory && (0..CARDS).all(|number| fits(&card(number)))).then_some((entry, holding))
    }

    /// Everything that the allocations answers, against the same from the map.
    pub(crate) fn agrees_with(&self, allocations: &Allocations) -> Result<(), TestCaseError> {
        prop_assert_eq!(allocations.pods().collect::<Vec<_>>(), self.pods.values().collect::<Vec<_>>());
        prop_assert_eq!(violations(allocations, &capacities()), Vec::<String>::new());
        let uids = self.pods.keys().map(|uid| Some(uid.as_str())).chain([None, Some("nobody")]);
        for (except, number) in uids.flat_map(|uid| (0..CARDS).map(move |number| (uid, number))) {
            let card = card(number);
            prop_assert_eq!(allocations.held(&card, except), self.held(&card, except));
            let others = self.pods.values().filter(|entry| Some(entry.pod.uid.as_str()) != except);
            let held = others.flat_map(slots).filter(|slot| slot.card == card).map(|slot| slot.number);
            prop_assert_eq!(allocations.slots_held(&card, except), held.collect::<BTreeSet<_>>());
        }
        for entry in self.pods.values() {
            prop_assert!(slots(entry).all(|slot| allocations.holder_of(&slot) == Some(entry)));
        }
        Ok(())
    }
}

fn slots(entry: &PodEntry) -> impl Iterator<Item = SlotId> {
    entry.containers.iter().flat_map(|c| &c.holding).flat_map(|h| &h.parts).filter_map(Part::slot_id)
}

fn peak_on(entry: &PodEntry, card: &CardId) -> Option<Share> {
    let of = |container: &ContainerEntry| {
        let parts = container.holding.iter().flat_map(|holding| &holding.parts);
        parts.filter(|part| part.card == *card).map(|part| part.share).reduce(PodSum::plus)
    };
    let steps: Vec<_> = entry.containers.iter().map(|container| (container.request.kind, of(container))).collect();
    let holds = steps.iter().any(|(_, share)| share.is_some());
    holds.then(|| peak(steps.into_iter().map(|(kind, share)| (kind, share.unwrap_or_default()))))
}
