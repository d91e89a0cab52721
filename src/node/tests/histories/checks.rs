//! The invariants, on what containers were given.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use divvy_api::pod::peak;
use divvy_api::{CardId, ContainerKind, Memory, Share, Tier};
use divvy_node::container::limits::{self, Limits};
use divvy_node::container::{LIMITS_FILE, LIMITS_MOUNT};
use divvy_proto::deviceplugin::ContainerAllocateResponse;
use divvy_testkit::outside::Given;
use fake_kubelet::devices::Ids;
use proptest::prelude::*;

use crate::node::{ListedPod, Node, resource};
use crate::seen;

type Shares = BTreeMap<CardId, Share>;

// === impl Node ===

impl Node {
    pub(crate) fn check(&self) -> Result<(), TestCaseError> {
        for pod in self.pods.iter().filter(|pod| !pod.view.has_ended()) {
            for (container, answer) in &pod.given {
                self.agrees(pod, container, answer)?;
            }
            prop_assert!(
                !pod.bad || pod.given.is_empty(),
                "{}: given {:?} for a contradiction",
                pod.view.name,
                pod.given
            );
        }
        self.no_card_is_overfull()?;
        self.host_memory_suffices()?;
        self.held_slots_are_listed()
    }

    /// I1, on the shares in the limits files.
    fn no_card_is_overfull(&self) -> Result<(), TestCaseError> {
        for card in &self.cards {
            let live = self.pods.iter().filter(|pod| !pod.view.has_ended());
            let held: Vec<(&str, Share)> = live.map(|pod| (&*pod.view.name, pod.peak_on(&card.id))).collect();
            let held: Vec<_> = held.into_iter().filter(|(_, share)| *share != Share::default()).collect();
            let memory = held.iter().map(|(_, share)| share.on_card()).sum::<Memory>();
            let cores: u32 = held.iter().map(|(_, share)| share.cores.units()).sum();
            let alone = held.len() < 2 || held.iter().all(|(_, share)| !share.exclusive);
            let fits = memory <= card.memory_capacity() && cores <= card.cores_capacity().units() && alone;
            prop_assert!(fits, "I1: card {} is overfull: {:?}", card.id, held);
            let oversubscribed = held.iter().filter(|(_, share)| !share.host.is_zero()).count();
            prop_assert!(oversubscribed == 0 || oversubscribed == held.len(), "{}: mixed: {:?}", card.id, held);
            if oversubscribed > 1 && held.iter().map(|(_, share)| share.memory).sum::<Memory>() > card.memory {
                seen("more requested than the card has");
            }
        }
        Ok(())
    }

    /// The same of host memory, which is the whole node's.
    fn host_memory_suffices(&self) -> Result<(), TestCaseError> {
        let live = self.pods.iter().filter(|pod| !pod.view.has_ended());
        let host = |pod: &ListedPod| self.cards.iter().map(|card| pod.peak_on(&card.id).host).sum::<Memory>();
        let held: Vec<(&str, Memory)> = live.map(|pod| (&*pod.view.name, host(pod))).collect();
        let capacity = self.disk.oversubscription.map_or(Memory::ZERO, |of| of.host_memory);
        let all: Memory = held.iter().map(|(_, host)| *host).sum();
        prop_assert!(all <= capacity, "I1: {all} of {capacity} host memory are held: {held:?}");
        Ok(())
    }

