//! Totals of the containers' accounting regions, over the lifetimes of processes and regions.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use divvy_api::usage::RegionUsage;
use divvy_region::Owner;
use divvy_region::snapshot::{Snapshot, Usage};

use divvy_node_core::ledger::Nonce;

#[cfg(test)]
mod tests;

/// Time over which a container's utilization is averaged.
const WINDOW: Duration = Duration::from_secs(2);

/// The accounts of all containers that hold shares.
#[derive(Debug, Default)]
pub(super) struct Accounts(HashMap<Nonce, Account>);

/// Totals of one container.
#[derive(Debug, Default)]
struct Account {
    /// Last region that was read: its file, and its generation.
    region: (u64, u64),
    cards: Vec<CardAccount>,
}

#[derive(Debug, Default)]
struct CardAccount {
    throttled_ns: CounterSum,
    launches: CounterSum,
    ooms: CounterSum,
    unknown: CounterSum,
    /// GPU time of each slot's process, until its slot is freed.
    slots: HashMap<usize, (Owner, CounterSum)>,
    busy_ns: u64,
    /// GPU time used by each measurement, back to the last one that is at least [`WINDOW`] old.
    trail: VecDeque<(Instant, u64)>,
    usage: Usage,
}

/// Sum of a counter's increases, which continues when the counter of a new region starts at zero.
#[derive(Clone, Copy, Debug, Default)]
struct CounterSum {
    seen: u64,
    total: u64,
}

// === impl Accounts ===

impl Accounts {
    /// Adds what a region contains at this moment. `file` distinguishes successive regions of the container.
    pub(super) fn take(&mut self, nonce: Nonce, file: u64, snapshot: Snapshot<'_>, at: Instant) {
        let account = self.0.entry(nonce).or_default();
        let region = (file, snapshot.generation());
        if account.region != region {
            account.region = region;
            account.cards.iter_mut().for_each(CardAccount::begin_anew);
        }
        account.cards.resize_with(snapshot.cards(), CardAccount::default);
        for (number, card) in account.cards.iter_mut().enumerate() {
            card.take(number, snapshot, at);
        }
    }

    /// Totals for a card, by its number in the region.
    pub(super) fn totals(&self, nonce: Nonce, card: usize) -> Option<RegionUsage> {
        Some(self.0.get(&nonce)?.cards.get(card)?.totals())
    }

    /// Forgets all other containers.
    pub(super) fn retain(&mut self, live: &HashSet<Nonce>) {
        self.0.retain(|nonce, _| live.contains(nonce));
    }
}

// === impl CardAccount ===

impl CardAccount {
    fn begin_anew(&mut self) {
        self.slots.clear();
        for sum in [&mut self.throttled_ns, &mut self.launches, &mut self.ooms, &mut self.unknown] {
            sum.seen = 0;
        }
    }

    fn take(&mut self, number: usize, snapshot: Snapshot<'_>, at: Instant) {
        let Some(totals) = snapshot.totals(number) else { return };
        self.throttled_ns.see(totals.throttled_ns);
        self.launches.see(totals.launches.saturating_add(totals.graph_launches));
        self.ooms.see(totals.ooms);
        self.unknown.see(totals.unknown);
        self.usage = totals.usage;
        let before = std::mem::take(&mut self.slots);
        for (slot, owner) in snapshot.owners() {
            let same = before.get(&slot).filter(|(known, _)| *known == owner);
            let mut busy = same.map(|(_, busy)| *busy).unwrap_or_default();
            let counted = busy.total;
            busy.see(snapshot.usage(number, slot).unwrap_or_default().busy_ns);
            self.busy_ns = self.busy_ns.saturating_add(busy.total - counted);
            self.slots.insert(slot, (owner, busy));
        }
        self.trail.push_back((at, self.busy_ns));
        let is_old = |(then, _): &(Instant, u64)| at.saturating_duration_since(*then) >= WINDOW;
        while self.trail.get(1).is_some_and(is_old) {
            self.trail.pop_front();
        }
    }

    fn totals(&self) -> RegionUsage {
        RegionUsage {
            used_bytes: self.usage.committed,
            imported_bytes: self.usage.imported,
            managed_bytes: self.usage.managed,
            context_bytes: self.usage.contexts,
            busy_percent: self.busy_percent(),
            busy_ns: self.busy_ns,
            throttled_ns: self.throttled_ns.total,
            launches: self.launches.total,
            out_of_memory: self.ooms.total,
            unhooked: self.unknown.total,
            processes: u32::try_from(self.slots.len()).unwrap_or(u32::MAX),
        }
    }

    /// Average over the window, at most 100: a kernel's time is added at its end, all at once, and processes that take turns each
    /// count the time of both.
    fn busy_percent(&self) -> Option<u32> {
        let (from, before) = self.trail.front()?;
        let (to, after) = self.trail.back()?;
        let elapsed = to.saturating_duration_since(*from).as_nanos();
        let percent = (u128::from(after - before) * 100 + elapsed / 2).checked_div(elapsed)?;
        u32::try_from(percent.min(100)).ok()
    }
}

// === impl CounterSum ===

impl CounterSum {
    /// Adds the increase up to the counter's current value. A counter that has decreased was overwritten, and adds nothing.
    fn see(&mut self, counter: u64) {
        self.total = self.total.saturating_add(counter.saturating_sub(self.seen));
        self.seen = counter;
    }
}
