//! The report for people.

use super::report::{Lost, Node, Report, Workload};
use crate::text::{plain, table};

/// Text for a terminal.
pub(super) fn text(report: &Report) -> String {
    if report.workloads.is_empty() && report.nodes.is_empty() {
        return "No pod requests GPUs, and no node has another system's resources.\n".to_owned();
    }
    let nodes = report.nodes.iter().map(node_row).collect();
    let workloads = report.workloads.iter().map(workload_row).collect();
    let limits = report.limits.iter().map(limit_row).collect();
    let remarks: Vec<String> = report.workloads.iter().flat_map(remarks).collect();
    let steps = report.steps.iter().enumerate().map(|(at, step)| format!("  {}. {}\n", at + 1, plain(step)));
    let tables = [nodes, workloads, limits].into_iter().filter(|rows: &Vec<_>| !rows.is_empty());
    let mut sections: Vec<String> = tables.map(|rows| table(rows, true)).collect();
    sections.insert(sections.len() - usize::from(!report.limits.is_empty()), remarks.concat());
    sections.push(if report.steps.is_empty() {
        String::new()
    } else {
        format!("Steps:\n{}", steps.collect::<String>())
    });
    sections.retain(|section| !section.is_empty());
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

fn limit_row(limit: &Lost) -> Vec<(&'static str, String)> {
    let Lost { kind, namespace, name, resources } = limit;
    vec![("STOPS MATCHING", format!("{} {namespace}/{name}", kind.to_lowercase())), ("RESOURCES", resources.join(", "))]
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
