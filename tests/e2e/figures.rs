//! Medians and ranges, and what programs' metrics pages say.

use std::fmt;

/// Median, least and most of what was measured.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The value in the middle; of an even number of values the mean of the two there.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// A sample without labels on a metrics page.
pub fn sample(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

// === impl Spread ===

impl Spread {
    /// `None` of nothing.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median, least, most })
    }
}

impl fmt::Display for Spread {
    /// With so many digits as the format asks for, or three significant ones.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = self;
        let digits = f.precision().unwrap_or(if *median < 10.0 { 2 } else { usize::from(*median < 100.0) });
        write!(f, "{median:.digits$} ({least:.digits$} to {most:.digits$})")
    }
}
