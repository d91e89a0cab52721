//! `kubectl divvy explain`: why a pod runs where it does, or why it doesn't run.
//!
//! The webhook isn't asked: it may be what is down, and through the API server's proxy it would be told by nobody who
//! asks. What its index would say is worked out here, by the same code and in the same words.

pub(crate) mod fetch;
mod file;
mod hints;
mod show;

use std::path::PathBuf;

use divvy_index::demand::SchedulingConfig;
use divvy_index::explain::Explanation;
use serde::Serialize;

use crate::cluster::{Cluster, ClusterArgs};
use crate::config;
use crate::output::{CommandOutput, TableArgs};

/// Explains where a pod fits and where it doesn't, node by node, and what would help
///
/// Reads GpuNodes, Nodes and pods with your own permissions and computes the extender's answer, with the code of Divvy's
/// scheduler extender; the webhook isn't called and may be down. Hints name the smallest changes after which the pod fits,
/// each of which was tried: pods whose end makes room, smaller requests, cordons, node selectors, affinity and taints. CPU
/// and memory aren't considered: see kubectl describe pod. Of a pod that starts together with others (PodGroup) it is said
/// whether GPUs are free for all of them. FITS is yes, cordoned (kubectl cordon), not ready or gone (the Node), by eviction
/// (of pods of lower priority), not now, never (not even if all GPUs of the node were healthy and free), or unknown (other
/// nodes took too long). SCORE is the extender's score of these nodes, 10 for the best, as far as CPU doesn't decide;
/// least-fragmentation expects requests like those of the pods in the cluster. FREE is the most that is free on one GPU.
/// -o wide shows every node, every GPU with its reason, and the requests that nodes are ranked by.
///
/// Resource names, defaults and policies are those of the ConfigMap divvy-config of the Divvy installation; where that
/// can't be read, --config names a file like it, or the defaults hold.
#[derive(Clone, Debug, clap::Args)]
pub struct ExplainArgs {
    /// Name of the pod
    #[arg(value_name = "POD", required_unless_present = "filename", conflicts_with = "filename")]
    pod: Option<String>,
    /// File with a pod or a workload (Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob) that needn't exist,
    /// YAML or JSON; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// Namespace of the pod [default: the context's]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Namespace that Divvy is installed in
    #[arg(long, value_name = "NAME", default_value = divvy_api::installation::NAMESPACE)]
    divvy_namespace: String,
    #[command(flatten)]
    table: TableArgs,
    /// File with the content of the ConfigMap divvy-config, instead of the cluster's
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Asks the cluster and puts the answer into words.
pub async fn run(args: ExplainArgs) -> anyhow::Result<CommandOutput> {
    let ExplainArgs { pod, filename, namespace, divvy_namespace, table, config, cluster } = args;
    let config = config.map(|file| config::from_file(&file)).transpose()?;
    let from_file = filename.map(|path| file::read(&path)).transpose()?;
    let cluster = cluster.connect().await?;
    let own_namespace = || namespace.clone().unwrap_or_else(|| cluster.client().default_namespace().to_owned());
    let mut remarks = Vec::new();
    let asked = match (from_file, pod) {
        (Some(found), _) => fetch::complete(&cluster, found, own_namespace, &mut remarks).await,
        (None, name) => fetch::pod(&cluster, &own_namespace(), &name.unwrap_or_default()).await?,
    };
    let config = match config {
        Some(config) => config,
        None => config::from_cluster(&cluster, &divvy_namespace, &mut remarks).await,
    };
    let found = fetch::explanation(&cluster, &asked, config, remarks).await?;
    let answer = table.format(&found.explanation, |wide, with_heads| show::render(&found, wide, with_heads))?;
    Ok(CommandOutput { answer, remarks: found.remarks, incomplete: false })
}

/// An explanation for a program, with what isn't known.
#[derive(Debug, Serialize)]
pub(crate) struct Explained {
    #[serde(flatten)]
    explanation: Explanation,
    remarks: Vec<String>,
}

/// Explains a pod of the cluster.
pub(crate) async fn explain_pod(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    config: SchedulingConfig,
) -> anyhow::Result<Explained> {
    let asked = fetch::pod(cluster, namespace, name).await?;
    let fetch::FoundExplanation { explanation, remarks } =
        fetch::explanation(cluster, &asked, config, Vec::new()).await?;
    Ok(Explained { explanation, remarks })
}

#[cfg(test)]
mod tests;
