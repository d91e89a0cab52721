//! Times, and what else the machine does.

use std::time::Duration;

/// The machine does something else too: how much says what a figure is worth.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// In microseconds.
pub(crate) fn micros(times: &[Duration]) -> impl Iterator<Item = f64> {
    times.iter().map(|time| time.as_secs_f64() * 1e6)
}
