//! State of one card.

use std::collections::BTreeMap;
use std::time::Instant;

use divvy_api::{CardId, Memory};

use super::Call;
use super::load::Load;
use crate::config::MigStrategy;
use crate::nvml::calls::{Instance, ProbeError, Sample, Slice};
use crate::nvml::health::{Health, HealthOptions, Observation};
use crate::nvml::readings::{GpuReadings, Sensors};
use divvy_node_core::inventory::{CardHealth, CardInfo};

#[derive(Debug)]
pub(super) struct Card {
    /// Description of the card; its health is separate.
    pub(super) info: CardInfo,
    pub(super) health: Health,
    /// Average utilization, while probes report it.
    load: Option<Load>,
    /// Values of the last probe, if it was answered.
    sensors: Sensors,
    /// XIDs that were reported, by their number.
    xids: BTreeMap<u64, u64>,
    /// The probe that runs, or the next one; `None`: nobody probes, or its GPU's probe is its own.
    pub(super) call: Option<Call>,
    pub(super) listing: Listing,
    /// Whether NVML no longer finds the card.
    pub(super) gone: bool,
    /// A GPU in MIG mode.
    in_mig: bool,
    /// Neither NVML nor the configuration has a figure of its memory.
    lacks_memory: bool,
}

/// Whether it is shown as a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// No probe has returned yet, nor exceeded the timeout.
    Unknown,
    /// Not listed: MIG instances are listed in its place.
    Hidden,
    /// Listed until the daemon restarts, as a pod may hold its slots.
    Listed,
}

// === impl Card ===

impl Card {
    pub(super) fn new(id: CardId) -> Self {
        let health = Health::default();
        let info = CardInfo { health: health.verdict(), ..CardInfo::healthy(id, Memory::ZERO) };
        Self {
            info,
            health,
            load: None,
            sensors: Sensors::default(),
            xids: BTreeMap::new(),
            call: None,
            listing: Listing::Unknown,
            gone: false,
            in_mig: false,
            lacks_memory: false,
        }
    }

    /// An instance on the GPU of this sample.
    pub(super) fn instance(instance: &Instance, gpu: &Sample) -> Self {
        let mut card = Self::new(instance.id.clone());
        card.info = CardInfo {
            model: instance.model.clone(),
            pci_bus_id: gpu.pci_bus_id.clone().unwrap_or_default(),
            minor: gpu.minor,
            index: gpu.index,
            numa: gpu.numa,
            ..card.info
        };
        card
    }

    /// Whether it is this GPU, or an instance on it.
    pub(super) fn is_of(&self, gpu: &CardId) -> bool {
        self.info.mig.as_ref().map_or(&self.info.id, |mig| &mig.parent) == gpu
    }

    /// Whether it is in this slice of its GPU; `None`: all of it.
    pub(super) fn is_in(&self, slice: Option<Slice>) -> bool {
        slice.is_none_or(|slice| {
            self.info.mig.as_ref().is_some_and(|mig| mig.gi == slice.gi && slice.ci.is_none_or(|ci| ci == mig.ci))
        })
    }

    /// Lists or hides the card after a probe.
    pub(super) fn answer(&mut self, strategy: MigStrategy) {
        let hidden = self.in_mig && strategy.makes_cards() && self.listing != Listing::Listed;
        self.listing = if hidden { Listing::Hidden } else { Listing::Listed };
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
                self.info.memory_used = None;
                self.info.processes = None;
                (self.load, self.info.utilization) = (None, None);
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
        let sensors = if self.info.mig.is_none() { self.sensors } else { Sensors::default() };
        GpuReadings { id: self.info.id.clone(), model: self.info.model.clone(), sensors, xids: self.xids.clone() }
    }

    /// Whether it may take new shares.
    pub(super) fn verdict(&self, strategy: MigStrategy) -> CardHealth {
        if self.in_mig {
            return CardHealth::Unhealthy { reason: strategy.objection().to_owned() };
        }
        match self.health.verdict() {
            CardHealth::Healthy if self.lacks_memory => {
                let model = &self.info.model;
                let reason = format!(
                    "NVML reports no memory for this GPU: set memoryOverride for model \"{model}\" in the daemon's configuration"
                );
                CardHealth::Unhealthy { reason }
            }
            verdict => verdict,
        }
    }

    pub(super) fn info(&self, strategy: MigStrategy) -> CardInfo {
        CardInfo { health: self.verdict(strategy), ..self.info.clone() }
    }

    /// Updates the card from a sample; its description is kept where the sample lacks it.
    fn learn(&mut self, at: Instant, sample: Sample) {
        self.load = sample.sensors.utilization.map(|percent| Load::with(self.load, percent, at));
        self.sensors = sample.sensors;
        let info = &mut self.info;
        self.lacks_memory = sample.memory.is_none();
        info.memory = sample.memory.unwrap_or(info.memory);
        info.memory_used = sample.memory_used;
        info.utilization = self.load.map(Load::percent);
        info.processes = sample.processes;
        info.model = sample.model.unwrap_or_else(|| std::mem::take(&mut info.model));
        info.pci_bus_id = sample.pci_bus_id.unwrap_or_else(|| std::mem::take(&mut info.pci_bus_id));
        info.minor = sample.minor.or(info.minor);
        info.clique = sample.clique;
        info.index = sample.index.or(info.index);
        info.numa = sample.numa.or(info.numa);
    }
}
