//! Another trace than openb's, from files with its columns.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser as _;
use divvy_packing::churn::{self, Unplaced};
use divvy_packing::contenders::Contender;
use divvy_simulate::policy::Ties;
use divvy_simulate::report::PolicyReport;
use divvy_simulate::workload::Workload;
use serde::Serialize;

/// What policies leave unused of a trace's cluster, and of one whose pods come and go
#[derive(Debug, clap::Parser)]
#[command(name = "packing", bin_name = "cargo bench -p divvy-packing --bench packing --")]
struct Args {
    /// CSV file of nodes, with the columns of kubectl divvy simulate
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,
    /// CSV file of pods
    #[arg(long, value_name = "FILE")]
    pods: PathBuf,
    /// best-fit, packing, random, fgd, least-fragmentation, binpack, spread, topology or in-tree; may be given several times
    /// [default: all]
    #[arg(long = "policy", value_name = "NAME", value_parser = policy)]
    policies: Vec<String>,
    /// Runs of each policy
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: u64,
    /// Seed of the first run; each further run has the next
    #[arg(long, value_name = "NUMBER", default_value_t = 42)]
    seed: u64,
    /// Load at which filling ends: what pods have asked for, in percent of all GPUs; 0 for no filling
    #[arg(long, value_name = "PERCENT", default_value_t = 130, value_parser = clap::value_parser!(u32).range(0..=1000))]
    until: u32,
    /// Also let pods come and go, at this load: what running pods would ask for if all fit, as a multiple of all GPUs
    #[arg(long, value_name = "RHO", value_parser = load)]
    churn: Option<f64>,
    /// With --churn: pods that don't fit wait and are tried again, instead of being dropped
    #[arg(long, requires = "churn")]
    wait: bool,
    /// Choice between nodes that are equally good: random for each pod, as in kube-scheduler, or fixed for the whole run
    #[arg(long, value_name = "HOW", default_value = "random", value_parser = ["random", "fixed"])]
    ties: String,
    /// json, or a table
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    filled: PolicyReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    churn: Option<churn::Report>,
}

pub(super) fn main(arguments: &[String]) {
    let args = Args::parse_from(std::iter::once(&String::new()).chain(arguments));
    let workload = match Workload::read(&args.nodes, &args.pods) {
        Ok(workload) => Arc::new(workload),
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(2);
        }
    };
    let seeds: Vec<u64> = (0..args.runs).map(|run| args.seed.wrapping_add(run)).collect();
    let ties = if args.ties == "fixed" { Ties::Fixed } else { Ties::Random };
    let is_wanted = |of: &Contender| args.policies.is_empty() || args.policies.iter().any(|policy| policy == of.says);
    let unplaced = if args.wait { Unplaced::Waits } else { Unplaced::Dropped };
    let report = |contender: Contender| Report {
        filled: contender.fill(&workload, &seeds, args.until).0,
        churn: args.churn.map(|load| contender.churn(&workload, &seeds, (load, unplaced)).0),
    };
    let reports: Vec<Report> = Contender::named(ties).into_iter().filter(is_wanted).map(report).collect();
    if args.output == "json" {
        println!("{}", serde_json::to_string_pretty(&reports).expect("numbers and names"));
    } else {
        reports.iter().for_each(Report::print);
    }
}

fn policy(text: &str) -> Result<String, String> {
    let names: Vec<&str> = Contender::named(Ties::Random).iter().map(|contender| contender.says).collect();
    let expected = || format!("expected one of {}", names.join(", "));
    names.contains(&text).then(|| text.to_owned()).ok_or_else(expected)
}

fn load(text: &str) -> Result<f64, String> {
    let load = text.parse().ok().filter(|load| (0.01..=10.0).contains(load));
    load.ok_or_else(|| "expected a number from 0.01 to 10".to_owned())
}

// === impl Report ===

impl Report {
    fn print(&self) {
        let PolicyReport { policy, at, decision_us } = &self.filled;
        println!("{policy}: a decision takes {:.0} us (p50), {:.0} us (p99)", decision_us.p50, decision_us.p99);
        if let Some(at) = at.last() {
            let (load, left, sd) = (at.arrived_pct, at.unallocated_pct_mean, at.unallocated_pct_sd);
            println!("  filled to {load} %: {left:.2} ± {sd:.2} % of the GPUs left unallocated");
        }
        if let Some(churn) = &self.churn {
            let wait = churn.wait_ticks_mean.map_or_else(String::new, |ticks| format!(", mean wait {ticks:.1} ticks"));
            println!(
                "  pods come and go at {}: {:.2} ± {:.2} % allocated, {:.2} % of the demand rejected{wait}",
                churn.rho, churn.allocated_pct_mean, churn.allocated_pct_sd, churn.rejected_demand_pct_mean,
            );
        }
    }
}
