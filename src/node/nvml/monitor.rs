//! Monitor thread: receives the reports, starts missing threads, and publishes the inventory.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use divvy_api::CardId;
use nvml_wrapper::Nvml;
use tokio::sync::watch;
use tracing::{info, warn};

use super::InventoryOptions;
use super::calls::{ProbeError, Sample, Slice};
use super::card_list::CardList;
use super::links::LinkTable;
use super::readings::GpuReadings;
use super::stop::{self, StopHandle};
use super::threads::{self, CardWatch, DriverWatch, Reporter};
use divvy_node_core::inventory::{Driver, Inventory};

/// Longest sleep of the monitor while no call is in progress.
const IDLE: Duration = Duration::from_secs(3600);
/// Interval of checks whether the last call to a closed NVML has returned.
const CLOSING: Duration = Duration::from_millis(100);

/// Message to the monitor.
#[derive(Debug)]
pub(super) enum Message {
    /// Ends the monitor.
    Stop,
    /// Closes NVML for this reason, or opens it again.
    Release(Option<String>),
    /// Report of the driver thread with this number.
    Driver(u64, DriverReport),
    /// Report of a thread of this NVML session.
    Card(u64, CardReport),
}

/// Report about the driver.
#[derive(Debug)]
pub(super) enum DriverReport {
    /// NVML is open; its threads keep it so.
    Opened(Weak<Nvml>, Driver),
    /// The number of cards.
    Counted(Result<u32, String>),
    /// NVML can't be opened, or was closed.
    Refused(String),
}

/// Report about cards.
#[derive(Debug)]
pub(super) enum CardReport {
    /// Card at an index.
    Found(u32, Result<CardId, String>),
    /// Result of a probe of a card and its MIG instances.
    Probed(CardId, Result<Box<Sample>, ProbeError>),
    /// XID of the card or of a MIG instance.
    Xid(CardId, Option<Slice>, u64),
    /// Links between cards.
    Linked(LinkTable),
}

struct Monitor {
    options: InventoryOptions,
    cards: CardList,
    inventories: watch::Sender<Arc<Inventory>>,
    readings: watch::Sender<Arc<Vec<GpuReadings>>>,
    messages: Sender<Message>,
    /// NVML session whose reports are accepted.
    session: u64,
    nvml: Weak<Nvml>,
    /// Threads of this session.
    threads: Vec<StopHandle>,
    /// Driver thread and its number; none while NVML is closed.
    driver_watch: Option<StopHandle>,
    driver_watches: u64,
    /// Why NVML is closed.
    released: Option<String>,
    /// Shared with every thread that has NVML open, or did before its call came to hang.
    users: Arc<()>,
}

/// Starts the monitor. If no thread can be started, the inventory stays empty, and its receivers are notified of the closed
/// channel.
pub(super) fn start(
    options: InventoryOptions,
    inventories: watch::Sender<Arc<Inventory>>,
    readings: watch::Sender<Arc<Vec<GpuReadings>>>,
    messages: Sender<Message>,
    inbox: Receiver<Message>,
) -> Option<JoinHandle<()>> {
    let monitor = Monitor {
        cards: CardList::new(Instant::now(), &options),
        options,
        inventories,
        readings,
        messages,
        session: 0,
        nvml: Weak::new(),
        threads: Vec::new(),
        driver_watch: None,
        driver_watches: 0,
        released: None,
        users: Arc::new(()),
    };
    match threads::spawn("inventory", move || monitor.run(&inbox)) {
        Ok(thread) => Some(thread),
        Err(error) => {
            warn!(%error, "starting the NVML monitor failed");
            None
        }
    }
}

fn no_thread(error: &io::Error) -> String {
    format!("can't start a thread: {error}")
}

/// Logs the changes between two inventories.
fn log_changes(last: &Inventory, next: &Inventory) {
    if last.problem != next.problem {
        if let Some(problem) = &next.problem {
            warn!(problem, "GPU inventory is incomplete");
        } else {
            info!(cards = next.cards().len(), driver = ?next.driver, "GPU inventory is complete");
        }
    }
    for card in next.cards() {
        let before = last.node.card(&card.id).map(|before| &before.health);
        match (before, card.is_healthy()) {
            (Some(before), _) if *before == card.health => {}
            (None, true) => info!(card = %card.id, model = %card.model, memory = %card.memory, "GPU added"),
            (Some(_), true) => info!(card = %card.id, "GPU is healthy again"),
            (_, false) => warn!(card = %card.id, health = %card.health, "GPU is unhealthy and accepts no new pods"),
        }
    }
}

// === impl Monitor ===

