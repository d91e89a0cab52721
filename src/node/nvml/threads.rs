//! Threads that call NVML. They report to the monitor and decide nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use std::{io, thread};

use divvy_api::CardId;
use divvy_runtime::driver::nvml_library;
use divvy_runtime::logging::WarnOnce;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml};
use tracing::{debug, info};

use super::calls::{self, CallError, XidEvent};
use super::links;
use super::monitor::{CardReport, DriverReport, Message};
use super::stop::StopSignal;
use crate::config::MigStrategy;
use divvy_node_core::inventory::Driver;

/// Stack size of the threads in bytes: the daemon needs a few KiB, NVML an unknown amount. Untouched pages cost nothing.
const STACK_BYTES: usize = 512 << 10;

/// A wait for events can't be interrupted, so it is cut into pieces of this length, after which a thread may end.
const LISTEN: Duration = Duration::from_secs(1);

/// Sender of the reports of one NVML session's threads.
#[derive(Clone)]
pub(super) struct Reporter {
    pub(super) session: u64,
    pub(super) messages: Sender<Message>,
}

/// Opens NVML and counts its cards, repeatedly.
pub(super) struct DriverWatch {
    pub(super) number: u64,
    pub(super) driver_root: PathBuf,
    pub(super) interval: Duration,
    pub(super) messages: Sender<Message>,
    pub(super) stop: StopSignal,
}

/// Probes one card with its MIG instances, and waits for its XIDs.
pub(super) struct CardWatch {
    pub(super) card: CardId,
    pub(super) nvml: Arc<Nvml>,
    pub(super) sysfs: PathBuf,
    pub(super) mig: MigStrategy,
    pub(super) interval: Duration,
    pub(super) reporter: Reporter,
    pub(super) stop: StopSignal,
}

/// The event set of one card. One set a card, so that a set which fails, or a driver that doesn't say whose event it
/// delivers, affects no other.
struct Listener<'w> {
    nvml: &'w Nvml,
    card: &'w CardId,
    set: Option<EventSet<'w>>,
    warning: WarnOnce,
}

/// Starts a thread; an error says that there can't be more of them.
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(body)
}

/// Looks up the card at an index.
pub(super) fn find(nvml: &Nvml, index: u32, reporter: &Reporter) {
    let found = calls::find(nvml, index).map_err(|error| error.to_string());
    reporter.send(CardReport::Found(index, found));
}

/// Reads the links of these cards.
pub(super) fn link(nvml: &Nvml, cards: &[CardId], reporter: &Reporter) {
    reporter.send(CardReport::Linked(links::read(nvml, cards)));
}

// === impl Mail ===

impl Reporter {
    fn send(&self, report: CardReport) {
        // Fails when the keeper has ended; the stop ends this thread then.
        drop(self.messages.send(Message::Card(self.session, report)));
    }
}

// === impl DriverWatch ===

impl DriverWatch {
    pub(super) fn run(self) {
        loop {
            let refusal = match calls::open(nvml_library(&self.driver_root).as_os_str()) {
                Ok((nvml, driver)) => self.attend(&Arc::new(nvml), driver),
                Err(error) => Some(error),
            };
            let Some(refusal) = refusal else { return };
            self.send(DriverReport::Refused(refusal.to_string()));
            if !self.stop.pause(self.interval) {
                return;
            }
        }
    }

    /// Counts the cards until the driver is gone, and returns how that was noticed.
    fn attend(&self, nvml: &Arc<Nvml>, driver: Driver) -> Option<CallError> {
        let mut opened = Some(driver);
        loop {
            let counted = match calls::count(nvml) {
                Err(error) if error.is_driver_gone() => return Some(error),
                counted => counted.map_err(|error| error.to_string()),
            };
            if let Some(driver) = opened.take() {
                self.send(DriverReport::Opened(Arc::downgrade(nvml), driver));
            }
            self.send(DriverReport::Counted(counted));
            if !self.stop.pause(self.interval) {
                return None;
            }
        }
    }

    fn send(&self, report: DriverReport) {
        // Fails when the keeper has ended; the stop ends this thread then.
        drop(self.messages.send(Message::Driver(self.number, report)));
    }
}

// === impl CardWatch ===

impl CardWatch {
    pub(super) fn run(self) {
        let mut listener = Listener { nvml: &self.nvml, card: &self.card, set: None, warning: WarnOnce::default() };
        let mut warning = WarnOnce::default();
        loop {
            // Before the probe: once a card is healthy, its XIDs are received.
            listener.subscribe();
            let probed = calls::probe(&self.nvml, &self.card, &self.sysfs, self.mig);
            if let Ok(sample) = &probed {
                match sample.partition.as_ref().and_then(|partition| partition.trouble.as_ref()) {
                    Some(trouble) => warning.warn(format!("{}: {trouble}", self.card)),
                    None => warning.clear(),
                }
            }
            self.reporter.send(CardReport::Probed(self.card.clone(), probed.map(Box::new)));
            let on_event = |event: &XidEvent<'_>| {
                self.reporter.send(CardReport::Xid(self.card.clone(), event.slice, event.xid));
            };
            if !listener.listen(self.interval, &self.stop, on_event) {
                return;
            }
        }
    }
}

// === impl Listener ===

impl Listener<'_> {
    fn subscribe(&mut self) {
        if self.set.is_none() {
            match calls::subscribe(self.nvml, self.card) {
                Ok(set) => self.set = Some(set),
                Err(error) => self.unsubscribe(&error),
            }
        }
    }

    /// Receives XIDs for that long; without a set it just waits. False: the thread should end.
    fn listen(&mut self, duration: Duration, stop: &StopSignal, on_event: impl Fn(&XidEvent<'_>)) -> bool {
        let end = Instant::now() + duration;
        loop {
            let began = Instant::now();
            let left = end.saturating_duration_since(began);
            let Some(set) = self.set.as_ref().filter(|_| !left.is_zero()) else { return stop.pause(left) };
            let piece = left.min(LISTEN);
            // Rounded up, so that the last piece isn't a row of waits that return at once.
            let millis = u32::try_from(piece.as_millis()).map_or(u32::MAX, |millis| millis + 1);
            match calls::wait(self.nvml, set, millis) {
                Ok(event) => event.iter().filter(|event| self.is_mine(event)).for_each(&on_event),
                Err(NvmlError::Timeout) => {
                    self.restored();
                    // A wait that ends early must not make this a busy loop.
                    if !stop.pause(piece.saturating_sub(began.elapsed())) {
                        return false;
                    }
                }
                Err(error) => self.unsubscribe(&calls::wait_error(error)),
            }
        }
    }

    /// Whether the event is about this card.
    fn is_mine(&self, event: &XidEvent<'_>) -> bool {
        match event.device.uuid() {
            Ok(uuid) if uuid == self.card.as_str() => true,
            // The set is for this card alone, and a card that has just fallen off the bus can't say its name any more.
            Err(NvmlError::GpuLost | NvmlError::ResetRequired) => true,
            other => {
                debug!(card = %self.card, ?other, "ignoring an event of another GPU");
                false
            }
        }
    }

    /// Logs the error once, and tries again after the next probe.
    fn unsubscribe(&mut self, error: &CallError) {
        self.set = None;
        self.warning.warn(format!("{}: XID event subscription failed: {error}", self.card));
    }

    fn restored(&mut self) {
        if self.warning.current().is_some() {
            self.warning.clear();
            info!(card = %self.card, "XID event subscription restored");
        }
    }
}
