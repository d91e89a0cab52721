//! How much of the cards of the openb traces each policy leaves unused: the tables of docs/placement.md.
//!
//! `hack/bench placement`; with other seeds `cargo bench -p divvy-simulate --bench packing -- FIRST`; with `--test` one short
//! run of each, and with FILE.svg the picture of docs/use.md alone.

mod learning;
mod plot;
mod shares;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use divvy_api::annotation::PolicyName;
use divvy_simulate::policy::{Name, Scheduler, Ties};
use divvy_simulate::report::{At, PolicyReport, Report};
use divvy_simulate::study::{self, Settings};
use divvy_simulate::workload::Workload;

use learning::Learning;
use shares::Shares;

const WORKLOADS: [&str; 7] =
    ["default", "cpu100", "gpushare40", "gpushare100", "gpuspec10", "multigpu20", "multigpu50"];

/// What pods have asked for, in percent of all cards.
const LOADS: [u32; 3] = [95, 100, 130];
const CHURN: [f64; 2] = [0.95, 1.05];

/// Policies were tried on other seeds.
const FIRST_SEED: u64 = 7001;
const RUNS: usize = 10;

const OWN: Name = Name::Product(PolicyName::LeastFragmentation);
const FIXED: Scheduler = Scheduler { ties: Ties::Fixed, shortlist: 16, is_stock: false };
const RANDOM: Scheduler = Scheduler { ties: Ties::Random, ..FIXED };
const STOCK: Scheduler = Scheduler { is_stock: true, ..RANDOM };

/// A policy as it is asked.
struct Contender {
    says: &'static str,
    name: Name,
    scheduler: Scheduler,
    /// It sees what comes, and isn't told what will.
    learns: bool,
}

const CONTENDERS: [Contender; 7] = [
    Contender { says: "best-fit, fixed order", name: Name::BestFit, scheduler: FIXED, learns: false },
    Contender { says: "packing, fixed order", name: Name::Packing, scheduler: FIXED, learns: false },
    Contender { says: "random", name: Name::Random, scheduler: FIXED, learns: false },
    Contender { says: "fgd, fixed order", name: Name::Fgd, scheduler: FIXED, learns: false },
    Contender { says: "fgd, random ties", name: Name::Fgd, scheduler: RANDOM, learns: false },
    Contender { says: "least-fragmentation, mix known", name: OWN, scheduler: RANDOM, learns: false },
    Contender { says: "least-fragmentation, mix learned", name: OWN, scheduler: RANDOM, learns: true },
];

/// Under kube-scheduler as it comes.
const STOCK_CONTENDERS: [Contender; 3] = [
    Contender { says: "in-tree scores alone", name: Name::InTree, scheduler: RANDOM, learns: false },
    Contender { says: "least-fragmentation, mix known", name: OWN, scheduler: STOCK, learns: false },
    Contender { says: "least-fragmentation, mix learned", name: OWN, scheduler: STOCK, learns: true },
];

fn main() {
    let Some(traces) = traces() else {
        eprintln!("skipped: no shared/traces beside the workspace");
        return;
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let first = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(FIRST_SEED);
    let bench = Bench { first, is_test: arguments.iter().any(|argument| argument == "--test") };
    let read = |workload: &str| {
        let pods = traces.join(format!("openb_pod_list_{workload}.csv"));
        Arc::new(Workload::read(&traces.join("openb_node_list_gpu_node.csv"), &pods).expect("a sound trace"))
    };
    let mut files = arguments.iter().map(Path::new);
    if let Some(file) = files.find(|file| file.extension().is_some_and(|extension| extension == "svg")) {
        bench.plot(&read("default"), file);
        return;
    }
    println!("Cards that nobody has, in % of all, by what pods have asked for; seeds {}.", bench.said_seeds());
    for workload in WORKLOADS {
        bench.fill(workload, &read(workload), &CONTENDERS);
    }
    let default = read("default");
    for shares in [Shares::MemoryBound, Shares::CoreBound, Shares::Mixed] {
        let bound = Arc::new(shares.of_workload(&default));
        bench.fill(&format!("default, {} shares", shares.as_str()), &bound, &CONTENDERS);
    }
    bench.fill("default, under a stock kube-scheduler", &default, &STOCK_CONTENDERS);
    bench.churn("default", &default, &CONTENDERS);
    bench.churn("default, under a stock kube-scheduler", &default, &STOCK_CONTENDERS);
}

/// Where the traces are, beside the workspace, if they are.
fn traces() -> Option<PathBuf> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find_map(|folder| Some(folder.join("shared/traces")).filter(|traces| traces.is_dir()))
}

