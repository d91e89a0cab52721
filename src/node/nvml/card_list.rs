//! State of driver and cards: reports and times in, an [`Inventory`] out.

mod card;
mod driver;
mod load;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use divvy_api::{Card, CardId, Health};

use super::InventoryOptions;
use super::calls::{ProbeError, Sample, Slice};
use super::health::{HealthOptions, Observation};
use super::links::LinkTable;
use super::readings::GpuReadings;
use crate::config::MigStrategy;
use card::{CardListing, WatchedCard};
use divvy_node_core::inventory::{DeviceInfo, Driver, Inventory};
use driver::DriverState;

/// Most GPUs of a node; a larger count is invalid.
const MAX_CARDS: u32 = 128;

/// State of the monitor.
#[derive(Debug)]
pub(super) struct CardList {
    interval: Duration,
    timeout: Duration,
    health: HealthOptions,
    mig: MigStrategy,
    driver: DriverState,
    /// Look-ups by index that run, or that failed.
    lookups: BTreeMap<u32, Lookup>,
    /// Every GPU and MIG instance that was ever found.
    cards: BTreeMap<CardId, WatchedCard>,
    links: LinkTable,
    /// Cards whose links were read since NVML was opened.
    linked: BTreeSet<CardId>,
    linking: Option<Call>,
}

/// A call, or a series of calls, that has not returned. It may begin in the future, when the thread has slept.
#[derive(Clone, Copy, Debug)]
struct Call {
    since: Instant,
    /// Exceeded the timeout, which was reported.
    overdue: bool,
}

#[derive(Debug, Default)]
struct Lookup {
    /// The look-up that runs.
    call: Option<Call>,
    /// Result of the last one, which is valid until there is another.
    error: Option<String>,
}

// === impl CardList ===

impl CardList {
    /// An empty list; the driver is called from `at` on.
    pub(super) fn new(at: Instant, options: &InventoryOptions) -> Self {
        Self {
            interval: options.probe_interval,
            timeout: options.probe_timeout,
            health: options.health.clone(),
            mig: options.mig_strategy,
            driver: DriverState::asked(at),
            lookups: BTreeMap::new(),
            cards: BTreeMap::new(),
            links: LinkTable::default(),
            linked: BTreeSet::new(),
            linking: None,
        }
    }

    /// Every GPU that was ever found, each of which is to be watched.
    pub(super) fn gpus(&self) -> Vec<CardId> {
        self.cards.values().filter(|card| !card.is_instance()).map(|card| card.card.id.clone()).collect()
    }

    /// Records that NVML was opened again.
    pub(super) fn opened(&mut self, at: Instant, driver: Driver) {
        self.driver = DriverState { driver: Some(driver), ..DriverState::asked(at) };
        self.linked.clear();
    }

    /// Records the number of cards that NVML reports.
    pub(super) fn counted(&mut self, at: Instant, count: Result<u32, String>) {
        self.driver.call = Call::new(at + self.interval);
        self.driver.count = Some(count);
    }

    /// NVML can't be opened, or was closed because the driver is gone. Nothing comes back from calls of before.
    pub(super) fn refused(&mut self, at: Instant, reason: String) {
        for card in self.cards.values_mut() {
            card.call = None;
            card.fail(&self.health, at, reason.clone());
        }
        self.driver = DriverState { refusal: Some(reason), ..DriverState::asked(at + self.interval) };
        self.lookups.clear();
        self.linking = None;
    }

    /// Indices to be looked up: all of them, when NVML counts more cards than are known.
    pub(super) fn start_lookups(&mut self, at: Instant) -> Vec<u32> {
        let count = self.driver.count.as_ref().and_then(|count| count.as_ref().ok()).copied().unwrap_or(0);
        let there = self.cards.values().filter(|card| !card.is_instance() && !card.gone).count();
        if count as usize <= there {
            self.lookups.retain(|_, lookup| lookup.call.is_some());
            return Vec::new();
        }
        let mut started = Vec::new();
        for index in 0..count.min(MAX_CARDS) {
            let lookup = self.lookups.entry(index).or_default();
            if lookup.call.is_none() {
                lookup.call = Some(Call::new(at));
                started.push(index);
            }
        }
        started
    }

