//! `kubectl divvy simulate`: what placement policies make of a trace.

mod live;
mod plot;
mod progress;
mod show;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use clap::ValueEnum;
use divvy_api::annotation::PolicyName;
use divvy_simulate::Watch;
use divvy_simulate::policy::{Name, Scheduler, Ties};
use divvy_simulate::report::Report;
use divvy_simulate::study::{self, Expected, Settings};
use divvy_simulate::target::Target;
use divvy_simulate::workload::{Shares, Workload};

use crate::cluster::ClusterArgs;
use crate::output::{CommandOutput, Misused};

/// Fills a cluster with the pods of a trace, by one policy after another, and says how much of its cards stays unused
///
/// The pods are offered one by one in an order that is drawn for each run; one that fits nowhere is dropped, and none goes.
/// When the list is at its end pods are drawn from it anew. --churn lets pods come and go as well. least-fragmentation,
/// binpack, spread and topology are the policies of Divvy's extender and nodes, asked by their own code; best-fit, packing,
/// random and fgd are published ones, and in-tree is nothing but kube-scheduler's own scores. All get the same pods. The
/// scheduler's filter for CPU and host memory is played here. Pods without cards are placed by the same policies; Divvy's
/// own best-fit them as long as they expect nothing, and with --stock leave them to kube-scheduler's scores.
///
/// Files have the columns of Alibaba's openb traces: sn,cpu_milli,memory_mib,gpu,model and
/// name,cpu_milli,memory_mib,num_gpu,gpu_milli, and maybe gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time.
/// Times are ignored. A share of a card is the same part of its compute and of its memory, unless pods have one more column,
/// gpu_memory_milli, which comes last: thousandths of each card's memory; or --shares says otherwise. What is held of a card
/// is then the mean of both.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// CSV file of nodes
    #[arg(long, value_name = "FILE", required_unless_present = "cluster")]
    nodes: Option<PathBuf>,
    /// CSV file of pods
    #[arg(long, value_name = "FILE", required_unless_present = "cluster")]
    pods: Option<PathBuf>,
    /// Instead of files a live cluster: which waiting pods would fit now, and how many of all pods would find cards, and how
    /// many cards stay whole, if they came anew by each of the product's policies; in as many orders as there are runs
    #[arg(long, conflicts_with_all = ["nodes", "pods", "until", "churn", "shares", "ties", "shortlist", "stock", "target_from", "plot"])]
    cluster: bool,
    /// Path to the kubeconfig file, for --cluster [default: as kubectl]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<PathBuf>,
    /// The kubeconfig context, for --cluster
    #[arg(long, value_name = "NAME", requires = "cluster")]
    context: Option<String>,
    /// in-tree, best-fit, packing, random, fgd, least-fragmentation, binpack, spread or topology; may be given several times
    /// [default: least-fragmentation, fgd and best-fit; for --cluster all of the product's]
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
    /// What is made of the shares that the pods of the files ask for; whole cards stay whole
    #[arg(long, value_name = "HOW", default_value = "as-given")]
    shares: SharesArg,
    /// What decides between nodes that are equally good: a draw, as kube-scheduler's, or one order for the whole run
    #[arg(long, value_name = "HOW", default_value = "random")]
    ties: TiesArg,
    /// Nodes that the extender names, as the webhook's key; 0 is all that are as good as the best
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=5000))]
    shortlist: u32,
    /// Ask the product's policies as kube-scheduler does where nothing is configured: about 40 % of the nodes, with its own
    /// scores for CPU and host memory added, which alone place pods without cards
    #[arg(long)]
    stock: bool,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SharesArg {
    /// Nothing
    AsGiven,
    /// Half as much compute as memory
    MemoryBound,
    /// Half as much memory as compute
    CoreBound,
    /// A third of the kinds of pods each way
    Mixed,
}

const DEFAULT_POLICIES: [Name; 3] = [Name::Product(PolicyName::LeastFragmentation), Name::Fgd, Name::BestFit];

/// Reads the files, lets the pods come and puts the outcome into words.
pub async fn run(args: Args) -> anyhow::Result<CommandOutput> {
    let (Some(nodes), Some(pods)) = (&args.nodes, &args.pods) else { return of_cluster(args).await };
    if args.until == 0 && args.churn.is_none() {
        return Err(Misused::new("--until 0: leaves nothing to simulate without --churn").into());
    }
    let workload = Workload::read(nodes, pods).map_err(Misused::new)?;
    let workload = Arc::new(workload.with_shares(args.shares.into()));
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
    Ok(CommandOutput { answer, ..CommandOutput::default() })
}

/// The same of a live cluster.
async fn of_cluster(args: Args) -> anyhow::Result<CommandOutput> {
    let Settings { policies, seeds, .. } = args.settings();
    let own = policies.into_iter().map(|name| match name {
        Name::Product(policy) => Ok(policy),
        published => Err(Misused::new(format!("--policy {}: no policy of --cluster's", published.as_str()))),
    });
    let own: Vec<PolicyName> = own.collect::<Result<_, _>>()?;
    let cluster = ClusterArgs::of_context(args.kubeconfig, args.context).connect().await?;
    let snapshot = live::Snapshot::read(&cluster, own.first().copied().unwrap_or_default()).await?;
    let outlook = snapshot.outlook(&own, &seeds);
    let answer = match args.output {
        Output::Table => outlook.tables(),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&outlook)?),
    };
    Ok(CommandOutput { answer, ..CommandOutput::default() })
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
            Some(file) if file.as_os_str() == "history" => {
                (Expected::History { restarts_after: None }, "history".to_owned())
            }
            Some(file) => {
                let (kinds, pods) = workload.kinds_of(file).map_err(Misused::new)?;
                (known(Target::of_pods(&kinds, &pods)), file.display().to_string())
            }
        })
    }

    fn settings(&self) -> Settings {
        let is_own = |name: &Name| matches!(name, Name::Product(_));
        let default = || {
            if self.cluster { Name::ALL.into_iter().filter(is_own).collect() } else { DEFAULT_POLICIES.to_vec() }
        };
        let ties = match self.ties {
            TiesArg::Random => Ties::Random,
            TiesArg::Fixed => Ties::Fixed,
        };
        Settings {
            policies: if self.policies.is_empty() { default() } else { self.policies.clone() },
            seeds: (0..self.runs).map(|run| self.seed.wrapping_add(run)).collect(),
            until: self.until,
            churn: self.churn,
            scheduler: Scheduler { ties, shortlist: self.shortlist as usize, is_stock: self.stock },
        }
    }
}

// === impl SharesArg ===

impl From<SharesArg> for Shares {
    fn from(arg: SharesArg) -> Self {
        match arg {
            SharesArg::AsGiven => Self::AsGiven,
            SharesArg::MemoryBound => Self::MemoryBound,
            SharesArg::CoreBound => Self::CoreBound,
            SharesArg::Mixed => Self::Mixed,
        }
    }
}

#[cfg(test)]
mod tests;
