//! The outcome as tables.

use divvy_simulate::report::{At, PolicyReport, Report, ReportedSettings};

use crate::text::table;

/// Loads that tell policies apart, in percent.
const LOADS: [u32; 6] = [80, 90, 95, 100, 110, 130];

/// A table of filling, one of churn if there was any, and what it was made of.
pub(super) fn tables(report: &Report) -> String {
    let last = report.policies.iter().filter_map(|policy| policy.at.last()).map(|at| at.arrived_pct).max();
    let mut loads: Vec<u32> = LOADS.into_iter().filter(|load| Some(*load) < last).collect();
    loads.extend(last);
    let heads: Vec<String> = loads.iter().map(|load| format!("AT {load} %")).collect();
    let row = |policy: &PolicyReport| {
        let mut row = vec![("POLICY", policy.policy.to_owned())];
        row.extend(heads.iter().zip(&loads).map(|(head, load)| (&**head, cell(policy, *load))));
        row.push(("P50", format!("{:.0}us", policy.decision_us.p50)));
        row.push(("P99", format!("{:.0}us", policy.decision_us.p99)));
        row
    };
    let filling = last.map(|_| table(report.policies.iter().map(row).collect(), true));
    let settings = &report.settings;
    let runs = match settings.seeds.as_slice() {
        [seed] => format!("1 run, seed {seed}"),
        [first, .., last] => format!("{} runs, seeds {first} to {last}", settings.seeds.len()),
        [] => "no runs".to_owned(),
    };
    let ReportedSettings { nodes, cards, pods, .. } = settings;
    let cluster = format!("{nodes} nodes with {cards} GPUs, {pods} pods; {runs}");
    let unallocated = "unallocated GPUs in % of all, by what pods have asked for; mean ± standard deviation";
    let tables = [filling.map(|filling| format!("{unallocated}\n\n{filling}")), churn(report)];
    let tables: Vec<String> = tables.into_iter().flatten().collect();
    format!("{cluster}\n{}", tables.join("\n"))
}

fn cell(policy: &PolicyReport, load: u32) -> String {
    let at = policy.at.iter().find(|at| at.arrived_pct == load);
    at.map_or_else(String::new, |at: &At| spread(at.unallocated_pct_mean, at.unallocated_pct_sd))
}

fn churn(report: &Report) -> Option<String> {
    let row = |policy: &PolicyReport| {
        let churn = policy.churn?;
        let mut row = vec![
            ("POLICY", policy.policy.to_owned()),
            ("RHO", churn.rho.to_string()),
            ("ALLOCATED", spread(churn.allocated_pct_mean, churn.allocated_pct_sd)),
            ("REJECTED", format!("{:.2}", churn.rejected_demand_pct_mean)),
        ];
        row.extend(churn.wait_ticks_mean.map(|ticks| ("WAIT", format!("{ticks:.1}"))));
        Some(row)
    };
    let rows: Vec<_> = report.policies.iter().filter_map(row).collect();
    let says = "pods come and go: allocated GPUs in % of all; rejected GPUs in % of all requested";
    let waits = report.policies.iter().any(|policy| policy.churn.is_some_and(|churn| churn.wait_ticks_mean.is_some()));
    let says_wait = if waits { "; mean wait of placed pods in ticks, one for each pod that comes" } else { "" };
    (!rows.is_empty()).then(|| format!("{says}{says_wait}\n\n{}", table(rows, true)))
}

pub(super) fn spread(mean: f64, sd: f64) -> String {
    format!("{mean:.2} ±{sd:.2}")
}
