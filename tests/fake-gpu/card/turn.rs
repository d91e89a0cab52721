//! Who has the card when.

use std::process;
use std::sync::atomic::Ordering::Relaxed;

use crate::layout::{Layout, NOBODY, SLOTS, SPANS, Slot};
use crate::mutex::Taken;
use crate::{Card, Full, clock};

/// A demand for the card that ends when it is taken back.
pub const FOREVER: u64 = u64::MAX / 2;

/// A stretch in which the card worked for a process: the nanoseconds `from..to` of its work ran from the moment `at` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// [`clock`]'s nanoseconds.
    pub at: u64,
    /// Nanoseconds of work.
    pub from: u64,
    /// Nanoseconds of work.
    pub to: u64,
}

/// This process on a card.
#[derive(Clone, Copy)]
pub struct Member {
    card: Card,
    slot: usize,
}

// === impl Span ===

impl Span {
    /// [`clock`]'s nanoseconds.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.to.saturating_sub(self.from))
    }

    /// When the process's work was done up to `offset`, which lies in the span or at its end.
    pub fn reached(&self, offset: u64) -> u64 {
        self.at.saturating_add(offset.saturating_sub(self.from))
    }
}

// === impl Card ===

impl Card {
    /// Makes this process one of the card's, for as long as the calling thread lives. `None`: all slots are taken.
    pub fn join(&self) -> Option<Member> {
        let layout = self.layout();
        let _locked = layout.lock();
        // A slot that nobody had keeps the counters of the dead readable for longer.
        let fresh = layout.claimed().len();
        let slot = if fresh < SLOTS { fresh } else { layout.claimed().iter().position(|slot| !slot.is_alive())? };
        let claimed = &layout.slots[slot];
        if matches!(claimed.alive.try_lock(), Taken::Held) {
            return None;
        }
        let counters = [&claimed.memory, &claimed.memory_peak, &claimed.managed, &claimed.demanded, &claimed.kernels];
        counters
            .into_iter()
            .chain([&claimed.launches, &claimed.head, &claimed.tail])
            .for_each(|counter| counter.store(0, Relaxed));
        claimed.pid.store(process::id(), Relaxed);
        claimed.client.store(0, Relaxed);
        claimed.present.store(1, Relaxed);
        layout.claimed.fetch_max(u32::try_from(slot + 1).unwrap_or(NOBODY), Relaxed);
        Some(Member { card: *self, slot })
    }
}

// === impl Member ===

impl Member {
    /// Makes this process a client of the multi-process service, before it has any work.
    pub fn become_client(&self) {
        let (layout, slot) = self.parts();
        let _locked = layout.lock();
        slot.client.store(1, Relaxed);
    }

    /// Bytes that this process holds.
    pub fn memory(&self) -> u64 {
        self.parts().1.memory.load(Relaxed)
    }

    /// Says up to which nanosecond this process wants the card, which `until` answers when it is told how many it has had. What
    /// it wanted before doesn't count. `kernels` and `launches` are added to its counters.
    pub fn demand(&self, kernels: u64, launches: u64, until: impl FnOnce(u64) -> u64) {
        let (layout, slot) = self.parts();
        let _locked = layout.lock();
        layout.advance(clock());
        let served = slot.served();
        slot.demanded.store(until(served).max(served), Relaxed);
        slot.kernels.fetch_add(kernels, Relaxed);
        slot.launches.fetch_add(launches, Relaxed);
    }

    /// Plays the card's time forward to now, and hands over what ran since the last look. A span that may still grow is
    /// handed over again.
    pub fn ran(&self, mut each: impl FnMut(Span)) {
        let (layout, slot) = self.parts();
        let _locked = layout.lock();
        layout.advance(clock());
        let head = slot.head.load(Relaxed);
        (slot.tail.load(Relaxed)..head).for_each(|number| each(slot.span(number)));
        slot.tail.store(head.saturating_sub(1), Relaxed);
    }

    /// The earliest moment at which this process's work can be done up to `offset`, or at which the turn passes and that
    /// should be asked again.
    pub fn earliest(&self, offset: u64) -> u64 {
        let (layout, slot) = self.parts();
        let _locked = layout.lock();
        let (at, until) = (layout.at.load(Relaxed), layout.until.load(Relaxed));
        let holder = layout.holder.load(Relaxed) as usize;
        match layout.slots.get(holder) {
            _ if slot.is_client() => at.saturating_add(offset.saturating_sub(slot.served())),
            Some(_) if holder == self.slot => at.saturating_add(offset.saturating_sub(slot.served())).min(until),
            Some(other) => at.saturating_add(other.backlog()).min(until),
            None => at,
        }
    }

    /// Takes memory, unless the card's processes then held more than `capacity` bytes. Managed memory of any process makes
    /// room.
    pub fn charge(&self, bytes: u64, capacity: u64) -> Result<(), Full> {
        let (layout, slot) = self.parts();
        let _locked = layout.lock();
        let missing = layout.memory_used().saturating_add(bytes).saturating_sub(capacity);
        if missing > 0 && !layout.evict(missing, slot) {
            return Err(Full);
        }
        slot.grow(bytes);
        Ok(())
    }

