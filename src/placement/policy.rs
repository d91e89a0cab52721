//! Policies: comparators over candidate plans.
//!
//! A policy is a list of criteria, the most important first; of two plans the one with the lower costs is better. Costs
//! never fall when a plan grows, so that half a plan that is no better than a whole one needn't be finished. They are
//! comparable between nodes, so that one list ranks cards and nodes.

mod alone;
mod binpack;
mod random;
mod spread;
mod topology;

use divvy_api::Share;
use divvy_api::annotation::{Numa, PolicyName};

use crate::card_free::CardFree;
use crate::node_state::NodeState;
use crate::problem::Problem;
pub(crate) use alone::{CandidateCard, CardTraits, least, traits};
pub(crate) use random::mixed;
use topology::{BestLinks, FreeSets};

/// How cards and nodes are chosen among those that would do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Which comparator.
    pub name: PolicyName,
    /// Decides all choices of [`PolicyName::Random`]; the same for all nodes of one decision, another for each pod.
    pub seed: u64,
}

/// A plan, or the part of it that is made, as criteria see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Cards of each step, drawn ones as far as possible; empty for steps to come.
    pub(crate) sets: Vec<Vec<usize>>,
    /// Cards that the pod holds or may hold a share of, at its peak.
    pub(crate) touched: Vec<(usize, Share)>,
}

/// Costs by criterion, lower is better.
pub(crate) type Cost = [u64; 5];

#[derive(Clone, Copy)]
enum Criterion {
    /// NUMA nodes beyond the first, of all containers.
    NumaNodes,
    /// Measured utilisation beyond what is allocated, in steps.
    Busy,
    Emptiness,
    Crowding,
    Chance,
    Leftover,
    WorstLink,
    LinksLost,
}

/// A policy at work on one problem.
pub(crate) struct Judge<'a> {
    problem: &'a Problem<'a>,
    policy: &'a Policy,
    /// Numbers of each card before the pod comes.
    candidates: Vec<(CardFree, CardTraits)>,
    /// By card, for [`PolicyName::Random`].
    random_numbers: Vec<u64>,
    free_sets: FreeSets,
    best_links: BestLinks,
}

// === impl Policy ===

impl Policy {
    /// How cards are chosen that are given whole: nobody else gets what a pod leaves of one, so it should be little, whatever
    /// the order of parts.
    pub(crate) const OF_WHOLE: Self = Self { name: PolicyName::LeastFragmentation, seed: 0 };

    /// Whether no plan is better than another.
    pub(crate) fn takes_the_first(&self) -> bool {
        self.name == PolicyName::Random
    }

    /// What ranks nodes whose plans are equal: the fuller node first, or the emptier one where the policy spreads.
    pub(crate) fn node_cost(&self, load: u64, cards: usize) -> u64 {
        match self.name {
            PolicyName::Spread => load,
            PolicyName::Random => 0,
            _ => (1000 * cards as u64).saturating_sub(load),
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// What comes out if these steps choose each card.
    pub(crate) fn new(problem: &Problem<'_>, chosen_by: &[Vec<usize>]) -> Self {
        let set = |step| {
            let chosen = (0..chosen_by.len()).filter(move |card| chosen_by[*card].contains(&step));
            problem.pool(step, chosen_by).into_iter().chain(chosen).collect()
        };
        let shares = chosen_by.iter().enumerate().filter_map(|(card, by)| Some((card, problem.fit(card, by).ok()?)));
        let touched = shares.filter(|(_, share)| *share != Share::default()).collect();
        Self { sets: (0..problem.steps.len()).map(set).collect(), touched }
    }
}

// === impl Criterion ===

impl Criterion {
    fn of_policy(policy: PolicyName) -> &'static [Self] {
        use Criterion::{Busy, Chance, Crowding, Emptiness, Leftover, LinksLost, NumaNodes, WorstLink};
        match policy {
            PolicyName::Binpack => &[NumaNodes, Busy, Emptiness, WorstLink, LinksLost],
            PolicyName::Spread => &[NumaNodes, Busy, Crowding, WorstLink, LinksLost],
            PolicyName::Random => &[NumaNodes, Chance],
            PolicyName::LeastFragmentation => &[NumaNodes, Busy, Leftover, WorstLink, LinksLost],
            PolicyName::Topology => &[NumaNodes, Busy, WorstLink, LinksLost, Leftover],
        }
    }
}

// === impl Judge ===

impl<'a> Judge<'a> {
    pub(crate) fn new(problem: &'a Problem<'a>, policy: &'a Policy) -> Self {
        let candidates =
            problem.state.each().map(|(card, held)| (CardFree::new(card, held), CardTraits::new(card, held, 0)));
        let candidates = candidates.collect();
        let mut random_numbers = Vec::new();
        if policy.name == PolicyName::Random {
            random_numbers.extend(problem.cards().iter().map(|card| random::random_number(policy.seed, card)));
        }
        let free_sets = FreeSets::new(problem.state);
        let best_links = BestLinks::new(problem);
        Self { problem, policy, candidates, random_numbers, free_sets, best_links }
    }

