//! Delay between retries.

use std::time::Duration;

use backon::ExponentialBuilder;
use kube::runtime::watcher::ExponentialBackoff;

const FIRST: Duration = Duration::from_secs(1);
/// What needs the API server goes on soon after it is back, and readers find its state within 10 s (invariant I2).
const LONGEST: Duration = Duration::from_secs(4);

/// Delays that double from failure to failure, 1 s to 4 s, without end.
pub fn backoff() -> ExponentialBackoff {
    let builder = ExponentialBuilder::default().with_min_delay(FIRST).with_max_delay(LONGEST).with_factor(2.0);
    builder.without_max_times().into()
}
