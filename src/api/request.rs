//! Normalised requests: what one container asks for, of how many cards.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card_id::MigProfile;
use crate::pod::{ContainerKind, PodSum};
use crate::quantity::{Cores, Memory, parse_count, parse_memory};
use crate::share::Share;

/// A normalised request: `cards` distinct cards, and of each the same part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct GpuRequest {
    /// Number of distinct cards, at least 1.
    pub cards: u32,
    /// Memory of each card.
    pub memory: MemoryAmount,
    /// Compute of each card, 0 to 100; 100 makes the request exclusive.
    pub cores: Cores,
}

/// A container and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContainerRequest {
    /// The container's name.
    pub name: String,
    /// What it is to its pod.
    pub kind: ContainerKind,
    /// The MIG profile whose instances it asks for; `None`: cards of the plain count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<MigProfile>,
    /// GPUs it asks for; containers without a request take part in the order but hold nothing.
    #[serde(rename = "claim", default)] // the journal keeps its keys: a rollback reads it
    pub request: Option<GpuRequest>,
    /// What scheduler and kubelet count for it, whatever it requests beyond that: its limits.
    #[serde(default)]
    pub counted: Totals,
}

/// Memory in one of the two forms that users write; which form is kept, because amounts are published per form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum MemoryAmount {
    /// MiB of each card.
    Absolute(Memory),
    /// Percent of each card, 1 to 100.
    Percent(u32),
}

/// Amounts of a request that doesn't name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Memory of a request that names cores alone; `None`: the same percentage as its cores.
    pub memory: Option<MemoryAmount>,
    /// Cores of a request that names memory alone.
    pub cores: Cores,
}

/// How a request becomes a share of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// The part that is asked for.
    #[default]
    Part,
    /// All of the card, whatever part is asked for.
    Whole,
    /// The part that is asked for, with its memory divided by this scale on the card and the rest in host memory. In percent,
    /// above 100.
    Oversubscribed(u32),
}

/// Most cards that one container can request; far above any node, so that sums can't overflow.
pub const MOST_CARDS: u64 = 1024;
/// Most memory of one card in MiB (1 PiB), likewise.
pub const MOST_MEMORY: u64 = 1 << 30;

/// Amounts over all cards of a request, as limits spell them and as scheduler and kubelet count them; 0 where a limit is
/// absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Totals {
    /// Number of cards.
    pub count: u64,
    /// MiB.
    pub memory: u64,
    /// Percent.
    pub percent: u64,
    /// Core units.
    pub cores: u64,
}

/// Part of an oversubscribed share's memory that isn't booked of its card: what the memory divided by the scale, rounded up,
/// leaves of it. At least 1 MiB: such a share is known by this part.
fn host_part(memory: Memory, percent: u32) -> Memory {
    let mib = memory.as_mib();
    let on_card = (u128::from(mib) * 100).div_ceil(u128::from(percent.max(1)));
    let on_card = u64::try_from(on_card).unwrap_or(u64::MAX).min(mib.saturating_sub(1));
    Memory::mib(mib - on_card)
}

// === impl Sharing ===

impl Sharing {
    /// Whether cards are taken whole.
    pub fn is_whole(self) -> bool {
        self == Self::Whole
    }
}

// === impl Totals ===

impl Totals {
    /// Each amount of both, joined by a function.
    #[must_use]
    pub fn each(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            count: of(self.count, other.count),
            memory: of(self.memory, other.memory),
            percent: of(self.percent, other.percent),
            cores: of(self.cores, other.cores),
        }
    }
}

impl PodSum for Totals {
    fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn max(self, other: Self) -> Self {
        self.each(other, u64::max)
    }
}

// === impl GpuRequest ===

impl GpuRequest {
    /// `cards` whole cards: what `nvidia.com/gpu: n` alone has always meant.
    pub fn whole(cards: u32) -> Self {
        Self { cards, memory: MemoryAmount::Percent(100), cores: Cores::FULL }
    }

