//! Cards of thousands of nodes, for a caller that compares all of them: what doesn't depend on the pod is computed once and
//! stored side by side, because a query over all nodes costs as much as reading their numbers.
//!
//! Most pods have one request of one card. For them the best card and its score follow from a few numbers a card, without a
//! search, and are the same that [`plan`](crate::plan()) and [`score`](crate::score()) give. For all others there is a
//! bound that tells which nodes are worth a search.

use std::cmp::Reverse;
use std::ops::Range;

use divvy_api::annotation::{Numa, Preferences};
use divvy_api::gpunode::Oversubscription;
use divvy_api::request::Sharing;
use divvy_api::{ContainerRequest, GpuRequest, Memory, MemoryAmount, MigProfile, NodeCards, Share};
use smallvec::SmallVec;

use crate::card_free::CardFree;
use crate::eligible::Wishes;
use crate::node_state::NodeState;
use crate::nodes::score::NodeScore;
use crate::pod::PodRequest;
use crate::policy::{self, CandidateCard, CardTraits, Cost, Policy};
use crate::reason::Lacking;

/// Numbers of the cards of some nodes.
#[derive(Clone, Debug, Default)]
pub struct CardTable {
    totals: Vec<NodeTotals>,
    /// One entry a card, node after node: all that is read of most cards.
    free: Vec<CardFree>,
    traits: Vec<CardTraits>,
}

/// One node of these.
#[derive(Clone, Copy, Debug)]
pub struct CardRow<'a> {
    free: &'a [CardFree],
    traits: &'a [CardTraits],
    totals: &'a NodeTotals,
}

#[derive(Clone, Debug, Default)]
struct NodeTotals {
    /// Where its cards end; they begin where those of the node before it end.
    end: usize,
    /// How full its cards are together, in thousandths of one.
    load: u64,
    /// Whether its cards are allocated whole or not at all.
    undivided: bool,
    /// How its memory is oversubscribed, with what is left of the host memory.
    oversubscription: Option<Oversubscription>,
    /// The least physical memory of its cards, and no less than is free of any.
    bounds: (Memory, CardFree),
}

/// How a pod shares the cards of a node.
#[derive(Clone, Copy, Debug)]
struct Terms {
    sharing: Sharing,
    /// Host memory that the node has left for it.
    host_memory: Memory,
}

/// The share of each card that a pod takes, by position: nearly always of one.
pub type CardShares = SmallVec<[(usize, Share); 1]>;

/// A pod with one request.
#[derive(Clone, Debug)]
pub struct OneRequest<'a> {
    request: GpuRequest,
    profile: Option<&'a MigProfile>,
    preferences: &'a Preferences,
    wishes: Option<Wishes<'a>>,
}

/// A pod with one request of one card.
#[derive(Clone, Debug)]
pub struct OneCard<'a> {
    one: OneRequest<'a>,
    cards: Policy,
    nodes: Policy,
}

/// Any pod, to be compared by what its plans are worth at best.
#[derive(Clone, Debug)]
pub struct AnyPod<'a> {
    pod: PodRequest<'a>,
    wishes: Option<Wishes<'a>>,
    nodes: Policy,
}

// === impl OneRequest ===

impl<'a> OneRequest<'a> {
    /// The pod, if it is of this kind, none of its containers holds cards already, and any card with enough free will do.
    pub fn from_pod(pod: &PodRequest<'a>) -> Option<Self> {
        let PodRequest { preferences, allocated, .. } = *pod;
        let mut claiming = claiming(pod);
        let (container, request) = claiming.next()?;
        let is_alone = claiming.next().is_none() && allocated.is_empty();
        // Host memory is the node's, not a card's: whether several cards' parts of it fit takes a plan.
        let is_bound = preferences.numa == Some(Numa::Strict) || preferences.oversubscribe || preferences.same_card;
        let is_free = request.cards == 1 || !is_bound;
        (is_alone && is_free).then(|| Self {
            request,
            profile: container.profile.as_ref(),
            preferences,
            wishes: wishes(preferences),
        })
    }
}

// === impl OneCard ===

