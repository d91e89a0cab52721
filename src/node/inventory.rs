//! What cards there are, and how they are.
//!
//! ```text
//! driver thread: open NVML, count cards, again and again ──┐
//! finder threads: index ──▶ UUID, when the count has grown ─┤ reports   ┌────────┐         watch
//! one thread a card: probe, wait for XIDs, again and again ─┼─────────▶ │ keeper │ ──────▶ Inventory
//! links thread: when the set of healthy cards has grown ────┘           └────────┘
//! ```
//!
//! Only the keeper decides, and it never calls NVML; each of the others may hang in a call without holding up anything
//! else. A call that doesn't come back makes its own card unhealthy. NVML may be missing, late, or lost on the way: that
//! is a [`Inventory::problem`], never an exit. A card that was seen once stays listed.
//!
//! The instances of a GPU in MIG mode are probed with it, on its thread: what befalls the GPU befalls all of them. One that
//! is no longer there stays listed too, unhealthy, until the daemon starts anew: somebody may still hold its slots.

mod keeper;
mod leash;
mod links;
mod mig;
mod nvml;
mod roster;
mod threads;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use divvy_api::{CardId, Memory, MigProfile};
use divvy_placement::Links;
use tokio::sync::watch;

pub use crate::health::{CardHealth, HealthOptions};
use keeper::Message;
pub use mig::{MigInstance, MigStrategy};

/// As good as never.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The cards of this node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The driver, while it answers.
    pub driver: Option<Driver>,
    /// Every card that was seen since the daemon started, in the order of their PCI addresses.
    pub cards: Vec<CardInfo>,
    /// Links between `cards`, by position.
    pub links: Links,
    /// Why cards can't be listed, or not all of them.
    pub problem: Option<String>,
}

/// What the driver calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Such as `580.95.05`.
    pub version: String,
    /// The newest CUDA that it runs, such as `13.0`; `None` if it doesn't say.
    pub cuda: Option<String>,
}

/// A card. What NVML doesn't say any more keeps its last value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardInfo {
    /// Its UUID.
    pub id: CardId,
    /// Product name; empty while unknown.
    pub model: String,
    /// All of it; zero while unknown, and then the card is unhealthy.
    pub memory: Memory,
    /// In NVML's form, `00000000:17:00.0`; empty while unknown.
    pub pci_bus_id: String,
    /// The number in `/dev/nvidia<minor>`.
    pub minor: Option<u32>,
    /// NUMA node.
    pub numa: Option<u32>,
    /// Which MIG instance it is; then `minor`, `numa` and `pci_bus_id` are its GPU's. `None`: a whole GPU.
    pub mig: Option<MigInstance>,
    /// Whether it may take new shares.
    pub health: CardHealth,
    /// In use at the last probe, by anybody.
    pub memory_used: Option<Memory>,
    /// Percent of the last minute or two in which a kernel ran; newer samples count more. No MIG instance has it.
    pub utilization: Option<u32>,
    /// Which processes compute on it, at the last probe; `None`: NVML doesn't say.
    pub processes: Option<Vec<CardProcess>>,
}

/// A process that computes on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CardProcess {
    /// As numbered in our PID namespace; the driver leaves out those that have no number there.
    pub pid: u32,
    /// Memory of the card that it uses; `None`: NVML doesn't say.
    pub bytes: Option<u64>,
}

/// Where to look, and how often.
#[derive(Clone, Debug)]
pub struct InventoryOptions {
    /// NVML; `None`: `libnvidia-ml.so.1`, found as the loader finds libraries.
    pub nvml_library: Option<PathBuf>,
    /// Where sysfs is mounted.
    pub sysfs_root: PathBuf,
    /// What MIG instances are.
    pub mig_strategy: MigStrategy,
    /// Between two probes of a card, and between two attempts to open NVML.
    pub probe_interval: Duration,
    /// A call that takes longer than this hangs.
    pub probe_timeout: Duration,
    /// What makes a card unhealthy.
    pub health: HealthOptions,
    /// Why NVML isn't opened yet, if it shouldn't be.
    pub released: Option<String>,
}

