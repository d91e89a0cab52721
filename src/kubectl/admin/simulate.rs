//! `kubectl divvy simulate`: placement policies over a trace.

mod live;
mod progress;
mod show;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use divvy_simulate::policy::Name;
use divvy_simulate::report::Report;
use divvy_simulate::study::{self, Settings};
use divvy_simulate::workload::Workload;

use crate::cluster::ClusterArgs;
use crate::output::{CommandOutput, Format, Misused, format};

/// Fills a cluster with the pods of a trace, by one policy after another, and shows how much of its GPUs stays unallocated
///
/// Pods arrive one by one, in a random order for each run; a pod that fits nowhere is dropped, and no pod ends. After the last
/// one, pods are drawn from the list again. least-fragmentation, binpack, spread and topology are the policies of Divvy's
/// webhook and nodes, run by their own code; best-fit is there to compare them with. All get the same pods, after a filter
/// for CPU and host memory. Pods without GPUs are placed by the same policies.
///
/// Files have the columns of Alibaba's openb traces: sn,cpu_milli,memory_mib,gpu,model and
/// name,cpu_milli,memory_mib,num_gpu,gpu_milli, and maybe gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time.
/// Times are ignored. A share of a GPU is the same part of its compute and of its memory, unless pods have one more column,
/// gpu_memory_milli, which comes last: thousandths of each GPU's memory. What is allocated of a GPU is then the mean of both.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulateArgs {
    /// CSV file of nodes
    #[arg(long, value_name = "FILE", required_unless_present = "cluster")]
    nodes: Option<PathBuf>,
    /// CSV file of pods
    #[arg(long, value_name = "FILE", required_unless_present = "cluster")]
    pods: Option<PathBuf>,
    /// Read a live cluster instead of files: which pending pods would fit now; how many of all pods would get GPUs, and how many
    /// GPUs would stay free, if all pods were created again under each of Divvy's policies, in one random order per run; what
    /// keeps its pods from free GPUs; and how many GPUs each policy would leave, if such pods came until they have requested
    /// all GPUs
    #[arg(long, conflicts_with_all = ["nodes", "pods", "until"])]
    cluster: bool,
    /// Path to the kubeconfig file, for --cluster [default: as kubectl]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig context, for --cluster
    #[arg(long, value_name = "NAME", requires = "cluster")]
    context: Option<String>,
    /// best-fit, least-fragmentation, binpack, spread or topology; may be given several times [default: all]
    #[arg(long = "policy", value_name = "NAME", value_parser = policy)]
    policies: Vec<Name>,
    /// Runs of each policy
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = runs)]
    runs: usize,
    /// Load at which a run ends: what pods have asked for, in percent of all GPUs
    #[arg(long, value_name = "PERCENT", default_value_t = 130, value_parser = clap::value_parser!(u32).range(1..=1000))]
    until: u32,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// Seed of the first run; each further one has the next.
const FIRST_SEED: u64 = 42;

/// Reads the files, simulates their pods and formats the outcome.
pub async fn run(args: SimulateArgs) -> anyhow::Result<CommandOutput> {
    let (Some(nodes), Some(pods)) = (&args.nodes, &args.pods) else { return of_cluster(args).await };
    let workload = Arc::new(Workload::read(nodes, pods).map_err(Misused::new)?);
    let settings = args.settings();
    let outcomes = progress::watched(study::pods(&workload, &settings), {
        let workload = Arc::clone(&workload);
        let settings = settings.clone();
        move |arrived: &AtomicU64| study::study(&workload, &settings, arrived)
    })
    .await?;
    let report = Report::new(&workload, &settings, &outcomes);
    let answer = format(&report, args.output, |_| show::tables(&report))?;
    Ok(CommandOutput { answer, ..CommandOutput::default() })
}

/// Reads a live cluster, simulates its pods and formats the outcome.
async fn of_cluster(args: SimulateArgs) -> anyhow::Result<CommandOutput> {
    let settings = Settings { until: live::UNTIL, ..args.settings() };
    let own = settings.policies.iter().find_map(|name| match name {
        Name::Product(policy) => Some(*policy),
        Name::BestFit => None,
    });
    let cluster = ClusterArgs::of_context(args.kubeconfig, args.context).connect().await?;
    let snapshot = live::Snapshot::read(&cluster, own.unwrap_or_default()).await?;
    let workload = snapshot.workload();
    let expected = workload.as_ref().map_or(0, |workload| study::pods(workload, &settings));
    let outlook =
        progress::watched(expected, move |arrived: &AtomicU64| snapshot.outlook(workload, &settings, arrived)).await?;
    let answer = format(&outlook, args.output, |_| outlook.tables())?;
    Ok(CommandOutput { answer, ..CommandOutput::default() })
}

fn policy(text: &str) -> Result<Name, String> {
    let names = Name::ALL.map(Name::as_str).join(", ");
    Name::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| format!("expected one of {names}"))
}

fn runs(text: &str) -> Result<usize, String> {
    let runs = text.parse().ok().filter(|runs| (1..=10_000).contains(runs));
    runs.ok_or_else(|| "expected a number from 1 to 10000".to_owned())
}

// === impl SimulateArgs ===

impl SimulateArgs {
    fn settings(&self) -> Settings {
        let policies = if self.policies.is_empty() { Name::ALL.to_vec() } else { self.policies.clone() };
        Settings { policies, seeds: (FIRST_SEED..).take(self.runs).collect(), until: self.until }
    }
}

#[cfg(test)]
mod tests;
