//! The report for people.

use super::report::{Affected, MigrateReport, Node, Workload};
use crate::text::{plain, table};

/// Text for a terminal.
pub(super) fn text(report: &MigrateReport) -> String {
    let MigrateReport { nodes, workloads, limits, new_limits, warnings, steps, .. } = report;
    if workloads.is_empty() && nodes.is_empty() && warnings.is_empty() {
        return "No pod requests GPUs, and no node has another system's resources.\n".to_owned();
    }
    let steps = steps.iter().enumerate().map(|(at, step)| format!("  {}. {}\n", at + 1, plain(step)));
    let steps: String = steps.collect();
    let warnings: Vec<String> = warnings.iter().map(|warning| format!("warning: {}\n", plain(warning))).collect();
    let sections = [
        table(nodes.iter().map(node_row).collect(), true),
        table(workloads.iter().map(workload_row).collect(), true),
        workloads.iter().flat_map(remarks).collect(),
        table(limits.iter().map(|limit| limit_row("STOPS MATCHING", limit)).collect(), true),
        table(new_limits.iter().map(|limit| limit_row("STARTS COUNTING", limit)).collect(), true),
        warnings.concat(),
        if steps.is_empty() { steps } else { format!("Steps:\n{steps}") },
    ];
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    sections.join("\n")
}

fn node_row(node: &Node) -> Vec<(&'static str, String)> {
    let pods: Vec<String> = node.pods.iter().map(|(system, count)| format!("{count} {system}")).collect();
    vec![
        ("NODE", node.name.clone()),
        ("GPU PODS", pods.join(", ")),
        ("OTHER SYSTEMS' RESOURCES", node.resources.join(", ")),
    ]
}

fn workload_row(workload: &Workload) -> Vec<(&'static str, String)> {
    let Workload { kind, namespace, pods, system, written, becomes, refused, .. } = workload;
    let name = name(workload);
    let becomes = if refused.is_some() { "REFUSED".to_owned() } else { becomes.clone() };
    vec![
        (
            "WORKLOAD",
            format!(
                "{} {}",
                kind.to_lowercase(),
                if namespace.is_empty() { name } else { format!("{namespace}/{name}") }
            ),
        ),
        ("PODS", pods.to_string()),
        ("SYSTEM", system.clone()),
        ("WRITTEN", written.clone()),
        ("BECOMES", becomes),
    ]
}

fn limit_row<'h>(head: &'h str, limit: &Affected) -> Vec<(&'h str, String)> {
    let Affected { kind, namespace, name, resources } = limit;
    vec![(head, format!("{} {namespace}/{name}", kind.to_lowercase())), ("RESOURCES", resources.join(", "))]
}

/// Lines about a workload's refusal and warnings.
fn remarks(workload: &Workload) -> Vec<String> {
    let name = name(workload);
    let name = plain(&name);
    let refused = workload.refused.iter().map(|why| format!("  {name}: refused: {}\n", plain(why)));
    let warnings = workload.warnings.iter().map(|warning| format!("  {name}: {}\n", plain(warning)));
    refused.chain(warnings).collect()
}

/// Name of a workload, with the template that is meant if it has several.
fn name(workload: &Workload) -> String {
    let Workload { name, template, .. } = workload;
    template.as_ref().map_or_else(|| name.clone(), |template| format!("{name} {template}"))
}
