//! Measures the use of containers twice a second, and frees the region slots of dead processes.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use divvy_api::usage::{ContainerRef, ContainerUsage, NodeUsage};
use divvy_node_core::allocator::{SharedAllocator, lock};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::accounts::Accounts;
use super::driver::DriverProcesses;
use super::driver_memory::DriverMemoryTable;
use super::overhead::{Overheads, Processes, Still};
use super::region::ContainerRegion;
use super::violations::ViolationTracker;
use super::{Holder, Slots};
use crate::config::Config;
use crate::container::region_file;
use divvy_mps::MpsDirectory;
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::{Allocations, Holding, Nonce};
use divvy_node_core::pod::PodRef;

/// Interval of measurements: memory of a process is free within a second of its death.
const INTERVAL: Duration = Duration::from_millis(500);

/// State of the measurements.
pub struct Watcher {
    node: String,
    /// Directory that contains those of the holders.
    run_dir: PathBuf,
    cgroups: PathBuf,
    allocator: SharedAllocator,
    inventory: watch::Receiver<Arc<Inventory>>,
    usage: watch::Sender<Arc<NodeUsage>>,
    /// Revision of the ledger that `holders` was made from.
    revision: Option<u64>,
    holders: Vec<Holder>,
    regions: HashMap<Nonce, ContainerRegion>,
    accounts: Accounts,
    overheads: Overheads,
    driver_memory: Arc<Mutex<DriverMemoryTable>>,
    driver: DriverProcesses,
    violations: ViolationTracker,
    /// Buffer for the region that is read.
    buffer: Vec<u8>,
}

/// Measures until `stop`, on blocking threads.
pub async fn watch(mut watcher: Watcher, stop: CancellationToken) {
    let mut rounds = tokio::time::interval(INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! { _ = rounds.tick() => {}, () = stop.cancelled() => return }
        let round = move || {
            watcher.round(Instant::now());
            watcher
        };
        watcher = match tokio::task::spawn_blocking(round).await {
            Ok(watcher) => watcher,
            Err(error) => return error!(%error, "measuring the use of containers failed"),
        };
    }
}

// === impl Watcher ===

impl Watcher {
    /// A watcher of a node that is configured so, and the receiver of its results.
    pub fn new(
        config: &Config,
        allocator: SharedAllocator,
        inventory: watch::Receiver<Arc<Inventory>>,
        driver_memory: Arc<Mutex<DriverMemoryTable>>,
    ) -> (Self, watch::Receiver<Arc<NodeUsage>>) {
        let nothing = NodeUsage { node: config.node_name.to_string(), ..NodeUsage::default() };
        let (usage, receiver) = watch::channel(Arc::new(nothing));
        let watcher = Self {
            node: config.node_name.to_string(),
            run_dir: config.run_dir.to_path_buf(),
            cgroups: config.cgroup_root.to_path_buf(),
            allocator,
            inventory,
            usage,
            revision: None,
            holders: Vec::new(),
            regions: HashMap::new(),
            accounts: Accounts::default(),
            overheads: Overheads::over(2 * config.probe_interval.get().max(INTERVAL)),
            driver_memory,
            driver: DriverProcesses::default(),
            violations: ViolationTracker::default(),
            buffer: Vec::new(),
        };
        (watcher, receiver)
    }

