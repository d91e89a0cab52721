//! State of the driver.

use std::time::{Duration, Instant};

use super::{Call, silence};
use divvy_node_core::inventory::Driver;

#[derive(Debug)]
pub(super) struct DriverState {
    pub(super) driver: Option<Driver>,
    /// The call that runs, or the next one.
    pub(super) call: Call,
    /// Why NVML can't be opened.
    pub(super) refusal: Option<String>,
    /// The last count of cards; `None`: not counted yet.
    pub(super) count: Option<Result<u32, String>>,
}

// === impl DriverState ===

impl DriverState {
    /// An unknown state; the driver is called from `at` on.
    pub(super) fn asked(at: Instant) -> Self {
        Self { driver: None, call: Call::new(at), refusal: None, count: None }
    }

    /// Whether there is nothing to wait for.
    pub(super) fn is_away(&self) -> bool {
        self.refusal.is_some() || self.call.overdue
    }

    pub(super) fn problem(&self, timeout: Duration) -> Option<String> {
        if self.call.overdue {
            return Some(silence(timeout));
        }
        let not_counted = || self.count.clone().and_then(Result::err);
        self.refusal.clone().or_else(not_counted)
    }
}