    /// Refuses what the type allows and no container can request: for requests that somebody has written down.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self { cards, .. } if !(1..=MOST_CARDS).contains(&(*cards).into()) => {
                Err(format!("{cards} GPUs, allowed are 1 to {MOST_CARDS}"))
            }
            Self { cores, .. } if *cores > Cores::FULL => {
                Err(format!("{cores} cores, allowed are 0 to {}", Cores::FULL))
            }
            _ => Ok(()),
        }
    }

    /// Whether each card is held alone.
    pub fn is_exclusive(&self) -> bool {
        self.cores >= Cores::FULL
    }

    /// The share this request takes of a card with `memory`.
    pub fn share_on(&self, memory: Memory) -> Share {
        let exclusive = self.is_exclusive();
        Share { memory: self.memory.on_card(memory), host: Memory::ZERO, cores: self.cores, exclusive }
    }

    /// The share where requests become shares in this way. A whole card has no part in host memory.
    #[inline]
    pub fn share_of(&self, memory: Memory, sharing: Sharing) -> Share {
        match sharing {
            Sharing::Part => self.share_on(memory),
            Sharing::Whole => Self::whole(self.cards).share_on(memory),
            Sharing::Oversubscribed(_) if self.is_exclusive() => self.share_on(memory),
            Sharing::Oversubscribed(percent) => {
                let share = self.share_on(memory);
                Share { host: host_part(share.memory, percent), ..share }
            }
        }
    }

    /// Whether a card with `memory` has as much as is requested of it.
    pub fn is_within(&self, memory: Memory) -> bool {
        self.memory.on_card(memory) <= memory
    }

    /// The amounts that the webhook writes as limit and request.
    pub fn totals(&self) -> Totals {
        let count = u64::from(self.cards);
        let (memory, percent) = match self.memory {
            MemoryAmount::Absolute(memory) => (memory.as_mib().saturating_mul(count), 0),
            MemoryAmount::Percent(percent) => (0, u64::from(percent) * count),
        };
        Totals { count, memory, percent, cores: u64::from(self.cores.units()) * count }
    }
}

impl fmt::Display for GpuRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cards == 1 { "GPU" } else { "GPUs" };
        if *self == Self::whole(self.cards) {
            return write!(f, "{} whole {plural}", self.cards);
        }
        write!(f, "{} {plural} with {} memory and {} cores each", self.cards, self.memory, self.cores)
    }
}

// === impl MemoryAmount ===

impl MemoryAmount {
    /// The amount on a card with `memory`; a percentage gives at least 1 MiB.
    pub fn on_card(self, memory: Memory) -> Memory {
        match self {
            Self::Absolute(amount) => amount,
            Self::Percent(percent) => memory.percent(percent).max(Memory::mib(1)),
        }
    }
}

impl FromStr for MemoryAmount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("\"{text}\" is not an amount of memory: expected 1% to 100% or an amount such as 8Gi");
        match text.strip_suffix('%') {
            Some(number) => {
                let percent = parse_count(number).ok().filter(|percent| (1..=100).contains(percent));
                percent.and_then(|percent| u32::try_from(percent).ok()).map(Self::Percent).ok_or_else(refused)
            }
            None => match parse_memory(text) {
                Ok(memory) if (1..=MOST_MEMORY).contains(&memory.as_mib()) => Ok(Self::Absolute(memory)),
                _ => Err(refused()),
            },
        }
    }
}

impl TryFrom<String> for MemoryAmount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<MemoryAmount> for String {
    fn from(amount: MemoryAmount) -> Self {
        amount.to_string()
    }
}

impl fmt::Display for MemoryAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute(memory) => memory.fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

// === impl Defaults ===

impl Default for Defaults {
    fn default() -> Self {
        Self { memory: None, cores: Cores::ZERO }
    }
}
