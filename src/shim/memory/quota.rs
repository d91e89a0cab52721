//! A card's memory quota: what is left of the container's limit, for this process to reserve.

use core::mem;

use divvy_region::layout::SLOTS;
use divvy_region::{Account, Reservation};

use crate::cuda::{CUdevice, CUresult, ERROR_NOT_PERMITTED, ERROR_OUT_OF_MEMORY};
use crate::log;
use crate::process::{self, Process};
use crate::sys;
use crate::time;

use super::{graphs, pools};

/// The quota of one card.
#[derive(Clone, Copy)]
pub(super) struct Quota {
    process: &'static Process,
    pub(super) card: usize,
    pub(super) account: Account<'static>,
}

/// Bytes that are reserved, and released at the end unless they were [kept](Reserved::keep).
pub(super) struct Reserved {
    quota: Quota,
    place: Place,
    bytes: u64,
}

/// Where bytes may lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the card alone.
    Card,
    /// On the card or in host memory, as managed memory does.
    Any,
}

// === impl Quota ===

impl Quota {
    /// The quota of the card of the calling thread's context.
    pub(super) fn of_current() -> Result<Self, CUresult> {
        let process = process::this()?;
        Self::new(process, process.current_card()?)
    }

    /// The quota of the card that the driver numbers so.
    pub(super) fn of_device(device: CUdevice) -> Result<Self, CUresult> {
        let process = process::this()?;
        Self::new(process, process.card_of(device).ok_or(ERROR_NOT_PERMITTED)?)
    }

    /// The quota of a card by its position in the limits file.
    pub(super) fn of_card(card: usize) -> Result<Self, CUresult> {
        Self::new(process::this()?, card)
    }

    fn new(process: &'static Process, card: usize) -> Result<Self, CUresult> {
        process.account(card).map(|account| Self { process, card, account }).ok_or_else(refused)
    }

    /// Reserves bytes on the card for something that the driver is about to be asked for.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reserved, CUresult> {
        self.reserve_in(Place::Card, bytes).ok_or_else(|| self.out_of_memory())
    }

    /// Reserves bytes, if they are to be had. A caller that refuses them to the program [counts](Quota::out_of_memory) that.
    pub(super) fn reserve_in(&self, place: Place, bytes: u64) -> Option<Reserved> {
        if bytes > 0 {
            self.process.refresh(time::now());
        }
        if !self.try_reserve(place, bytes) && !self.reclaim_and_reserve(place, bytes) {
            return None;
        }
        Some(Reserved { quota: *self, place, bytes })
    }

    fn try_reserve(&self, place: Place, bytes: u64) -> bool {
        let limit = self.process.allocatable(self.card);
        let reservation = match place {
            Place::Card => self.account.reserve(bytes, limit, pause),
            Place::Any => self.account.reserve_managed(bytes, limit, pause),
        };
        reservation == Reservation::Reserved
    }

    #[cold]
    fn reclaim_and_reserve(&self, place: Place, bytes: u64) -> bool {
        let limit = self.process.allocatable(self.card);
        if bytes > if place == Place::Card { limit.physical } else { limit.total } {
            return false;
        }
        pools::give_back(self.card);
        graphs::give_back(self.card);
        self.process.reap();
        self.try_reserve(place, bytes)
    }

    /// Counts an allocation that is refused.
    pub(super) fn out_of_memory(&self) -> CUresult {
        if let Some(card) = self.process.region().card(self.card) {
            card.ooms.add(1);
        }
        ERROR_OUT_OF_MEMORY
    }

    /// Whether part of the limit may be managed memory alone.
    pub(super) fn is_oversubscribed(&self) -> bool {
        self.process.is_oversubscribed(self.card)
    }

    /// Gives back bytes that were reserved, after the driver has freed them.
    pub(super) fn release(&self, place: Place, bytes: u64) {
        match place {
            Place::Card => self.account.release(bytes),
            Place::Any => self.account.release_managed(bytes),
        }
    }

    /// Sets what is charged for something from `before` to `now`, whatever the limit is.
    pub(super) fn change(&self, before: u64, now: u64) {
        if now > before {
            self.account.charge(now - before);
        } else {
            self.account.release(before - now);
        }
    }

    /// Whether the container holds more than it may, after the driver took more than was foreseen.
    pub(super) fn is_overdrawn(&self) -> bool {
        !self.account.accounts().fit(self.process.allocatable(self.card))
    }

    /// Counts a granted allocation.
    pub(super) fn count(&self) {
        if let Some(card) = self.process.region().card(self.card) {
            card.allocs.add(1);
        }
    }
}

// === impl Reserved ===

impl Reserved {
    /// The driver has given what they were for: they stay charged until they are [released](Account::release).
    pub(super) fn keep(self) {
        self.quota.count();
        self.charge();
    }

    /// The driver has taken so many of the card instead.
    pub(super) fn replace(&mut self, bytes: u64) {
        self.quota.change(self.bytes, bytes);
        self.bytes = bytes;
    }

    pub(super) fn account(&self) -> Account<'static> {
        self.quota.account
    }

    pub(super) fn card(&self) -> usize {
        self.quota.card
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps bytes that no program counts as an allocation, and says how many they are.
    pub(super) fn charge(mut self) -> u64 {
        mem::take(&mut self.bytes)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.quota.release(self.place, self.bytes);
    }
}

/// Claims this process's slot in the accounting region, if it has none yet.
pub(super) fn claim_slot() -> Result<(), CUresult> {
    process::this()?.account(0).map(drop).ok_or_else(refused)
}

fn refused() -> CUresult {
    static FULL: log::LogOnce = log::LogOnce::new();
    FULL.log(format_args!(
        "{SLOTS} processes of this container use GPUs already: this one may use none until one of them ends"
    ));
    ERROR_NOT_PERMITTED
}

/// Sleeps between tries for memory that others try for too: 1 to 64 µs.
fn pause() {
    sys::sleep(1_000 + (sys::random() & 0xffff) * 63 / 65);
}
