//! The outcome as tables.

use divvy_simulate::report::{At, PolicyReport, Report, ReportedSettings};

use crate::text::table;

/// Loads that tell policies apart, in percent.
const LOADS: [u32; 6] = [80, 90, 95, 100, 110, 130];

/// What was filled, and how far.
pub(super) fn tables(report: &Report) -> String {
    let last = report.policies.iter().filter_map(|policy| policy.at.last()).map(|at| at.arrived_pct).max();
    let mut loads: Vec<u32> = LOADS.into_iter().filter(|load| Some(*load) < last).collect();
    loads.extend(last);
    let heads: Vec<String> = loads.iter().map(|load| format!("AT {load} %")).collect();
    let columns: Vec<(&str, u32)> = heads.iter().map(String::as_str).zip(loads).collect();
    let filling = table(report.policies.iter().map(|policy| row(policy, &columns)).collect(), true);
    let settings = &report.settings;
    let runs = match settings.seeds.as_slice() {
        [seed] => format!("1 run, seed {seed}"),
        [first, .., last] => format!("{} runs, seeds {first} to {last}", settings.seeds.len()),
        [] => "no runs".to_owned(),
    };
    let ReportedSettings { nodes, cards, pods, .. } = settings;
    let cluster = format!("{nodes} nodes with {cards} GPUs, {pods} pods; {runs}");
    let unallocated = "unallocated GPUs in % of all, by what pods have asked for; mean ± standard deviation";
    format!("{cluster}\n{unallocated}\n\n{filling}")
}

fn row<'h>(policy: &PolicyReport, columns: &[(&'h str, u32)]) -> Vec<(&'h str, String)> {
    let mut row = vec![("POLICY", policy.policy.to_owned())];
    row.extend(columns.iter().map(|(head, load)| (*head, cell(policy, *load))));
    row.push(("P50", format!("{:.0}us", policy.decision_us.p50)));
    row.push(("P99", format!("{:.0}us", policy.decision_us.p99)));
    row
}

fn cell(policy: &PolicyReport, load: u32) -> String {
    let at = policy.at.iter().find(|at| at.arrived_pct == load);
    at.map_or_else(String::new, |at: &At| spread(at.unallocated_pct_mean, at.unallocated_pct_sd))
}

pub(super) fn spread(mean: f64, sd: f64) -> String {
    format!("{mean:.2} ±{sd:.2}")
}
