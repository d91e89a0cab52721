//! Branch and bound over the cards that we choose, container by container.
//!
//! Each choice tries the cards that fit from the policy's best to its worst, so the first plan is a good one; what
//! follows can only improve on it. Cards that can't be told apart are tried once, and so are containers.

use std::mem::replace;

use divvy_api::Share;
use divvy_api::pod::ContainerKind;

use crate::pod::NoPlan;
use crate::policy::{Cost, Judge, Outcome, Policy};
use crate::problem::Problem;
use crate::refusal::no_cards;
use crate::reuse::Step;

/// Bound of the search for a first plan, in checks of one container on one card.
const MOST_CHECKS: u32 = 30_000;
/// Bound of what is spent on better plans once there is one.
const IMPROVEMENT: u32 = 1_000;
/// Rating a plan takes as long as so many checks.
const RATING: u32 = 4;
/// Most choices of one pod, which bounds the depth of the recursion.
const MOST_CHOICES: usize = 512;

pub(crate) struct Search<'a> {
    problem: &'a Problem<'a>,
    policy: &'a Policy,
    judge: Judge<'a>,
    /// For each card the first one with the same facts.
    alike: Vec<usize>,
    /// The steps that choose each card.
    chosen_by: Vec<Vec<usize>>,
    outcome: Outcome,
    best: Option<(Cost, Vec<Vec<usize>>)>,
    checks: u32,
    limit: u32,
    /// Plans were passed over, as their choices were too far from the best.
    cut_short: bool,
    /// Steps in the order in which they are placed.
    order: Vec<usize>,
    /// For each place in `order`, the cards that its step is done with: every plan with one of them is known.
    done_with: Vec<Vec<usize>>,
    /// The furthest place for which cards were sought.
    reached: usize,
    /// The furthest place that found no cards when it was first reached, and why.
    stuck: Option<(usize, NoPlan)>,
}

/// The share that a card had before a choice, if the pod had one there.
struct Undo(Option<Share>);

// === impl Search ===

impl<'a> Search<'a> {
    /// An error if a step has no choice, whatever is chosen for the others.
    pub(crate) fn new(problem: &'a Problem<'a>, policy: &'a Policy) -> Result<Self, NoPlan> {
        let steps = problem.steps.len();
        let order = order(problem)?;
        Ok(Self {
            problem,
            policy,
            judge: Judge::new(problem, policy),
            alike: (0..problem.cards().len()).map(|card| problem.first_alike(card)).collect(),
            chosen_by: vec![Vec::new(); problem.cards().len()],
            outcome: Outcome { sets: vec![Vec::new(); steps], touched: problem.allocated_shares() },
            best: None,
            checks: 0,
            limit: MOST_CHECKS,
            cut_short: false,
            order,
            done_with: vec![Vec::new(); steps],
            reached: 0,
            stuck: None,
        })
    }

    /// The steps that choose each card in the best plan found.
    pub(crate) fn run(mut self) -> Result<Vec<Vec<usize>>, NoPlan> {
        self.place(0, usize::MAX);
        self.improve();
        match (self.best, self.stuck) {
            (Some((_, chosen_by)), _) => Ok(chosen_by),
            (None, Some((_, stuck))) if self.checks < self.limit => Err(stuck),
            (None, _) => Err(NoPlan::GaveUp { steps: self.checks }),
        }
    }

    /// Finds cards for the step at this place of the order and all that follow.
    fn place(&mut self, at: usize, slack: usize) {
        self.reached = self.reached.max(at);
        let Some(step) = self.order.get(at).copied() else { return self.keep() };
        let pool = self.problem.pool(step, &self.chosen_by);
        if !self.problem.numa_strict(step) || self.problem.on_one_node(&pool) {
            self.outcome.sets[step] = pool;
            self.done_with[at] = if self.best.is_none() { self.known_from_equals(at) } else { Vec::new() };
            let mut open = self.problem.open_cards();
            open.retain(|card| self.problem.is_of_kind(*card, step) && !self.done_with[at].contains(card));
            self.pick(at, self.problem.steps[step].chosen, &open, slack);
            self.outcome.sets[step].clear();
        }
        if self.reached == at && self.stuck.as_ref().is_none_or(|(stuck, _)| *stuck < at) {
            self.stuck = Some((at, no_cards(self.problem, step, &self.chosen_by)));
        }
    }