    /// Records the card at an index; returns it if it isn't watched yet.
    pub(super) fn found(&mut self, index: u32, found: Result<CardId, String>) -> Option<CardId> {
        match found {
            Ok(card) if self.cards.contains_key(&card) => {
                self.lookups.remove(&index);
                None
            }
            Ok(card) => {
                self.lookups.remove(&index);
                self.cards.insert(card.clone(), WatchedCard::new(card.clone()));
                Some(card)
            }
            Err(error) => {
                self.lookup_failed(index, error);
                None
            }
        }
    }

    /// Records that the card at an index couldn't be read.
    pub(super) fn lookup_failed(&mut self, index: u32, error: String) {
        self.lookups.insert(index, Lookup { call: None, error: Some(error) });
    }

    /// The card is probed from `at` on.
    pub(super) fn watched(&mut self, at: Instant, card: &CardId) {
        if let Some(card) = self.cards.get_mut(card) {
            card.call = Some(Call::new(at));
        }
    }

    /// Records the result of a probe; the next one is due after an interval.
    pub(super) fn probed(&mut self, at: Instant, gpu: &CardId, probed: Result<Sample, ProbeError>) {
        match &probed {
            Ok(sample) => self.see_instances(at, gpu, sample),
            Err(error) => self.fail(at, gpu, &error.to_string()),
        }
        if let Some(card) = self.cards.get_mut(gpu) {
            card.probed(&self.health, at, probed);
            card.answer(self.mig);
            card.call = Some(Call::new(at + self.interval));
        }
    }

    /// The GPU of this sample has these instances, and no others.
    fn see_instances(&mut self, at: Instant, gpu: &CardId, sample: &Sample) {
        let instances = sample.partition.as_ref().map_or(&[][..], |partition| &partition.instances);
        for instance in instances {
            let new = || WatchedCard::instance(instance, sample);
            let card = self.cards.entry(instance.id.clone()).or_insert_with(new);
            // Each time: one that is made anew under the same UUID may be elsewhere.
            card.card.mig = Some(instance.mig.clone());
            card.device.place = Some(instance.place.clone());
            card.probed(&self.health, at, instance.sample(sample));
            card.answer(self.mig);
        }
        let is_there = |card: &WatchedCard| instances.iter().any(|instance| instance.id == card.card.id);
        let on_gpu = |card: &WatchedCard| card.is_instance() && card.is_of(gpu);
        for card in self.cards.values_mut().filter(|card| on_gpu(card) && !is_there(card)) {
            card.probed(&self.health, at, Err(ProbeError::Vanished));
        }
    }

    /// Records that the card can't be watched, for a reason on the daemon's side.
    pub(super) fn unwatched(&mut self, at: Instant, gpu: &CardId, reason: &str) {
        self.fail(at, gpu, reason);
        if let Some(card) = self.cards.get_mut(gpu) {
            card.call = None;
        }
    }

    /// Records an XID of a GPU, or of a MIG instance.
    pub(super) fn xid(&mut self, at: Instant, gpu: &CardId, slice: Option<Slice>, xid: u64) {
        for card in self.cards.values_mut().filter(|card| card.is_of(gpu) && card.is_in(slice)) {
            card.health.observe(&self.health, at, Observation::Xid(xid));
        }
        // Counted once: for the compute instance that it is about, if it names one, and otherwise for the GPU.
        let is_instance = |card: &WatchedCard| slice.is_some_and(|slice| slice.ci.is_some()) && card.is_in(slice);
        let instance = self.cards.values().find(|card| card.is_of(gpu) && is_instance(card));
        let counted = instance.map_or(gpu, |card| &card.card.id).clone();
        if let Some(card) = self.cards.get_mut(&counted) {
            card.count_xid(xid);
        }
    }

    /// Records a failure of a GPU, and so of all of its instances.
    fn fail(&mut self, at: Instant, gpu: &CardId, reason: &str) {
        for card in self.cards.values_mut().filter(|card| card.is_of(gpu)) {
            card.fail(&self.health, at, reason.to_owned());
            card.answer(self.mig);
        }
    }

