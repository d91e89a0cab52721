//! One pod's entry, completed from the kubelet's device records and the pod's own requests.

use std::collections::BTreeMap;
use std::str::FromStr;

use divvy_api::annotation::{self, Preferences, RequestAnnotation};
use divvy_api::card_id::CardIdError;
use divvy_api::limits::{asks_for_cards, counted, pod_requests, profile};
use divvy_api::names::annotation::REQUEST;
use divvy_api::request::Sharing;
use divvy_api::{
    CardId, ContainerKind, ContainerRequest, ContainerSpec, GpuRequest, Memory, ResourceNames, Share, SlotId, Tier,
};

use super::{FoundContainer, RestoreContext};
use crate::ledger::entry::{ContainerEntry, Holding, Origin, Part, PodEntry};
use crate::pod::{Pod, PodRef};

/// A device ID of the kubelet's records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Device {
    card: CardId,
    /// `None`: a whole card, as plugins without sharing register it.
    slot: Option<u32>,
}

/// The making of one entry.
pub(super) struct Restore<'a> {
    pub context: &'a RestoreContext<'a>,
    pub pod: &'a Pod,
    pub notes: &'a mut Vec<String>,
}

/// What a container took of its cards.
struct Taken {
    request: GpuRequest,
    sharing: Sharing,
    /// By its limits file.
    shares: Vec<(CardId, Share)>,
}

// === impl Taken ===

impl Taken {
    /// The share of a card with `memory`. Of the memory, the scale may have changed since by which it was divided.
    fn share_of(&self, card: &CardId, memory: Memory) -> Share {
        let share = self.request.share_of(memory, self.sharing);
        let written = self.shares.iter().find(|(written, _)| written == card).map(|(_, written)| *written);
        let is_part = |written: &Share| (written.memory, written.exclusive) == (share.memory, share.exclusive);
        written.filter(is_part).map_or(share, |Share { host, .. }| Share { host, ..share })
    }
}

// === impl Device ===

impl Device {
    /// A card that another plugin has allocated.
    pub(super) fn whole(card: CardId) -> Self {
        Self { card, slot: None }
    }

    pub(super) fn slot_id(&self) -> Option<SlotId> {
        self.slot.map(|number| self.card.slot(number))
    }
}

impl FromStr for Device {
    type Err = CardIdError;

    fn from_str(id: &str) -> Result<Self, CardIdError> {
        match id.parse() {
            Ok(SlotId { card, number }) => Ok(Self { card, slot: Some(number) }),
            Err(_no_slot) => Ok(Self { card: id.parse()?, slot: None }),
        }
    }
}

// === impl Restore ===

