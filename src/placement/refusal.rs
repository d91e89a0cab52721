//! Why a container finds no cards, card by card.

use crate::pod::NoPlan;
use crate::problem::Problem;
use crate::reason::Reason;

/// The answer for a step that finds no cards beside those that were chosen before.
pub(crate) fn no_cards(problem: &Problem<'_>, step: usize, chosen_by: &[Vec<usize>]) -> NoPlan {
    let pool = problem.pool(step, chosen_by);
    let cards = 0..problem.cards().len();
    let mut reasons: Vec<_> = cards.map(|card| reason(problem, step, card, &chosen_by[card], &pool)).collect();
    for (card, reason) in reasons.iter_mut().enumerate().filter(|(_, reason)| reason.is_none()) {
        *reason = problem.lacks_host_memory_for(step, card, chosen_by);
    }
    let touched: Vec<usize> = (0..reasons.len()).filter(|card| !chosen_by[*card].is_empty()).collect();
    let held = problem.allocated_shares().into_iter().map(|(card, _)| card);
    let touched: Vec<usize> = touched.into_iter().chain(held).collect();
    for (card, reason) in reasons.iter_mut().enumerate().filter(|(_, reason)| reason.is_none()) {
        *reason = problem.is_apart(card, touched.iter().copied()).then_some(Reason::OtherCard);
    }
    if problem.numa_strict(step) {
        keep_one_node(problem, &pool, &mut reasons);
    }
    let container = &problem.pod.containers[problem.steps[step].container];
    let whole = if problem.sharing.is_whole() { " (whole MIG instances)" } else { "" };
    let wanted = format!("{}{whole}", problem.steps[step].request);
    NoPlan::Nothing { container: container.name.clone(), wanted, reasons }
}

fn reason(problem: &Problem<'_>, step: usize, card: usize, chosen_by: &[usize], pool: &[usize]) -> Option<Reason> {
    let chooses = problem.steps[step].chosen > 0;
    if !chooses && !pool.contains(&card) {
        return Some(Reason::Reused);
    }
    let mut with_step = chosen_by.to_vec();
    with_step.extend(chooses.then_some(step));
    let beside = || problem.fit(card, &with_step).err().map(|_| Reason::OwnPod);
    problem.refusal(card, step).or_else(beside)
}

/// Rules out cards that aren't on the NUMA node with most cards that would do, or on that of the cards in the pool.
fn keep_one_node(problem: &Problem<'_>, pool: &[usize], reasons: &mut [Option<Reason>]) {
    let would_do: Vec<usize> = (0..reasons.len()).filter(|card| reasons[*card].is_none()).collect();
    let company = |card: &usize| would_do.iter().filter(|other| problem.numa(**other) == problem.numa(*card)).count();
    let known = would_do.iter().rev().filter(|card| problem.numa(**card).is_some());
    let anchor = pool.first().or_else(|| known.max_by_key(|card| company(card)));
    let node = anchor.and_then(|card| problem.numa(*card));
    for card in would_do.iter().filter(|card| node.is_none() || problem.numa(**card) != node) {
        reasons[*card] = Some(Reason::Numa);
    }
}
