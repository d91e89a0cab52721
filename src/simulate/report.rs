//! Report of a study, for people and programs. Figures are rounded to ten-thousandths.

use serde::Serialize;

use crate::fill::Sample;
use crate::policy::Name;
use crate::study::{Outcome, Settings};
use crate::workload::Workload;

/// Results of a study.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Settings of the study.
    pub settings: ReportedSettings,
    /// In the order in which they were asked for.
    pub policies: Vec<PolicyReport>,
}

/// Settings that reproduce these figures.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedSettings {
    /// Nodes in the file.
    pub nodes: usize,
    /// Cards of these nodes.
    pub cards: u64,
    /// Pods in the file.
    pub pods: usize,
    /// One run for each.
    pub seeds: Vec<u64>,
    /// Percent of the cards that pods ask for at the end of a filling.
    pub until_pct: u32,
}

/// One policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// Name of the policy.
    pub policy: &'static str,
    /// Results of filling, by load.
    pub at: Vec<At>,
    /// Duration of a decision about a pod with cards.
    pub decision_us: Quantiles,
}

/// State of the cards once pods have asked for so many; means and sample standard deviations over runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct At {
    /// Requests of all pods so far, in percent of all cards.
    pub arrived_pct: u32,
    /// Capacity that no pod has, in percent of all cards.
    pub unallocated_pct_mean: f64,
    /// Standard deviation of it.
    pub unallocated_pct_sd: f64,
    /// Free capacity of no use to the expected requests, in percent of all cards.
    pub fragmented_pct_mean: f64,
}

/// In microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantiles {
    /// Half took no longer.
    pub p50: f64,
    /// One of a hundred took longer.
    pub p99: f64,
}

// === impl Report ===

impl Report {
    /// Report of the outcomes of all policies.
    pub fn new(workload: &Workload, settings: &Settings, outcomes: &[Vec<Outcome>]) -> Self {
        let Settings { policies, seeds, until } = settings;
        let reported = ReportedSettings {
            nodes: workload.machines.len(),
            cards: workload.capacity() / 1000,
            pods: workload.pods.len(),
            seeds: seeds.clone(),
            until_pct: *until,
        };
        let names = policies.iter().map(|name| Name::as_str(*name));
        let policies = names.zip(outcomes).map(|(name, of_policy)| PolicyReport::new(name, *until, of_policy));
        Self { settings: reported, policies: policies.collect() }
    }
}

// === impl PolicyReport ===

impl PolicyReport {
    /// Report of all runs of one policy, up to this load in percent.
    pub fn new(policy: &'static str, until: u32, outcomes: &[Outcome]) -> Self {
        let at = (1..=until).filter_map(|load| At::from_outcomes(load, outcomes)).collect();
        Self {
            policy,
            at,
            decision_us: Quantiles::from_durations(outcomes.iter().flat_map(|outcome| &outcome.decisions).copied()),
        }
    }
}

// === impl At ===

impl At {
    /// `None` if no run had such a moment.
    fn from_outcomes(load: u32, outcomes: &[Outcome]) -> Option<Self> {
        let sample = |outcome: &Outcome| *outcome.filled.at.get(load as usize)?;
        let samples: Vec<Sample> = outcomes.iter().filter_map(sample).collect();
        let (mean, sd) = mean_and_sd(&samples.iter().map(|sample| 100.0 - sample.allocated).collect::<Vec<_>>());
        let (fragmented, _) = mean_and_sd(&samples.iter().map(|sample| sample.fragmented).collect::<Vec<_>>());
        (!samples.is_empty()).then_some(Self {
            arrived_pct: load,
            unallocated_pct_mean: mean,
            unallocated_pct_sd: sd,
            fragmented_pct_mean: fragmented,
        })
    }
}

// === impl Quantiles ===

impl Quantiles {
    /// Quantiles of durations in ns.
    pub fn from_durations(durations: impl Iterator<Item = u32>) -> Self {
        let mut all: Vec<u32> = durations.collect();
        all.sort_unstable();
        let at = |percent: usize| all.get(all.len() * percent / 100).map_or(0.0, |ns| f64::from(*ns) / 1000.0);
        Self { p50: at(50), p99: at(99) }
    }
}

/// Rounded to ten-thousandths. The standard deviation is that of a sample, and 0 for one run.
pub fn mean_and_sd(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    (rounded(mean), rounded((squares / (count - 1.0).max(1.0)).sqrt()))
}