    /// Brings managed bytes to the card, as far as it has room, and says how many.
    pub fn charge_managed(&self, bytes: u64, capacity: u64) -> u64 {
        let (layout, slot) = self.parts();
        let _locked = layout.lock();
        let brought = bytes.min(capacity.saturating_sub(layout.memory_used()));
        slot.grow(brought);
        slot.managed.fetch_add(brought, Relaxed);
        brought
    }

    /// Takes managed bytes away from the card, if they weren't evicted.
    pub fn release_managed(&self, bytes: u64) {
        let (layout, slot) = self.parts();
        let _locked = layout.lock();
        slot.evict(bytes);
    }

    /// Managed bytes of this process that lie on the card.
    pub fn managed(&self) -> u64 {
        self.parts().1.managed.load(Relaxed)
    }

    /// Gives memory back.
    pub fn release(&self, bytes: u64) {
        let (layout, slot) = self.parts();
        let _locked = layout.lock();
        slot.memory.store(slot.memory.load(Relaxed).saturating_sub(bytes), Relaxed);
    }

    /// The card.
    pub fn card(&self) -> Card {
        self.card
    }

    fn parts(&self) -> (&Layout, &Slot) {
        let layout = self.card.layout();
        (layout, &layout.slots[self.slot])
    }
}

// === impl Layout ===

impl Layout {
    /// Plays the card's time forward. Only for the holder of the lock.
    pub(crate) fn advance(&self, now: u64) {
        let mut at = self.at.load(Relaxed);
        for client in self.claimed().iter().filter(|slot| slot.is_client() && slot.has_work(at) && slot.is_alive()) {
            client.serve(at, client.backlog().min(now.saturating_sub(at)));
        }
        while at < now {
            let Some(slot) = self.holder_at(at) else {
                self.holder.store(NOBODY, Relaxed);
                self.at.store(now, Relaxed);
                return;
            };
            let end = now.min(self.until.load(Relaxed)).min(at.saturating_add(slot.backlog()));
            slot.serve(at, end - at);
            at = end;
            self.at.store(at, Relaxed);
        }
    }

    /// Who has the turn from `at` on: the holder, or when its slice is over or its work done, the next that has some.
    fn holder_at(&self, at: u64) -> Option<&Slot> {
        let holder = self.holder.load(Relaxed) as usize;
        let stays = self.slots.get(holder).filter(|slot| at < self.until.load(Relaxed) && slot.can_run(at));
        if stays.is_some() {
            return stays;
        }
        let claimed = self.claimed();
        let after = if holder < claimed.len() { holder + 1 } else { 0 };
        let mut others = (after..claimed.len()).chain(0..after);
        let next = others.find(|next| claimed[*next].can_run(at) && claimed[*next].is_alive())?;
        self.holder.store(u32::try_from(next).unwrap_or(NOBODY), Relaxed);
        self.until.store(at.saturating_add(self.slice.load(Relaxed)), Relaxed);
        Some(&claimed[next])
    }
}

// === impl Slot ===

impl Slot {
    /// Nanoseconds of its work that ran.
    pub(crate) fn served(&self) -> u64 {
        self.last_span().map_or(0, |span| span.to)
    }

    /// Nanoseconds of its work that wait.
    fn backlog(&self) -> u64 {
        self.demanded.load(Relaxed).saturating_sub(self.served())
    }

    fn grow(&self, bytes: u64) {
        let memory = self.memory.load(Relaxed).saturating_add(bytes);
        self.memory.store(memory, Relaxed);
        self.memory_peak.fetch_max(memory, Relaxed);
    }

    pub(crate) fn is_client(&self) -> bool {
        self.client.load(Relaxed) == 1
    }

    fn can_run(&self, at: u64) -> bool {
        !self.is_client() && self.has_work(at)
    }

    fn has_work(&self, at: u64) -> bool {
        let unread = self.head.load(Relaxed).saturating_sub(self.tail.load(Relaxed));
        self.backlog() > 0 && (unread < SPANS as u64 || self.last_span().is_some_and(|span| span.end() == at))
    }

    /// Lets `work` nanoseconds of its work run from `at` on. Each step is one store that is valid by itself: the process
    /// that does this for another may die here.
    pub(crate) fn serve(&self, at: u64, work: u64) {
        let head = self.head.load(Relaxed);
        let from = match self.last_span() {
            Some(last) if last.end() == at => return self.cell(head - 1).to.store(last.to + work, Relaxed),
            Some(last) => last.to,
            None => 0,
        };
        let cell = self.cell(head);
        cell.at.store(at, Relaxed);
        cell.from.store(from, Relaxed);
        cell.to.store(from + work, Relaxed);
        self.head.store(head + 1, Relaxed);
    }

    pub(crate) fn last_span(&self) -> Option<Span> {
        self.head.load(Relaxed).checked_sub(1).map(|last| self.span(last))
    }

    fn span(&self, number: u64) -> Span {
        let cell = self.cell(number);
        Span { at: cell.at.load(Relaxed), from: cell.from.load(Relaxed), to: cell.to.load(Relaxed) }
    }

    fn cell(&self, number: u64) -> &crate::layout::SpanCell {
        &self.spans[usize::try_from(number % SPANS as u64).unwrap_or(0)]
    }
}