impl<'a> OneCard<'a> {
    /// The pod, if it is of this kind and none of its containers holds cards already. `cards` decides between the cards of a node,
    /// `nodes` between nodes.
    pub fn from_pod(pod: &PodRequest<'a>, cards: Policy, nodes: Policy) -> Option<Self> {
        let one = OneRequest::from_pod(pod).filter(|one| one.request.cards == 1)?;
        Some(Self { one, cards, nodes })
    }

    /// The request.
    pub fn request(&self) -> &OneRequest<'a> {
        &self.one
    }
}

// === impl AnyPod ===

impl<'a> AnyPod<'a> {
    /// The pod; `nodes` decides between nodes.
    pub fn new(pod: PodRequest<'a>, nodes: Policy) -> Self {
        Self { pod, wishes: wishes(pod.preferences), nodes }
    }
}

// === impl CardTable ===

impl CardTable {
    /// A table of one node.
    pub fn new(state: &NodeState) -> Self {
        let (free, traits) = policy::traits(state);
        let least = traits.iter().map(|traits| traits.memory).min().unwrap_or_default();
        let bounds = (least, free.iter().copied().fold(CardFree::default(), CardFree::or));
        let left = |of| Oversubscription { host_memory: state.host_memory_left(), ..of };
        let totals = NodeTotals {
            end: state.cards().len(),
            load: policy::load(state),
            undivided: state.node.undivided,
            oversubscription: state.node.oversubscription.map(left),
            bounds,
        };
        Self { totals: vec![totals], free, traits }
    }

    /// The node at this position.
    #[inline]
    pub fn at(&self, at: usize) -> Option<CardRow<'_>> {
        let range = self.range(at);
        let totals = self.totals.get(at)?;
        Some(CardRow { free: &self.free[range.clone()], traits: &self.traits[range], totals })
    }

    /// Puts the first of these nodes in the place of another, and nodes without cards in all places before it that
    /// there aren't yet.
    pub fn put(&mut self, at: usize, node: Self) {
        let last = self.free.len();
        while self.totals.len() <= at {
            self.totals.push(NodeTotals { end: last, ..NodeTotals::default() });
        }
        let range = self.range(at);
        let before = range.len();
        let after = node.free.len();
        self.free.splice(range.clone(), node.free);
        self.traits.splice(range, node.traits);
        self.totals[at..].iter_mut().for_each(|totals| totals.end = totals.end + after - before);
        if let Some(totals) = node.totals.into_iter().next() {
            self.totals[at] = NodeTotals { end: self.totals[at].end, ..totals };
        }
    }

    #[inline]
    fn range(&self, at: usize) -> Range<usize> {
        let end = |at: usize| self.totals.get(at).map_or(self.free.len(), |totals| totals.end);
        at.checked_sub(1).map_or(0, end)..end(at)
    }
}

// === impl CardRow ===

