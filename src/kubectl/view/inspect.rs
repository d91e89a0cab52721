//! `kubectl divvy inspect`: GPUs of each node, the pods that hold shares of them, what is free, and problems.

pub(crate) mod fetch;
mod host;
pub mod report;
mod table;

use k8s_openapi::jiff::Timestamp;

pub(crate) use self::fetch::FoundNode;
pub(crate) use self::host::{Host, NodeView};
use self::report::InspectReport;
pub(crate) use self::report::NodeReport;
use crate::cluster::ClusterArgs;
use crate::output::{CommandOutput, TableArgs};

/// Shows the GPUs of nodes, the shares that pods hold of them, what is free, and problems
///
/// Reads GpuNodes, which each node's divvy-node writes, and the Nodes of the same names. Amounts are HELD/CAPACITY; free
/// is what the next pod could get: nothing of a GPU that is unhealthy, cordoned or held exclusively, or of a node that takes
/// no pods. Init containers hold their shares one after another, before the others, so the shares of a GPU may add up to
/// more than what is held of it. One core is 1 % of a GPU. -o wide adds whole UUIDs, NUMA nodes, MIG profiles and links.
#[derive(Clone, Debug, clap::Args)]
pub struct InspectArgs {
    /// Nodes to show [default: all that have a GpuNode]
    #[arg(value_name = "NODE", conflicts_with = "selector")]
    nodes: Vec<String>,
    /// Only nodes on which pods of this namespace hold shares, and only these shares [default: all namespaces]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Only nodes with these labels, which are those of the Node: a GpuNode has none
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Asks the cluster and puts the answer into words.
pub async fn run(args: InspectArgs) -> anyhow::Result<CommandOutput> {
    let InspectArgs { nodes, namespace, selector, table, cluster } = args;
    let found = fetch::fetch(&cluster.connect().await?, &nodes, selector.as_deref()).await?;
    let incomplete = !found.missing.is_empty();
    let mut remarks = found.remarks;
    remarks.extend(found.missing.iter().map(ToString::to_string));
    let report = InspectReport::new(&found.nodes, namespace.as_deref(), Timestamp::now());
    let answer = table.format(&report, |wide, with_heads| table::render(&report, wide, with_heads))?;
    if answer.is_empty() && !incomplete {
        remarks.push(match namespace {
            Some(namespace) => format!("No resources found in {namespace} namespace."),
            None => "No resources found".to_owned(),
        });
    }
    Ok(CommandOutput { answer, remarks, incomplete })
}

#[cfg(test)]
mod tests;
