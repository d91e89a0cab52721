//! The limits file, as `divvy-node` writes it (`delivery/limits.rs`): read whole, believed whole or not at all.
//!
//! ```text
//! divvy-limits v1
//! # for people
//! tier shim
//! compute cap
//! pod 5d8e01f4-… default trainer-0
//! container main
//! card GPU-8f6d… memory-mib 8192 cores 30 exclusive 0
//! end
//! ```

use core::fmt;
use core::str::from_utf8;

use divvy_region::clock::{Compute, Rank};
use divvy_region::layout::CARDS;

pub(crate) mod overhead;

/// What the container holds. Cards come in the order of the region's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Who keeps them.
    pub(crate) tier: Tier,
    /// Whether idle time of others may be used.
    pub(crate) compute: Compute,
    /// Who goes first where there isn't enough of that.
    pub(crate) rank: Rank,
    cards: [Card; CARDS],
    count: usize,
}

/// How shares are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// By this library.
    Shim,
    /// Compute by the driver's multi-process service, memory here too: the service knows processes, no containers.
    Mps,
    /// Not here. A node that has changed its mind leaves the library where it is.
    Other,
}

/// One card's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) id: Id,
    /// In bytes.
    pub(crate) memory: u64,
    /// Percent of its compute; 0: no promise.
    pub(crate) cores: u32,
    /// It is the container's alone.
    pub(crate) exclusive: bool,
}

/// A card's name, such as `GPU-8f6d…` or `MIG-…`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id {
    bytes: [u8; ID],
    length: usize,
}

/// The longest name.
const ID: usize = 96;
/// The longest file: 64 cards with names of 96 letters.
pub(crate) const LONGEST: usize = 16 << 10;

/// A text that is no limits file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Counted from 1.
    pub(crate) line: usize,
    /// What should stand there.
    pub(crate) expected: &'static str,
}

const NOBODY: Card = Card { id: Id { bytes: [0; ID], length: 0 }, memory: 0, cores: 0, exclusive: false };

// === impl Limits ===

impl Limits {
    /// What a file says.
    pub(crate) fn read(text: &[u8]) -> Result<Self, Malformed> {
        let text = from_utf8(text).ok().ok_or(Malformed { line: 1, expected: "text" })?;
        let body = text.strip_suffix("\nend\n").ok_or(Malformed { line: text.lines().count(), expected: "end" })?;
        let lines = body.split('\n').enumerate().filter(|(_, line)| !line.starts_with('#'));
        let mut lines = lines.map(|(at, line)| (at + 1, line)).chain(core::iter::repeat((0, "")));
        let mut next = |expected: &'static str| {
            let (line, text) = lines.next().unwrap_or_default();
            (text, Malformed { line, expected })
        };
        let (header, malformed) = next("divvy-limits v1");
        (header == malformed.expected).then_some(()).ok_or(malformed)?;
        let (tier, malformed) = next("tier <tier>");
        let tier = match tier.strip_prefix("tier ").ok_or(malformed)? {
            "shim" => Tier::Shim,
            "mps" => Tier::Mps,
            _ => Tier::Other,
        };
        let (compute, malformed) = next("compute <cap|burst> [high|low]");
        let mut words = compute.strip_prefix("compute ").ok_or(malformed)?.split(' ');
        let compute = match words.next() {
            Some("cap") => Compute::Cap,
            Some("burst") => Compute::Burst,
            _ => return Err(malformed),
        };
        let rank = match (words.next(), words.next()) {
            (None, _) => Rank::Usual,
            (Some("high"), None) => Rank::First,
            (Some("low"), None) => Rank::Last,
            _ => return Err(malformed),
        };
        let (pod, malformed) = next("pod <uid> <namespace> <name>");
        pod.strip_prefix("pod ").ok_or(malformed)?;
        let (container, malformed) = next("container <name>");
        container.strip_prefix("container ").ok_or(malformed)?;
        let mut limits = Self { tier, compute, rank, cards: [NOBODY; CARDS], count: 0 };
        loop {
            let (line, malformed) = next("card <uuid> memory-mib <n> cores <n> exclusive <0|1>");
            if malformed.line == 0 && limits.count > 0 {
                return Ok(limits);
            }
            let card = Card::read(line).filter(|card| limits.find(&card.id).is_none()).ok_or(malformed)?;
            *limits.cards.get_mut(limits.count).ok_or(malformed)? = card;
            limits.count += 1;
        }
    }

    /// The cards of the container.
    pub(crate) fn cards(&self) -> &[Card] {
        &self.cards[..self.count.min(CARDS)]
    }

    /// The position of a card.
    pub(crate) fn find(&self, id: &Id) -> Option<usize> {
        self.cards().iter().position(|card| card.id == *id)
    }
}

// === impl Card ===

impl Card {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut after = |name: &str| (words.next()? == name).then(|| words.next())?;
        let id = Id::new(after("card")?.as_bytes())?;
        let memory = number(after("memory-mib")?)?.checked_mul(1 << 20)?;
        let cores = u32::try_from(number(after("cores")?)?).ok()?;
        let exclusive = match after("exclusive")? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        words.next().is_none().then_some(Self { id, memory, cores, exclusive })
    }
}

/// Digits alone, without zeros in front.
fn number(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| canonical)
}

// === impl Id ===

impl Id {
    pub(crate) fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; ID];
        bytes.get_mut(..name.len()).filter(|bytes| !bytes.is_empty())?.copy_from_slice(name);
        Some(Self { bytes, length: name.len() })
    }

    /// Of a card or an instance whose UUID has these bytes: the driver doesn't say which of them.
    pub(crate) fn of_uuid(kind: &str, uuid: [u8; 16]) -> Option<Self> {
        let mut name = [0; ID];
        let mut at = 0;
        let mut put = |byte: u8| {
            name[at] = byte;
            at += 1;
        };
        kind.bytes().for_each(&mut put);
        for (position, byte) in uuid.into_iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                put(b'-');
            }
            let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
            put(digit(byte >> 4));
            put(digit(byte & 15));
        }
        Self::new(&name[..at])
    }

    pub(crate) fn as_str(&self) -> &str {
        from_utf8(&self.bytes[..self.length.min(ID)]).unwrap_or("?")
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
