//! Nodes as whoever compares thousands of them keeps them: what doesn't depend on the pod is worked out once, and lies
//! side by side, as a question to all nodes costs what it takes to read them.
//!
//! Most pods have one claim of one card. For them the best card and its score follow from a few numbers a card, without a
//! search, and are the same that [`plan`](crate::plan()) and [`score`](crate::score()) give. For all others there is a
//! bound that tells which nodes are worth a search.

use std::cmp::Reverse;
use std::ops::Range;

use divvy_contract::annotation::{PolicyName, Preferences};
use divvy_contract::{Claim, ContainerClaim, Memory, MemoryAmount, MigProfile, Share};

use crate::card::{Card, Lacking};
use crate::eligible::barred;
use crate::links::Links;
use crate::plan::PodRequest;
use crate::policy::{self, Bar, Cost, Free, Lot, Mix, Needs, Policy, Prospects, Spot};
use crate::score::NodeScore;

/// Numbers of the cards of some nodes.
#[derive(Clone, Debug, Default)]
pub struct Grounds {
    sites: Vec<Site>,
    /// Of each card, node after node: all that is read of most cards.
    free: Vec<Free>,
    /// Of each card, what the kinds of expected requests weigh together that could use it.
    users: Vec<u64>,
    spots: Vec<Spot>,
}

/// One node of these.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    free: &'a [Free],
    users: &'a [u64],
    spots: &'a [Spot],
    site: &'a Site,
}

#[derive(Clone, Debug, Default)]
struct Site {
    /// Where its cards end; they begin where those of the node before it end.
    end: usize,
    /// How full its cards are together, in thousandths of one.
    load: u64,
    /// The least physical memory of its cards, and no less than is free of any.
    bounds: (Memory, Free),
    prospects: Prospects,
}

/// A pod with one claim of one card.
#[derive(Clone, Debug)]
pub struct Single<'a> {
    claim: Claim,
    profile: Option<&'a MigProfile>,
    preferences: &'a Preferences,
    is_picky: bool,
    cards: &'a Policy,
    nodes: &'a Policy,
    /// Of what is expected by these policies.
    needs: Option<Needs>,
}

/// Any pod, to be compared by what its plans are worth at best.
#[derive(Clone, Debug)]
pub struct Several<'a> {
    pod: PodRequest<'a>,
    is_picky: bool,
    nodes: &'a Policy,
    needs: Option<Needs>,
}

// === impl Single ===

impl<'a> Single<'a> {
    /// The pod, if it is of this kind and none of its containers is settled. `cards` decides between the cards of a node,
    /// `nodes` between nodes.
    pub fn of(pod: &PodRequest<'a>, cards: &'a Policy, nodes: &'a Policy) -> Option<Self> {
        let mut claiming = claiming(pod);
        let (container, claim) = claiming.next()?;
        let is_single = claim.cards == 1 && claiming.next().is_none() && pod.settled.is_empty();
        is_single.then(|| Self {
            claim,
            profile: container.profile.as_ref(),
            preferences: pod.preferences,
            is_picky: is_picky(pod.preferences),
            cards,
            nodes,
            needs: [cards, nodes].iter().find(|policy| policy.looks_ahead()).and_then(|policy| Needs::of(&policy.mix)),
        })
    }
}

// === impl Several ===

impl<'a> Several<'a> {
    /// The pod; `nodes` decides between nodes.
    pub fn of(pod: PodRequest<'a>, nodes: &'a Policy) -> Self {
        let needs = Some(nodes).filter(|policy| policy.looks_ahead()).and_then(|policy| Needs::of(&policy.mix));
        Self { pod, is_picky: is_picky(pod.preferences), nodes, needs }
    }
}

// === impl Grounds ===

impl Grounds {
    /// One node, whose numbers these are; `mix` as in the policies that will be asked about.
    pub fn of(cards: &[Card], links: &Links, mix: &Mix) -> Self {
        let (free, users, spots, prospects) = policy::spots(cards, links, mix);
        let least = spots.iter().map(|spot| spot.memory).min().unwrap_or_default();
        let bounds = (least, free.iter().copied().fold(Free::default(), Free::or));
        Self {
            sites: vec![Site { end: cards.len(), load: policy::load(cards), bounds, prospects }],
            free,
            users,
            spots,
        }
    }

