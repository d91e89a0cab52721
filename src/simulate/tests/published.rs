//! The published figures of the openb traces, from our baselines. Takes minutes, so it is asked for:
//! `cargo test --release -p divvy-simulate --test published -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use divvy_simulate::churn::Unplaced;
use divvy_simulate::policy::{Name, Scheduler, Ties};
use divvy_simulate::report::PolicyReport;
use divvy_simulate::study::{self, Settings};
use divvy_simulate::workload::Workload;

const WORKLOADS: [&str; 7] =
    ["default", "cpu100", "gpushare40", "gpushare100", "gpuspec10", "multigpu20", "multigpu50"];

/// The published figures are means of ten, which differ by half of a standard deviation from any other ten; so ours are
/// of more.
const SEEDS: u64 = 50;

/// Where the traces are, beside the workspace, if they are.
fn traces() -> Option<PathBuf> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find_map(|folder| Some(folder.join("shared/traces")).filter(|traces| traces.is_dir()))
}

#[test]
#[ignore = "takes minutes"]
fn best_fit_and_fgd_give_the_published_figures() {
    let Some(traces) = traces() else {
        eprintln!("skipped: no shared/traces beside the workspace");
        return;
    };
    let published = std::fs::read_to_string(traces.join("fgd_published_results_summary.csv")).unwrap();
    let policies =
        [(Name::BestFit, "BestFit"), (Name::Fgd, "FGD"), (Name::Packing, "GpuPacking"), (Name::Random, "Random")];
    let settings = Settings {
        policies: policies.iter().map(|(name, _)| *name).collect(),
        seeds: (42..42 + SEEDS).collect(),
        until: 130,
        churn: None,
        unplaced: Unplaced::Dropped,
        scheduler: Scheduler { ties: Ties::Fixed, shortlist: 0 },
    };
    let (mut within, mut all) = (0, 0);
    for workload in WORKLOADS {
        let pods = traces.join(format!("openb_pod_list_{workload}.csv"));
        let read = Arc::new(Workload::read(&traces.join("openb_node_list_gpu_node.csv"), &pods).unwrap());
        let outcomes = study::study(&read, &settings, &AtomicU64::default());
        for ((name, published_as), outcomes) in policies.iter().zip(outcomes) {
            let ours = PolicyReport::of(*name, &settings, &outcomes);
            for load in [100, 130] {
                let ours = ours.at.iter().find(|at| at.arrived_pct == load).unwrap().unallocated_pct_mean;
                let row =
                    published.lines().find(|line| line.starts_with(&format!("{workload},{published_as},{load},")));
                let numbers: Vec<f64> = row.unwrap().split(',').skip(4).map(|number| number.parse().unwrap()).collect();
                let (mean, sd) = (numbers[0], numbers[1]);
                let is_within = (ours - mean).abs() <= sd;
                println!("{workload:12} {:9} {load:4} {ours:7.3} {mean:7.3} ± {sd:.3} {is_within}", name.as_str());
                if matches!(name, Name::BestFit | Name::Fgd) {
                    (within, all) = (within + usize::from(is_within), all + 1);
                }
            }
        }
    }
    println!("{within} of {all} within one published standard deviation");
    assert!((within, all) >= (26, 28), "{within} of {all}");
}
