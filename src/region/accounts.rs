//! Memory accounting, to the byte, among processes that may die at any instruction.
//!
//! Nothing is locked and no total is stored. Each process counts in its own line what it holds (`committed`) and what it
//! is trying to get (`tentative`); who wants memory adds up all lines. What a dead process held is gone when its line is zeroed.
//!
//! **Why the limit holds.** Three orders make it so, and each is necessary; `accounts/explorer.rs` tries all the others.
//! 1. A reservation publishes its bytes in `tentative`, passes a fence, and only then adds up. So of all reservations that
//!    hold memory at some moment, the one that passed its fence last has seen all others.
//! 2. When it is granted, `committed` grows before `tentative` shrinks: its bytes are in one of them at every moment.
//! 3. Who adds up reads `tentative` before `committed`. If it no longer finds the bytes in the one, it finds them in the other.
//!    Bytes on their way may be counted twice, never not at all.
//!
//! A refusal is final only if what others *hold* leaves no room. If they were only trying, all step back and try again.
//!
//! **Why the physical limit holds too.** Where a share is oversubscribed, [`MemoryLimit::physical`] bounds what isn't managed
//! memory: `tentative` and `committed` less `managed`. The second is a difference of two words that aren't read at once, so
//! three more orders keep it from coming out too small. What it comes out too large costs a try, or a refusal.
//! 4. Managed bytes leave `managed` before `committed`, and who adds up reads `managed` last: no bytes are subtracted that
//!    were freed before they were counted.
//! 5. They are counted in `managed_grants` of the header before they enter `managed`, and are in `tentative` until then.
//! 6. Who adds up reads `managed_grants` before and after. If it is the same, all bytes that were found in `managed` were
//!    published before, so that order 3 finds them in what they are subtracted from. Otherwise nothing is granted by that
//!    sum, and it is made again.
//!
//! So a sum that grants contains all physical bytes that were held while it was made, and what orders 1 to 3 prove of the
//! total is true of them. Managed memory that others try for counts as physical until it is granted: that costs a try.
//!
//! The order of accesses is that of fences and acquire/release pairs rather than `SeqCst` accesses: the fence in `reserve`
//! is the one point that needs a total order, and it is what loom can model.

use crate::clock::{Weights, weight};
use crate::layout::{Header, Region, Use};
use crate::sync::{AtomicU64, Ordering, fence, spin_loop};

#[cfg(all(test, not(loom)))]
mod explorer;
#[cfg(not(loom))]
mod other_processes;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use other_processes::OtherProcesses;

/// Tries that only spin before those that pause: another's try lasts some hundred nanoseconds.
const SPINS: u32 = if cfg!(loom) { 1 } else { 16 };
/// Tries in all. With pauses of 1 to 64 µs, the last is made after some 20 ms.
const TRIES: u32 = if cfg!(loom) { 2 } else { 400 };

/// All processes' use of one card. Free to copy.
#[derive(Clone, Copy, Debug)]
pub struct Accounts<'a> {
    header: &'a Header,
    uses: &'a [Use],
}

/// One process's use of one card. Only the process that claimed the slot may have one. Free to copy and to share among its
/// threads.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    accounts: Accounts<'a>,
    own: &'a Use,
}

/// What the container may hold of one card, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Memory of all kinds.
    pub total: u64,
    /// Memory that isn't managed and therefore has to lie on the card. No less than `total` unless the share is oversubscribed.
    pub physical: u64,
}

/// What all processes hold of one card, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    total: u64,
    physical: u64,
}

/// What became of an attempt to reserve memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "memory that was reserved stays so until it is released"]
pub enum Reservation {
    /// The bytes are the caller's. If the driver then refuses them, they are to be released.
    Reserved,
    /// They are not to be had now.
    OutOfMemory {
        /// Bytes that all processes of the container held when it was refused.
        used: u64,
    },
}

// === impl Region ===

impl<'a> Region<'a> {
    /// All processes' use of a card.
    pub fn accounts(&self, card: usize) -> Option<Accounts<'a>> {
        Some(Accounts { header: self.header, uses: self.uses(card)? })
    }

    /// Processes that own slots, by their numbers in the container, each with the bytes that it holds of a card.
    pub fn holders(self, card: usize) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        let high = self.header.high.load(Ordering::Acquire) as usize;
        let owned = self.slots.iter().zip(self.uses(card).unwrap_or_default()).take(high);
        let owned = owned.filter(|(slot, _)| !slot.is_free());
        owned.map(|(slot, uses)| (slot.pid.load(Ordering::Relaxed), uses.held()))
    }
}

// === impl Accounts ===

