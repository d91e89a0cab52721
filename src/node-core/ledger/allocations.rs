//! State of the ledger in memory, without I/O. The [`Ledger`](super::Ledger) journals its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use divvy_api::pod::{PodSum, peak};
use divvy_api::{CardId, Memory, MigProfile, Share, SlotId};
use divvy_placement::Held;
use serde::{Deserialize, Serialize};

use super::entry::{Nonce, Part, PodEntry};
use crate::pod::PodRef;

/// Shares held, by pod and by card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Entries by pod UID.
    pods: BTreeMap<String, Versioned>,
    /// Holders by card, then by pod UID: derived from the entries, so that a card's sum costs its own holders, not all pods.
    cards: BTreeMap<CardId, BTreeMap<String, OnCard>>,
    /// Records of a newer build, for the journal alone.
    unknown: Vec<Unknown>,
}

/// A record of a newer build, which this one can't read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unknown {
    /// The pod's, if it stands where this build looks for it.
    uid: Option<String>,
    json: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Versioned {
    entry: PodEntry,
    /// Revision of the last change of this pod's entry.
    revision: u64,
    /// Record as it was read, where that says more than this build can read.
    written: Option<Vec<u8>>,
}

/// What one pod holds of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OnCard {
    peak: Share,
    slots: BTreeSet<u32>,
}

/// A change of the ledger, as the journal keeps it: a pod's whole entry or its end, so that a lost record affects that pod
/// alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Makes this all that the pod holds. Slots that another pod held become this pod's: the other keeps its share and loses
    /// the slot.
    Hold {
        /// All that the pod holds.
        #[serde(flatten)]
        entry: PodEntry,
        /// What happened, for readers of the journal.
        why: String,
    },
    /// Ends all that the pod holds.
    Release {
        /// Which pod.
        #[serde(flatten)]
        pod: PodRef,
        /// What happened.
        why: String,
    },
}

// === impl Change ===

impl Change {
    /// UID of the pod that it is about.
    pub fn uid(&self) -> &str {
        match self {
            Self::Hold { entry, .. } => &entry.pod.uid,
            Self::Release { pod, .. } => &pod.uid,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold { entry, why } => write!(f, "pod {}: {why}", entry.pod),
            Self::Release { pod, why } => write!(f, "pod {pod}: released, {why}"),
        }
    }
}

// === impl Allocations ===

impl Allocations {
    /// The pod's entry.
    pub fn pod(&self, uid: &str) -> Option<&PodEntry> {
        self.pods.get(uid).map(|versioned| &versioned.entry)
    }

    /// All entries, by UID.
    pub fn pods(&self) -> impl Iterator<Item = &PodEntry> {
        self.pods.values().map(|versioned| &versioned.entry)
    }

    /// Nonces of all holdings.
    pub fn nonces(&self) -> impl Iterator<Item = Nonce> {
        self.pods().flat_map(PodEntry::holdings).map(|(_, holding)| holding.nonce)
    }

    /// The revision at which the pod's entry was last written.
    pub fn changed_at(&self, uid: &str) -> Option<u64> {
        self.pods.get(uid).map(|versioned| versioned.revision)
    }