impl<'g> CardRow<'g> {
    /// The card that a plan would give the pod, by position, and what the plan is worth; maybe nothing if no plan is as
    /// good as `least`. `node` is the one that this was made of; it is looked at only where that can't be helped.
    pub fn best<'c>(
        self,
        node: impl Fn() -> &'c NodeCards,
        pod: &OneCard<'_>,
        least: Option<&NodeScore>,
    ) -> Option<(usize, NodeScore)> {
        if self.is_whole(pod.one.preferences) {
            self.best_of::<true>(node, pod, least)
        } else {
            self.best_of::<false>(node, pod, least)
        }
    }

    /// The best card, of cards that are allocated `WHOLE` or of others: a type parameter, so that it isn't tested at each card.
    fn best_of<'c, const WHOLE: bool>(
        self,
        node: impl Fn() -> &'c NodeCards,
        pod: &OneCard<'_>,
        least: Option<&NodeScore>,
    ) -> Option<(usize, NodeScore)> {
        let OneRequest { request, profile, preferences, wishes } = &pod.one;
        let (memory, free) = self.totals.bounds;
        let terms = self.terms::<WHOLE>(preferences)?;
        if !free.fits(&request.share_of(memory, terms.sharing)) {
            return None;
        }
        let by = if WHOLE { &Policy::OF_WHOLE } else { &pod.cards };
        let by_one = by.name == pod.nodes.name;
        let second_to_fourth = |cost: &Cost| [cost[1], cost[2], cost[3]];
        let mut most = least.filter(|_| by_one).map_or([u64::MAX; 3], |score| second_to_fourth(&score.plan.0));
        let mut best = None::<(Cost, usize, Share)>;
        for (at, share) in self.taking::<WHOLE>(request, *profile, terms) {
            let candidate = self.candidate(at);
            if !candidate.may_cost(by, &share, most) {
                continue;
            }
            let cost = candidate.cost(by, &share, || &node().cards[at]);
            let is_better = second_to_fourth(&cost) <= most && best.is_none_or(|(least, ..)| cost < least);
            if is_better && is_open(&node, at, *profile, wishes.as_ref()) {
                best = Some((cost, at, share));
                most = second_to_fourth(&cost);
            }
        }
        best.map(|(cost, at, share)| {
            let cost = if by_one { cost } else { self.candidate(at).cost(&pod.nodes, &share, || &node().cards[at]) };
            (at, self.score(cost, &pod.nodes))
        })
    }

    /// The cards with the least left that can take the pod, by position, and its share of each; `None`: it doesn't
    /// fit. Cards with utilisation beyond what is allocated come last. A plan of least fragmentation takes these, or others with as
    /// little left that are linked better.
    pub fn tightest<'c>(self, node: impl Fn() -> &'c NodeCards, pod: &OneRequest<'_>) -> Option<CardShares> {
        if self.is_whole(pod.preferences) {
            self.tightest_of::<true>(node, pod)
        } else {
            self.tightest_of::<false>(node, pod)
        }
    }

    fn tightest_of<'c, const WHOLE: bool>(
        self,
        node: impl Fn() -> &'c NodeCards,
        pod: &OneRequest<'_>,
    ) -> Option<CardShares> {
        let OneRequest { request, profile, preferences, wishes } = pod;
        let taking = self.taking::<WHOLE>(request, *profile, self.terms::<WHOLE>(preferences)?);
        let taking = taking.filter(|(at, _)| is_open(&node, *at, *profile, wishes.as_ref()));
        let order = |(at, _): &(usize, Share)| (self.free[*at].busy, self.free[*at].leftover());
        if request.cards == 1 {
            return Some(CardShares::from_buf([taking.min_by_key(order)?]));
        }
        let mut taking: CardShares = taking.collect();
        let wanted = request.cards as usize;
        if taking.len() < wanted {
            return None;
        }
        taking.sort_by_key(order);
        taking.truncate(wanted);
        Some(taking)
    }

    /// Amounts that the cards lack for a pod that none of them can take; `None` where these numbers don't suffice to tell.
    pub fn lacking(self, pod: &OneCard<'_>) -> Option<Lacking> {
        let OneRequest { request, profile, wishes, .. } = &pod.one;
        if wishes.is_some() || profile.is_some() || self.totals.undivided || self.free.is_empty() {
            return None;
        }
        self.free.iter().zip(self.traits).try_fold(Lacking::default(), |lacking, (free, traits)| {
            let share = request.share_on(traits.memory);
            let reason = free.lacks(&share, traits.memory_capacity).filter(|_| free.is_plain)?;
            Some(lacking.with(&reason))
        })
    }

    /// What no plan for the pod exceeds; `None`: there is no plan, as one of its containers finds too few cards even if
    /// it is placed alone.
    pub fn at_best<'c>(self, node: impl Fn() -> &'c NodeCards, several: &AnyPod<'_>) -> Option<NodeScore> {
        if self.is_whole(several.pod.preferences) {
            self.at_best_of::<true>(node, several)
        } else {
            self.at_best_of::<false>(node, several)
        }
    }

    fn at_best_of<'c, const WHOLE: bool>(
        self,
        node: impl Fn() -> &'c NodeCards,
        several: &AnyPod<'_>,
    ) -> Option<NodeScore> {
        let AnyPod { pod, wishes, nodes } = several;
        let terms = self.terms::<WHOLE>(pod.preferences);
        let mut least = Cost::default();
        let mut candidates: Vec<(CandidateCard<'_>, Share)> = Vec::with_capacity(self.free.len());
        for (container, request) in claiming(pod) {
            let profile = container.profile.as_ref();
            let wanted = request.cards as usize;
            let taking = self.taking::<WHOLE>(&request, profile, terms?);
            let taking = taking.filter(|(at, _)| is_open(&node, *at, profile, wishes.as_ref()));
            candidates.clear();
            candidates.extend(taking.map(|(at, share)| (self.candidate(at), share)));
            if candidates.len() < wanted {
                return None;
            }
            // Containers may share their cards, so what the dearest of them costs is all that is certain.
            let cost = policy::least(nodes, &candidates, wanted);
            least.iter_mut().zip(cost).for_each(|(least, cost)| *least = cost.max(*least));
        }
        Some(self.score(least, nodes))
    }

    /// Whether the pod takes these cards whole; as [`sharing`](crate::sharing).
    #[inline]
    fn is_whole(self, preferences: &Preferences) -> bool {
        self.totals.undivided || preferences.wants_instances()
    }

    /// How a pod with these preferences shares the cards; `None`: the node serves no such pods.
    #[inline]
    fn terms<const WHOLE: bool>(self, preferences: &Preferences) -> Option<Terms> {
        let oversubscription = self.totals.oversubscription;
        if preferences.oversubscribe && oversubscription.is_none() {
            return None;
        }
        let sharing = preferences.sharing(WHOLE, oversubscription.map(|of| of.memory_scale));
        Some(Terms { sharing, host_memory: oversubscription.map_or(Memory::ZERO, |of| of.host_memory) })
    }

    /// Cards that can take a request by itself, and its share of each; all of the card where it is allocated `WHOLE`.
    #[inline]
    fn taking<const WHOLE: bool>(
        self,
        request: &GpuRequest,
        profile: Option<&MigProfile>,
        Terms { sharing, host_memory }: Terms,
    ) -> impl Iterator<Item = (usize, Share)> + use<'g, WHOLE> {
        let request = *request;
        let is_plain = profile.is_none();
        // An amount is the same on all cards, so that it needn't be known what they have.
        let is_fixed = !WHOLE && matches!(request.memory, MemoryAmount::Absolute(_));
        let fixed = is_fixed.then(|| request.share_of(Memory::default(), sharing));
        let is_any_part = !WHOLE && sharing == Sharing::Part;
        self.free.iter().enumerate().filter_map(move |(at, free)| {
            let share = fixed.unwrap_or_else(|| request.share_of(self.traits[at].memory, sharing));
            let is_enough = is_any_part || (request.is_within(self.traits[at].memory) && share.host <= host_memory);
            (is_enough && free.fits(&share) && free.is_plain == is_plain).then_some((at, share))
        })
    }

    #[inline]
    fn candidate(self, at: usize) -> CandidateCard<'g> {
        CandidateCard { free: &self.free[at], traits: &self.traits[at] }
    }

    fn score(self, cost: Cost, policy: &Policy) -> NodeScore {
        NodeScore {
            plan: Reverse(cost),
            is_near: false,
            node: Reverse(policy.node_cost(self.totals.load, self.free.len())),
        }
    }
}

