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

mod calls;
mod card_list;
mod health;
mod keeper;
mod links;
mod stop;
mod threads;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::MigStrategy;
use divvy_node_core::inventory::Inventory;
pub use health::HealthOptions;
use keeper::Message;

/// As good as never.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

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