impl<'a> Accounts<'a> {
    /// The account of the slot that this process claimed.
    pub fn account(&self, slot: usize) -> Option<Account<'a>> {
        Some(Account { accounts: *self, own: self.uses.get(slot)? })
    }

    /// Bytes that all processes hold, and nothing that is only tried for.
    pub fn used(&self) -> u64 {
        self.sum(Use::held)
    }

    /// Whether all processes together hold no more than the limit.
    pub fn fit(&self, limit: MemoryLimit) -> bool {
        self.sums(Use::held_by_kind).fit(limit)
    }

    /// GPU time that launched work of all processes is estimated to take yet, ns.
    pub fn in_flight_ns(&self) -> u64 {
        self.sum(|line| line.in_flight_ns.load(Ordering::Relaxed))
    }

    /// Whether there are other processes, or were.
    pub fn has_other_processes(&self) -> bool {
        self.header.high.load(Ordering::Relaxed) > 1
    }

    /// The sum of the [`weight`]s of all processes.
    pub fn weight(&self) -> u32 {
        let sum = self.sum(|line| weight(line.in_flight_ns.load(Ordering::Relaxed)).into());
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// Whether a launch is held back at this moment.
    pub fn is_held(&self, now_ns: u64) -> bool {
        self.sum(|line| u64::from(line.held_until_ns.load(Ordering::Relaxed) > now_ns)) > 0
    }

    fn sum(&self, of: impl Fn(&Use) -> u64) -> u64 {
        let high = self.header.high.load(Ordering::Acquire) as usize;
        self.uses.iter().take(high).fold(0, |sum, line| sum.saturating_add(of(line)))
    }

    /// Whether that and what is tried for fits, for sure.
    fn fit_with_tentative(&self, limit: MemoryLimit) -> bool {
        let grants = || self.header.managed_grants.load(Ordering::Acquire);
        let before = grants();
        self.sums(Use::held_or_tentative).fit(limit) && (!limit.is_oversubscribed() || grants() == before)
    }

    fn sums(&self, of: impl Fn(&Use) -> Sums) -> Sums {
        let high = self.header.high.load(Ordering::Acquire) as usize;
        self.uses.iter().take(high).map(of).fold(Sums::default(), Sums::plus)
    }
}

// === impl Account ===

impl Account<'_> {
    /// Reserves `bytes` that aren't managed memory if all processes then hold at most `limit`, before the driver is asked for
    /// them.
    ///
    /// `pause` is called between tries, when others try for the same room: it should sleep for a random time of 1 to 64 µs.
    /// If that goes on for some 20 ms, the answer is `OutOfMemory` too. Before an application is told of it, the slots of
    /// dead processes are worth a look: [`Region::reap`].
    ///
    /// Nothing at all can always be had, even if the limit has come down below what is held.
    pub fn reserve(&self, bytes: u64, limit: MemoryLimit, pause: impl FnMut()) -> Reservation {
        self.reserve_and(|| {}, bytes, limit, pause)
    }

    /// Reserves managed memory as [`Account::reserve`] does other memory; only the limit's total applies.
    pub fn reserve_managed(&self, bytes: u64, limit: MemoryLimit, pause: impl FnMut()) -> Reservation {
        let mark = || {
            // Order 5 above. Whoever sees the count sees what the fence published, and whoever sees the bytes sees the count.
            self.accounts.header.managed_grants.fetch_add(1, Ordering::Relaxed);
            self.own.managed.fetch_add(bytes, Ordering::Release);
        };
        self.reserve_and(mark, bytes, MemoryLimit::all_physical(limit.total), pause)
    }

    fn reserve_and(&self, mark: impl FnOnce(), bytes: u64, limit: MemoryLimit, mut pause: impl FnMut()) -> Reservation {
        if bytes == 0 {
            return Reservation::Reserved;
        }
        let Some(left) = limit.less(bytes) else {
            // Nor is it published: a few of them would wrap `tentative` around.
            return Reservation::OutOfMemory { used: self.accounts.used() };
        };
        for attempt in 0..TRIES {
            match attempt {
                0 => {}
                1..=SPINS => spin_loop(),
                _ => pause(),
            }
            self.own.tentative.fetch_add(bytes, Ordering::Relaxed);
            // Before the sum, and that is before `high` is read: whoever claims a slot raises it before it reserves.
            fence(Ordering::SeqCst);
            if self.accounts.fit_with_tentative(limit) {
                self.own.committed.fetch_add(bytes, Ordering::Relaxed);
                mark();
                subtract(&self.own.tentative, bytes);
                return Reservation::Reserved;
            }
            subtract(&self.own.tentative, bytes);
            let held = self.accounts.sums(Use::held_by_kind);
            if !held.fit(left) {
                return Reservation::OutOfMemory { used: held.total };
            }
        }
        Reservation::OutOfMemory { used: self.accounts.used() }
    }

    /// Gives back bytes that were reserved or charged, after the driver has freed them.
    pub fn release(&self, bytes: u64) {
        subtract(&self.own.committed, bytes);
    }

    /// Gives back managed memory that was reserved, after the driver has freed it.
    pub fn release_managed(&self, bytes: u64) {
        subtract(&self.own.managed, bytes);
        subtract(&self.own.committed, bytes);
    }

    /// Counts bytes that are taken whatever the limit is, because the driver has given them out already.
    pub fn charge(&self, bytes: u64) {
        self.own.committed.fetch_add(bytes, Ordering::Release);
    }

    /// Counts bytes that this process has opened and another made and is charged with: they count towards no limit. But the
    /// driver may charge both with them, and who compares must know.
    pub fn import(&self, bytes: u64) {
        self.own.imported.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Uncounts imported bytes that this process has closed.
    pub fn close(&self, bytes: u64) {
        subtract(&self.own.imported, bytes);
    }

    /// Says that so many of the held bytes are what contexts are taken to cost.
    pub fn add_context(&self, bytes: u64) {
        self.own.contexts.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Says that a context of so many bytes has ended.
    pub fn remove_context(&self, bytes: u64) {
        subtract(&self.own.contexts, bytes);
    }

    /// Work that is estimated to take `estimate_ns` of GPU time is on its way to the driver.
    pub fn launched(&self, estimate_ns: u64) {
        self.own.in_flight_ns.fetch_add(estimate_ns, Ordering::Relaxed);
    }

    /// Work that was estimated to take `estimate_ns` is done, and took `busy_ns`. The bucket is debited separately.
    pub fn completed(&self, estimate_ns: u64, busy_ns: u64) {
        subtract(&self.own.in_flight_ns, estimate_ns);
        self.own.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
    }

    /// GPU time that launched work of this process is estimated to take yet, ns.
    pub fn in_flight_ns(&self) -> u64 {
        self.own.in_flight_ns.load(Ordering::Relaxed)
    }

    /// Says that a launch of this process is held back until this moment at least; 0: none is.
    pub fn hold_until(&self, moment_ns: u64) {
        self.own.held_until_ns.store(moment_ns, Ordering::Relaxed);
    }

    /// The weights of this process and of its container.
    pub fn weights(&self) -> Weights {
        Weights { own: weight(self.in_flight_ns()), container: self.accounts.weight() }
    }

    /// All processes' use of the card.
    pub fn accounts(&self) -> Accounts<'_> {
        self.accounts
    }
}