    /// The node at this position.
    #[inline]
    pub fn at(&self, at: usize) -> Option<Ground<'_>> {
        let range = self.range(at);
        let site = self.sites.get(at)?;
        let (free, users) = (&self.free[range.clone()], &self.users[range.clone()]);
        Some(Ground { free, users, spots: &self.spots[range], site })
    }

    /// Puts the first of these nodes in the place of another, and nodes without cards in all places before it that
    /// there aren't yet.
    pub fn put(&mut self, at: usize, node: Self) {
        let last = self.free.len();
        while self.sites.len() <= at {
            self.sites.push(Site { end: last, ..Site::default() });
        }
        let range = self.range(at);
        let (before, after) = (range.len(), node.free.len());
        self.free.splice(range.clone(), node.free);
        self.users.splice(range.clone(), node.users);
        self.spots.splice(range, node.spots);
        self.sites[at..].iter_mut().for_each(|site| site.end = site.end + after - before);
        if let Some(site) = node.sites.into_iter().next() {
            self.sites[at] = Site { end: self.sites[at].end, ..site };
        }
    }

    #[inline]
    fn range(&self, at: usize) -> Range<usize> {
        let end = |at: usize| self.sites.get(at).map_or(self.free.len(), |site| site.end);
        at.checked_sub(1).map_or(0, end)..end(at)
    }
}

// === impl Ground ===