/// Owns the threads behind an inventory; they end with it.
#[derive(Debug)]
pub struct InventoryHandle {
    keeper: Option<JoinHandle<()>>,
    messages: mpsc::Sender<Message>,
}

/// Closes and opens NVML for whoever replaces the driver.
#[derive(Clone, Debug)]
pub struct DriverControl(mpsc::Sender<Message>);

/// Starts to watch the cards. The first inventory is empty and says that NVML has not answered yet; the next one has all
/// cards that answer within [`InventoryOptions::probe_timeout`].
pub fn watch(mut options: InventoryOptions) -> (watch::Receiver<Arc<Inventory>>, InventoryHandle) {
    // Without a pause the threads would spin; and a time that lies centuries ahead can't be represented.
    options.probe_interval = options.probe_interval.clamp(Duration::from_millis(1), LONGEST);
    options.probe_timeout = options.probe_timeout.min(LONGEST);
    let problem = Some("NVML has not answered yet".to_owned());
    let (inventories, receiver) = watch::channel(Arc::new(Inventory { problem, ..Inventory::default() }));
    let (messages, inbox) = mpsc::channel();
    let keeper = keeper::start(options, inventories, messages.clone(), inbox);
    (receiver, InventoryHandle { keeper, messages })
}

// === impl CardInfo ===

impl CardInfo {
    /// The MIG profile by which it is asked for; `None`: it is one of the plain count.
    pub fn asked_by(&self) -> Option<&MigProfile> {
        self.mig.as_ref().filter(|mig| mig.by_profile).map(|mig| &mig.profile)
    }
}

// === impl Inventory ===

impl Inventory {
    /// With GPUs unhealthy, as on a node where the hardware must keep every pod within its shares.
    #[must_use]
    pub fn of_instances(self: Arc<Self>) -> Arc<Self> {
        let is_gpu = |card: &CardInfo| card.mig.is_none() && card.health.is_healthy();
        if !self.cards.iter().any(is_gpu) {
            return self;
        }
        let mut inventory = Self::clone(&self);
        for card in inventory.cards.iter_mut().filter(|card| is_gpu(card)) {
            let reason = "no MIG instance, which tier mig demands: cut the GPU, or set tier to auto".to_owned();
            card.health = CardHealth::Unhealthy { reason };
        }
        Arc::new(inventory)
    }
}

// === impl InventoryOptions ===

impl Default for InventoryOptions {
    fn default() -> Self {
        Self {
            nvml_library: None,
            sysfs_root: PathBuf::from("/sys"),
            mig_strategy: MigStrategy::None,
            probe_interval: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(10),
            health: HealthOptions::default(),
            released: None,
        }
    }
}

impl InventoryOptions {
    fn library(&self) -> OsString {
        self.nvml_library.clone().map_or_else(|| OsString::from("libnvidia-ml.so.1"), PathBuf::into_os_string)
    }
}

// === impl InventoryHandle ===

impl InventoryHandle {
    /// Ends the inventory: no new one follows, and the receivers are told so. NVML is let go within a second, except by
    /// a call that hangs: NVML can't be interrupted.
    pub fn stop(mut self) {
        self.tell_to_stop();
        if let Some(keeper) = self.keeper.take() {
            // An error would be a panic, which the thread has reported itself.
            drop(keeper.join());
        }
    }

    /// The means to close NVML for a while.
    pub fn driver(&self) -> DriverControl {
        DriverControl(self.messages.clone())
    }

    fn tell_to_stop(&self) {
        // Fails when the keeper has ended, which is what is asked for.
        drop(self.messages.send(Message::Stop));
    }
}

// === impl DriverControl ===

impl DriverControl {
    /// Lets go of NVML for this reason, or opens it again. An open NVML keeps the driver's module from being unloaded.
    /// [`Inventory::problem`] says when it is closed: within seconds, unless a call hangs. Cards stay listed.
    pub fn release(&self, reason: Option<String>) {
        // Fails when the keeper has ended: then NVML is closed.
        drop(self.0.send(Message::Release(reason)));
    }
}

impl Drop for InventoryHandle {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}
