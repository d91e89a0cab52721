//! `kubectl divvy explain`: why a pod runs where it does, or why it doesn't run.
//!
//! The webhook isn't asked: it may be what is down, and through the API server's proxy it would be told by nobody who
//! asks. What its index would say is worked out here, by the same code and in the same words.

mod config;
pub(crate) mod fetch;
mod file;
mod hints;
mod show;

use std::path::PathBuf;

use clap::ValueEnum;
use divvy_index::pod::PodView;

use crate::cluster::ClusterArgs;
use crate::output::CommandOutput;

/// Explains where a pod fits and where it doesn't, node by node, and what to do about it
///
/// Asks GpuNodes, Nodes and pods with your own rights, and works out what the scheduler would be told, with the code of
/// Divvy's scheduler extender; the webhook isn't asked and may be down. It is about cards alone: node selectors, taints,
/// CPU and memory are the scheduler's (kubectl describe pod). FITS is yes, cordoned (kubectl cordon), not ready or gone
/// (its Node), by eviction (of pods of lower priority), not now, never (not even if all cards of the node were sound and
/// free), or unknown (other nodes took too long to ask). SCORE is what the
/// extender would say of all these nodes, 10 for the best, as far as CPU doesn't decide; with least-fragmentation that
/// takes the right to get the ConfigMap divvy-mix, where it keeps what requests it expects. FREE is the most that is left on one card.
///
/// Resource names, defaults and policies are those of the ConfigMap divvy-config of the Divvy installation; where that
/// can't be read, --config names a file like it, or the defaults hold.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The pod
    #[arg(value_name = "POD", required_unless_present = "filename", conflicts_with = "filename")]
    pod: Option<String>,
    /// A file with a pod or a workload (Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob) that needn't exist,
    /// YAML or JSON; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// The pod's namespace [default: the context's]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// The namespace that Divvy is installed in
    #[arg(long, value_name = "NAME", default_value = "divvy-system")]
    divvy_namespace: String,
    /// Another form of the answer
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Output>,
    /// Leave out the heads of columns
    #[arg(long)]
    no_headers: bool,
    /// A file with the content of the ConfigMap divvy-config, instead of the cluster's
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Every node, every card with its reason, and the requests that nodes are ranked by
    Wide,
    /// For programs: fields as documented at divvy_index::explain, memory in MiB
    Json,
    /// The same as YAML
    Yaml,
}

/// Asks the cluster and puts the answer into words.
pub async fn run(args: Args) -> anyhow::Result<CommandOutput> {
    let Args { pod, filename, namespace, divvy_namespace, output, no_headers, config, cluster } = args;
    let config = config.map(|file| config::from_file(&file)).transpose()?;
    let from_file = filename.map(|path| file::read(&path)).transpose()?;
    let cluster = cluster.connect().await?;
    let own_namespace = || namespace.clone().unwrap_or_else(|| cluster.client().default_namespace().to_owned());
    let mut remarks = Vec::new();
    let pod: PodView = match (from_file, pod) {
        (Some(found), _) => fetch::complete(&cluster, found, own_namespace, &mut remarks).await,
        (None, name) => fetch::pod(&cluster, &own_namespace(), &name.unwrap_or_default()).await?,
    };
    let config = match config {
        Some(config) => config,
        None => config::from_cluster(&cluster, &divvy_namespace, &mut remarks).await,
    };
    let found = fetch::explanation(&cluster, &pod, (config, &divvy_namespace), remarks).await?;
    let answer = match output {
        Some(Output::Json) => format!("{}\n", serde_json::to_string_pretty(&found.explanation)?),
        Some(Output::Yaml) => serde_saphyr::to_string(&found.explanation)?,
        None | Some(Output::Wide) => show::render(&found, output.is_some(), !no_headers),
    };
    Ok(CommandOutput { answer, remarks: found.remarks, incomplete: false })
}

#[cfg(test)]
mod tests;
