//! One card.

use std::time::Instant;

use divvy_contract::{CardId, Memory};

use super::Call;
use crate::health::{Health, HealthOptions, Observation};
use crate::inventory::CardInfo;
use crate::inventory::nvml::{ProbeError, Sample};

#[derive(Debug)]
pub(super) struct Card {
    /// All but the health.
    pub(super) info: CardInfo,
    pub(super) health: Health,
    /// The probe that runs, or the next one; `None`: nobody probes.
    pub(super) call: Option<Call>,
    /// A probe has come back, or has taken too long.
    pub(super) answered: bool,
    /// NVML knows no such card.
    pub(super) gone: bool,
}

// === impl Card ===

impl Card {
    pub(super) fn new(id: CardId) -> Self {
        let health = Health::default();
        let info = CardInfo {
            id,
            model: String::new(),
            memory: Memory::ZERO,
            pci_bus_id: String::new(),
            minor: None,
            numa: None,
            health: health.verdict(),
            memory_used: None,
            utilization: None,
        };
        Self { info, health, call: None, answered: false, gone: false }
    }

    pub(super) fn probed(&mut self, options: &HealthOptions, at: Instant, probed: Result<Sample, ProbeError>) {
        self.answered = true;
        self.gone = matches!(probed, Err(ProbeError::Gone));
        let observation = match probed {
            Ok(sample) => {
                let ecc_uncorrected = sample.ecc_uncorrected;
                self.learn(sample);
                Observation::Answered { ecc_uncorrected }
            }
            Err(error) => {
                self.info.memory_used = None;
                self.info.utilization = None;
                Observation::Failed { reason: error.to_string() }
            }
        };
        self.health.observe(options, at, observation);
    }

    pub(super) fn info(&self) -> CardInfo {
        CardInfo { health: self.health.verdict(), ..self.info.clone() }
    }

    /// What a card is stays known; what it does is as new as the sample.
    fn learn(&mut self, sample: Sample) {
        let info = &mut self.info;
        info.memory = sample.memory;
        info.memory_used = Some(sample.memory_used);
        info.utilization = sample.utilization;
        info.model = sample.model.unwrap_or_else(|| std::mem::take(&mut info.model));
        info.pci_bus_id = sample.pci_bus_id.unwrap_or_else(|| std::mem::take(&mut info.pci_bus_id));
        info.minor = sample.minor.or(info.minor);
        info.numa = sample.numa.or(info.numa);
    }
}
