//! Clock page of one card, and when it is written.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use divvy_api::{CardId, Cores, Priority};
use divvy_region::Share;
use divvy_region::clock::{Busy, DriverMemory};
use divvy_region::map::ClockPage;
use divvy_runtime::logging::WarnOnce;

use super::pages;
use super::watched::Watched;
use super::{MS, SELDOM, next};

/// Time for which a card counts as active after a container was busy on it. Active cards are sampled at the full rate.
const LATE: u64 = 1000 * MS;

/// A card that containers share.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) id: CardId,
    path: PathBuf,
    page: Option<Mapped>,
    seats: Vec<Seat>,
    pub(super) driver_memory: Option<DriverMemory>,
    /// Time at which a container was last busy.
    busy_at_ns: Option<u64>,
    due_ns: u64,
    warning: WarnOnce,
}

#[derive(Debug)]
struct Mapped {
    page: ClockPage,
    inode: u64,
}

/// A tenant's part of the card.
#[derive(Debug)]
struct Seat {
    /// Index of the tenant.
    tenant: usize,
    /// Index of the card among the tenant's.
    position: usize,
    /// Guaranteed compute.
    guarantee: Share,
    priority: Option<Priority>,
}

// === impl Card ===

impl Card {
    pub(super) fn new(run_dir: &Path, id: &CardId) -> Self {
        Self {
            id: id.clone(),
            path: pages::path(run_dir, id),
            page: None,
            seats: Vec::new(),
            driver_memory: None,
            busy_at_ns: None,
            due_ns: 0,
            warning: WarnOnce::default(),
        }
    }

    pub(super) fn without_tenants(mut self) -> Self {
        self.seats.clear();
        self
    }

    pub(super) fn is_deserted(&self) -> bool {
        self.seats.is_empty()
    }

    pub(super) fn add(&mut self, tenant: usize, position: usize, cores: Cores, priority: Option<Priority>) {
        self.seats.push(Seat {
            tenant,
            position,
            guarantee: Share::from_parts(cores.units().saturating_mul(100)),
            priority,
        });
    }

    /// Maps the page, unless that very file is mapped.
    pub(super) fn refresh(&mut self, now_ns: u64) {
        let inode = fs::symlink_metadata(&self.path).ok().map(|found| found.ino());
        if inode.is_some() && self.page.as_ref().map(|mapped| mapped.inode) == inode {
            return;
        }
        // What was mapped has no name any more, or another file has it: nobody new reads it.
        self.page = match pages::map(&self.path, now_ns) {
            Ok((page, inode)) => {
                self.warning.clear();
                Some(Mapped { page, inode })
            }
            Err(error) => {
                self.warning.warn(format!(
                    "clock page {}: {error}: containers that share the GPU are charged as if alone on it",
                    self.path.display()
                ));
                None
            }
        };
    }

    /// Number of containers that share the card.
    pub(super) fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Samples the tenants and writes the page, if that is due, and returns when it is due next.
    pub(super) fn tick(&mut self, now_ns: u64, watched: &mut [Watched], often_ns: u64) -> u64 {
        if now_ns < self.due_ns {
            return self.due_ns;
        }
        let busy = self.busy(now_ns, watched);
        if let Some(Mapped { page, .. }) = &mut self.page {
            if let Some(memory) = self.driver_memory {
                page.set_driver_memory(memory);
            }
            page.publish(now_ns, busy);
        }
        if busy.tenants > 0 {
            self.busy_at_ns = Some(now_ns);
        }
        let is_at_work = self.busy_at_ns.is_some_and(|at| now_ns.saturating_sub(at) < LATE);
        // Time counts in full for one that has the card for itself, whatever it does.
        self.due_ns = next(now_ns, if is_at_work && self.seats.len() > 1 { often_ns } else { SELDOM });
        self.due_ns
    }

    fn busy(&self, now_ns: u64, watched: &mut [Watched]) -> Busy {
        let mut busy = Busy::default();
        for Seat { tenant, position, guarantee, priority } in &self.seats {
            let weight = watched.get_mut(*tenant).map_or(0, |watched| watched.weight(*position, now_ns));
            if weight > 0 {
                busy.add(weight, *guarantee, *priority);
            }
        }
        busy
    }
}