    pub(crate) fn cost(&mut self, outcome: &Outcome) -> Cost {
        let mut cost = Cost::default();
        for (cost, criterion) in cost.iter_mut().zip(Criterion::of_policy(self.policy.name)) {
            *cost = self.measure(*criterion, outcome);
        }
        cost
    }

    /// What ranks nodes whose plans are equal.
    pub(crate) fn node_cost(&self) -> u64 {
        self.policy.node_cost(load(self.problem.state), self.problem.cards().len())
    }

    fn measure(&mut self, criterion: Criterion, outcome: &Outcome) -> u64 {
        let Outcome { touched, .. } = outcome;
        match criterion {
            Criterion::NumaNodes => self.numa_nodes(outcome),
            Criterion::Busy | Criterion::Emptiness | Criterion::Leftover | Criterion::Crowding => {
                let candidate =
                    |card: usize| CandidateCard { free: &self.candidates[card].0, traits: &self.candidates[card].1 };
                touched.iter().map(|(card, share)| candidate(*card).adds(criterion, share)).sum()
            }
            Criterion::Chance => random::chance(&self.random_numbers, outcome),
            Criterion::WorstLink => {
                let linked = (0..self.problem.steps.len()).filter(|step| self.problem.steps[*step].request.cards > 1);
                linked.map(|step| self.best_links.worst_link(self.problem, step, outcome)).sum()
            }
            Criterion::LinksLost => {
                let links = self.problem.links();
                let loose: u64 = self.linked_sets(outcome).map(|set| topology::looseness(links, set)).sum();
                self.free_sets.lost(links, touched) + 2 * loose
            }
        }
    }

    fn numa_nodes(&self, outcome: &Outcome) -> u64 {
        if self.problem.pod.preferences.numa != Some(Numa::Prefer) {
            return 0;
        }
        let repeated = |set: &[usize], at: usize| {
            set[..at].iter().any(|card| self.problem.numa(*card) == self.problem.numa(set[at]))
        };
        let nodes = |set: &Vec<usize>| (1..set.len()).filter(|at| !repeated(set, *at)).count() as u64;
        self.linked_sets(outcome).map(nodes).sum()
    }

    /// Sets of cards that work together.
    fn linked_sets<'o>(&self, outcome: &'o Outcome) -> impl Iterator<Item = &'o Vec<usize>> {
        outcome.sets.iter().zip(&self.problem.steps).filter(|(_, step)| step.request.cards > 1).map(|(set, _)| set)
    }
}

/// How full cards are together, in thousandths of one.
pub(crate) fn load(state: &NodeState) -> u64 {
    state.each().map(|(card, held)| spread::load(card, held)).sum()
}

/// A part of a whole in thousandths; a whole of nothing counts as used up.
fn permille(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1000).checked_div(whole).unwrap_or(1000).min(1000)
}