impl<'g> Ground<'g> {
    /// The card that a plan would give the pod, by position, and what the plan is worth; maybe nothing if no plan is as
    /// good as `least`. `cards` are those that this was made of; they are looked at only where that can't be helped.
    pub fn best<'c>(
        self,
        cards: impl Fn() -> &'c [Card],
        pod: &Single<'_>,
        least: Option<&NodeScore>,
    ) -> Option<(usize, NodeScore)> {
        let (memory, free) = self.site.bounds;
        let share = pod.claim.share_on(memory);
        if !free.fits(&share) {
            return None;
        }
        let ahead = pod.needs.as_ref();
        let kept = ahead.map_or(u64::MAX, |needs| needs.most_kept(memory, free, &share));
        let by_one = pod.cards.name == pod.nodes.name;
        let second_and_third = |cost: &Cost| [cost[1], cost[2]];
        let mut most = least.filter(|_| by_one).map_or([u64::MAX; 2], |score| second_and_third(&score.plan.0));
        let strands = pod.cards.name == PolicyName::LeastFragmentation;
        let bar = |most| strands.then(|| self.site.prospects.bar(most, kept));
        let (mut bar_now, mut best) = (bar(most), None::<(Cost, usize, Share)>);
        let wishes = pod.is_picky.then_some(pod.preferences);
        for (at, share) in self.taking(&pod.claim, pod.profile) {
            if bar_now.is_some_and(|bar: Bar| !bar.lets(self.free[at], self.users[at], &share)) {
                continue;
            }
            let lot = self.lot(at, ahead);
            if !lot.may_cost(pod.cards, &share, most) {
                continue;
            }
            let cost = lot.cost(pod.cards, &share, || &cards()[at]);
            let is_better = second_and_third(&cost) <= most && best.is_none_or(|(least, ..)| cost < least);
            if is_better && is_open(&cards, at, pod.profile, wishes) {
                best = Some((cost, at, share));
                most = second_and_third(&cost);
                bar_now = bar(most);
            }
        }
        best.map(|(cost, at, share)| {
            let cost = if by_one { cost } else { self.lot(at, ahead).cost(pod.nodes, &share, || &cards()[at]) };
            (at, self.score(cost, pod.nodes))
        })
    }

    /// What the cards lack for a pod that none of them has room for; `None` where that takes a look at more than numbers.
    pub fn lacking(self, pod: &Single<'_>) -> Option<Lacking> {
        if pod.is_picky || pod.profile.is_some() || self.free.is_empty() {
            return None;
        }
        self.free.iter().zip(self.spots).try_fold(Lacking::default(), |lacking, (free, spot)| {
            let share = pod.claim.share_on(spot.memory);
            let reason = free.lacks(&share, spot.memory_capacity).filter(|_| free.is_plain)?;
            Some(lacking.with(&reason))
        })
    }

    /// What no plan for the pod exceeds; `None`: there is no plan, as one of its containers finds too few cards even if
    /// it is placed alone.
    pub fn at_best<'c>(self, cards: impl Fn() -> &'c [Card], several: &Several<'_>) -> Option<NodeScore> {
        let Several { pod, is_picky, nodes, needs } = several;
        let wishes = is_picky.then_some(pod.preferences);
        let ahead = needs.as_ref();
        let mut least = Cost::default();
        let mut lots: Vec<(Lot<'_>, Share)> = Vec::with_capacity(self.free.len());
        for (container, claim) in claiming(pod) {
            let (profile, wanted) = (container.profile.as_ref(), claim.cards as usize);
            let taking = self.taking(&claim, profile).filter(|(at, _)| is_open(&cards, *at, profile, wishes));
            lots.clear();
            lots.extend(taking.map(|(at, share)| (self.lot(at, ahead), share)));
            if lots.len() < wanted {
                return None;
            }
            // Containers may share their cards, so what the dearest of them costs is all that is certain.
            let cost = policy::least(nodes, &self.site.prospects, &lots, wanted);
            least.iter_mut().zip(cost).for_each(|(least, cost)| *least = cost.max(*least));
        }
        Some(self.score(least, nodes))
    }

    /// The cards with room for a claim alone, and its share of each.
    #[inline]
    fn taking(self, claim: &Claim, profile: Option<&MigProfile>) -> impl Iterator<Item = (usize, Share)> + use<'g> {
        let (claim, is_plain) = (*claim, profile.is_none());
        // An amount is the same on all cards, so that it needn't be known what they have.
        let fixed = matches!(claim.memory, MemoryAmount::Absolute(_)).then(|| claim.share_on(Memory::default()));
        self.free.iter().enumerate().filter_map(move |(at, free)| {
            let share = fixed.unwrap_or_else(|| claim.share_on(self.spots[at].memory));
            (free.fits(&share) && free.is_plain == is_plain).then_some((at, share))
        })
    }

    /// A card, with what is expected to come.
    #[inline]
    fn lot<'q>(self, at: usize, ahead: Option<&'q Needs>) -> Lot<'q>
    where
        'g: 'q,
    {
        Lot {
            free: &self.free[at],
            users: self.users[at],
            spot: &self.spots[at],
            prospects: &self.site.prospects,
            ahead,
        }
    }

    fn score(self, cost: Cost, policy: &Policy) -> NodeScore {
        NodeScore { plan: Reverse(cost), node: Reverse(policy.node_cost(self.site.load, self.free.len())) }
    }
}

fn is_picky(wishes: &Preferences) -> bool {
    [&wishes.models, &wishes.avoid_models].iter().any(|models| !models.is_empty())
        || [&wishes.cards, &wishes.avoid_cards].iter().any(|cards| !cards.is_empty())
}

/// Whether a card with room is one of those that a container asks for, and that the pod's wishes allow.
fn is_open<'c>(
    cards: impl Fn() -> &'c [Card],
    at: usize,
    profile: Option<&MigProfile>,
    wishes: Option<&Preferences>,
) -> bool {
    profile.is_none_or(|_| cards()[at].profile.as_ref() == profile)
        && wishes.is_none_or(|wishes| barred(&cards()[at], wishes).is_none())
}

fn claiming<'a>(pod: &PodRequest<'a>) -> impl Iterator<Item = (&'a ContainerClaim, Claim)> + use<'a> {
    let claims = pod.containers.iter().filter_map(|container| Some((container, container.claim?)));
    claims.filter(|(_, claim)| claim.cards > 0)
}

#[cfg(test)]
mod tests;
