//! `kubectl divvy top`: what containers really use of their cards, as each node's daemon measures it.

use std::collections::BTreeMap;

use anyhow::anyhow;
use divvy_api::Memory;
use divvy_api::installation::{ADMIN_PORT, DAEMON, pods_of};
use divvy_api::usage::{ContainerUsage, NodeUsage};
use divvy_index::pod::PodView;
use futures::StreamExt as _;
use kube::api::ListParams;
use serde::Serialize;

use crate::cluster::{Cluster, ClusterArgs, Refusal};
use crate::output::{CommandOutput, TableArgs};
use crate::text::{Row, distinct_length, table};

#[cfg(test)]
mod tests;

/// Daemons that are asked at the same time.
const AT_ONCE: usize = 16;

/// Shows what containers use of their GPUs
///
/// Queries each node's divvy-node at port 9404, as kubectl port-forward does, which requires permission to get and create
/// pods/portforward where Divvy is installed. MEMORY is USED/SHARE: as libdivvy accounts it in the container, plus what contexts take; without libdivvy as the
/// driver reports it. COMPUTE is the part of the last two seconds in which the container's kernels ran, and its share.
/// What isn't known is shown as -.
#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    /// Nodes to show [default: all]
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Only containers of this namespace [default: all namespaces]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Namespace that Divvy is installed in
    #[arg(long, value_name = "NAME", default_value = divvy_api::installation::NAMESPACE)]
    divvy_namespace: String,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What the daemons answer. Fields are added without notice; one that changes its meaning, or goes, comes with another
/// `version`.
#[derive(Clone, Debug, Serialize)]
pub struct TopReport {
    /// `v1`: of this structure.
    pub version: &'static str,
    /// In the order of their names.
    pub nodes: Vec<NodeUsage<String>>,
}

/// Asks the daemons and puts their answers into words.
pub async fn run(args: TopArgs) -> anyhow::Result<CommandOutput> {
    let TopArgs { nodes, namespace, divvy_namespace, table, cluster } = args;
    let cluster = cluster.connect().await?;
    let mut told = CommandOutput::default();
    let daemons = daemons(&cluster, &divvy_namespace, &nodes, &mut told).await?;
    let asked = daemons.into_iter().map(|(node, pod)| ask(&cluster, &divvy_namespace, node, pod));
    let answers: Vec<_> = futures::stream::iter(asked).buffered(AT_ONCE).collect().await;
    let mut report = TopReport { version: "v1", nodes: Vec::new() };
    for (node, answer) in answers {
        match answer {
            Ok(usage) => report.nodes.push(NodeUsage { node, ..usage }),
            Err(Refusal::Forbidden(message)) => {
                return Err(forbidden(&message, "get and create pods/portforward", &divvy_namespace));
            }
            Err(refused) => {
                told.remarks.push(format!("error: node {node}: {}", why(refused)));
                told.incomplete = true;
            }
        }
    }
    if let Some(namespace) = &namespace {
        for usage in &mut report.nodes {
            usage.containers.retain(|container| container.of.namespace == *namespace);
            usage.findings.retain(|finding| finding.of.as_ref().is_some_and(|of| of.namespace == *namespace));
        }
    }
    told.answer = table.format(&report, |_, with_heads| render(&report, with_heads))?;
    told.remarks.extend(warnings(&report));
    if told.answer.is_empty() && !told.incomplete {
        told.remarks.push("No container holds a share".to_owned());
    }
    Ok(told)
}

/// The pods of the daemons, by node; those that were asked for and have none are said.
async fn daemons(
    cluster: &Cluster,
    namespace: &str,
    nodes: &[String],
    told: &mut CommandOutput,
) -> anyhow::Result<BTreeMap<String, String>> {
    let selected = ListParams::default().labels(&pods_of(DAEMON));
    let pods = cluster.pods::<PodView>(Some(namespace), selected).await;
    let pods = pods.map_err(|refused| match refused {
        Refusal::Forbidden(message) => forbidden(&message, "list pods", namespace),
        refused => refused.into(),
    })?;
    let running = pods.into_iter().filter(|pod| !pod.ended);
    let mut daemons: BTreeMap<String, String> = running.filter_map(|pod| Some((pod.node?, pod.name))).collect();
    for node in nodes.iter().filter(|node| !daemons.contains_key(*node)) {
        told.remarks.push(format!("error: node {node}: no pod of {DAEMON} is there in namespace {namespace}"));
        told.incomplete = true;
    }
    if daemons.is_empty() && nodes.is_empty() {
        return Err(anyhow!(
            "error: there is no pod of {DAEMON} in namespace {namespace}: name another with --divvy-namespace"
        ));
    }
    if !nodes.is_empty() {
        daemons.retain(|node, _| nodes.contains(node));
    }
    Ok(daemons)
}

