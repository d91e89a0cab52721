//! How much of the cards of the openb traces each policy leaves unused: the tables of docs/placement.md. With `--nodes` and
//! `--pods` the same of another trace.
//!
//! `hack/bench placement`; with other seeds, or so many, `cargo bench -p divvy-packing --bench packing -- FIRST RUNS`;
//! with names of traces these alone, with `--fill` or `--churn` one of both, with `--stock` what is under kube-scheduler
//! alone, with `--test` a short run of some, and with FILE.svg the picture of docs/use.md alone. Of another trace: `--help`.

mod other;

use std::path::Path;
use std::sync::Arc;

use divvy_packing::churn::Unplaced;
use divvy_packing::contenders::{CONTENDERS, Contender, STOCK_CONTENDERS, WAITING_CONTENDERS};
use divvy_packing::plot;
use divvy_packing::shares::Shares;
use divvy_packing::traces;
use divvy_packing::variants::Variant;
use divvy_simulate::policy::Ties;
use divvy_simulate::report::At;
use divvy_simulate::workload::Workload;

const WORKLOADS: [&str; 7] =
    ["default", "cpu100", "gpushare40", "gpushare100", "gpuspec10", "multigpu20", "multigpu50"];
const VARIANTS: [(&str, Variant); 3] = [
    ("default", Variant::TwiceWithoutCards),
    ("gpushare40", Variant::TwiceWithoutCards),
    ("default", Variant::ThirdNamesModel),
];

/// What pods have asked for, in percent of all cards.
const LOADS: [u32; 3] = [95, 100, 130];
const CHURN: [f64; 2] = [0.95, 1.05];
/// Where the picture ends, in percent of all cards.
const PLOTTED: u32 = 130;
/// While pods that don't fit wait.
const WAITING_CHURN: [f64; 1] = [0.95];

/// Policies were tried on other seeds.
const FIRST_SEED: u64 = 7001;
const RUNS: u64 = 10;

fn main() {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if arguments.iter().any(|argument| ["--nodes", "--pods", "--help"].contains(&&**argument)) {
        other::main(&arguments);
        return;
    }
    let Some(traces) = traces() else {
        eprintln!("skipped: no shared/traces beside the workspace");
        return;
    };
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<u64>().ok());
    let (first, runs) = (numbers.next().unwrap_or(FIRST_SEED), numbers.next().unwrap_or(RUNS));
    let is_test = has("--test");
    let is_wanted = |workload: &&str| arguments.iter().any(|argument| argument == workload);
    let wanted: Vec<&str> = WORKLOADS.into_iter().filter(is_wanted).collect();
    let workloads = if wanted.is_empty() { WORKLOADS.to_vec() } else { wanted };
    let (fills, churns) = (!has("--churn"), !has("--fill"));
    let bench = Bench { first, runs, workloads, fills, churns, is_test };
    let read = |workload: &str| {
        let pods = traces.join(format!("openb_pod_list_{workload}.csv"));
        Arc::new(Workload::read(&traces.join("openb_node_list_gpu_node.csv"), &pods).expect("a sound trace"))
    };
    let mut paths = arguments.iter().map(Path::new);
    if let Some(file) = paths.find(|file| file.extension().is_some_and(|extension| extension == "svg")) {
        bench.plot(&read("default"), file);
        return;
    }
    println!("Cards that nobody has, in % of all, by what pods have asked for; seeds {}.", bench.said_seeds());
    if !has("--stock") {
        bench.all_nodes(read);
    }
    bench.stock(read);
}

struct Bench {
    first: u64,
    runs: u64,
    /// Traces to look at.
    workloads: Vec<&'static str>,
    fills: bool,
    churns: bool,
    is_test: bool,
}

// === impl Bench ===

impl Bench {
    fn seeds(&self) -> Vec<u64> {
        (self.first..self.first + if self.is_test { 1 } else { self.runs }).collect()
    }

