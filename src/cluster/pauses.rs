//! How long to wait after failures.

use std::time::Duration;

use kube::runtime::utils::Backoff;

/// Pauses that grow from failure to failure, up to 4 s: what needs the API server goes on soon after it is back, and it
/// finds all told within 10 s (I2).
#[derive(Debug, Default)]
pub struct Pauses {
    failures: u32,
}

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(4);

// === impl Pauses ===

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = (FIRST * 2u32.saturating_pow(self.failures)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        Some(pause)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.failures = 0;
    }
}
