//! What is known of a node's containers: the latest page of its daemon, and the rates since the one before. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use super::page::{Figures, Holder, Page};

/// Longest time for which a page is served: twice the period of the autoscaler, so that one answer of a daemon may be lost.
const OLDEST: Duration = Duration::from_secs(30);
/// Longest time over which a rate is taken.
const LONGEST_WINDOW: Duration = Duration::from_secs(120);

/// The latest page, and what it tells beside the one before.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    latest: Option<Sample>,
}

/// A page.
#[derive(Clone, Debug)]
struct Sample {
    holders: BTreeMap<Holder, Known>,
    /// When it was read, for durations.
    at: Instant,
    /// When it was read, for people.
    time: SystemTime,
    /// Time since the page before.
    window: Duration,
}

/// What is kept of a container's GPU.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Bytes used and allocated.
    memory: Option<(f64, f64)>,
    /// Compute used since the page before, and allocated.
    compute: Option<(f64, f64)>,
    busy_seconds: Option<f64>,
}

/// Use of the GPUs of one container or several, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Memory, in bytes.
    pub memory: Option<Measured>,
    /// Compute, 1 for that of a whole GPU.
    pub compute: Option<Measured>,
}

/// An amount that is used, and the share that it is part of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// What is used.
    pub used: f64,
    /// What is allocated.
    pub share: f64,
    /// When it was measured; of several figures, the oldest one's time.
    pub time: SystemTime,
    /// Time over which it was measured, up to then; nothing for an amount of that moment.
    pub window: Duration,
}

// === impl Samples ===

impl Samples {
    /// Takes a new page, which was read at this time.
    pub fn take(&mut self, page: Page, at: Instant, time: SystemTime) {
        let before = self.latest.take();
        let window = before.as_ref().map_or(Duration::MAX, |before| at.saturating_duration_since(before.at));
        let before = before.filter(|_| window <= LONGEST_WINDOW).map(|before| before.holders).unwrap_or_default();
        let known = |(holder, figures): (Holder, Figures)| {
            let busy = before.get(&holder).and_then(|before| before.busy_seconds);
            (holder, Known::new(&figures, busy, window))
        };
        self.latest = Some(Sample { holders: page.into_iter().map(known).collect(), at, time, window });
    }

    /// Age of the latest page.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.latest.as_ref().map(|latest| now.saturating_duration_since(latest.at))
    }

    /// Use of a GPU by a container; nothing is known of it where the latest page is too old.
    pub fn usage(&self, holder: &Holder, now: Instant) -> Usage {
        let latest = self.latest.as_ref().filter(|latest| now.saturating_duration_since(latest.at) <= OLDEST);
        let known = latest.and_then(|latest| Some((latest, latest.holders.get(holder)?)));
        let Some((&Sample { time, window, .. }, known)) = known else { return Usage::default() };
        let measured = |(used, share), window| Measured { used, share, time, window };
        let memory = known.memory.map(|memory| measured(memory, Duration::ZERO));
        Usage { memory, compute: known.compute.map(|compute| measured(compute, window)) }
    }
}

// === impl Known ===

impl Known {
    fn new(figures: &Figures, busy_before: Option<f64>, window: Duration) -> Self {
        let rate = busy_before.and_then(|before| rate(before, figures.busy_seconds?, window));
        Self {
            memory: memory(figures).zip(figures.memory_limit),
            compute: rate.zip(figures.compute_share),
            busy_seconds: figures.busy_seconds,
        }
    }
}

/// As `kubectl divvy top` has it: what libdivvy accounts and what contexts and modules take beyond that; without libdivvy what
/// the driver reports.
fn memory(of: &Figures) -> Option<f64> {
    of.memory_used.map(|used| used + of.memory_overhead.unwrap_or(0.0)).or(of.memory_driver)
}

/// Part of the time in which the GPU worked for the container, at most all of it: processes that take turns each count the time
/// of both. Nothing is known when the counter has begun anew.
fn rate(before: f64, after: f64, window: Duration) -> Option<f64> {
    let rate = ((after - before) / window.as_secs_f64()).min(1.0);
    (after >= before && rate.is_finite()).then_some(rate)
}

// === impl Usage ===

impl Usage {
    /// The use of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |one: Option<Measured>, other: Option<Measured>| match (one, other) {
            (Some(one), Some(other)) => Some(one.plus(other)),
            (one, other) => one.or(other),
        };
        Self { memory: sum(self.memory, other.memory), compute: sum(self.compute, other.compute) }
    }
}

// === impl Measured ===

impl Measured {
    fn plus(self, other: Self) -> Self {
        Self {
            used: self.used + other.used,
            share: self.share + other.share,
            time: self.time.min(other.time),
            window: self.window.max(other.window),
        }
    }
}

#[cfg(test)]
mod tests;