/// What the containers of one node use.
pub(crate) async fn usage_of(cluster: &Cluster, namespace: &str, node: &str) -> anyhow::Result<NodeUsage<String>> {
    let selected = ListParams::default().labels(&pods_of(DAEMON));
    let selected = selected.fields(&format!("spec.nodeName={node}"));
    let pods = cluster.pods::<PodView>(Some(namespace), selected).await?;
    let daemon = pods.into_iter().find(|pod| !pod.ended);
    let missing = || Refusal::NotFound(format!("no pod of {DAEMON} is on node {node} in namespace {namespace}"));
    let (node, usage) = ask(cluster, namespace, node.to_owned(), daemon.ok_or_else(missing)?.name).await;
    Ok(NodeUsage { node, ..usage? })
}

async fn ask(
    cluster: &Cluster,
    namespace: &str,
    node: String,
    pod: String,
) -> (String, Result<NodeUsage<String>, Refusal>) {
    let body = cluster.get_by_port_forward(namespace, &pod, ADMIN_PORT, "/usage").await;
    let unreadable = |error| Refusal::NoAnswer {
        pod,
        port: ADMIN_PORT,
        why: format!("answers what this version can't read: {error}"),
    };
    (node, body.and_then(|body| serde_json::from_slice(&body).map_err(unreadable)))
}

fn forbidden(message: &str, right: &str, namespace: &str) -> anyhow::Error {
    anyhow!(
        "Error from server (Forbidden): {}. Ask for a Role with the right to {right} in namespace {namespace}",
        message.trim_end_matches([':', ' '])
    )
}

fn why(refused: Refusal) -> String {
    match refused {
        Refusal::NotForwarded { .. } => {
            format!("{refused}: it is another version, or its adminAddress has another port")
        }
        refused => refused.to_string(),
    }
}

fn warnings(report: &TopReport) -> impl Iterator<Item = String> + '_ {
    report.nodes.iter().flat_map(|usage| {
        let unmeasured = usage.unmeasured.iter().map(|problem| format!("{problem}: nothing can be found there"));
        let said = usage.findings.iter().map(|finding| finding.message.clone()).chain(unmeasured);
        said.map(|message| format!("warning: node {}: {message}", usage.node))
    })
}

/// A line for each card of each container, in the order of their names.
fn render(report: &TopReport, with_heads: bool) -> String {
    let mut lines: Vec<(&str, &ContainerUsage)> = Vec::new();
    for usage in &report.nodes {
        lines.extend(usage.containers.iter().map(|container| (usage.node.as_str(), container)));
    }
    lines.sort_by_key(|(node, usage)| {
        (*node, usage.card.as_str(), &usage.of.namespace, &usage.of.pod, &usage.of.container)
    });
    let length = distinct_length(lines.iter().map(|(_, usage)| usage.card.as_str()).collect());
    table(lines.into_iter().map(|(node, usage)| row(node, usage, length)).collect(), with_heads)
}

/// A line, with so many characters of the GPU's name.
fn row(node: &str, usage: &ContainerUsage, length: usize) -> Row {
    vec![
        ("NODE", node.to_owned()),
        ("GPU", usage.card.as_str().chars().take(length).collect()),
        ("NAMESPACE", usage.of.namespace.clone()),
        ("POD", usage.of.pod.clone()),
        ("CONTAINER", usage.of.container.clone()),
        ("MEMORY", memory(usage)),
        ("COMPUTE", compute(usage)),
        ("PROCESSES", known(usage.region.map(|region| region.processes.to_string()))),
    ]
}

fn memory(usage: &ContainerUsage) -> String {
    let counted = usage.region.map(|region| region.used_bytes.saturating_add(usage.overhead_bytes));
    let used = counted.or(usage.driver_bytes);
    format!("{}/{}", known(used.map(|bytes| Memory::from_bytes_floor(bytes).to_string())), usage.share.memory)
}

fn compute(usage: &ContainerUsage) -> String {
    let busy = usage.region.and_then(|region| region.busy_percent).map(|percent| format!("{percent}%"));
    let cores = if usage.share.exclusive { 100 } else { usage.share.cores.units() };
    let share = (cores > 0).then(|| format!("{cores}%"));
    format!("{}/{}", known(busy), known(share))
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}