/// What a pod's annotations demand of cards; `None`: any with enough free will do.
fn wishes(preferences: &Preferences) -> Option<Wishes<'_>> {
    let Preferences { models, avoid_models, cards, avoid_cards, tier, oversubscribe, .. } = preferences;
    let is_picky = tier.is_some()
        || *oversubscribe
        || [models, avoid_models].iter().any(|models| !models.is_empty())
        || [cards, avoid_cards].iter().any(|cards| !cards.is_empty());
    is_picky.then(|| Wishes::new(preferences))
}

/// Whether a card with enough free is of the resource that a container requests, and allowed by the pod's annotations.
fn is_open<'c>(
    node: impl Fn() -> &'c NodeCards,
    at: usize,
    profile: Option<&MigProfile>,
    wishes: Option<&Wishes<'_>>,
) -> bool {
    profile.is_none_or(|_| node().cards[at].requested_profile() == profile)
        && wishes.is_none_or(|wishes| wishes.barred(&node().cards[at], node()).is_none())
}

fn claiming<'a>(pod: &PodRequest<'a>) -> impl Iterator<Item = (&'a ContainerRequest, GpuRequest)> + use<'a> {
    let requests = pod.containers.iter().filter_map(|container| Some((container, container.request?)));
    requests.filter(|(_, request)| request.cards > 0)
}

#[cfg(test)]
mod tests;
