//! A node as whoever compares thousands of them keeps it: what doesn't depend on the pod is worked out once.
//!
//! Most pods have one claim of one card. For them the best card and its score follow from a few numbers a card, without a
//! search, and are the same that [`plan`](crate::plan()) and [`score`](crate::score()) give. For all others there is a
//! bound that tells which nodes are worth a search.

use std::cmp::Reverse;

use divvy_contract::annotation::Preferences;
use divvy_contract::{Claim, ContainerClaim, MigProfile, Share};

use crate::card::Card;
use crate::eligible::barred;
use crate::links::Links;
use crate::plan::PodRequest;
use crate::policy::{self, Cost, Mix, Policy, Spots};
use crate::score::NodeScore;

/// Numbers of a node's cards.
#[derive(Clone, Debug)]
pub struct Ground {
    spots: Spots,
    /// How full its cards are together, in thousandths of one.
    load: u64,
}

/// A pod with one claim of one card.
#[derive(Clone, Copy, Debug)]
pub struct Single<'a> {
    claim: Claim,
    profile: Option<&'a MigProfile>,
    preferences: &'a Preferences,
    policy: &'a Policy,
}

// === impl Single ===

impl<'a> Single<'a> {
    /// The pod, if it is of this kind and none of its containers is settled.
    pub fn of(pod: &PodRequest<'a>, policy: &'a Policy) -> Option<Self> {
        let mut claiming = claiming(pod);
        let (container, claim) = claiming.next()?;
        let is_single = claim.cards == 1 && claiming.next().is_none() && pod.settled.is_empty();
        is_single.then_some(Self { claim, profile: container.profile.as_ref(), preferences: pod.preferences, policy })
    }
}

// === impl Ground ===

impl Ground {
    /// The numbers of these cards; `mix` as in the policies that will be asked about.
    pub fn new(cards: &[Card], links: &Links, mix: &Mix) -> Self {
        Self { spots: Spots::new(cards, links, mix), load: policy::load(cards) }
    }

    /// The card that a plan would give the pod, by position, and what the plan is worth. `cards` are those that this was
    /// made of.
    pub fn best(&self, cards: &[Card], pod: &Single<'_>) -> Option<(usize, NodeScore)> {
        let mut best: Option<(Cost, usize)> = None;
        for (at, share) in self.taking(cards, &pod.claim, pod.profile, pod.preferences) {
            let cost = self.spots.cost(cards, pod.policy, at, &share);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, at));
            }
        }
        best.map(|(cost, card)| (card, self.score(cost, pod.policy)))
    }

    /// What no plan for the pod exceeds; `None`: there is no plan, as one of its containers finds too few cards even if
    /// it is placed alone.
    pub fn at_best(&self, cards: &[Card], pod: &PodRequest<'_>, policy: &Policy) -> Option<NodeScore> {
        let mut least = Cost::default();
        for (container, claim) in claiming(pod) {
            let taking = self.taking(cards, &claim, container.profile.as_ref(), pod.preferences);
            let (taking, wanted) = (taking.collect::<Vec<_>>(), claim.cards as usize);
            if taking.len() < wanted {
                return None;
            }
            // Containers may share their cards, so what the dearest of them costs is all that is certain.
            let cost = self.spots.least(cards, policy, &taking, wanted);
            least.iter_mut().zip(cost).for_each(|(least, cost)| *least = cost.max(*least));
        }
        Some(self.score(least, policy))
    }

    /// The cards that would take a claim alone, and its share of each.
    fn taking<'a>(
        &'a self,
        cards: &'a [Card],
        claim: &'a Claim,
        profile: Option<&'a MigProfile>,
        wishes: &'a Preferences,
    ) -> impl Iterator<Item = (usize, Share)> + use<'a> {
        let is_picky = [&wishes.models, &wishes.avoid_models].iter().any(|models| !models.is_empty())
            || [&wishes.cards, &wishes.avoid_cards].iter().any(|cards| !cards.is_empty());
        self.spots.spots.iter().enumerate().filter_map(move |(at, spot)| {
            let share = claim.share_on(spot.memory);
            let is_of_kind = if profile.is_none() { spot.is_plain } else { cards[at].profile.as_ref() == profile };
            let is_open = spot.takes(&share) && is_of_kind && !(is_picky && barred(&cards[at], wishes).is_some());
            is_open.then_some((at, share))
        })
    }

    fn score(&self, cost: Cost, policy: &Policy) -> NodeScore {
        NodeScore { plan: Reverse(cost), node: Reverse(policy.node_cost(self.load, self.spots.spots.len())) }
    }
}

fn claiming<'a>(pod: &PodRequest<'a>) -> impl Iterator<Item = (&'a ContainerClaim, Claim)> + use<'a> {
    let claims = pod.containers.iter().filter_map(|container| Some((container, container.claim?)));
    claims.filter(|(_, claim)| claim.cards > 0)
}

#[cfg(test)]
mod tests;
