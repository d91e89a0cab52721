//! Health of a card: one state machine per card, without a clock or a thread of its own.
//!
//! A failure makes a card unhealthy at once. It is healthy again when NVML has answered without error about it for
//! [`HealthOptions::recover_after`] without a new failure. No state is shared, so a failure of one card
//! can't affect another.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use divvy_api::Health;

/// Settings: which failures count, and when a card has recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthOptions {
    /// XIDs that are caused by applications and don't make the card unhealthy.
    pub ignored_xids: BTreeSet<u64>,
    /// Time for which NVML must answer without error before a card is healthy again.
    pub recover_after: Duration,
}

/// Observation of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Observation {
    /// NVML answered everything that matters.
    Answered {
        /// Uncorrected memory errors since the driver was loaded, where the card counts them.
        ecc_uncorrected: Option<u64>,
    },
    /// NVML didn't answer, or answered that the card is in a bad state.
    Failed {
        /// Name of the call, and its error.
        reason: String,
    },
    /// The driver reported an error of this number (<https://docs.nvidia.com/deploy/xid-errors>).
    Xid(u64),
}

/// The health of one card.
#[derive(Clone, Debug, Default)]
pub(super) struct HealthState {
    state: State,
    /// Uncorrected memory errors that are already accounted for.
    ecc_uncorrected: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing was observed yet; the first good answer is enough.
    #[default]
    New,
    Healthy,
    Unhealthy {
        reason: String,
        /// The first of the good answers since the last failure.
        well_since: Option<Instant>,
    },
}

// === impl HealthState ===

impl HealthState {
    /// Records an observation; observations come in the order of their times.
    pub(super) fn observe(&mut self, options: &HealthOptions, at: Instant, observation: Observation) {
        match observation {
            Observation::Answered { ecc_uncorrected } => {
                if let Some(reason) = self.new_memory_errors(ecc_uncorrected) {
                    self.fail(reason);
                }
                self.answered(at, options.recover_after);
            }
            Observation::Failed { reason } => self.fail(reason),
            Observation::Xid(xid) if options.ignored_xids.contains(&xid) => {}
            Observation::Xid(xid) => self.fail(format!("XID {xid}")),
        }
    }

    /// Current health.
    pub(super) fn verdict(&self) -> Health {
        match &self.state {
            State::New => Health::unhealthy("NVML has not answered yet"),
            State::Healthy => Health::Healthy,
            State::Unhealthy { reason, .. } => Health::unhealthy(reason.as_str()),
        }
    }

    fn fail(&mut self, reason: String) {
        self.state = State::Unhealthy { reason, well_since: None };
    }

    fn answered(&mut self, at: Instant, recover_after: Duration) {
        let recovered = match &mut self.state {
            State::New | State::Healthy => true,
            State::Unhealthy { well_since, .. } => {
                at.saturating_duration_since(*well_since.get_or_insert(at)) >= recover_after
            }
        };
        if recovered {
            self.state = State::Healthy;
        }
    }

    /// Errors from before the first look are history: they existed when the card was last allocated, too. A count
    /// that has fallen was reset with the driver.
    fn new_memory_errors(&mut self, count: Option<u64>) -> Option<String> {
        let before = self.ecc_uncorrected;
        self.ecc_uncorrected = count.or(before);
        let new = count?.checked_sub(before?).filter(|new| *new > 0)?;
        Some(format!("{new} new uncorrected memory errors"))
    }
}

#[cfg(test)]
mod tests;
