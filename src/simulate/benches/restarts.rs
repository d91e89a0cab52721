//! Packing that a webhook loses by restarts: it keeps no request distribution and learns from the pods that it lists, which
//! are those that live long.
//!
//! `cargo bench -p divvy-simulate --bench restarts`; takes the traces in shared/traces.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use divvy_api::annotation::PolicyName;
use divvy_simulate::churn::Unplaced;
use divvy_simulate::learning::Learning;
use divvy_simulate::policy::{Name, Product, Scheduler, Ties};
use divvy_simulate::report::PolicyReport;
use divvy_simulate::study::{self, Settings};
use divvy_simulate::target::Target;
use divvy_simulate::workload::Workload;

const FIRST_SEED: u64 = 7001;
const RUNS: usize = 10;
const LOAD: f64 = 1.05;
const OWN: PolicyName = PolicyName::LeastFragmentation;
/// Pods between restarts; the trace fills its cluster with about 8 000, and churn takes about 33 000.
const RESTARTS: [Option<u64>; 4] = [None, Some(4000), Some(2000), Some(500)];

fn main() {
    let Some(traces) = traces() else {
        eprintln!("skipped: no shared/traces beside the workspace");
        return;
    };
    let runs = if std::env::args().any(|argument| argument == "--test") { 1 } else { RUNS };
    let pods = traces.join("openb_pod_list_default.csv");
    let workload = Workload::read(&traces.join("openb_node_list_gpu_node.csv"), &pods).expect("a sound trace");
    let workload = Arc::new(workload);
    println!("{runs} runs, seeds {FIRST_SEED} on; default trace, learned request distribution\n");
    println!("| restart after | unallocated at 100 %, % | allocated, ρ {LOAD}, % | rejected, % of demand |");
    println!("| --: | --: | --: | --: |");
    for restarts_after in RESTARTS {
        let settings = Settings {
            policies: vec![Name::Product(OWN)],
            seeds: (FIRST_SEED..).take(runs).collect(),
            until: 100,
            churn: Some(LOAD),
            unplaced: Unplaced::Dropped,
            scheduler: Scheduler { ties: Ties::Random, shortlist: 16 },
        };
        let arrived = AtomicU64::default();
        let outcomes = study::study_with(&workload, &settings, &arrived, &|_, cluster| {
            let policy = Product::new(OWN, &workload, cluster, &Target::default(), settings.scheduler);
            Box::new(Learning::new(&workload, Box::new(policy), restarts_after))
        });
        let report = PolicyReport::of(settings.policies[0], &settings, &outcomes.concat());
        let filled = report.at.iter().find(|at| at.arrived_pct == 100).expect("filled to 100 %");
        let churned = report.churn.expect("churn was asked for");
        println!(
            "| {} | {:.2} ± {:.2} | {:.2} ± {:.2} | {:.2} |",
            restarts_after.map_or("never".to_owned(), |pods| format!("{pods} pods")),
            filled.unallocated_pct_mean,
            filled.unallocated_pct_sd,
            churned.allocated_pct_mean,
            churned.allocated_pct_sd,
            churned.rejected_demand_pct_mean,
        );
    }
}

/// Folder of the traces beside the workspace, if there is one.
fn traces() -> Option<PathBuf> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find_map(|folder| Some(folder.join("shared/traces")).filter(|traces| traces.is_dir()))
}