    /// All entries, each with the revision at which it was last written, and its record if that says more.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&PodEntry, u64, Option<&[u8]>)> {
        self.pods.values().map(|Versioned { entry, revision, written }| (entry, *revision, written.as_deref()))
    }

    /// Records of a newer build, as they were written.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &[u8]> {
        self.unknown.iter().map(|unknown| &*unknown.json)
    }

    /// Keeps a record that this build can't read until its pod ends.
    pub(super) fn keep_unknown(&mut self, uid: Option<&str>, json: &[u8]) {
        self.unknown.push(Unknown { uid: uid.map(str::to_owned), json: json.to_owned() });
    }

    /// Keeps the record of a pod's entry, for as long as the entry stays the same.
    pub(super) fn keep_written(&mut self, uid: &str, json: &[u8]) {
        if let Some(versioned) = self.pods.get_mut(uid) {
            versioned.written = Some(json.to_owned());
        }
    }

    /// What pods other than `except` hold of a card.
    pub fn held(&self, card: &CardId, except: Option<&str>) -> Held {
        self.holders(card, except).fold(Held::default(), |held, (_, on)| held.with(&on.peak))
    }

    /// Host memory that is booked for shares of these cards.
    pub fn host_memory(&self, of: impl Fn(&CardId) -> bool) -> Memory {
        self.cards.keys().filter(|card| of(card)).map(|card| self.held(card, None).host).sum()
    }

    /// Numbers of the card's slots that pods other than `except` hold. A holder that lost its slot doesn't count.
    pub fn slots_held(&self, card: &CardId, except: Option<&str>) -> BTreeSet<u32> {
        self.holders(card, except).flat_map(|(_, on)| on.slots.iter().copied()).collect()
    }

    /// Slots that the kubelet may have on record for a pod, with the profile by which they were asked for: those that
    /// pods hold, and those that they have lost. One that several containers hold comes several times.
    pub fn slots_on_record(&self) -> impl Iterator<Item = (SlotId, Option<&MigProfile>)> {
        self.pods().flat_map(|entry| &entry.containers).flat_map(|container| {
            let parts = container.holding.iter().flat_map(|holding| &holding.parts);
            let on_record = |part: &Part| part.slot.or(part.lost).map(|number| part.card.slot(number));
            parts.filter_map(on_record).map(|slot| (slot, container.request.profile.as_ref()))
        })
    }

    /// The pod that holds a slot, by one container or by several: the kubelet feeds later containers from the slots of
    /// init containers.
    pub fn holder_of(&self, slot: &SlotId) -> Option<&PodEntry> {
        let (uid, _) = self.holders(&slot.card, None).find(|(_, on)| on.slots.contains(&slot.number))?;
        self.pod(uid)
    }

    fn holders(&self, card: &CardId, except: Option<&str>) -> impl Iterator<Item = (&str, &OnCard)> {
        let holders = self.cards.get(card).into_iter().flatten();
        holders.map(|(uid, on)| (uid.as_str(), on)).filter(move |(uid, _)| Some(*uid) != except)
    }

    pub(super) fn apply(&mut self, change: Change, revision: u64) {
        match change {
            Change::Hold { entry, .. } => self.hold(entry, revision),
            Change::Release { pod, .. } => {
                self.unknown.retain(|unknown| unknown.uid.as_ref() != Some(&pod.uid));
                self.drop_pod(&pod.uid);
            }
        }
    }

    fn hold(&mut self, entry: PodEntry, revision: u64) {
        let uid = entry.pod.uid.clone();
        self.drop_pod(&uid);
        let on_cards = on_cards(&entry);
        for (card, on) in &on_cards {
            self.take_slots(card, &on.slots);
        }
        for (card, on) in on_cards {
            self.cards.entry(card).or_default().insert(uid.clone(), on);
        }
        self.pods.insert(uid, Versioned { entry, revision, written: None });
    }

    /// Takes these slots from the pods that hold them.
    fn take_slots(&mut self, card: &CardId, slots: &BTreeSet<u32>) {
        for (uid, on) in self.cards.get_mut(card).into_iter().flatten() {
            let taken: Vec<u32> = on.slots.intersection(slots).copied().collect();
            on.slots.retain(|slot| !taken.contains(slot));
            let Some(versioned) = self.pods.get_mut(uid).filter(|_| !taken.is_empty()) else { continue };
            versioned.written = None;
            for part in versioned.entry.parts_mut() {
                if part.card == *card && part.slot.is_some_and(|slot| taken.contains(&slot)) {
                    part.lose_slot();
                }
            }
        }
    }

    fn drop_pod(&mut self, uid: &str) {
        let Some(versioned) = self.pods.remove(uid) else { return };
        for (_, part) in versioned.entry.parts() {
            if let Some(holders) = self.cards.get_mut(&part.card) {
                holders.remove(uid);
            }
        }
        self.cards.retain(|_, holders| !holders.is_empty());
    }
}

/// What a pod holds of each card: Kubernetes' arithmetic over its containers, card by card.
fn on_cards(entry: &PodEntry) -> BTreeMap<CardId, OnCard> {
    let mut shares: BTreeMap<&CardId, Vec<Share>> = BTreeMap::new();
    let mut slots: BTreeMap<&CardId, BTreeSet<u32>> = BTreeMap::new();
    for (at, part) in entry.parts() {
        let steps = shares.entry(&part.card).or_insert_with(|| vec![Share::default(); entry.containers.len()]);
        steps[at] = steps[at].plus(part.share);
        slots.entry(&part.card).or_default().extend(part.slot);
    }
    let kinds = || entry.containers.iter().map(|container| container.request.kind);
    shares
        .into_iter()
        .map(|(card, steps)| {
            let slots = slots.remove(card).unwrap_or_default();
            (card.clone(), OnCard { peak: peak(kinds().zip(steps)), slots })
        })
        .collect()
}
