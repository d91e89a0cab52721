//! Every interleaving of reservations, releases and deaths, with the steps that the code takes.
//!
//! The steps are recorded from [`Account::reserve`] itself, once granted and once refused. All orders in which some
//! processes can take them are then tried, and the same for steps in other orders, which must fail: so the search is known
//! to be able to. It assumes that each access is seen at once by all; what a machine may do beyond that is `tests/loom.rs`.

mod program;

use std::collections::HashSet;

use super::*;
use crate::owned::Owned;
use crate::sync::traced::{Access, record};
use program::{Kind, Programs, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Trying,
    Checking,
    Granted,
    Refused,
    Holding,
    Releasing,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Actor {
    slot: usize,
    kind: Kind,
    phase: Phase,
    at: usize,
    sum: u8,
    physical: u8,
    /// What was read of the line that it is at, before the other of the two.
    committed: Option<u8>,
    managed: Option<u8>,
    grants: u8,
    rounds: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Line {
    tentative: u8,
    committed: u8,
    managed: u8,
    dead: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    lines: Vec<Line>,
    grants: u8,
    actors: Vec<Actor>,
    kills: u8,
}

/// Who takes part: the slot of each thread and what it wants one of, how often it frees what it got and reserves anew, how
/// many die.
#[derive(Clone, Copy, Debug)]
struct Cast {
    slots: usize,
    actors: &'static [(usize, Kind)],
    limit: MemoryLimit,
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

const P: Kind = Kind::Physical;
const M: Kind = Kind::Managed;

const fn cast(slots: usize, actors: &'static [(usize, Kind)], limit: u64, rounds: u8, kills: u8) -> Cast {
    Cast { slots, actors, limit: MemoryLimit::all_physical(limit), rounds, kills }
}

const CASTS: [Cast; 9] = [
    cast(2, &[(0, P), (1, P)], 1, 0, 0),
    cast(3, &[(0, P), (2, P)], 1, 1, 0),
    cast(1, &[(0, P), (0, P)], 1, 1, 0),
    cast(1, &[(0, P), (0, P), (0, P)], 2, 1, 1),
    cast(2, &[(0, P), (1, P)], 1, 1, 1),
    cast(2, &[(0, P), (0, P), (1, P)], 1, 0, 1),
    cast(2, &[(0, P), (1, P), (1, P)], 2, 1, 0),
    cast(3, &[(0, P), (1, P), (2, P)], 1, 0, 0),
    cast(3, &[(0, P), (1, P), (2, P)], 2, 0, 1),
];

const fn oversubscribed(
    actors: &'static [(usize, Kind)],
    (total, physical): (u64, u64),
    rounds: u8,
    kills: u8,
) -> Cast {
    Cast { slots: 2, actors, limit: MemoryLimit { total, physical }, rounds, kills }
}

const OVERSUBSCRIBED: [Cast; 6] = [
    oversubscribed(&[(0, P), (1, P), (0, M)], (3, 1), 1, 0),
    oversubscribed(&[(0, P), (1, P), (0, M)], (3, 1), 0, 1),
    oversubscribed(&[(0, P), (1, P), (1, M)], (3, 1), 0, 0),
    oversubscribed(&[(0, P), (1, M), (1, M)], (2, 1), 0, 1),
    oversubscribed(&[(0, P), (1, M)], (2, 1), 1, 1),
    oversubscribed(&[(0, M), (1, M)], (1, 0), 1, 1),
];

// === impl Actor ===

impl Actor {
    fn new((slot, kind): (usize, Kind), rounds: u8) -> Self {
        Self {
            slot,
            kind,
            phase: Phase::Trying,
            at: 0,
            sum: 0,
            physical: 0,
            committed: None,
            managed: None,
            grants: 0,
            rounds,
        }
    }

    /// Begins something else.
    fn turns_to(self, phase: Phase) -> Self {
        Self { phase, ..Self::new((self.slot, self.kind), self.rounds) }
    }

    /// Whether what it has added up fits in the limit, less what it wants if that isn't in it.
    fn fits(&self, limit: MemoryLimit, wanted: u64) -> bool {
        let physical = if self.kind == Kind::Physical { limit.physical } else { limit.total };
        u64::from(self.sum) + wanted <= limit.total && u64::from(self.physical) + wanted <= physical
    }
}

// === impl State ===

impl State {
    fn new(cast: &Cast) -> Self {
        Self {
            lines: vec![Line::default(); cast.slots],
            grants: 0,
            actors: cast.actors.iter().map(|actor| Actor::new(*actor, cast.rounds)).collect(),
            kills: cast.kills,
        }
    }

    /// All that can happen next.
    fn next(&self, cast: &Cast, programs: &Programs, found: &mut Findings) -> Vec<Self> {
        let mut all = Vec::new();
        for index in 0..self.actors.len() {
            let mut state = self.clone();
            if state.act(index, cast, programs, found) {
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
        state
            .actors
            .iter_mut()
            .filter(|actor| actor.slot == slot)
            .for_each(|actor| *actor = actor.turns_to(Phase::Done));
        state
    }

    /// One word at a time; then another process claims the slot.
    fn reap(&self, slot: usize, cast: &Cast) -> Option<Self> {
        let mut state = self.clone();
        match &mut state.lines[slot] {
            Line { dead: false, .. } => return None,
            Line { tentative: tentative @ 1.., .. } => *tentative = 0,
            Line { committed: committed @ 1.., .. } => *committed = 0,
            Line { managed: managed @ 1.., .. } => *managed = 0,
            line => {
                line.dead = false;
                let new = *Self::new(cast).actors.iter().find(|actor| actor.slot == slot)?;
                *state.actors.iter_mut().find(|actor| actor.slot == slot)? = new;
            }
        }
        Some(state)
    }

    /// The step that an actor takes next, if it isn't done.
    fn act(&mut self, index: usize, cast: &Cast, programs: &Programs, found: &mut Findings) -> bool {
        let mut actor = self.actors[index];
        let program = programs.of(actor.kind);
        let steps = match actor.phase {
            Phase::Trying => &program.try_,
            Phase::Checking => &program.check,
            Phase::Granted => &program.granted,
            Phase::Refused => &program.refused,
            Phase::Releasing => &program.release,
            Phase::Holding if actor.rounds > 0 => {
                // The driver frees first.
                self.actors[index] = actor.turns_to(Phase::Releasing);
                return true;
            }
            Phase::Holding | Phase::Done => return false,
        };
        let is_over = self.take(steps[actor.at], &mut actor);
        actor.at += 1;
        let is_at_end = actor.at == steps.len();
        self.actors[index] = match actor.phase {
            Phase::Checking if is_over => actor.turns_to(Phase::Refused),
            _ if !is_at_end => actor,
            Phase::Trying if !actor.fits(cast.limit, 0) => actor.turns_to(Phase::Refused),
            Phase::Trying if !program.check.is_empty() => Actor { phase: Phase::Checking, at: 0, ..actor },
            Phase::Trying | Phase::Checking => actor.turns_to(Phase::Granted),
            Phase::Refused if actor.fits(cast.limit, 1) => actor.turns_to(Phase::Trying),
            Phase::Refused => {
                // A managed byte may be taken for a physical one on its way.
                let is_exact = cast.rounds == 0 && cast.kills == 0 && !cast.limit.is_oversubscribed();
                found.refused_wrongly |= is_exact && u64::from(self.held(|_| true)) < cast.limit.total;
                Actor { rounds: 0, ..actor.turns_to(Phase::Done) }
            }
            Phase::Releasing => Actor { rounds: actor.rounds - 1, ..actor.turns_to(Phase::Trying) },
            Phase::Granted | Phase::Holding | Phase::Done => actor.turns_to(Phase::Holding),
        };
        true
    }

    /// Takes a step; whether it was to read that grants have been counted since the first look.
    fn take(&mut self, step: Step, actor: &mut Actor) -> bool {
        let line = &mut self.lines[actor.slot];
        match step {
            Step::AddTent => line.tentative += 1,
            Step::SubTent => line.tentative -= 1,
            Step::AddCommitted => line.committed += 1,
            Step::SubCommitted => line.committed -= 1,
            Step::AddManaged => line.managed += 1,
            Step::SubManaged => line.managed -= 1,
            Step::CountGrant => self.grants += 1,
            Step::ReadTent(slot) => {
                actor.sum += self.lines[slot].tentative;
                actor.physical += self.lines[slot].tentative;
            }
            Step::ReadCommitted(slot) => {
                actor.sum += self.lines[slot].committed;
                actor.committed = Some(self.lines[slot].committed);
            }
            Step::ReadManaged(slot) => actor.managed = Some(self.lines[slot].managed),
            Step::ReadGrants if actor.phase == Phase::Checking => return self.grants != actor.grants,
            Step::ReadGrants => actor.grants = self.grants,
        }
        if let (Some(committed), Some(managed)) = (actor.committed, actor.managed) {
            actor.physical += committed.saturating_sub(managed);
            (actor.committed, actor.managed) = (None, None);
        }
        false
    }

    /// What the driver has given out, or will.
    fn held(&self, is_meant: impl Fn(Kind) -> bool) -> u8 {
        let has = |actor: &&Actor| matches!(actor.phase, Phase::Granted | Phase::Holding) && is_meant(actor.kind);
        self.actors.iter().filter(has).map(|_| 1).sum()
    }

    fn is_over(&self, limit: MemoryLimit) -> bool {
        let physical = self.held(|kind| kind == Kind::Physical);
        u64::from(self.held(|_| true)) > limit.total || u64::from(physical) > limit.physical
    }

    fn books_are_right(&self) -> bool {
        let sum = |of: fn(&Line) -> u8| self.lines.iter().map(of).sum::<u8>();
        let managed = self.held(|kind| kind == Kind::Managed);
        (sum(|line| line.committed), sum(|line| line.managed), sum(|line| line.tentative))
            == (self.held(|_| true), managed, 0)
    }
}

fn explore(cast: &Cast, programs: &Programs) -> Findings {
    let mut found = Findings::default();
    let mut open = vec![State::new(cast)];
    let mut seen: HashSet<State> = open.iter().cloned().collect();
    while let Some(state) = open.pop()
        && !found.over_limit
    {
        found.over_limit = state.is_over(cast.limit);
        let next = state.next(cast, programs, &mut found);
        found.left_over |= next.is_empty() && !state.books_are_right();
        open.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
    }
    found.states = seen.len();
    found
}

#[test]
fn no_interleaving_exceeds_a_limit() {
    for cast in CASTS.iter().chain(&OVERSUBSCRIBED) {
        let found = explore(cast, &Programs::of_the_code(cast));
        assert!(!found.over_limit && !found.refused_wrongly && !found.left_over, "{cast:?}: {found:?}");
        assert!(found.states > 100, "{cast:?}: {found:?}");
    }
}

#[test]
fn every_reordering_exceeds_the_limit() {
    for (reads, settles) in [(true, false), (false, true), (true, true)] {
        let exceeds = |cast: &Cast| {
            let Programs { mut physical, managed } = Programs::of_the_code(cast);
            physical = if reads { physical.reads([1, 0, 2]) } else { physical };
            physical = if settles { physical.grants(0, 1) } else { physical };
            explore(cast, &Programs { physical, managed }).over_limit
        };
        assert!(CASTS.iter().any(exceeds), "reads {reads}, settles {settles}");
    }
}

#[test]
fn every_other_order_exceeds_the_physical_limit() {
    type Change = fn(&mut Programs);
    let changes: [(&str, Change); 4] = [
        ("managed is read before committed", |all| all.physical = all.physical.clone().reads([0, 2, 1])),
        ("grants aren't compared", |all| all.physical.check.clear()),
        ("committed shrinks before managed", |all| all.managed.release.reverse()),
        ("managed grows before the grant is counted", |all| all.managed = all.managed.clone().grants(1, 2)),
    ];
    for (name, change) in changes {
        let exceeds = |cast: &Cast| {
            let mut programs = Programs::of_the_code(cast);
            change(&mut programs);
            explore(cast, &programs).over_limit
        };
        assert!(OVERSUBSCRIBED.iter().any(exceeds), "{name}");
    }
}

#[test]
fn fence_separates_publishing_from_summing() {
    let owned = Owned::with_high(1, 2, 2);
    let account = owned.region().accounts(0).expect("a card").account(0).expect("a slot");
    let accesses =
        record(|| assert_eq!(account.reserve(1, MemoryLimit::all_physical(1), || ()), Reservation::Reserved));
    assert_eq!(accesses[0], Access::Changed(account.own.tentative.address(), 1));
    assert_eq!(accesses[1], Access::Fence(Ordering::SeqCst));
}
