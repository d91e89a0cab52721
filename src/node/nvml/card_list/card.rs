//! State of one card.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use divvy_api::{Card, CardId, Health, Memory};

use super::Call;
use super::load::Load;
use crate::config::MigStrategy;
use crate::nvml::calls::{Instance, ProbeError, Sample, Slice};
use crate::nvml::health::{HealthOptions, HealthState, Observation};
use crate::nvml::readings::{GpuReadings, Sensors};
use divvy_node_core::inventory::DeviceInfo;

#[derive(Debug)]
pub(super) struct WatchedCard {
    /// What NVML says of it; its health is separate, and what is configured for it comes later.
    pub(super) card: Card,
    pub(super) device: DeviceInfo,
    pub(super) health: HealthState,
    /// Average utilization, while probes report it.
    load: Option<Load>,
    /// Values of the last probe, if it was answered.
    sensors: Sensors,
    /// XIDs that were reported, by their number.
    xids: BTreeMap<u64, u64>,
    /// The probe that runs, or the next one; `None`: nobody probes, or its GPU's probe is its own.
    pub(super) call: Option<Call>,
    pub(super) listing: CardListing,
    /// Whether NVML no longer finds the card.
    pub(super) gone: bool,
    /// A GPU in MIG mode.
    in_mig: bool,
}

/// Whether it is shown as a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardListing {
    /// No probe has returned yet, nor exceeded the timeout.
    Unknown,
    /// Not listed: MIG instances are listed in its place.
    Hidden,
    /// Listed until the daemon restarts, as a pod may hold its slots.
    Listed,
}

// === impl WatchedCard ===

impl WatchedCard {
    pub(super) fn new(id: CardId) -> Self {
        Self {
            card: Card::healthy(id, Memory::ZERO),
            device: DeviceInfo::default(),
            health: HealthState::default(),
            load: None,
            sensors: Sensors::default(),
            xids: BTreeMap::new(),
            call: None,
            listing: CardListing::Unknown,
            gone: false,
            in_mig: false,
        }
    }

    /// An instance on the GPU of this sample.
    pub(super) fn instance(instance: &Instance, gpu: &Sample) -> Self {
        let mut card = Self::new(instance.id.clone());
        card.card = Card { model: instance.model.as_str().into(), numa: gpu.numa, ..card.card };
        card.device = DeviceInfo {
            pci_bus_id: gpu.pci_bus_id.clone().unwrap_or_default(),
            minor: gpu.minor,
            index: gpu.index,
            ..card.device
        };
        card
    }

    /// Whether it is this GPU, or an instance on it.
    pub(super) fn is_of(&self, gpu: &CardId) -> bool {
        self.device.place.as_ref().map_or(&self.card.id, |place| &place.gpu) == gpu
    }

    /// Whether it is in this slice of its GPU; `None`: all of it.
    pub(super) fn is_in(&self, slice: Option<Slice>) -> bool {
        slice.is_none_or(|slice| {
            let place = self.device.place.as_ref();
            place.is_some_and(|place| place.gi == slice.gi && slice.ci.is_none_or(|ci| ci == place.ci))
        })
    }

    /// Lists or hides the card after a probe.
    pub(super) fn answer(&mut self, strategy: MigStrategy) {
        let hidden = self.in_mig && strategy.makes_cards() && self.listing != CardListing::Listed;
        self.listing = if hidden { CardListing::Hidden } else { CardListing::Listed };
    }

    pub(super) fn probed(&mut self, options: &HealthOptions, at: Instant, probed: Result<Sample, ProbeError>) {
        self.gone = matches!(probed, Err(ProbeError::Gone | ProbeError::Vanished));
        let observation = match probed {
            Ok(sample) => {
                let ecc_uncorrected = sample.sensors.ecc_uncorrected;
                self.in_mig = sample.partition.is_some();
                self.learn(at, sample);
                Observation::Answered { ecc_uncorrected }
            }
            Err(error) => {
                self.device.memory_used = None;
                self.device.processes = None;
                (self.load, self.card.utilization) = (None, None);
                return self.fail(options, at, error.to_string());
            }
        };
        self.health.observe(options, at, observation);
    }

    /// Records a failure; what the sensors showed before it isn't known to be so any more.
    pub(super) fn fail(&mut self, options: &HealthOptions, at: Instant, reason: String) {
        self.sensors = Sensors::default();
        self.health.observe(options, at, Observation::Failed { reason });
    }

    /// Counts an XID.
    pub(super) fn count_xid(&mut self, xid: u64) {
        *self.xids.entry(xid).or_default() += 1;
    }

    pub(super) fn readings(&self) -> GpuReadings {
        // An instance's sample has an error count of its GPU, for its health.
        let sensors = if self.is_instance() { Sensors::default() } else { self.sensors };
        GpuReadings { id: self.card.id.clone(), model: self.card.model.to_string(), sensors, xids: self.xids.clone() }
    }

    /// Whether it may take new shares.
    pub(super) fn verdict(&self, strategy: MigStrategy) -> Health {
        if self.in_mig {
            return Health::unhealthy(strategy.objection());
        }
        self.health.verdict()
    }

    /// Whether it is a MIG instance.
    pub(super) fn is_instance(&self) -> bool {
        self.card.mig.is_some()
    }

    /// The card for the inventory.
    pub(super) fn found(&self, strategy: MigStrategy) -> (Card, DeviceInfo) {
        (Card { health: self.verdict(strategy), ..self.card.clone() }, self.device.clone())
    }

    /// Updates the card from a sample; its description is kept where the sample lacks it.
    fn learn(&mut self, at: Instant, sample: Sample) {
        self.load = sample.sensors.utilization.map(|percent| Load::with(self.load, percent, at));
        self.sensors = sample.sensors;
        let card = &mut self.card;
        let device = &mut self.device;
        card.memory = sample.memory.unwrap_or(Memory::ZERO);
        card.utilization = self.load.map(Load::percent);
        card.model = sample.model.map_or_else(|| Arc::clone(&card.model), Arc::from);
        card.numa = sample.numa.or(card.numa);
        card.compute_mode = sample.compute_mode.unwrap_or(card.compute_mode);
        device.memory_used = sample.memory_used;
        device.processes = sample.processes;
        device.pci_bus_id = sample.pci_bus_id.unwrap_or_else(|| std::mem::take(&mut device.pci_bus_id));
        device.minor = sample.minor.or(device.minor);
        device.clique = sample.clique;
        device.index = sample.index.or(device.index);
    }
}