    fn round(&mut self, now: Instant) {
        self.follow_ledger();
        let slots = self.read_regions(now);
        let inventory = Arc::clone(&self.inventory.borrow());
        let supervisor = MpsDirectory::new(&self.run_dir).supervisor().ok();
        let measured = self.driver.measure(&inventory, supervisor, &mut self.holders, &slots, &self.cgroups, now);
        let mut containers = Vec::new();
        for (at, (holder, slots)) in self.holders.iter_mut().zip(&slots).enumerate() {
            let mut lines = Vec::with_capacity(holder.parts.len());
            for (number, (card, share)) in holder.parts.iter().enumerate() {
                lines.push(ContainerUsage {
                    of: holder.of.clone(),
                    card: card.clone(),
                    share: *share,
                    region: slots.as_ref().and_then(|_read| self.accounts.totals(holder.nonce, number)),
                    driver_bytes: measured.bytes(at, holder, card),
                    overhead_bytes: 0,
                });
            }
            holder.unhooked = lines.iter().filter_map(|line| line.region).map(|region| region.unhooked).sum();
            if holder.has_library {
                let slots = slots.as_ref().map(|slots| slots.owners.clone()).unwrap_or_default();
                let processes = Processes { slots, driver: measured.pids(at) };
                self.overheads.take(holder.nonce, &mut lines, processes, &self.run_dir, now);
                holder.overheads = lines.iter().map(|line| line.overhead_bytes).collect();
            }
            containers.extend(lines);
        }
        // A client of the MPS service has but a part of a context.
        if supervisor.is_none() {
            self.learn(&inventory, now);
        }
        let findings = self.violations.update(&self.holders, &measured.cards, now);
        let usage = NodeUsage { node: self.node.clone(), containers, findings, unmeasured: measured.problem };
        self.usage.send_replace(Arc::new(usage));
    }

    /// Learns what contexts take from processes that change nothing.
    fn learn(&self, inventory: &Inventory, now: Instant) {
        let Some(driver) = &inventory.driver else { return };
        for holder in self.holders.iter().filter(|holder| holder.is_visible) {
            for (number, (card, _)) in holder.parts.iter().enumerate() {
                let Some(still) = self.overheads.still(holder.nonce, number, now) else { continue };
                let Some(card) = inventory.node.card(card) else { continue };
                let mut table = self.driver_memory.lock().unwrap_or_else(PoisonError::into_inner);
                let Still { beyond, contexts, has_launched } = still;
                // Several contexts tell nothing of one.
                if contexts <= table.figures(&card.model, &driver.version).context_bytes {
                    table.learn(&card.model, &driver.version, beyond, has_launched);
                }
            }
        }
    }

    /// Updates the holders from the ledger.
    fn follow_ledger(&mut self) {
        let allocator = lock(&self.allocator);
        let ledger = allocator.ledger();
        if self.revision == Some(ledger.revision()) {
            return;
        }
        self.revision = Some(ledger.revision());
        self.holders = holders(ledger.allocations());
        drop(allocator);
        let live: HashSet<Nonce> = self.holders.iter().map(|holder| holder.nonce).collect();
        self.regions.retain(|nonce, _| live.contains(nonce));
        self.accounts.retain(&live);
        self.overheads.retain(&live);
    }

    /// Reads every holder's region, frees the slots of dead processes, and returns the slots of each region that could be read.
    fn read_regions(&mut self, now: Instant) -> Vec<Option<Slots>> {
        let Self { holders, regions, accounts, buffer, run_dir, cgroups, .. } = self;
        let mut read = Vec::with_capacity(holders.len());
        for holder in holders {
            let path = region_file(run_dir, holder.nonce);
            let region = regions.entry(holder.nonce).or_default();
            read.push(region.look(&path, holder, cgroups, buffer, |file, snapshot| {
                accounts.take(holder.nonce, file, snapshot, now);
            }));
            holder.has_library |= region.is_there();
        }
        read
    }
}

/// All containers that hold shares.
fn holders(allocations: &Allocations) -> Vec<Holder> {
    let entries = allocations.pods();
    entries.flat_map(|entry| entry.holdings().map(|(name, holding)| holder(&entry.pod, name, holding))).collect()
}

fn holder(pod: &PodRef, container: &str, holding: &Holding) -> Holder {
    Holder {
        of: ContainerRef {
            pod_uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            container: container.to_owned(),
        },
        nonce: holding.nonce,
        parts: holding.parts.iter().map(|part| (part.card.clone(), part.share)).collect(),
        overheads: vec![0; holding.parts.len()],
        unhooked: 0,
        has_library: false,
        is_visible: false,
    }
}