    /// The healthy GPUs, if the links of one of them were not read, and none are being read.
    pub(super) fn start_linking(&mut self, at: Instant) -> Option<Vec<CardId>> {
        let idle = self.linking.is_none_or(|call| call.overdue) && !self.is_finding();
        // Instances have no links: CUDA knows no peers among them.
        let gpus = self.cards.values().filter(|card| !card.is_instance());
        let healthy = gpus.filter(|card| card.verdict(self.mig) == Health::Healthy);
        let healthy: Vec<CardId> = healthy.map(|card| card.card.id.clone()).collect();
        if !idle || healthy.iter().all(|card| self.linked.contains(card)) {
            return None;
        }
        self.linked.extend(healthy.iter().cloned());
        self.linking = Some(Call::new(at));
        Some(healthy)
    }

    /// Records the links that were read.
    pub(super) fn linked(&mut self, table: LinkTable) {
        self.links.update(table);
        self.linking = None;
    }

    /// Marks the calls that have exceeded the timeout.
    pub(super) fn expire(&mut self, now: Instant) {
        let timeout = self.timeout;
        let calls = self.cards.values_mut().filter_map(|card| Some((&card.card.id, card.call.as_mut()?)));
        let silent = calls.filter_map(|(gpu, call)| call.expire(now, timeout).then(|| gpu.clone()));
        for gpu in silent.collect::<Vec<_>>() {
            self.fail(now, &gpu, &silence(timeout));
        }
        let lookups = self.lookups.values_mut().filter_map(|lookup| lookup.call.as_mut());
        for call in lookups.chain([&mut self.driver.call]).chain(&mut self.linking) {
            call.expire(now, timeout);
        }
    }

    /// Time at which [`Self::expire`] is due.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let cards = self.cards.values().filter_map(|card| card.call);
        let lookups = self.lookups.values().filter_map(|lookup| lookup.call);
        let calls = cards.chain(lookups).chain([self.driver.call]).chain(self.linking);
        calls.filter(|call| !call.overdue).map(|call| call.since + self.timeout).min()
    }

    /// Whether the first inventory is complete: each card has answered or exceeded the timeout, or there is no driver.
    pub(super) fn is_complete(&self) -> bool {
        let linking = self.linking.is_some_and(|call| !call.overdue);
        let answered = self.cards.values().all(|card| card.listing != CardListing::Unknown);
        self.driver.is_away() || (self.driver.count.is_some() && answered && !self.is_finding() && !linking)
    }

    /// Current inventory.
    pub(super) fn inventory(&self) -> Inventory {
        let listed = self.cards.values().filter(|card| card.listing == CardListing::Listed);
        let mut cards: Vec<(Card, DeviceInfo)> = listed.map(|card| card.found(self.mig)).collect();
        cards.sort_by(|(a, at_a), (b, at_b)| (&at_a.pci_bus_id, &a.id).cmp(&(&at_b.pci_bus_id, &b.id)));
        let ids: Vec<CardId> = cards.iter().map(|(card, _)| card.id.clone()).collect();
        let inventory = Inventory::new(cards, self.links.links(&ids));
        Inventory { driver: self.driver.driver.clone(), problem: self.problem(), ..inventory }
    }

    /// Readings of every GPU and instance, in the order of their UUIDs.
    pub(super) fn readings(&self) -> Vec<GpuReadings> {
        self.cards.values().map(WatchedCard::readings).collect()
    }

    fn is_finding(&self) -> bool {
        self.lookups.values().filter_map(|lookup| lookup.call).any(|call| !call.overdue)
    }

    fn problem(&self) -> Option<String> {
        let lookups = || self.lookups.iter().find_map(|(index, lookup)| lookup.problem(*index, self.timeout));
        self.driver.problem(self.timeout).or_else(lookups)
    }
}

/// Message about a call that doesn't return.
fn silence(timeout: Duration) -> String {
    format!("NVML has not answered for {timeout:?}")
}

// === impl Call ===

impl Call {
    fn new(since: Instant) -> Self {
        Self { since, overdue: false }
    }

    /// Whether it is overdue from now on.
    fn expire(&mut self, now: Instant, timeout: Duration) -> bool {
        let expires = !self.overdue && now.saturating_duration_since(self.since) >= timeout;
        self.overdue |= expires;
        expires
    }
}

// === impl Finder ===

impl Lookup {
    fn problem(&self, index: u32, timeout: Duration) -> Option<String> {
        let overdue = self.call.is_some_and(|call| call.overdue).then(|| silence(timeout));
        Some(format!("GPU at index {index}: {}", overdue.as_ref().or(self.error.as_ref())?))
    }
}

#[cfg(test)]
mod tests;
