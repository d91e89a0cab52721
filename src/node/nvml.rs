//! GPUs and MIG instances of the node and their health, observed through NVML.
//!
//! ```text
//! driver thread: open NVML, count cards, again and again ──┐
//! finder threads: index ──▶ UUID, when the count has grown ─┤ reports   ┌─────────┐         watch
//! one thread a card: probe, wait for XIDs, again and again ─┼─────────▶ │ monitor │ ──────▶ Inventory
//! links thread: when the set of healthy cards has grown ────┘           └─────────┘
//! ```
//!
//! Only the monitor decides, and it never calls NVML; each of the other threads may hang in a call without blocking anything
//! else. A call that doesn't return makes its own card unhealthy. NVML may be missing, late, or lost later: that is an
//! [`Inventory::problem`], and the daemon goes on. A card that was found once stays listed.
//!
//! The instances of a GPU in MIG mode are probed with it, on its thread: an error of the GPU affects all of them. One that
//! no longer exists stays listed too, unhealthy, until the daemon restarts: a pod may still hold its slots.

mod calls;
mod card_list;
mod health;
mod links;
mod monitor;
mod readings;
mod stop;
mod threads;

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::MigStrategy;
use divvy_node_core::inventory::Inventory;
pub use health::HealthOptions;
use monitor::Message;
pub use readings::{GpuReadings, RemappedRows, Sensors};

/// Delay for what is not due.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Settings of the inventory.
#[derive(Clone, Debug)]
pub struct InventoryOptions {
    /// Root of the driver's installation, in which NVML's library is looked for.
    pub driver_root: PathBuf,
    /// Where sysfs is mounted.
    pub sysfs_root: PathBuf,
    /// How MIG instances are advertised.
    pub mig_strategy: MigStrategy,
    /// Interval of probes of a card, and of attempts to open NVML.
    pub probe_interval: Duration,
    /// Time after which a call counts as hanging.
    pub probe_timeout: Duration,
    /// Conditions that make a card unhealthy.
    pub health: HealthOptions,
    /// Reason not to open NVML yet, if there is one.
    pub released: Option<String>,
}

/// Owns the threads behind an inventory; they end with it.
#[derive(Debug)]
pub struct InventoryHandle {
    monitor: Option<JoinHandle<()>>,
    messages: mpsc::Sender<Message>,
    readings: watch::Receiver<Arc<Vec<GpuReadings>>>,
}

/// Closes NVML while the driver is being replaced, and opens it again.
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
    let (readings_sender, readings) = watch::channel(Arc::default());
    let (messages, inbox) = mpsc::channel();
    let monitor = monitor::start(options, inventories, readings_sender, messages.clone(), inbox);
    (receiver, InventoryHandle { monitor, messages, readings })
}

// === impl InventoryHandle ===

impl InventoryHandle {
    /// Ends the inventory: no new one follows, and the receivers are notified. NVML is closed within a second, except in
    /// a call that hangs: NVML can't be interrupted.
    pub fn stop(mut self) {
        self.tell_to_stop();
        if let Some(monitor) = self.monitor.take() {
            // An error would be a panic, which the thread has reported itself.
            drop(monitor.join());
        }
    }

    /// Readings of the GPUs: those in MIG mode too, which the inventory leaves out. They change with almost every probe, so
    /// they aren't part of the inventory, by which the daemon decides.
    pub fn readings(&self) -> watch::Receiver<Arc<Vec<GpuReadings>>> {
        self.readings.clone()
    }

    /// Handle that closes NVML for a while.
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
    /// Closes NVML for this reason, or opens it again. An open NVML keeps the driver's module from being unloaded.
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