    /// All, or the first in a test.
    fn some<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        &all[..if self.is_test { all.len().min(1) } else { all.len() }]
    }

    fn said_seeds(&self) -> String {
        let seeds = self.seeds();
        format!("{} to {}", seeds[0], seeds[seeds.len() - 1])
    }

    /// Policies that are asked about all nodes.
    fn all_nodes(&self, read: impl Fn(&str) -> Arc<Workload>) {
        for workload in self.some(&self.workloads) {
            self.fill(workload, &read(workload), &CONTENDERS);
        }
        let variants = [Shares::MemoryBound, Shares::CoreBound, Shares::Mixed];
        for shares in variants.into_iter().filter(|_| self.workloads.contains(&"default")) {
            let bound = Arc::new(shares.of_workload(&read("default")));
            self.fill(&format!("default, {} shares", shares.as_str()), &bound, &CONTENDERS);
        }
        for workload in self.some(&self.workloads) {
            self.churn(workload, &read(workload), &CONTENDERS, &CHURN, Unplaced::Dropped);
        }
    }

    /// Policies under kube-scheduler as it comes.
    fn stock(&self, read: impl Fn(&str) -> Arc<Workload>) {
        let named = |name: &&'static str| ((*name).to_owned(), read(name));
        let mut workloads: Vec<_> = self.some(&self.workloads).iter().map(named).collect();
        let variants: Vec<_> = VARIANTS.into_iter().filter(|(name, _)| self.workloads.contains(name)).collect();
        workloads.extend(self.some(&variants).iter().map(|(name, variant)| {
            (format!("{name}, {}", variant.as_str()), Arc::new(variant.of_workload(&read(name))))
        }));
        let title = |name: &str| format!("{name}, under a stock kube-scheduler");
        for (name, workload) in &workloads {
            self.fill(&title(name), workload, &STOCK_CONTENDERS);
        }
        for (name, workload) in &workloads {
            self.churn(&title(name), workload, &STOCK_CONTENDERS, &CHURN, Unplaced::Dropped);
        }
        let (name, default) = &workloads[0];
        self.churn(&title(name), default, &WAITING_CONTENDERS, &WAITING_CHURN, Unplaced::Waits);
    }

    fn fill(&self, title: &str, workload: &Arc<Workload>, contenders: &[Contender]) {
        if !self.fills {
            return;
        }
        let loads = if self.is_test { &[2][..] } else { &LOADS };
        let heads: Vec<String> = loads.iter().map(|load| format!("at {load} %")).collect();
        let taints = TaintColumn::of(contenders);
        println!("\n### {title}\n\n| policy | {} | p50, µs | p99, µs |{}", heads.join(" | "), taints.head());
        println!("| ---{} | --: | --: |{}", " | --:".repeat(loads.len()), taints.rule());
        for contender in contenders {
            let (report, writes) = contender.fill(workload, &self.seeds(), loads[loads.len() - 1]);
            let at = |load: &u32| report.at.iter().find(|at| at.arrived_pct == *load);
            let cell = |at: &At| format!("{:.2} ± {:.2}", at.unallocated_pct_mean, at.unallocated_pct_sd);
            let cells: Vec<String> = loads.iter().map(|load| at(load).map_or_else(String::new, cell)).collect();
            let (took, taints) = (report.decision_us, taints.cell(contender, writes));
            println!("| {} | {} | {:.0} | {:.0} |{taints}", contender.says, cells.join(" | "), took.p50, took.p99);
        }
    }

    /// Draws what some policies allocate, as docs/use.md shows it.
    fn plot(&self, workload: &Arc<Workload>, file: &Path) {
        let seeds: Vec<u64> = self.seeds().into_iter().take(3).collect();
        let named = Contender::named(Ties::Random);
        let contenders = ["least-fragmentation", "fgd", "best-fit", "random"].into_iter();
        let contenders = contenders.filter_map(|name| named.iter().find(|contender| contender.says == name));
        let reports: Vec<_> = contenders.map(|contender| contender.fill(workload, &seeds, PLOTTED).0).collect();
        plot::draw(&reports, PLOTTED, file).expect("a file that can be written");
    }

    fn churn(
        &self,
        title: &str,
        workload: &Arc<Workload>,
        contenders: &[Contender],
        loads: &[f64],
        unplaced: Unplaced,
    ) {
        if !self.churns {
            return;
        }
        let loads = if self.is_test { &[0.02][..] } else { loads };
        let taints = TaintColumn::of(contenders);
        let (says, wait_head, wait_rule) = match unplaced {
            Unplaced::Dropped => ("", "", ""),
            Unplaced::Waits => (", and wait where they don't fit", " mean wait, ticks |", " --: |"),
        };
        let heads = " allocated, % | rejected, % of demand |";
        println!("\n### {title}, pods come and go{says}\n");
        println!("| ρ | policy |{heads}{wait_head} p50, µs | p99, µs |{}", taints.head());
        println!("| --: | --- | --: | --: |{wait_rule} --: | --: |{}", taints.rule());
        for (load, contender) in loads.iter().flat_map(|load| contenders.iter().map(move |of| (load, of))) {
            let (churn, took, writes) = contender.churn(workload, &self.seeds(), (*load, unplaced));
            let wait = churn.wait_ticks_mean.map_or_else(String::new, |ticks| format!(" {ticks:.1} |"));
            println!(
                "| {load} | {} | {:.2} ± {:.2} | {:.2} |{wait} {:.0} | {:.0} |{}",
                contender.says,
                churn.allocated_pct_mean,
                churn.allocated_pct_sd,
                churn.rejected_demand_pct_mean,
                took.p50,
                took.p99,
                taints.cell(contender, writes),
            );
        }
    }
}

/// A column of the soft taints, in tables of contenders that write any.
struct TaintColumn {
    is_shown: bool,
}

// === impl TaintColumn ===

impl TaintColumn {
    fn of(contenders: &[Contender]) -> Self {
        Self { is_shown: contenders.iter().any(Contender::writes_taints) }
    }

    fn head(&self) -> &'static str {
        if self.is_shown { " taint writes a pod |" } else { "" }
    }

    fn rule(&self) -> &'static str {
        if self.is_shown { " --: |" } else { "" }
    }

    fn cell(&self, of: &Contender, writes: f64) -> String {
        match (self.is_shown, of.writes_taints()) {
            (false, _) => String::new(),
            (true, false) => " |".to_owned(),
            (true, true) => format!(" {writes:.2} |"),
        }
    }
}
