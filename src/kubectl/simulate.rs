//! `kubectl divvy simulate`: placement policies over a trace.

mod live;
mod progress;
mod show;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use divvy_api::annotation::PolicyName;
use divvy_simulate::churn::Unplaced;
use divvy_simulate::policy::{Name, Scheduler, Ties};
use divvy_simulate::report::Report;
use divvy_simulate::setup::SHORTLIST;
use divvy_simulate::study::{self, Settings};
use divvy_simulate::workload::Workload;

use crate::cluster::ClusterArgs;
use crate::output::{CommandOutput, Format, Misused, format};

/// Fills a cluster with the pods of a trace, by one policy after another, and shows how much of its GPUs stays unallocated
///
/// Pods arrive one by one, in a random order for each run; a pod that fits nowhere is dropped, and no pod ends. After the last
/// one, pods are drawn from the list again. --churn also lets pods end. least-fragmentation, binpack, spread and topology are
/// the policies of Divvy's extender and nodes, run by their own code; best-fit, packing, random and fgd are published ones,
/// and in-tree is kube-scheduler's own scores alone. All get the same pods, after a filter for CPU and host memory. Pods
/// without GPUs are placed by the same policies.
///
/// Files have the columns of Alibaba's openb traces: sn,cpu_milli,memory_mib,gpu,model and
/// name,cpu_milli,memory_mib,num_gpu,gpu_milli, and maybe gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time.
/// Times are ignored. A share of a GPU is the same part of its compute and of its memory, unless pods have one more column,
/// gpu_memory_milli, which comes last: thousandths of each GPU's memory. What is allocated of a GPU is then the mean of both.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// CSV file of nodes
    #[arg(long, value_name = "FILE", required_unless_present = "cluster")]
    nodes: Option<PathBuf>,
    /// CSV file of pods
    #[arg(long, value_name = "FILE", required_unless_present = "cluster")]
    pods: Option<PathBuf>,
    /// Read a live cluster instead of files: which pending pods would fit now; how many of all pods would get GPUs, and how many
    /// GPUs would stay free, if all pods were created again under each of Divvy's policies, in one random order per run; what
    /// keeps its pods from free GPUs; and how many GPUs would be left with kube-scheduler alone, with gates, and with the
    /// extender, if such pods came until they have requested all GPUs
    #[arg(long, conflicts_with_all = ["nodes", "pods", "until", "churn", "ties"])]
    cluster: bool,
    /// Path to the kubeconfig file, for --cluster [default: as kubectl]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig context, for --cluster
    #[arg(long, value_name = "NAME", requires = "cluster")]
    context: Option<String>,
    /// in-tree, best-fit, packing, random, fgd, least-fragmentation, binpack, spread or topology; may be given several times
    /// [default: least-fragmentation, fgd and best-fit; for --cluster all of Divvy's]
    #[arg(long = "policy", value_name = "NAME", value_parser = policy)]
    policies: Vec<Name>,
    /// Runs of each policy
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: u64,
    /// Seed of the first run; each further run has the next
    #[arg(long, value_name = "NUMBER", default_value_t = 42)]
    seed: u64,
    /// Load at which a run ends: what pods have asked for, in percent of all GPUs; 0 skips the fill phase
    #[arg(long, value_name = "PERCENT", default_value_t = 130, value_parser = clap::value_parser!(u32).range(0..=1000))]
    until: u32,
    /// Also let pods come and go, at this load: what running pods would ask for if all fit, as a multiple of all GPUs, such as
    /// 0.95
    #[arg(long, value_name = "RHO", value_parser = load)]
    churn: Option<f64>,
    /// With --churn: pods that don't fit wait and are tried again, instead of being dropped
    #[arg(long, requires = "churn")]
    wait: bool,
    /// Choice between nodes that are equally good: random for each pod, as in kube-scheduler, or in one order for the whole run
    #[arg(long, value_name = "HOW", default_value = "random")]
    ties: Ties,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

const DEFAULT_POLICIES: [Name; 3] = [Name::Product(PolicyName::LeastFragmentation), Name::Fgd, Name::BestFit];

/// Reads the files, simulates their pods and formats the outcome.
pub async fn run(args: Args) -> anyhow::Result<CommandOutput> {
    let (Some(nodes), Some(pods)) = (&args.nodes, &args.pods) else { return of_cluster(args).await };
    if args.until == 0 && args.churn.is_none() {
        return Err(Misused::new("--until 0: leaves nothing to simulate without --churn").into());
    }
    let workload = Arc::new(Workload::read(nodes, pods).map_err(Misused::new)?);
    let settings = args.settings();
    let outcomes = progress::watched(study::pods(&workload, &settings), {
        let (workload, settings) = (Arc::clone(&workload), settings.clone());
        move |arrived: &AtomicU64| study::study(&workload, &settings, arrived)
    })
    .await?;
    let report = Report::of(&workload, &settings, &outcomes);
    let answer = format(&report, args.output, |_| show::tables(&report))?;
    Ok(CommandOutput { answer, ..CommandOutput::default() })
}

/// Reads a live cluster, simulates its pods and formats the outcome.
async fn of_cluster(args: Args) -> anyhow::Result<CommandOutput> {
    let Settings { policies, seeds, .. } = args.settings();
    let own = policies.into_iter().map(|name| match name {
        Name::Product(policy) => Ok(policy),
        published => Err(Misused::new(format!("--policy {}: no policy of --cluster's", published.as_str()))),
    });
    let own: Vec<PolicyName> = own.collect::<Result<_, _>>()?;
    let cluster = ClusterArgs::of_context(args.kubeconfig, args.context).connect().await?;
    let snapshot = live::Snapshot::read(&cluster, own.first().copied().unwrap_or_default()).await?;
    let workload = snapshot.workload();
    let expected = workload.as_ref().map_or(0, |workload| live::pods_to_come(workload, &seeds));
    let outlook =
        progress::watched(expected, move |arrived: &AtomicU64| snapshot.outlook(workload, &own, &seeds, arrived))
            .await?;
    let answer = format(&outlook, args.output, |_| outlook.tables())?;
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
    fn settings(&self) -> Settings {
        let is_own = |name: &Name| matches!(name, Name::Product(_));
        let default = || {
            if self.cluster { Name::ALL.into_iter().filter(is_own).collect() } else { DEFAULT_POLICIES.to_vec() }
        };
        Settings {
            policies: if self.policies.is_empty() { default() } else { self.policies.clone() },
            seeds: (0..self.runs).map(|run| self.seed.wrapping_add(run)).collect(),
            until: self.until,
            churn: self.churn,
            unplaced: if self.wait { Unplaced::Waits } else { Unplaced::Dropped },
            scheduler: Scheduler { ties: self.ties, shortlist: SHORTLIST },
        }
    }
}

#[cfg(test)]
mod tests;
