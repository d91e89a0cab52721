//! Least fragmentation: keep what is free usable for the requests to come.
//!
//! For each request of the expected mix, the capacity of a node that it could use is what is free on the cards that it
//! fits, if there are enough of them. A plan costs what it takes of that, on average over the mix: the pod's own share,
//! and what it strands. Both dimensions count: a card short of either memory or compute is useless to the request.
//! (After FGD, Weng et al., USENIX ATC 2023, whose measure has one dimension.)

mod prospects;

use divvy_contract::{Claim, Cores, Memory, Share};
use serde::{Deserialize, Serialize};

use crate::card::{Card, Reason};
pub(super) use prospects::KindSet;
pub(crate) use prospects::{Bar, Needs, Prospects};

/// The requests that are expected, from what came before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Kinds of requests; order doesn't matter.
    pub requests: Vec<Expected>,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// What it asks for.
    pub claim: Claim,
    /// How often it comes, relative to the others.
    pub weight: u32,
}

/// What each expected request could use of a node before the pod comes.
pub(super) struct Usable {
    kinds: Vec<Kind>,
    weights: u64,
    /// By card.
    free: Vec<Free>,
    /// By card and kind.
    needs: Vec<Need>,
    /// By kind, for the plan in question: cards that it fitted before and capacity that it could use, now lost.
    lost: Vec<(u32, u64)>,
}

/// A kind of request on this node.
struct Kind {
    weight: u64,
    cards: u32,
    /// Cards that it fits.
    fitting: u32,
    /// What is free on these.
    size: u64,
}

/// What a kind of request asks of a card.
struct Need {
    share: Share,
    /// It fits before the pod comes.
    fits: bool,
}

/// What is free of a card.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Free {
    pub(super) memory: Memory,
    pub(super) cores: Cores,
    /// Nobody holds a share.
    pub(super) whole: bool,
    /// Takes new shares at all.
    pub(super) open: bool,
    /// The card is one of the plain count.
    pub(crate) is_plain: bool,
}

/// Costs closer than this many thousandths of a card are equal: finer differences only open new cards early.
const BUCKET: u64 = 60;
/// Memory that counts as much as one card's compute, in MiB: the unit has to be the same on all cards and nodes.
const REFERENCE_MEMORY: u64 = 80 << 10;

/// Free capacity in thousandths of a card.
#[inline]
fn size(memory: Memory, cores: Cores) -> u64 {
    let memory = memory.as_mib().saturating_mul(1000) / REFERENCE_MEMORY;
    u64::midpoint(memory, u64::from(cores.units()) * 10)
}

// === impl Usable ===

impl Usable {
    pub(super) fn new(cards: &[Card], mix: &[Expected]) -> Self {
        let free: Vec<Free> = cards.iter().map(Free::of).collect();
        let need = |card: usize, claim: &Claim| {
            let share = claim.share_on(cards[card].memory);
            Need { share, fits: free[card].fits(&share) }
        };
        let kind = |Expected { claim, weight }: &Expected| {
            let fits = (0..cards.len()).filter(|card| need(*card, claim).fits);
            let (fitting, size) = fits.fold((0, 0), |(fitting, sum), card| (fitting + 1, sum + free[card].size()));
            Kind { weight: (*weight).into(), cards: claim.cards, fitting, size }
        };
        let kinds: Vec<Kind> = mix.iter().map(kind).collect();
        let weights = kinds.iter().map(|kind| kind.weight).sum();
        let needs = (0..cards.len()).flat_map(|card| mix.iter().map(move |expected| (card, &expected.claim)));
        let needs = needs.map(|(card, claim)| need(card, claim)).collect();
        Self { lost: vec![(0, 0); kinds.len()], kinds, weights, needs, free }
    }

    /// How much less can be used once the pod holds these shares, in buckets.
    pub(super) fn lost(&mut self, touched: &[(usize, Share)]) -> u64 {
        if self.kinds.is_empty() {
            return 0;
        }
        self.lost.fill((0, 0));
        for (card, share) in touched {
            self.touch(*card, share);
        }
        let lost = |(kind, (gone, lost)): (&Kind, &(u32, u64))| match kind.fitting {
            fitting if fitting < kind.cards => 0,
            fitting if fitting - gone < kind.cards => kind.weight.saturating_mul(kind.size),
            _ => kind.weight.saturating_mul(*lost),
        };
        let lost = self.kinds.iter().zip(&self.lost).map(lost).fold(0, u64::saturating_add);
        lost / self.weights.max(1) / BUCKET
    }

    fn touch(&mut self, card: usize, share: &Share) {
        let before = self.free[card];
        let after = before.without(share);
        let (size, less) = (before.size(), before.size() - after.size());
        let needs = &self.needs[card * self.kinds.len()..][..self.kinds.len()];
        for ((gone, lost), need) in self.lost.iter_mut().zip(needs).filter(|(_, need)| need.fits) {
            let fits = after.fits(&need.share);
            *gone += u32::from(!fits);
            *lost += if fits { less } else { size };
        }
    }
}

// === impl Free ===

impl Free {
    pub(super) fn of(card: &Card) -> Self {
        let held = &card.held;
        Self {
            memory: card.memory_capacity.saturating_sub(held.memory),
            cores: card.cores_capacity.saturating_sub(held.cores),
            whole: held.pods == 0,
            open: card.healthy && card.free_slots > 0 && !held.exclusive,
            is_plain: card.profile.is_none(),
        }
    }

    /// As much as either has.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            cores: self.cores.max(other.cores),
            whole: self.whole || other.whole,
            open: self.open || other.open,
            is_plain: self.is_plain || other.is_plain,
        }
    }

    #[inline]
    fn without(self, share: &Share) -> Self {
        Self {
            memory: self.memory.saturating_sub(share.memory),
            cores: self.cores.saturating_sub(share.cores),
            whole: false,
            open: self.open && !share.exclusive,
            ..self
        }
    }

    #[inline]
    pub(crate) fn fits(self, share: &Share) -> bool {
        self.open && share.memory <= self.memory && share.cores <= self.cores && (self.whole || !share.exclusive)
    }

    /// What is short for the share on an open card; `None` if nothing is, or if the card isn't open.
    pub(crate) fn lacks(self, share: &Share, memory_capacity: Memory) -> Option<Reason> {
        let Share { memory, cores, exclusive } = *share;
        let lacks = match () {
            () if memory > memory_capacity => Reason::TooSmall { wanted: memory, capacity: memory_capacity },
            () if exclusive && !self.whole => Reason::Shared { pods: 1 },
            () if memory > self.memory => Reason::Memory { wanted: memory, free: self.memory },
            () if cores > self.cores => Reason::Cores { wanted: cores, free: self.cores },
            () => return None,
        };
        self.open.then_some(lacks)
    }

    #[inline]
    fn size(self) -> u64 {
        size(self.memory, self.cores)
    }

    /// In amounts that are equal on all models, so that a small card is left with less than a large one; more than
    /// nothing, so that fewer cards are better.
    #[inline]
    pub(super) fn leftover(self) -> u64 {
        1 + self.size()
    }
}
