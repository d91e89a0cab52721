//! The steps that the code takes, recorded from itself, and the same in other orders.

use crate::accounts::{Accounts, MemoryLimit, Reservation};
use crate::owned::Owned;
use crate::sync::traced::{Access, record};

use super::Cast;

/// A step of a program. `Own` is the line of whoever takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    AddTent,
    SubTent,
    AddCommitted,
    SubCommitted,
    AddManaged,
    SubManaged,
    CountGrant,
    ReadTent(usize),
    ReadCommitted(usize),
    ReadManaged(usize),
    ReadGrants,
}

/// What is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Physical,
    Managed,
}

/// What the code does, cut where it decides.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) try_: Vec<Step>,
    /// Whether the sum was sure, where that matters.
    pub(super) check: Vec<Step>,
    pub(super) granted: Vec<Step>,
    pub(super) refused: Vec<Step>,
    pub(super) release: Vec<Step>,
}

/// What actors of each kind do.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) physical: Program,
    pub(super) managed: Program,
}

// === impl Program ===

impl Program {
    /// What the code does for this kind where `slots` are in use.
    pub(super) fn of_the_code(slots: usize, kind: Kind, is_oversubscribed: bool) -> Self {
        let owned = Owned::with_high(1, slots, u32::try_from(slots).expect("few"));
        let accounts = owned.region().accounts(0).expect("it has a card");
        let account = accounts.account(0).expect("it has a slot");
        let limit = MemoryLimit { total: if is_oversubscribed { 2 } else { 1 }, physical: 1 };
        let reserve = || match kind {
            Kind::Physical => account.reserve(1, limit, || ()),
            Kind::Managed => account.reserve_managed(1, MemoryLimit::all_physical(1), || ()),
        };
        let release = || match kind {
            Kind::Physical => account.release(1),
            Kind::Managed => account.release_managed(1),
        };
        let steps = |act: &dyn Fn()| -> Vec<Step> { steps(accounts, &record(act)) };
        let granted = steps(&|| assert_eq!(reserve(), Reservation::Reserved));
        let refused = steps(&|| assert_eq!(reserve(), Reservation::OutOfMemory { used: 1 }));
        let release = steps(&release);
        let decision = 2 + 3 * slots;
        assert_eq!(granted[..decision], refused[..decision], "it decides after the sum");
        let check = usize::from(granted[decision] == Step::ReadGrants);
        assert_eq!(check == 1, kind == Kind::Physical && is_oversubscribed);
        Self {
            try_: granted[..decision].to_vec(),
            check: granted[decision..decision + check].to_vec(),
            granted: granted[decision + check..].to_vec(),
            refused: refused[decision..].to_vec(),
            release,
        }
    }

    /// The words of each line in another order.
    pub(super) fn reads(mut self, order: [usize; 3]) -> Self {
        let sum = self.try_.split_off(2);
        self.try_.extend(sum.as_chunks::<3>().0.iter().flat_map(|line| order.map(|at| line[at])));
        self
    }

    /// Two steps after a grant exchanged.
    pub(super) fn grants(mut self, one: usize, other: usize) -> Self {
        self.granted.swap(one, other);
        self
    }
}

// === impl Programs ===

impl Programs {
    pub(super) fn of_the_code(cast: &Cast) -> Self {
        let of = |kind| Program::of_the_code(cast.slots, kind, cast.limit.is_oversubscribed());
        Self { physical: of(Kind::Physical), managed: of(Kind::Managed) }
    }

    pub(super) fn of(&self, kind: Kind) -> &Program {
        match kind {
            Kind::Physical => &self.physical,
            Kind::Managed => &self.managed,
        }
    }
}

/// The first slot's accesses to the words of the protocol.
fn steps(accounts: Accounts<'_>, accesses: &[Access]) -> Vec<Step> {
    #[derive(Clone, Copy, Debug)]
    enum Word {
        Tentative(usize),
        Committed(usize),
        Managed(usize),
        Grants,
    }
    let find = |address: usize| {
        if accounts.header.managed_grants.address() == address {
            return Some(Word::Grants);
        }
        accounts.uses.iter().enumerate().find_map(|(slot, line)| {
            let words = [
                (&line.tentative, Word::Tentative(slot)),
                (&line.committed, Word::Committed(slot)),
                (&line.managed, Word::Managed(slot)),
            ];
            words.into_iter().find(|(word, _)| word.address() == address).map(|(_, word)| word)
        })
    };
    let step = |access: &Access| match *access {
        Access::Read(word) => find(word).map(|word| match word {
            Word::Tentative(slot) => Step::ReadTent(slot),
            Word::Committed(slot) => Step::ReadCommitted(slot),
            Word::Managed(slot) => Step::ReadManaged(slot),
            Word::Grants => Step::ReadGrants,
        }),
        Access::Changed(word, by) => find(word).map(|word| match (word, by) {
            (Word::Tentative(0), 1) => Step::AddTent,
            (Word::Tentative(0), -1) => Step::SubTent,
            (Word::Committed(0), 1) => Step::AddCommitted,
            (Word::Committed(0), -1) => Step::SubCommitted,
            (Word::Managed(0), 1) => Step::AddManaged,
            (Word::Managed(0), -1) => Step::SubManaged,
            (Word::Grants, 1) => Step::CountGrant,
            other => unreachable!("no step of the protocol: {other:?}"),
        }),
        Access::Fence(_) => None,
    };
    accesses.iter().filter_map(step).collect()
}