struct Bench {
    first: u64,
    is_test: bool,
}

// === impl Bench ===

impl Bench {
    fn seeds(&self) -> Vec<u64> {
        (self.first..).take(if self.is_test { 1 } else { RUNS }).collect()
    }

    fn said_seeds(&self) -> String {
        let seeds = self.seeds();
        format!("{} to {}", seeds[0], seeds[seeds.len() - 1])
    }

    fn report(&self, workload: &Arc<Workload>, of: &Contender, until: u32, churn: Option<f64>) -> PolicyReport {
        let Contender { name, scheduler, learns, .. } = *of;
        let settings = Settings { policies: vec![name], seeds: self.seeds(), until, churn, scheduler };
        let arrived = AtomicU64::default();
        let outcomes = if learns {
            study::study_with(workload, &settings, &arrived, &|_, cluster| {
                Box::new(Learning::new(workload, cluster, scheduler, None))
            })
        } else {
            study::study(workload, &settings, &arrived)
        };
        PolicyReport::of(name, &settings, &outcomes.concat())
    }

    fn fill(&self, title: &str, workload: &Arc<Workload>, contenders: &[Contender]) {
        let loads = if self.is_test { &[2][..] } else { &LOADS };
        let heads: Vec<String> = loads.iter().map(|load| format!("at {load} %")).collect();
        println!("\n### {title}\n\n| policy | {} | p50, µs | p99, µs |", heads.join(" | "));
        println!("| ---{} | --: | --: |", " | --:".repeat(loads.len()));
        for contender in contenders {
            let report = self.report(workload, contender, loads[loads.len() - 1], None);
            let at = |load: &u32| report.at.iter().find(|at| at.arrived_pct == *load);
            let cell = |at: &At| format!("{:.2} ± {:.2}", at.unallocated_pct_mean, at.unallocated_pct_sd);
            let cells: Vec<String> = loads.iter().map(|load| at(load).map_or_else(String::new, cell)).collect();
            let took = report.decision_us;
            println!("| {} | {} | {:.0} | {:.0} |", contender.says, cells.join(" | "), took.p50, took.p99);
        }
    }

    /// Draws what some policies allocate, as docs/use.md shows it.
    fn plot(&self, workload: &Arc<Workload>, file: &Path) {
        let policies = vec![OWN, Name::Fgd, Name::BestFit, Name::Random];
        let seeds = self.seeds().into_iter().take(3).collect();
        let settings = Settings { policies, seeds, until: 130, churn: None, scheduler: RANDOM };
        let outcomes = study::study(workload, &settings, &AtomicU64::default());
        plot::draw(&Report::of(workload, &settings, &outcomes), file).expect("a file that can be written");
    }

    fn churn(&self, title: &str, workload: &Arc<Workload>, contenders: &[Contender]) {
        let heads = " allocated, % | rejected, % of demand |";
        let loads = if self.is_test { &[0.02][..] } else { &CHURN };
        println!("\n### {title}, pods come and go\n\n| ρ | policy |{heads} p50, µs | p99, µs |");
        println!("| --: | --- | --: | --: | --: | --: |");
        for (load, contender) in loads.iter().flat_map(|load| contenders.iter().map(move |of| (load, of))) {
            let report = self.report(workload, contender, 0, Some(*load));
            let Some(churn) = report.churn else { continue };
            let took = report.decision_us;
            println!(
                "| {load} | {} | {:.2} ± {:.2} | {:.2} | {:.0} | {:.0} |",
                contender.says,
                churn.allocated_pct_mean,
                churn.allocated_pct_sd,
                churn.rejected_demand_pct_mean,
                took.p50,
                took.p99,
            );
        }
    }
}
