//! Packing that a webhook loses by restarts: it keeps no request distribution and learns from the pods that it lists, which
//! are those that live long.
//!
//! `cargo bench -p divvy-packing --bench restarts`; takes the traces in shared/traces.

use std::sync::Arc;

use divvy_packing::churn::Unplaced;
use divvy_packing::contenders::Contender;
use divvy_packing::traces;
use divvy_simulate::workload::Workload;

const FIRST_SEED: u64 = 7001;
const RUNS: usize = 10;
const LOAD: f64 = 1.05;
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
        let seeds: Vec<u64> = (FIRST_SEED..).take(runs).collect();
        let contender = Contender::restarted(restarts_after);
        let (report, _) = contender.fill(&workload, &seeds, 100);
        let filled = report.at.iter().find(|at| at.arrived_pct == 100).expect("filled to 100 %");
        let (churned, ..) = contender.churn(&workload, &seeds, (LOAD, Unplaced::Dropped));
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
