//! What a share of one card strands, and which cards strand too much, found without asking each kind of request.

use divvy_contract::{Claim, Cores, Memory, MemoryAmount, Share};

use super::{BUCKET, Expected, Free, Mix};
use crate::card::Card;

/// What each expected request could use of a node before a pod comes that takes a share of one card.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prospects {
    /// As in the mix.
    kinds: Box<[Prospect]>,
    weights: u64,
    /// Kinds that lose all that they could use when they lose one card.
    tight: KindSet,
}

/// The mix, sorted so that the kinds that fit a card are found without asking each.
#[derive(Clone, Debug)]
pub(crate) struct Needs {
    /// Kinds that share cards, by the memory that they need …
    by_memory: Vec<(Memory, KindSet)>,
    by_percent: Vec<(u32, KindSet)>,
    /// … and by the compute. Each with all before it.
    by_cores: Vec<(Cores, KindSet)>,
    /// What the kinds of each four weigh together.
    weights: Vec<[u64; 16]>,
}

/// What a card must not exceed to be as good as another, so that the others are passed over without a division.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    /// Below this it loses less, …
    lost: u64,
    /// … from this on more; between them what is left over decides.
    more: u64,
    leftover: u64,
    kept: u64,
}

/// Kinds of requests by their positions in the mix.
pub(in crate::policy) type KindSet = u64;

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

// === impl Prospects ===

impl Prospects {
    pub(in crate::policy) fn new(cards: &[Card], mix: &[Expected]) -> Self {
        let prospect = |Expected { claim, weight }: &Expected| {
            let free = cards.iter().map(|card| (Free::of(card), claim.share_on(card.memory)));
            let fits = free.filter(|(free, share)| free.fits(share));
            let (fitting, size) = fits.fold((0, 0), |(fitting, sum), (free, _)| (fitting + 1, sum + free.size()));
            Prospect { claim: *claim, weight: (*weight).into(), spare: fitting - i64::from(claim.cards), size }
        };
        let kinds: Box<[Prospect]> = mix.iter().map(prospect).collect();
        let weights = kinds.iter().map(|kind| kind.weight).sum();
        Self { tight: set_of(kinds.iter().map(|kind| kind.spare == 0)), kinds, weights }
    }

    /// As [`Usable::lost`](super::Usable::lost) for a share of one card with this memory, of which this is free.
    pub(in crate::policy) fn lost(&self, memory: Memory, before: Free, share: &Share) -> u64 {
        self.in_buckets(self.sum(memory, before, share, |kind, size| if kind.spare > 0 { size } else { kind.size }))
    }

    /// The same, in less time. `users` are the [kinds](Self::users) that could use the card, with what they weigh.
    pub(in crate::policy) fn lost_of(
        &self,
        needs: &Needs,
        users: (KindSet, u64),
        memory: Memory,
        before: Free,
        share: &Share,
    ) -> u64 {
        let (of_card, gone) = needs.lost(users, memory, before, share);
        let beyond = members(gone & self.tight).map(|kind| {
            let Prospect { weight, size, .. } = self.kinds[kind];
            weight.saturating_mul(size - before.size())
        });
        self.in_buckets(beyond.fold(of_card, u64::saturating_add))
    }

    /// The kinds that could use a card with this memory, of which this is free, and what they weigh together.
    pub(in crate::policy) fn users(&self, memory: Memory, free: Free) -> (KindSet, u64) {
        let uses = |kind: &Prospect| kind.spare >= 0 && free.fits(&kind.claim.share_on(memory));
        let weights = self.kinds.iter().filter(|kind| uses(kind)).map(|kind| kind.weight);
        (set_of(self.kinds.iter().map(uses)), weights.fold(0, u64::saturating_add))
    }

    /// Whether nothing is expected.
    pub(in crate::policy) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The bar for cards of a node that may lose so much, by the first, and have so much left over, by the second. No
    /// more than `kept` of their users' weight is kept afterwards.
    pub(crate) fn bar(&self, [lost, leftover]: [u64; 2], kept: u64) -> Bar {
        let bucket = self.weights.max(1).saturating_mul(BUCKET);
        let (lost, more) = (lost.saturating_mul(bucket), lost.saturating_add(1).saturating_mul(bucket));
        Bar { lost, more, leftover, kept }
    }

    /// What a share of this card adds at least to what a plan loses, whatever else the plan takes. To be added up, and
    /// then put [`in_buckets`](Self::in_buckets).
    pub(in crate::policy) fn least(&self, memory: Memory, before: Free, share: &Share) -> u64 {
        self.sum(memory, before, share, |_, size| size)
    }

    /// `gone` is what a kind loses that no longer fits the card, given what was free on it.
    fn sum(&self, memory: Memory, before: Free, share: &Share, gone: impl Fn(&Prospect, u64) -> u64) -> u64 {
        let after = before.without(share);
        let (size, less) = (before.size(), before.size() - after.size());
        let lost = |kind: &Prospect| {
            let need = kind.claim.share_on(memory);
            // A kind that finds too few cards has nothing to lose.
            if kind.spare < 0 || !before.fits(&need) {
                return 0;
            }
            kind.weight.saturating_mul(if after.fits(&need) { less } else { gone(kind, size) })
        };
        self.kinds.iter().map(lost).fold(0, u64::saturating_add)
    }