// === impl Use ===

impl Use {
    /// Bytes of allocations.
    pub(crate) fn held(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    fn held_by_kind(&self) -> Sums {
        let total = self.held();
        // After what it is part of: order 4 above.
        let managed = self.managed.load(Ordering::Acquire);
        Sums { total, physical: total.saturating_sub(managed) }
    }

    fn held_or_tentative(&self) -> Sums {
        // Order 3 above. Acquire pairs with the release in `subtract`: a `tentative` that has shrunk shows a `committed` that
        // has grown.
        let tentative = self.tentative.load(Ordering::Acquire);
        self.held_by_kind().plus(Sums { total: tentative, physical: tentative })
    }

    /// Makes the line what it was when the region was new, for its next owner.
    pub(crate) fn clear(&self) {
        let Self { tentative, committed, imported, managed, in_flight_ns, busy_ns, held_until_ns, contexts } = self;
        for word in [tentative, committed, imported, managed, in_flight_ns, busy_ns, held_until_ns, contexts] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

// === impl MemoryLimit ===

impl MemoryLimit {
    /// A share that isn't oversubscribed.
    pub const fn all_physical(total: u64) -> Self {
        Self { total, physical: total }
    }

    /// Whether part of the share may be managed memory alone.
    pub const fn is_oversubscribed(self) -> bool {
        self.physical < self.total
    }

    /// What may be held beside so many bytes; `None` if they exceed it.
    fn less(self, bytes: u64) -> Option<Self> {
        Some(Self { total: self.total.checked_sub(bytes)?, physical: self.physical.checked_sub(bytes)? })
    }
}

// === impl Sums ===

impl Sums {
    fn plus(self, other: Self) -> Self {
        Self { total: self.total.saturating_add(other.total), physical: self.physical.saturating_add(other.physical) }
    }

    fn fit(self, limit: MemoryLimit) -> bool {
        self.total <= limit.total && self.physical <= limit.physical
    }
}

/// Stops at zero: a line that the tenant has overwritten must not become the largest there is.
fn subtract(word: &AtomicU64, bytes: u64) {
    let less = |value: u64| Some(value.saturating_sub(bytes));
    let _always_done = word.fetch_update(Ordering::Release, Ordering::Relaxed, less);
}