impl Restore<'_> {
    /// The pod's entry: as recorded, or else from its requests, with what the records give to its containers.
    pub(super) fn entry(&mut self, recorded: Option<&PodEntry>, devices: &BTreeMap<&str, Vec<Device>>) -> PodEntry {
        let mut entry = recorded.cloned().unwrap_or_else(|| self.unrecorded());
        for container in &mut entry.containers {
            if let Some(devices) = devices.get(container.request.name.as_str()) {
                self.give(&entry.pod, container, devices);
            }
        }
        for at in 0..entry.containers.len() {
            self.charge_init(&mut entry, at);
        }
        entry
    }

    /// The pod's entry as it is before its first Allocate.
    fn unrecorded(&mut self) -> PodEntry {
        let Pod { uid, namespace, name, containers, .. } = self.pod;
        let pod = PodRef { uid: uid.clone(), namespace: namespace.clone(), name: name.clone() };
        let requests = match self.requests() {
            Ok(requests) => requests,
            Err(problem) => {
                self.notes.push(format!(
                    "pod {pod}: its requests can't be read, so it holds its GPUs exclusively: {problem}"
                ));
                containers.iter().map(|container| without_request(self.context.names, container)).collect()
            }
        };
        PodEntry {
            pod,
            containers: requests.into_iter().map(|request| ContainerEntry { request, holding: None }).collect(),
        }
    }

    fn requests(&self) -> Result<Vec<ContainerRequest>, String> {
        let RestoreContext { names, defaults, .. } = *self.context;
        let request = self.pod.annotations.get(REQUEST).map(|text| annotation::decode::<RequestAnnotation>(text));
        let request = request.transpose().map_err(|error| error.to_string())?;
        pod_requests(names, defaults, request.as_ref(), &self.pod.containers).map_err(|error| error.to_string())
    }

    /// Records these devices for a container. Parts that are recorded already keep their share, nonce and order.
    fn give(&mut self, pod: &PodRef, container: &mut ContainerEntry, devices: &[Device]) {
        let ContainerEntry { request: ContainerRequest { name, request, .. }, holding } = container;
        let whole = GpuRequest::whole(u32::try_from(devices.len()).unwrap_or(u32::MAX));
        // Another plugin allocated the cards whole, whatever the pod requested.
        let foreign = holding.is_none() && (request.is_none() || devices.iter().any(|device| device.slot.is_none()));
        let given = request.filter(|_| !foreign).unwrap_or(whole);
        let recorded = holding.as_ref().map_or(&[][..], |holding| &holding.parts);
        let known =
            |holding: &Holding| FoundContainer { nonce: holding.nonce, terms: holding.terms, shares: Vec::new() };
        let found = holding.as_ref().map_or_else(|| (self.context.found)(pod, name), known);
        let FoundContainer { nonce, terms, .. } = found;
        let parts = self.parts(pod, &self.taken(given, found), recorded, devices);
        if parts.is_empty() {
            return;
        }
        *request = Some(given);
        let origin = if foreign { Origin::Adopted } else { Origin::Restored };
        let origin = holding.as_ref().map_or(origin, |holding| holding.origin);
        *holding = Some(Holding { nonce, parts, origin, terms });
    }

    /// What a request took of its cards: whole cards, where the pod demands that, the node allocates nothing else, or the
    /// container's limits file shows it. What was in host memory is by that file too, if it is found.
    fn taken(&self, request: GpuRequest, found: FoundContainer) -> Taken {
        let wishes = Preferences::from_annotations(&self.pod.annotations).unwrap_or_default();
        let node = &self.context.inventory.node;
        let is_whole = node.undivided || (found.terms.tier == Tier::Mig && !request.is_exclusive());
        let sharing =
            wishes.sharing(is_whole, node.oversubscription.map(|oversubscription| oversubscription.memory_scale));
        Taken { request, sharing, shares: found.shares }
    }

    fn parts(&mut self, pod: &PodRef, taken: &Taken, recorded: &[Part], devices: &[Device]) -> Vec<Part> {
        let position = |device: &Device| recorded.iter().position(|part| part.card == device.card);
        let mut devices: Vec<(Option<usize>, &Device)> =
            devices.iter().map(|device| (position(device), device)).collect();
        devices.sort_by_key(|(recorded, device)| (recorded.unwrap_or(usize::MAX), *device));
        let mut parts = Vec::with_capacity(devices.len());
        for (at, device) in devices {
            let Device { card, slot } = device.clone();
            let share = match at.map(|at| &recorded[at]).filter(|part| !part.is_of_unknown_size()) {
                Some(part) => part.share,
                None => self.share(pod, taken, &card),
            };
            parts.push(Part { card, slot, lost: None, share });
        }
        parts
    }

    /// The share that a request takes of a card, which nobody else gets before its size is known.
    fn share(&mut self, pod: &PodRef, taken: &Taken, card: &CardId) -> Share {
        if let Some(memory) = self.context.inventory.node.card(card).map(|card| card.memory) {
            return taken.share_of(card, memory);
        }
        self.notes.push(format!("pod {pod}: holds {card} exclusively, as that isn't known yet"));
        Part::OF_UNKNOWN_SIZE
    }

    /// The pod's entry with the shares of cards that weren't known before and are now, if there are any.
    pub(super) fn sized(&self, recorded: &PodEntry) -> Option<PodEntry> {
        let mut entry = recorded.clone();
        for ContainerEntry { request, holding } in &mut entry.containers {
            let ContainerRequest { name, request, .. } = request;
            let (Some(request), Some(holding)) = (*request, holding) else { continue };
            let shares = (self.context.found)(&recorded.pod, name).shares;
            let found = FoundContainer { nonce: holding.nonce, terms: holding.terms, shares };
            let taken = self.taken(request, found);
            for part in holding.parts.iter_mut().filter(|part| part.is_of_unknown_size()) {
                if let Some(memory) = self.context.inventory.node.card(&part.card).map(|card| card.memory) {
                    part.share = taken.share_of(&part.card, memory);
                }
            }
        }
        (entry != *recorded).then_some(entry)
    }

    /// Whether the container's limits name devices. One with amounts alone is never given any.
    fn asks_kubelet(&self, container: &str) -> bool {
        let spec = self.pod.containers.iter().find(|spec| spec.name == container);
        spec.is_some_and(|spec| asks_for_cards(self.context.names, spec))
    }

    /// Records an ordinary init container, which the kubelet's records never list, on the cards of the containers after
    /// it: the kubelet feeds those from the init container's devices before it takes others. What the init container
    /// had beyond that stays with the pod too, but nothing says which cards it was.
    fn charge_init(&mut self, entry: &mut PodEntry, at: usize) {
        let [container, later @ ..] = &mut entry.containers[at..] else { return };
        let ContainerRequest { name, kind: ContainerKind::Init, profile, request: Some(request), .. } =
            &container.request
        else {
            return;
        };
        if container.holding.is_some() || !self.asks_kubelet(name) {
            return;
        }
        let found = (self.context.found)(&entry.pod, name);
        let FoundContainer { nonce, terms, .. } = found;
        let taken = self.taken(*request, found);
        let mut parts: Vec<Part> = Vec::new();
        let alike = later.iter().filter(|later| later.request.profile == *profile);
        for part in alike.filter_map(|later| later.holding.as_ref()).flat_map(|holding| &holding.parts) {
            if parts.len() < request.cards as usize && parts.iter().all(|known| known.card != part.card) {
                parts.push(Part { share: self.share(&entry.pod, &taken, &part.card), ..part.clone() });
            }
        }
        if parts.is_empty() {
            return;
        }
        if parts.len() < request.cards as usize {
            let known = parts.len();
            self.notes.push(format!(
                "pod {}: init container \"{name}\" requests {request}, of which {known} can be identified",
                entry.pod
            ));
        }
        container.holding = Some(Holding { nonce, parts, origin: Origin::Restored, terms });
    }
}

/// A container whose request can't be read.
fn without_request(names: &ResourceNames, container: &ContainerSpec) -> ContainerRequest {
    ContainerRequest {
        name: container.name.clone(),
        kind: container.kind,
        profile: profile(names, container),
        request: None,
        counted: counted(names, container),
    }
}