    /// I2 and I3: what the container was given, what the books say and what lies behind its slots are the same.
    fn agrees(
        &self,
        pod: &ListedPod,
        container: &str,
        answer: &ContainerAllocateResponse,
    ) -> Result<(), TestCaseError> {
        let at = format!("{} {container}", pod.view.name);
        let allocator = self.daemon().allocator();
        let entry = allocator.ledger().allocations().pod(&pod.view.uid);
        let holding = entry.and_then(|entry| entry.holding(container));
        let Some(holding) = holding else {
            return Err(TestCaseError::fail(format!("I3: {at}: has its devices, and the books know nothing of it")));
        };
        let booked: Shares = holding.parts.iter().map(|part| (part.card.clone(), part.share)).collect();
        prop_assert_eq!(&booked, &shares(answer), "I2: {}: books and limits file", &at);
        if booked.keys().all(|id| self.cards.iter().any(|card| card.id == *id && card.tier == Tier::Accounting)) {
            prop_assert_eq!(
                limits(answer).map(|limits| limits.terms.tier),
                Some(Tier::Accounting),
                "{}: of cards of that tier",
                at
            );
            seen("cards of a weaker tier");
        }
        let named = Given::read(answer).named;
        prop_assert!(!named.is_empty(), "I2: {}: no card is named", at);
        for (place, named) in named {
            let cards: BTreeSet<String> = booked.keys().map(ToString::to_string).collect();
            prop_assert_eq!(&named, &cards, "I2: {}: {} and books", &at, place);
        }
        if let Some(grant) = self.devices.grant(&pod.view.uid, container, resource(&pod.view, container)) {
            let behind: BTreeSet<&str> = grant.ids.iter().map(|id| id.split_once("::").unwrap().0).collect();
            let cards: BTreeSet<&str> = booked.keys().map(CardId::as_str).collect();
            prop_assert_eq!(behind, cards, "I2: {}: slots and books", &at);
            let booked: Vec<_> = holding.parts.iter().map(|part| part.slot_id().map(|slot| slot.to_string())).collect();
            for slot in &booked {
                match slot {
                    Some(slot) => prop_assert!(grant.ids.contains(slot), "I2: {}: {} in the books alone", at, slot),
                    None => seen("slot handed out twice"),
                }
            }
        }
        Ok(())
    }

    /// I4: the kubelet may look up every ID that it has on record for a pod that it may admit again.
    fn held_slots_are_listed(&self) -> Result<(), TestCaseError> {
        for pod in self.pods.iter().filter(|pod| !pod.view.has_ended()) {
            let held = self.devices.held.get(&pod.view.uid).into_iter().flat_map(BTreeMap::values);
            let held: Ids = held.flat_map(BTreeMap::values).flat_map(|grant| grant.ids.clone()).collect();
            let missing = &held - &self.listed;
            prop_assert!(missing.is_empty(), "I4: {} holds {:?}, listed are {:?}", pod.view.name, missing, self.listed);
        }
        Ok(())
    }

    /// After a look at a whole list the books hold shares of live pods only.
    pub(crate) fn nothing_leaked(&self) -> Result<(), TestCaseError> {
        for entry in self.daemon().allocator().ledger().allocations().pods() {
            let live = self.pods.iter().any(|pod| pod.view.uid == entry.pod.uid && !pod.view.has_ended());
            prop_assert!(live, "{} is over and holds its shares", entry.pod);
        }
        Ok(())
    }

    /// After a start there is a directory for each holding, and no other but those of listed pods that hold nothing.
    pub(crate) fn only_live_directories(&self) -> Result<(), TestCaseError> {
        let allocator = self.daemon().allocator();
        let allocations = allocator.ledger().allocations();
        let live: BTreeSet<String> = allocations.nonces().map(|nonce| nonce.to_string()).collect();
        let is_unmatched = |uid: &str| {
            allocations.pod(uid).is_none() && self.pods.iter().any(|pod| pod.view.uid == uid && !pod.view.has_ended())
        };
        for (name, pod) in self.disk.containers() {
            let may_stay = live.contains(&name) || pod.as_deref().is_some_and(is_unmatched);
            prop_assert!(may_stay, "directory {name} of pod {pod:?}, live are {live:?}");
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> Result<(), TestCaseError> {
        let allocator = self.daemon().allocator();
        let allocations = allocator.ledger().allocations();
        prop_assert_eq!(allocations.pods().count(), 0, "shares of pods that are gone");
        prop_assert_eq!(self.disk.containers(), [], "directories of pods that are gone");
        Ok(())
    }
}

// === impl ListedPod ===

impl ListedPod {
    fn peak_on(&self, card: &CardId) -> Share {
        let share = |name: &str| self.given.get(name).and_then(|answer| shares(answer).get(card).copied());
        let steps = self.view.containers.iter().map(|container| (container.kind, share(&container.name)));
        peak(steps.map(|(kind, share): (ContainerKind, Option<Share>)| (kind, share.unwrap_or_default())))
    }
}

/// What the container finds in its limits.
fn limits(answer: &ContainerAllocateResponse) -> Option<Limits> {
    let mount = answer.mounts.iter().find(|mount| mount.container_path == LIMITS_MOUNT)?;
    limits::read(&fs::read_to_string(Path::new(&mount.host_path).join(LIMITS_FILE)).ok()?).ok()
}

fn shares(answer: &ContainerAllocateResponse) -> Shares {
    limits(answer).map(|limits| limits.cards.into_iter().collect()).unwrap_or_default()
}
