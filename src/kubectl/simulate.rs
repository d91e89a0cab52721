//! `kubectl divvy simulate`: what placement policies make of a trace.

mod plot;
mod progress;
mod show;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use clap::ValueEnum;
use divvy_simulate::Watch;
use divvy_simulate::policy::{Name, Ties};
use divvy_simulate::report::Report;
use divvy_simulate::study::{self, Expected, Settings};
use divvy_simulate::target::Target;
use divvy_simulate::workload::Workload;

use crate::cli::{Misused, Told};

/// Fills a cluster with the pods of a trace, by one policy after another, and says how much of its cards stays unused
///
/// The pods are offered one by one in an order that is drawn for each run; one that fits nowhere is dropped, and none goes.
/// When the list is at its end pods are drawn from it anew. --churn lets pods come and go as well. least-fragmentation,
/// binpack, spread and topology are the policies of Divvy's extender and nodes, asked by their own code; best-fit, packing,
/// random and fgd are published ones. All get the same pods. The scheduler's filter for CPU and host memory is played
/// here; pods without cards, which no extender is asked about, go where kube-scheduler's own scores put them, except
/// with the published policies, which place them too.
///
/// Files have the columns of Alibaba's openb traces: sn,cpu_milli,memory_mib,gpu,model and
/// name,cpu_milli,memory_mib,num_gpu,gpu_milli, and maybe gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time.
/// Times are ignored. A share of a card is the same part of its compute and of its memory.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// CSV file of nodes
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,
    /// CSV file of pods
    #[arg(long, value_name = "FILE")]
    pods: PathBuf,
    /// best-fit, packing, random, fgd, least-fragmentation, binpack, spread or topology; may be given several times
    /// [default: least-fragmentation, fgd and best-fit]
    #[arg(long = "policy", value_name = "NAME", value_parser = policy)]
    policies: Vec<Name>,
    /// Runs of each policy
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: u64,
    /// Seed of the first run; each further run has the next
    #[arg(long, value_name = "NUMBER", default_value_t = 42)]
    seed: u64,
    /// How much pods ask for in the end, in percent of all cards; 0 leaves out the filling
    #[arg(long, value_name = "PERCENT", default_value_t = 130, value_parser = clap::value_parser!(u32).range(0..=1000))]
    until: u32,
    /// Also let pods come and go, so that those that would be there at a time ask for so many times all cards: 0.95
    #[arg(long, value_name = "RHO", value_parser = load)]
    churn: Option<f64>,
    /// What decides between nodes that are equally good: a draw, as kube-scheduler's, or one order for the whole run
    #[arg(long, value_name = "HOW", default_value = "random")]
    ties: TiesArg,
    /// Nodes that the extender names, as the webhook's key; 0 is all that are as good as the best
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=5000))]
    shortlist: u32,
    /// Which requests fgd and least-fragmentation expect: history (those that have come so far), or those of another CSV
    /// file of pods [default: those of --pods]
    #[arg(long, value_name = "history|FILE")]
    target_from: Option<PathBuf>,
    /// The form of the answer
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
    /// Also draw unallocated cards against load into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The loads that matter
    Table,
    /// For programs: every percent of load, fields as documented at divvy_simulate::report
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TiesArg {
    Random,
    Fixed,
}

const DEFAULT_POLICIES: [&str; 3] = ["least-fragmentation", "fgd", "best-fit"];

/// Reads the files, lets the pods come and puts the outcome into words.
pub async fn run(args: Args) -> anyhow::Result<Told> {
    let workload = Arc::new(Workload::read(&args.nodes, &args.pods).map_err(Misused::new)?);
    let (expected, target_from) = args.expected(&workload)?;
    let settings = args.settings();
    let outcomes = progress::watched(study::pods(&workload, &settings), {
        let (workload, settings) = (Arc::clone(&workload), settings.clone());
        move |watch: &Watch| study::study(&workload, &expected, &settings, watch)
    })
    .await?;
    let report = Report::of(&workload, &settings, &target_from, &outcomes);
    if let Some(file) = &args.plot {
        plot::draw(&report, file).map_err(|error| anyhow!("error: {}: {error}", file.display()))?;
    }
    let answer = match args.output {
        Output::Table => show::tables(&report),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
    };
    Ok(Told { answer, ..Told::default() })
}

fn policy(text: &str) -> Result<Name, String> {
    let names = Name::ALL.map(Name::as_str).join(", ");
    Name::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| format!("expected one of {names}"))
}

fn load(text: &str) -> Result<f64, String> {
    let load = text.parse().ok().filter(|load| (0.01..=10.0).contains(load));
    load.ok_or_else(|| "expected a number from 0.01 to 10".to_owned())
}

// === impl Args ===

impl Args {
    /// What policies know of what will come, and from where.
    fn expected(&self, workload: &Workload) -> anyhow::Result<(Expected, String)> {
        let known = |target| Expected::Known(Arc::new(target));
        Ok(match &self.target_from {
            None => (known(Target::of(workload)), "pods".to_owned()),
            Some(file) if file.as_os_str() == "history" => (Expected::History, "history".to_owned()),
            Some(file) => {
                let (kinds, pods) = workload.kinds_of(file).map_err(Misused::new)?;
                (known(Target::of_pods(&kinds, &pods)), file.display().to_string())
            }
        })
    }

    fn settings(&self) -> Settings {
        let default = || DEFAULT_POLICIES.iter().filter_map(|name| policy(name).ok()).collect();
        Settings {
            policies: if self.policies.is_empty() { default() } else { self.policies.clone() },
            seeds: (0..self.runs).map(|run| self.seed.wrapping_add(run)).collect(),
            until: self.until,
            churn: self.churn,
            ties: match self.ties {
                TiesArg::Random => Ties::Random,
                TiesArg::Fixed => Ties::Fixed,
            },
            shortlist: self.shortlist as usize,
        }
    }
}