    /// As plans are compared.
    pub(in crate::policy) fn in_buckets(&self, lost: u64) -> u64 {
        lost / self.weights.max(1) / BUCKET
    }
}

// === impl Bar ===

impl Bar {
    /// Whether a card may be as good, whose users weigh this together.
    #[inline]
    pub(crate) fn lets(&self, before: Free, users: u64, share: &Share) -> bool {
        let left = before.without(share).size().saturating_mul(self.kept.min(users));
        let least = before.size().saturating_mul(users).saturating_sub(left);
        least < self.lost || (least < self.more && before.leftover() <= self.leftover)
    }
}

// === impl Needs ===

impl Needs {
    /// `None` for a mix of nothing, or of more kinds than a set holds.
    pub(crate) fn of(mix: &Mix) -> Option<Self> {
        if mix.requests.is_empty() || mix.requests.len() > KindSet::BITS as usize {
            return None;
        }
        // After a share is taken of a card, nobody gets it alone.
        let sharing =
            || mix.requests.iter().map(|kind| kind.claim).enumerate().filter(|(_, claim)| !claim.is_exclusive());
        let amount = |(kind, claim): (usize, Claim)| match claim.memory {
            MemoryAmount::Absolute(memory) => Some((memory, 1 << kind)),
            MemoryAmount::Percent(_) => None,
        };
        let percent = |(kind, claim): (usize, Claim)| match claim.memory {
            MemoryAmount::Percent(percent) => Some((percent, 1 << kind)),
            MemoryAmount::Absolute(_) => None,
        };
        let weight = |four: &[Expected], set: usize| {
            members(set as KindSet).filter_map(|kind| four.get(kind)).fold(0, |sum, kind| sum + u64::from(kind.weight))
        };
        let weights = mix.requests.chunks(4).map(|four| std::array::from_fn(|set| weight(four, set)));
        Some(Self {
            by_memory: running(sharing().filter_map(amount).collect()),
            by_percent: running(sharing().filter_map(percent).collect()),
            by_cores: running(sharing().map(|(kind, claim)| (claim.cores, 1 << kind)).collect()),
            weights: weights.collect(),
        })
    }

    /// What the users of a card lose of it to a share, and those of them that can't use it any more.
    pub(in crate::policy) fn lost(
        &self,
        (users, weight): (KindSet, u64),
        memory: Memory,
        before: Free,
        share: &Share,
    ) -> (u64, KindSet) {
        let after = before.without(share);
        let kept = users & self.met_by(memory, after);
        let left = after.size().saturating_mul(self.weight(kept));
        (before.size().saturating_mul(weight).saturating_sub(left), users & !kept)
    }

    /// What the kinds weigh at most that could use a card with no less memory than this, of which no more than this is
    /// free before it gives a share.
    #[inline]
    pub(crate) fn most_kept(&self, memory: Memory, before: Free, share: &Share) -> u64 {
        self.weight(self.met_by(memory, before.without(share)))
    }

    /// The kinds that fit a card with this memory, of which this is free and somebody has a share.
    #[inline]
    fn met_by(&self, memory: Memory, free: Free) -> KindSet {
        if !free.open {
            return 0;
        }
        let by_memory = up_to(&self.by_memory, |need| *need <= free.memory);
        let by_percent = up_to(&self.by_percent, |percent| MemoryAmount::Percent(*percent).of(memory) <= free.memory);
        (by_memory | by_percent) & up_to(&self.by_cores, |need| *need <= free.cores)
    }

    #[inline]
    fn weight(&self, mut kinds: KindSet) -> u64 {
        let mut sum = 0;
        for four in &self.weights {
            sum += four[(kinds & 15) as usize];
            kinds >>= 4;
        }
        sum
    }
}

/// Sorted, each with all kinds before it.
fn running<N: Ord>(mut needs: Vec<(N, KindSet)>) -> Vec<(N, KindSet)> {
    needs.sort_unstable();
    let mut all = 0;
    for (_, kinds) in &mut needs {
        all |= *kinds;
        *kinds = all;
    }
    needs
}

fn up_to<N>(needs: &[(N, KindSet)], is_met: impl Fn(&N) -> bool) -> KindSet {
    let met = needs.partition_point(|(need, _)| is_met(need));
    met.checked_sub(1).map_or(0, |last| needs[last].1)
}

/// Positions beyond those that a set holds are left out.
fn set_of(kinds: impl Iterator<Item = bool>) -> KindSet {
    kinds.take(KindSet::BITS as usize).enumerate().fold(0, |set, (kind, is_in)| set | KindSet::from(is_in) << kind)
}

fn members(mut set: KindSet) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = (set > 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(first)
    })
}
