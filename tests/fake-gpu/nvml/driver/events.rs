//! Event sets: who waits for the XIDs of which cards.

use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::nvmlEventTypeXidCriticalError;

use super::{Driver, POLL, about_handle, enter, global, now};
use crate::scenario::{NvmlReturn, Scenario, XidEvent};

/// One event set.
pub(super) struct EventSet {
    /// Events up to here were delivered, or are older than the set.
    seen: u64,
    /// UUIDs of the cards whose XIDs it wants.
    cards: Vec<String>,
}

/// What a wait delivers.
pub(crate) struct Delivered {
    /// 0 for an event that names no card.
    pub(crate) handle: usize,
    pub(crate) xid: u64,
    /// GPU instance and compute instance, where the event names them.
    pub(crate) gi: Option<u32>,
    pub(crate) ci: Option<u32>,
}

/// `nvmlEventSetCreate`: the new set's handle.
pub(crate) fn create(function: &str) -> Result<usize, NvmlReturn> {
    global(function, |driver| {
        let seen = driver.session()?.last_event();
        let set = driver.next_set;
        driver.next_set += 1;
        driver.sets.insert(set, EventSet { seen, cards: Vec::new() });
        Ok(set)
    })
}

/// `nvmlDeviceRegisterEvents`.
pub(crate) fn register(function: &str, card: usize, types: u64, set: usize) -> Result<(), NvmlReturn> {
    let uuid = about_handle(function, card, |_, card| Ok(card.uuid.clone()))?;
    if types & !u64::from(nvmlEventTypeXidCriticalError) != 0 {
        return Err(NvmlReturn::NotSupported);
    }
    let mut driver = now();
    let set = driver.sets.get_mut(&set).ok_or(NvmlReturn::InvalidArgument)?;
    set.cards.push(uuid);
    Ok(())
}

/// `nvmlEventSetFree`.
pub(crate) fn free(function: &str, set: usize) -> Result<(), NvmlReturn> {
    global(function, |driver| driver.sets.remove(&set).map(|_| ()).ok_or(NvmlReturn::InvalidArgument))
}

/// `nvmlEventSetWait`: fails and hangs also when the scenario says so while it waits. It is about a card if the set is
/// for that card alone.
pub(crate) fn wait(function: &str, set: usize, timeout: Duration) -> Result<Delivered, NvmlReturn> {
    let deadline = Instant::now() + timeout;
    loop {
        let card = now().sets.get(&set).and_then(EventSet::only_card);
        let mut driver = enter(function, card.as_deref())?;
        if let Some(delivered) = driver.deliver(set)? {
            return Ok(delivered);
        }
        drop(driver);
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NvmlReturn::Timeout);
        }
        thread::sleep(left.min(POLL));
    }
}

// === impl Driver ===

impl Driver {
    fn deliver(&mut self, set: usize) -> Result<Option<Delivered>, NvmlReturn> {
        let waiting = self.sets.get(&set).ok_or(NvmlReturn::InvalidArgument)?;
        let Some(event) = waiting.next(self.session()?).cloned() else { return Ok(None) };
        let handle = event.card.map_or(0, |card| self.handle(&card));
        if let Some(waiting) = self.sets.get_mut(&set) {
            waiting.seen = event.seq;
        }
        Ok(Some(Delivered { handle, xid: event.xid, gi: event.gi, ci: event.ci }))
    }
}

// === impl EventSet ===

impl EventSet {
    fn only_card(&self) -> Option<String> {
        if let [card] = self.cards.as_slice() { Some(card.clone()) } else { None }
    }

    fn next<'s>(&self, scenario: &'s Scenario) -> Option<&'s XidEvent> {
        let is_real = |uuid: &String| scenario.cards.iter().any(|card| card.uuid == *uuid);
        let wanted = |event: &&XidEvent| {
            let card = event.card.as_ref().filter(|card| is_real(card));
            event.seq > self.seen && card.is_none_or(|card| self.cards.contains(card))
        };
        scenario.events.iter().filter(wanted).min_by_key(|event| event.seq)
    }
}
