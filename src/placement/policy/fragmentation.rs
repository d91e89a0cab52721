//! Least fragmentation: keep what is free usable for the requests to come.
//!
//! For each request of the expected mix, the capacity of a node that it could use is what is free on the cards that it
//! fits, if there are enough of them. A plan costs what it takes of that, on average over the mix: the pod's own share,
//! and what it strands. Both dimensions count: a card short of either memory or compute is useless to the request.
//! (After FGD, Weng et al., USENIX ATC 2023, whose measure has one dimension.)

use divvy_contract::{Claim, Cores, Memory, Share};
use serde::{Deserialize, Serialize};

use crate::card::Card;

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

/// The same for pods that take a share of one card.
#[derive(Clone, Debug, Default)]
pub(super) struct Prospects {
    kinds: Box<[Prospect]>,
    weights: u64,
}

/// A kind of request on this node, before the pod comes.
#[derive(Clone, Copy, Debug)]
struct Prospect {
    claim: Claim,
    weight: u64,
    /// Cards that it fits beyond those that it needs; negative: too few.
    spare: i64,
    /// What is free on those that it fits.
    size: u64,
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) memory: Memory,
    pub(super) cores: Cores,
    /// Nobody holds a share.
    pub(super) whole: bool,
    /// Takes new shares at all.
    pub(super) open: bool,
}

/// Costs closer than this many thousandths of a card are equal: finer differences only open new cards early.
const BUCKET: u64 = 60;
/// Memory that counts as much as one card's compute, in MiB: the unit has to be the same on all cards and nodes.
const REFERENCE_MEMORY: u64 = 80 << 10;

/// Free capacity in thousandths of a card.
pub(super) fn size(memory: Memory, cores: Cores) -> u64 {
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

// === impl Prospects ===

impl Prospects {
    pub(super) fn new(cards: &[Card], mix: &[Expected]) -> Self {
        let prospect = |Expected { claim, weight }: &Expected| {
            let free = cards.iter().map(|card| (Free::of(card), claim.share_on(card.memory)));
            let fits = free.filter(|(free, share)| free.fits(share));
            let (fitting, size) = fits.fold((0, 0), |(fitting, sum), (free, _)| (fitting + 1, sum + free.size()));
            Prospect { claim: *claim, weight: (*weight).into(), spare: fitting - i64::from(claim.cards), size }
        };
        let kinds: Box<[Prospect]> = mix.iter().map(prospect).collect();
        // A kind that finds too few cards has nothing to lose.
        let weights = kinds.iter().map(|kind| kind.weight).sum();
        Self { kinds: kinds.into_iter().filter(|kind| kind.spare >= 0).collect(), weights }
    }

    /// As [`Usable::lost`] for a share of one card with this memory, of which this is free.
    pub(super) fn lost(&self, memory: Memory, before: Free, share: &Share) -> u64 {
        self.in_buckets(self.sum(memory, before, share, |kind, size| if kind.spare > 0 { size } else { kind.size }))
    }

    /// What a share of this card adds at least to what a plan loses, whatever else the plan takes. To be added up, and
    /// then put [`in_buckets`](Self::in_buckets).
    pub(super) fn least(&self, memory: Memory, before: Free, share: &Share) -> u64 {
        self.sum(memory, before, share, |_, size| size)
    }

    /// `gone` is what a kind loses that no longer fits the card, given what was free on it.
    fn sum(&self, memory: Memory, before: Free, share: &Share, gone: impl Fn(&Prospect, u64) -> u64) -> u64 {
        if self.kinds.is_empty() {
            return 0;
        }
        let after = before.without(share);
        let (size, less) = (before.size(), before.size() - after.size());
        let lost = |kind: &Prospect| {
            let need = kind.claim.share_on(memory);
            if !before.fits(&need) {
                return 0;
            }
            kind.weight.saturating_mul(if after.fits(&need) { less } else { gone(kind, size) })
        };
        self.kinds.iter().map(lost).fold(0, u64::saturating_add)
    }

    /// As plans are compared.
    pub(super) fn in_buckets(&self, lost: u64) -> u64 {
        lost / self.weights.max(1) / BUCKET
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
        }
    }

    fn without(self, share: &Share) -> Self {
        Self {
            memory: self.memory.saturating_sub(share.memory),
            cores: self.cores.saturating_sub(share.cores),
            whole: false,
            open: self.open && !share.exclusive,
        }
    }

    pub(super) fn fits(self, share: &Share) -> bool {
        self.open && share.memory <= self.memory && share.cores <= self.cores && (self.whole || !share.exclusive)
    }

    fn size(self) -> u64 {
        size(self.memory, self.cores)
    }
}
