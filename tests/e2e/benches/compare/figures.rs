//! Medians and ranges.

use std::fmt;
use std::time::Duration;

/// Median, least and most of what was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// Of an even number the mean of the two in the middle.
    pub(crate) median: f64,
    least: f64,
    most: f64,
}

/// The machine does something else too: how much says what a figure is worth.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// In microseconds.
pub(crate) fn micros(times: &[Duration]) -> impl Iterator<Item = f64> {
    times.iter().map(|time| time.as_secs_f64() * 1e6)
}

// === impl Spread ===

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median, least, most })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = self;
        let digits = if *median < 10.0 { 2 } else { usize::from(*median < 100.0) };
        write!(f, "{median:.digits$} ({least:.digits$} to {most:.digits$})")
    }
}
