//! The card as seen from outside: the truth that shares and memory are judged by.

use std::sync::atomic::Ordering::Relaxed;

use crate::{Card, clock};

/// What a process has of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// As the process sees it.
    pub pid: u32,
    /// Whether it lives. The counters of a dead one stay until its slot is needed.
    pub alive: bool,
    /// Whether it is a client of the multi-process service.
    pub is_client: bool,
    /// Bytes, with its contexts.
    pub memory: u64,
    /// The most of it so far.
    pub memory_peak: u64,
    /// Bytes of `memory` that are managed.
    pub managed: u64,
    /// Nanoseconds in which the card worked for it.
    pub busy: u64,
    /// Nanoseconds of work that wait.
    pub waiting: u64,
    /// Kernels submitted, also as parts of graphs.
    pub kernels: u64,
    /// Launches submitted: a graph is one.
    pub launches: u64,
}

// === impl Card ===

impl Card {
    /// All processes that were on the card, as of this moment.
    pub fn usage(&self) -> Vec<Usage> {
        let layout = self.layout();
        let _locked = layout.lock();
        layout.advance(clock());
        let usage = |slot: &crate::layout::Slot| Usage {
            alive: slot.is_alive(),
            pid: slot.pid.load(Relaxed),
            is_client: slot.is_client(),
            memory: slot.memory.load(Relaxed),
            memory_peak: slot.memory_peak.load(Relaxed),
            managed: slot.managed.load(Relaxed),
            busy: slot.served(),
            waiting: slot.demanded.load(Relaxed).saturating_sub(slot.served()),
            kernels: slot.kernels.load(Relaxed),
            launches: slot.launches.load(Relaxed),
        };
        layout.claimed().iter().map(usage).collect()
    }

    /// One process of them, by its number.
    pub fn usage_of(&self, pid: u32) -> Option<Usage> {
        self.usage().into_iter().rev().find(|usage| usage.pid == pid)
    }
}