    /// Finds the cards that a step still misses among `open`, then places what follows. All choices from here on may be
    /// this many ranks worse than the best at hand, taken together.
    fn pick(&mut self, at: usize, missing: usize, open: &[usize], slack: usize) {
        if missing == 0 {
            return self.place(at + 1, slack);
        }
        let step = self.order[at];
        let costs = open.iter().filter_map(|card| Some((self.cost(step, *card)?, *card)));
        let mut candidates: Vec<(Cost, usize)> = costs.collect();
        candidates.sort_unstable();
        for rank in 0.. {
            if candidates.len() < missing || self.checks >= self.limit {
                return;
            }
            let (cost, card) = candidates.remove(0);
            if self.best.as_ref().is_some_and(|(best, _)| *best <= cost) {
                return;
            }
            let Some(slack) = slack.checked_sub(rank) else {
                self.cut_short = true;
                return;
            };
            let others: Vec<usize> = candidates.iter().map(|(_, card)| *card).collect();
            if let Some(undo) = self.choose(step, card) {
                self.pick(at, missing - 1, &others, slack);
                self.undo(step, card, undo);
            }
            // Sets without this card need none like it: they would be the same sets.
            candidates.retain(|(_, other)| !self.are_like(card, *other));
            if missing == self.problem.steps[step].chosen {
                let gone = others.into_iter().filter(|other| candidates.iter().all(|(_, left)| left != other));
                self.done_with[at].extend(gone.chain([card]));
            }
        }
    }

    /// Looks for better plans than the first: those that follow the policy's order with few exceptions, then with more
    /// (limited discrepancy search; the first choices are the worst informed, and a plain search would revisit them last).
    fn improve(&mut self) {
        if self.best.is_none() || self.policy.takes_the_first() {
            return;
        }
        self.limit = self.checks.saturating_add(IMPROVEMENT);
        let mut slack = 1;
        self.cut_short = true;
        while self.cut_short && self.checks < self.limit {
            self.cut_short = false;
            self.place(0, slack);
            slack *= 2;
        }
    }

    /// Cards that an equal container placed before is done with. Given to this one they would make the same plans with
    /// the two containers' cards exchanged.
    fn known_from_equals(&self, at: usize) -> Vec<usize> {
        let facts = |step: usize| {
            let Step { kind, request, pool, drawn, .. } = self.problem.steps[self.order[step]];
            (kind == ContainerKind::App && drawn == 0).then_some((request, pool))
        };
        let equal = (0..at).rev().find(|before| facts(at).is_some() && facts(*before) == facts(at));
        equal.map_or_else(Vec::new, |before| self.done_with[before].clone())
    }

    /// A whole plan. The search for the first one ends here.
    fn keep(&mut self) {
        let cost = self.judge.cost(&Outcome::new(self.problem, &self.chosen_by));
        if self.best.is_none() {
            self.limit = self.checks;
        }
        if self.best.as_ref().is_none_or(|(best, _)| cost < *best) {
            self.best = Some((cost, self.chosen_by.clone()));
        }
    }