impl Monitor {
    fn run(mut self, inbox: &Receiver<Message>) {
        match self.options.released.take() {
            None => self.start_driver_watch(),
            reason => self.release(Instant::now(), reason),
        }
        loop {
            let sleep = self.cards.next_expiry().map_or(IDLE, |at| at.saturating_duration_since(Instant::now()));
            let closing = self.released.is_some() && !self.is_closed();
            let message = inbox.recv_timeout(if closing { sleep.min(CLOSING) } else { sleep });
            let now = Instant::now();
            match message {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Message::Release(reason)) => self.release(now, reason),
                Ok(Message::Driver(watch, report)) if watch == self.driver_watches && self.released.is_none() => {
                    self.take_driver_report(now, report);
                }
                Ok(Message::Card(session, report)) if session == self.session => self.take_card_report(now, report),
                // Of an earlier opening, or nothing at all.
                Ok(Message::Driver(..) | Message::Card(..)) | Err(RecvTimeoutError::Timeout) => {}
            }
            self.report_closed(now);
            self.cards.expire(now);
            self.start_linking(now);
            self.publish();
            self.publish_readings();
        }
    }

    /// Ends every thread that has NVML open, or starts with them again. NVML is closed with the last of them; a call
    /// that hangs can't be interrupted.
    fn release(&mut self, now: Instant, reason: Option<String>) {
        if self.released == reason {
            return;
        }
        if let Some(reason) = &reason {
            info!(reason, "closing NVML");
            self.driver_watch = None;
            self.invalidate(now, format!("driver upgrade ({reason}): NVML is being closed"));
        } else {
            info!("reopening NVML");
            self.start_driver_watch();
        }
        self.released = reason;
    }

    /// Ignores further reports of the threads of this session.
    fn invalidate(&mut self, now: Instant, reason: String) {
        self.session += 1;
        self.threads.clear();
        self.cards.refused(now, reason);
    }

    fn report_closed(&mut self, now: Instant) {
        let Some(reason) = self.released.as_ref().filter(|_| self.is_closed()) else { return };
        self.cards.refused(now, format!("driver upgrade ({reason}): NVML is closed"));
    }

    fn is_closed(&self) -> bool {
        Arc::strong_count(&self.users) == 1
    }

    /// Starts a thread that uses NVML; what `body` owns is dropped before the thread counts as gone.
    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let user = Arc::clone(&self.users);
        let body = move || {
            body();
            drop(user);
        };
        threads::spawn(name, body).map(drop)
    }

    fn take_driver_report(&mut self, now: Instant, report: DriverReport) {
        match report {
            DriverReport::Opened(nvml, driver) => {
                self.nvml = nvml;
                self.cards.opened(now, driver);
                for card in self.cards.gpus() {
                    self.watch_card(now, &card);
                }
            }
            DriverReport::Counted(count) => {
                self.cards.counted(now, count);
                for index in self.cards.start_lookups(now) {
                    self.find(index);
                }
            }
            DriverReport::Refused(reason) => self.invalidate(now, reason),
        }
    }

    fn take_card_report(&mut self, now: Instant, report: CardReport) {
        match report {
            CardReport::Found(index, found) => {
                if let Some(card) = self.cards.found(index, found) {
                    self.watch_card(now, &card);
                }
            }
            CardReport::Probed(card, probed) => self.cards.probed(now, &card, probed.map(|sample| *sample)),
            CardReport::Xid(card, slice, xid) => self.cards.xid(now, &card, slice, xid),
            CardReport::Linked(table) => self.cards.linked(table),
        }
    }

    /// Publishes what has changed. The first cards are published together, so that no receiver takes a part for the whole.
    fn publish(&self) {
        let last = self.inventories.borrow().clone();
        let next = self.cards.inventory();
        if *last == next || (last.cards().is_empty() && !self.cards.is_complete()) {
            return;
        }
        log_changes(&last, &next);
        self.inventories.send_replace(Arc::new(next));
    }

    fn publish_readings(&self) {
        let next = self.cards.readings();
        self.readings.send_if_modified(|last| {
            let is_news = **last != next;
            if is_news {
                *last = Arc::new(next);
            }
            is_news
        });
    }

    fn reporter(&self) -> Reporter {
        Reporter { session: self.session, messages: self.messages.clone() }
    }

    fn start_driver_watch(&mut self) {
        let (held, stop) = stop::pair();
        self.driver_watches += 1;
        self.driver_watch = Some(held);
        let watch = DriverWatch {
            number: self.driver_watches,
            driver_root: self.options.driver_root.clone(),
            interval: self.options.probe_interval,
            messages: self.messages.clone(),
            stop,
        };
        if let Err(error) = self.spawn("nvml-driver", move || watch.run()) {
            self.cards.refused(Instant::now(), no_thread(&error));
        }
    }

    fn watch_card(&mut self, now: Instant, card: &CardId) {
        let Some(nvml) = self.nvml.upgrade() else { return };
        let (held, stop) = stop::pair();
        let watch = CardWatch {
            card: card.clone(),
            nvml,
            sysfs: self.options.sysfs_root.clone(),
            mig: self.options.mig_strategy,
            interval: self.options.probe_interval,
            reporter: self.reporter(),
            stop,
        };
        match self.spawn("nvml-card", move || watch.run()) {
            Ok(()) => {
                self.threads.push(held);
                self.cards.watched(now, card);
            }
            Err(error) => self.cards.unwatched(now, card, &no_thread(&error)),
        }
    }

    fn find(&mut self, index: u32) {
        let Some(nvml) = self.nvml.upgrade() else { return };
        let reporter = self.reporter();
        if let Err(error) = self.spawn("nvml-find", move || threads::find(&nvml, index, &reporter)) {
            self.cards.lookup_failed(index, no_thread(&error));
        }
    }

    fn start_linking(&mut self, now: Instant) {
        let Some(cards) = self.cards.start_linking(now) else { return };
        let Some(nvml) = self.nvml.upgrade() else { return };
        let reporter = self.reporter();
        if self.spawn("nvml-links", move || threads::link(&nvml, &cards, &reporter)).is_err() {
            self.cards.linked(LinkTable::default());
        }
    }
}
