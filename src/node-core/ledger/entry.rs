//! Entries of the ledger: what one pod requests and holds.

use std::fmt;
use std::str::FromStr;

use divvy_api::{CardId, ContainerRequest, Cores, Memory, Share, SlotId, Terms, Tier};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::pod::PodRef;

/// A pod with what its containers ask for and hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodEntry {
    /// The pod.
    pub pod: PodRef,
    /// All containers of the pod, in admission order.
    pub containers: Vec<ContainerEntry>,
}

/// A container with what it asks for and holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerEntry {
    /// Name, kind and request.
    #[serde(rename = "claim")] // the journal keeps its keys: a rollback reads it
    pub request: ContainerRequest,
    /// What it holds; `None` before its Allocate, and for good where nothing is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<Holding>,
}

/// What one Allocate gave to one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Names the container's limits and region directories.
    pub nonce: Nonce,
    /// One part a card.
    pub parts: Vec<Part>,
    /// How the ledger learnt of it.
    pub origin: Origin,
    /// How it is enforced.
    #[serde(default, skip_serializing_if = "Terms::are_weakest")]
    pub terms: Terms,
}

/// A container's part of one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The card.
    pub card: CardId,
    /// The slot that it was allocated by; `None` once the kubelet has allocated that slot to another pod, and for whole cards
    /// that another plugin allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// The slot that the kubelet has allocated to another pod since. The kubelet may still have it on record for this
    /// container, and then wants it listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u32>,
    /// How much of the card. Stays what it was at Allocate, whatever becomes of the slot.
    pub share: Share,
}

/// How the ledger learnt of a holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// An Allocate of this plugin.
    Allocated,
    /// The kubelet's records and the pod's requests, after the ledger's record was lost.
    Restored,
    /// The kubelet's records alone: another plugin's pod, or one whose requests can't be read. It holds its cards alone.
    Adopted,
}

/// Name of the directories of one holding: random, because the kubelet caches the answer that names them for as long as
/// the pod lives, and a later holding must never find itself in an earlier one's directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce(Uuid);

/// A text that is no nonce.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a nonce: expected 32 lower-case hexadecimal digits")]
pub struct BadNonce(String);

// === impl PodEntry ===

impl PodEntry {
    /// What the container of that name holds.
    pub fn holding(&self, container: &str) -> Option<&Holding> {
        self.container(container)?.holding.as_ref()
    }

    /// Containers that hold anything, by name.
    pub fn holdings(&self) -> impl Iterator<Item = (&str, &Holding)> {
        self.containers
            .iter()
            .filter_map(|container| Some((container.request.name.as_str(), container.holding.as_ref()?)))
    }

    /// The container of that name.
    pub fn container(&self, name: &str) -> Option<&ContainerEntry> {
        self.containers.iter().find(|container| container.request.name == name)
    }

    /// Parts of all containers, with the containers' positions.
    pub(super) fn parts(&self) -> impl Iterator<Item = (usize, &Part)> {
        self.containers.iter().enumerate().flat_map(|(at, container)| {
            container.holding.iter().flat_map(move |holding| holding.parts.iter().map(move |part| (at, part)))
        })
    }

    /// Parts of all containers.
    pub(super) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.containers.iter_mut().filter_map(|container| container.holding.as_mut()).flat_map(|held| &mut held.parts)
    }
}

// === impl Holding ===

impl Holding {
    /// Host memory of the container's part of a card, if the part is the same as this share beside that.
    pub fn host_of(&self, card: &CardId, share: &Share) -> Option<Memory> {
        let part = self.parts.iter().find(|part| part.card == *card)?;
        (Share { host: share.host, ..part.share } == *share).then_some(part.share.host)
    }

    /// How it is enforced on a node that serves this tier: by the hardware where it is nothing but whole MIG instances,
    /// whatever the node serves, and else as the container was made for, as far as the node still serves that.
    pub fn terms_under(&self, served: Tier) -> Terms {
        let made_for = self.terms.under(served);
        let tiers = self.parts.iter().map(|part| part.share.tier_on(&part.card, made_for.tier));
        Terms { tier: tiers.min().unwrap_or(made_for.tier), ..made_for }
    }
}

// === impl Part ===

impl Part {
    /// What is booked of a card whose memory isn't known: all of it.
    pub(super) const OF_UNKNOWN_SIZE: Share =
        Share { memory: Memory::ZERO, host: Memory::ZERO, cores: Cores::FULL, exclusive: true };

    /// Whether it is a part of a card that wasn't known when the ledger learnt of it.
    pub fn is_of_unknown_size(&self) -> bool {
        self.share == Self::OF_UNKNOWN_SIZE
    }

    /// Whether a container that starts with `slot` may be this part's: it holds the slot, or held some slot of that
    /// card before the kubelet allocated it to another pod. Another plugin's containers start without slots.
    pub fn concerns(&self, slot: &SlotId) -> bool {
        self.card == slot.card && self.slot.map_or(self.lost.is_some(), |number| number == slot.number)
    }

    /// Takes the slot away. The share stays: it is in use.
    pub(super) fn lose_slot(&mut self) {
        self.lost = self.slot.take().or(self.lost);
    }

    /// The slot's whole name, while the part has one.
    pub fn slot_id(&self) -> Option<SlotId> {
        self.slot.map(|number| self.card.slot(number))
    }
}

// === impl Nonce ===

impl Nonce {
    /// A new random nonce.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl FromStr for Nonce {
    type Err = BadNonce;

    fn from_str(text: &str) -> Result<Self, BadNonce> {
        // Uuid reads other spellings too; one nonce must have one directory name.
        let nonce = Uuid::try_parse(text).ok().map(Self).filter(|nonce| nonce.to_string() == text);
        nonce.ok_or_else(|| BadNonce(text.to_owned()))
    }
}

impl TryFrom<String> for Nonce {
    type Error = BadNonce;

    fn try_from(text: String) -> Result<Self, BadNonce> {
        text.parse()
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> Self {
        nonce.to_string()
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::{Compute, ComputeLimit, Priority};

    use super::*;

    /// An older daemon reads the journal after a rollback.
    #[test]
    fn terms_are_written_as_before() {
        let weak = Terms { tier: Tier::Shim, ..Terms::default() };
        let limit = ComputeLimit::new(60);
        let terms = Terms { compute: Compute::Burst, compute_limit: limit, priority: Some(Priority::Low), ..weak };
        for (terms, text) in [
            (weak, r#"{"tier":"shim","compute":"cap"}"#),
            (terms, r#"{"tier":"shim","compute":"burst","compute_limit":60,"priority":"low"}"#),
        ] {
            assert_eq!(serde_json::to_string(&terms).expect("JSON"), text);
            assert_eq!(serde_json::from_str::<Terms>(text).expect("terms"), terms);
        }
    }

    #[test]
    fn nonce_has_one_spelling_and_is_a_file_name() {
        let nonce = Nonce::random();
        assert_eq!(nonce.to_string().parse(), Ok(nonce));
        assert!(nonce.to_string().bytes().all(|b| b.is_ascii_hexdigit()));
        let hyphenated = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        for text in ["", "..", "../../etc", hyphenated, "67E5504410B1426F9247BB680E5FE0C8"] {
            assert_eq!(text.parse::<Nonce>(), Err(BadNonce(text.to_owned())));
        }
    }
}