    /// What the plan costs so far if the step gets this card too; `None` if the card can't be given.
    fn cost(&mut self, step: usize, card: usize) -> Option<Cost> {
        let steps = u32::try_from(self.problem.steps.len()).unwrap_or(u32::MAX);
        self.checks = self.checks.saturating_add(steps.saturating_add(RATING));
        let set = &self.outcome.sets[step];
        if self.problem.numa_strict(step) && !self.problem.on_one_node(&[&set[..set.len().min(1)], &[card]].concat()) {
            return None;
        }
        let undo = self.choose(step, card)?;
        let cost = self.judge.cost(&self.outcome);
        self.undo(step, card, undo);
        Some(cost)
    }

    fn choose(&mut self, step: usize, card: usize) -> Option<Undo> {
        self.chosen_by[card].push(step);
        let beside = self.outcome.touched.iter().filter(|(touched, _)| *touched != card).map(|(_, share)| *share);
        let fits = |share: &Share| self.problem.lacks_host_memory(beside.chain([*share])).is_none();
        let is_apart = self.problem.is_apart(card, self.outcome.touched.iter().map(|(touched, _)| *touched));
        let Some(share) = self.problem.fit(card, &self.chosen_by[card]).ok().filter(|_| !is_apart).filter(fits) else {
            self.chosen_by[card].pop();
            return None;
        };
        self.outcome.sets[step].push(card);
        let touched = &mut self.outcome.touched;
        let before = touched.iter_mut().find(|(touched, _)| *touched == card).map(|(_, old)| replace(old, share));
        if before.is_none() {
            touched.push((card, share));
        }
        Some(Undo(before))
    }

    fn undo(&mut self, step: usize, card: usize, Undo(old): Undo) {
        self.chosen_by[card].pop();
        self.outcome.sets[step].pop();
        match (old, self.outcome.touched.iter_mut().find(|(touched, _)| *touched == card)) {
            (Some(old), Some((_, share))) => *share = old,
            _ => drop(self.outcome.touched.pop()),
        }
    }

    /// Whether two cards could change places in what is planned so far. Links make plans better or worse, but they
    /// matter to none as long as there isn't one.
    fn are_like(&self, a: usize, b: usize) -> bool {
        let as_well_linked = self.best.is_none() || self.problem.links().are_twins(a, b);
        self.alike[a] == self.alike[b] && self.chosen_by[a] == self.chosen_by[b] && as_well_linked
    }
}

/// Steps in the order of their choices, smallest first; but where drawn cards too must be on one NUMA node, the init
/// containers that lend them come first. An error if a step has no choice, whatever is chosen for the others.
fn order(problem: &Problem<'_>) -> Result<Vec<usize>, NoPlan> {
    let hopeless = |step| Err(no_cards(problem, step, &vec![Vec::new(); problem.cards().len()]));
    let lenders_first = (0..problem.steps.len()).any(|step| problem.numa_strict(step) && problem.steps[step].drawn > 0);
    let gave_up = Err(NoPlan::GaveUp { steps: 0 });
    if problem.steps.len() > MOST_CHOICES {
        return gave_up;
    }
    let mut order: Vec<(bool, usize, usize)> = Vec::new();
    for (index, step) in problem.steps.iter().enumerate() {
        let wide = (0..problem.cards().len()).filter(|card| problem.takes(*card, index)).count();
        if wide < (step.request.cards as usize).saturating_sub(problem.lent(index)) {
            return hopeless(index);
        }
        let lender = lenders_first && step.kind == ContainerKind::Init;
        order.push(if lender { (false, 0, index) } else { (true, wide, index) });
    }
    if let Some(step) = (0..problem.cards().len()).find_map(|card| problem.drawn_in_vain(card)) {
        return hopeless(step);
    }
    let drawn = problem.allocated_shares();
    if !problem.steps.is_empty() && problem.lacks_host_memory(drawn.into_iter().map(|(_, share)| share)).is_some() {
        return hopeless(0);
    }
    if problem.steps.iter().map(|step| 1 + step.chosen).sum::<usize>() > MOST_CHOICES {
        return gave_up;
    }
    order.sort_unstable();
    Ok(order.into_iter().map(|(.., step)| step).collect())
}
