//! Every interleaving of reservations, releases and deaths, with the steps that the code takes.
//!
//! The steps are recorded from [`Account::reserve`] itself, once granted and once refused. All orders in which some
//! processes can take them are then tried, and the same for steps in other orders, which must fail: so the search is known
//! to be able to. It assumes that each access is seen at once by all; what a machine may do beyond that is `tests/loom.rs`.

use std::collections::HashSet;

use super::*;
use crate::owned::Owned;
use crate::sync::traced::{Access, record};

/// A step of a program. `Own` is the line of whoever takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    AddTent,
    SubTent,
    AddCommitted,
    SubCommitted,
    ReadTent(usize),
    ReadCommitted(usize),
}

/// What the code does, cut where it decides.
#[derive(Clone, Debug)]
struct Program {
    try_: Vec<Step>,
    granted: Vec<Step>,
    refused: Vec<Step>,
    release: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Trying,
    Granted,
    Refused,
    Holding,
    Releasing,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Actor {
    slot: usize,
    phase: Phase,
    at: usize,
    sum: u8,
    rounds: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Line {
    tentative: u8,
    committed: u8,
    dead: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    lines: Vec<Line>,
    actors: Vec<Actor>,
    kills: u8,
}

/// Who takes part: the slot of each thread, how often it frees what it got and reserves anew, how many die. Each wants one.
#[derive(Clone, Copy, Debug)]
struct Cast {
    slots: usize,
    actors: &'static [usize],
    limit: u8,
    rounds: u8,
    kills: u8,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
struct Findings {
    states: usize,
    over_limit: bool,
    refused_wrongly: bool,
    left_over: bool,
}

const CASTS: [Cast; 9] = [
    Cast { slots: 2, actors: &[0, 1], limit: 1, rounds: 0, kills: 0 },
    Cast { slots: 3, actors: &[0, 2], limit: 1, rounds: 1, kills: 0 },
    Cast { slots: 1, actors: &[0, 0], limit: 1, rounds: 1, kills: 0 },
    Cast { slots: 1, actors: &[0, 0, 0], limit: 2, rounds: 1, kills: 1 },
    Cast { slots: 2, actors: &[0, 1], limit: 1, rounds: 1, kills: 1 },
    Cast { slots: 2, actors: &[0, 0, 1], limit: 1, rounds: 0, kills: 1 },
    Cast { slots: 2, actors: &[0, 1, 1], limit: 2, rounds: 1, kills: 0 },
    Cast { slots: 3, actors: &[0, 1, 2], limit: 1, rounds: 0, kills: 0 },
    Cast { slots: 3, actors: &[0, 1, 2], limit: 2, rounds: 0, kills: 1 },
];

// === impl Program ===

impl Program {
    /// What `reserve` and `release` do where `slots` are in use.
    fn of_the_code(slots: usize) -> Self {
        let owned = Owned::with_high(1, slots, u32::try_from(slots).expect("few"));
        let accounts = owned.region().accounts(0).expect("it has a card");
        let account = accounts.account(0).expect("it has a slot");
        let steps = |act: &dyn Fn()| -> Vec<Step> { steps(accounts.uses, &record(act)) };
        let granted = steps(&|| assert_eq!(account.reserve(1, 1, || ()), Reservation::Reserved));
        let refused = steps(&|| assert_eq!(account.reserve(1, 1, || ()), Reservation::OutOfMemory { used: 1 }));
        let release = steps(&|| account.release(1));
        let decision = 1 + 2 * slots;
        assert_eq!(granted[..decision], refused[..decision], "it decides after the sum");
        Self {
            try_: granted[..decision].to_vec(),
            granted: granted[decision..].to_vec(),
            refused: refused[decision..].to_vec(),
            release,
        }
    }

    /// With `committed` read before `tentative`, the tentative dropped before `committed` grows, or both.
    fn reordered(slots: usize, reads: bool, settles: bool) -> Self {
        let mut program = Self::of_the_code(slots);
        if reads {
            program.try_[1..].chunks_mut(2).for_each(<[Step]>::reverse);
        }
        if settles {
            program.granted.reverse();
        }
        program
    }
}

/// The first slot's accesses to `tentative` and `committed`.
fn steps(uses: &[Use], accesses: &[Access]) -> Vec<Step> {
    let find = |address: usize| {
        uses.iter().enumerate().find_map(|(slot, line)| {
            let words = [(&line.tentative, true), (&line.committed, false)];
            words.into_iter().find(|(word, _)| word.address() == address).map(|(_, tentative)| (slot, tentative))
        })
    };
    let step = |access: &Access| match *access {
        Access::Read(word) => {
            find(word).map(|(slot, tentative)| if tentative { Step::ReadTent(slot) } else { Step::ReadCommitted(slot) })
        }
        Access::Changed(word, by) => find(word).map(|(slot, tentative)| match (slot, tentative, by) {
            (0, true, 1) => Step::AddTent,
            (0, true, -1) => Step::SubTent,
            (0, false, 1) => Step::AddCommitted,
            (0, false, -1) => Step::SubCommitted,
            other => unreachable!("no step of the protocol: {other:?}"),
        }),
        Access::Fence(_) => None,
    };
    accesses.iter().filter_map(step).collect()
}

// === impl State ===

impl State {
    fn new(cast: &Cast) -> Self {
        let actor = |slot: &usize| Actor { slot: *slot, phase: Phase::Trying, at: 0, sum: 0, rounds: cast.rounds };
        Self {
            lines: vec![Line::default(); cast.slots],
            actors: cast.actors.iter().map(actor).collect(),
            kills: cast.kills,
        }
    }

    /// All that can happen next.
    fn next(&self, cast: &Cast, program: &Program, found: &mut Findings) -> Vec<Self> {
        let mut all = Vec::new();
        for index in 0..self.actors.len() {
            let mut state = self.clone();
            if state.act(index, cast, program, found) {
                all.push(state);
            }
        }
        for slot in 0..self.lines.len() {
            if self.kills > 0 && self.actors.iter().any(|actor| actor.slot == slot) {
                all.push(self.kill(slot));
            }
            all.extend(self.reap(slot, cast));
        }
        all
    }

    fn kill(&self, slot: usize) -> Self {
        let mut state = self.clone();
        state.kills -= 1;
        state.lines[slot].dead = true;
        state.actors.iter_mut().filter(|actor| actor.slot == slot).for_each(|actor| actor.phase = Phase::Done);
        state
    }

    /// One word at a time; then another process claims the slot.
    fn reap(&self, slot: usize, cast: &Cast) -> Option<Self> {
        let mut state = self.clone();
        match &mut state.lines[slot] {
            Line { dead: false, .. } => return None,
            Line { tentative: tentative @ 1.., .. } => *tentative = 0,
            Line { committed: committed @ 1.., .. } => *committed = 0,
            line => {
                line.dead = false;
                let new = *Self::new(cast).actors.iter().find(|actor| actor.slot == slot)?;
                *state.actors.iter_mut().find(|actor| actor.slot == slot)? = new;
            }
        }
        Some(state)
    }

    /// The step that an actor takes next, if it isn't done.
    fn act(&mut self, index: usize, cast: &Cast, program: &Program, found: &mut Findings) -> bool {
        let mut actor = self.actors[index];
        let steps = match actor.phase {
            Phase::Trying => &program.try_,
            Phase::Granted => &program.granted,
            Phase::Refused => &program.refused,
            Phase::Releasing => &program.release,
            Phase::Holding if actor.rounds > 0 => {
                // The driver frees first.
                self.actors[index] = Actor { phase: Phase::Releasing, at: 0, ..actor };
                return true;
            }
            Phase::Holding | Phase::Done => return false,
        };
        let line = &mut self.lines[actor.slot];
        match steps[actor.at] {
            Step::AddTent => line.tentative += 1,
            Step::SubTent => line.tentative -= 1,
            Step::AddCommitted => line.committed += 1,
            Step::SubCommitted => line.committed -= 1,
            Step::ReadTent(slot) => actor.sum += self.lines[slot].tentative,
            Step::ReadCommitted(slot) => actor.sum += self.lines[slot].committed,
        }
        actor.at += 1;
        if actor.at == steps.len() {
            let (phase, rounds) = match actor.phase {
                Phase::Trying if actor.sum <= cast.limit => (Phase::Granted, actor.rounds),
                Phase::Trying => (Phase::Refused, actor.rounds),
                Phase::Refused if actor.sum < cast.limit => (Phase::Trying, actor.rounds),
                Phase::Refused => {
                    let nobody_freed = cast.rounds == 0 && cast.kills == 0;
                    found.refused_wrongly |= nobody_freed && self.held() < cast.limit;
                    (Phase::Done, 0)
                }
                Phase::Releasing => (Phase::Trying, actor.rounds - 1),
                Phase::Granted | Phase::Holding | Phase::Done => (Phase::Holding, actor.rounds),
            };
            actor = Actor { phase, at: 0, sum: 0, rounds, ..actor };
        }
        self.actors[index] = actor;
        true
    }

    /// What the driver has given out, or will.
    fn held(&self) -> u8 {
        self.actors.iter().map(|actor| u8::from(matches!(actor.phase, Phase::Granted | Phase::Holding))).sum()
    }

    fn books_are_right(&self) -> bool {
        let committed: u8 = self.lines.iter().map(|line| line.committed).sum();
        committed == self.held() && self.lines.iter().all(|line| line.tentative == 0)
    }
}

fn explore(cast: &Cast, program: &Program) -> Findings {
    let mut found = Findings::default();
    let mut open = vec![State::new(cast)];
    let mut seen: HashSet<State> = open.iter().cloned().collect();
    while let Some(state) = open.pop() {
        found.over_limit |= state.held() > cast.limit;
        let next = state.next(cast, program, &mut found);
        found.left_over |= next.is_empty() && !state.books_are_right();
        open.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
    }
    found.states = seen.len();
    found
}

#[test]
fn no_interleaving_exceeds_the_limit() {
    for cast in CASTS {
        let found = explore(&cast, &Program::of_the_code(cast.slots));
        assert!(!found.over_limit && !found.refused_wrongly && !found.left_over, "{cast:?}: {found:?}");
        assert!(found.states > 100, "{cast:?}: {found:?}");
    }
}

#[test]
fn every_reordering_exceeds_the_limit() {
    for (reads, settles) in [(true, false), (false, true), (true, true)] {
        let exceeds = |cast: &Cast| explore(cast, &Program::reordered(cast.slots, reads, settles)).over_limit;
        assert!(CASTS.iter().any(exceeds), "reads {reads}, settles {settles}");
    }
}

#[test]
fn fence_separates_publishing_from_summing() {
    let owned = Owned::with_high(1, 2, 2);
    let account = owned.region().accounts(0).expect("a card").account(0).expect("a slot");
    let accesses = record(|| assert_eq!(account.reserve(1, 1, || ()), Reservation::Reserved));
    assert_eq!(accesses[0], Access::Changed(account.own.tentative.address(), 1));
    assert_eq!(accesses[1], Access::Fence(Ordering::SeqCst));
}
