//! What an administrator does, in the order of the pages in docs/dialects.

use std::collections::BTreeSet;

use divvy_api::ResourceNames;
use divvy_systems::{Dialect, System};

use super::report::{Affected, MigrateReport, Node, PLAIN};
use crate::admin::dialects::written;
use crate::admin::limits::all_four;

/// Steps for what a report has found; none if it has found nothing.
pub(super) fn steps(report: &MigrateReport, dialects: &[Dialect], names: &ResourceNames) -> Vec<String> {
    let MigrateReport { nodes, workloads, limits, new_limits, .. } = report;
    if nodes.is_empty() && workloads.is_empty() {
        return Vec::new();
    }
    let systems: BTreeSet<&str> =
        workloads.iter().map(|workload| &*workload.system).filter(|of| *of != PLAIN).collect();
    let systems: Vec<&str> = systems.into_iter().collect();
    let refused = workloads.iter().filter(|workload| workload.refused.is_some()).count();
    let mut steps = Vec::new();
    if refused > 0 {
        steps.push(format!("change what is refused above ({refused}): such pods could not be created any more"));
    }
    steps.push(cordon(nodes));
    if !systems.is_empty() {
        let pages = systems.iter().filter_map(|name| System::named(name)).map(System::page);
        let pages: Vec<String> = pages.collect();
        steps.push(format!(
            "stop the other scheduler and its webhook ({}): from here to the first node that is READY, new pods wait",
            pages.join(", ")
        ));
    }
    steps.extend(limits.iter().map(|limit| anew(limit, names)));
    steps.extend(new_limits.iter().map(|Affected { kind, namespace, name, resources }| {
        format!(
            "see whether {kind} {namespace}/{name} admits the translated pods: it applies to their {}",
            resources.join(", ")
        )
    }));
    let rewrites: BTreeSet<String> = workloads
        .iter()
        .filter_map(|workload| Some(format!("{}=default-scheduler", workload.scheduler.as_deref()?)))
        .collect();
    steps.push(install(&systems, dialects, &Vec::from_iter(rewrites)));
    steps.push("add the extender to kube-scheduler's configuration, and switch it on: deploy/scheduler".to_owned());
    if !systems.is_empty() {
        steps.push(
            "delete pods that were created before and still wait: those that replace them are translated".to_owned(),
        );
    }
    steps.extend(nodes.iter().map(|Node { name, pods, .. }| move_node(name, pods.values().sum())));
    if nodes.is_empty() {
        steps.push(format!("node by node: {}", move_node("NODE", 0)));
    }
    steps.push(
        "delete the DaemonSet of the other device plugin; kubectl divvy doctor: what is left behind, and how it is removed"
            .to_owned(),
    );
    steps
}

fn cordon(nodes: &[Node]) -> String {
    let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    if names.is_empty() {
        "kubectl cordon every GPU node".to_owned()
    } else {
        format!("kubectl cordon {}", names.join(" "))
    }
}

/// Before pods are translated: from then on what counted them counts nothing, and their namespace is unlimited.
fn anew(Affected { kind, namespace, name, .. }: &Affected, names: &ResourceNames) -> String {
    let of = if *kind == "ResourceQuota" { "requests of " } else { "" };
    format!("write {kind} {namespace}/{name} anew, in {of}{}", all_four(names))
}

fn install(systems: &[&str], dialects: &[Dialect], rewrites: &[String]) -> String {
    // Pods of a system that shares Divvy's names may be recognised without its dialect.
    let others: Vec<Dialect> = Dialect::defaults().collect();
    let with_name = |name: &&str| dialects.iter().chain(&others).find(|dialect| dialect.name() == *name);
    let list = written(&systems.iter().filter_map(with_name).collect::<Vec<_>>());
    let rewrites =
        if rewrites.is_empty() { String::new() } else { format!(", rewriteSchedulers: [{}]", rewrites.join(", ")) };
    format!("install Divvy with dialects: {list}{rewrites}")
}

/// From drained to schedulable, with what that does to so many pods.
fn move_node(name: &str, pods: usize) -> String {
    let ended = match pods {
        0 => String::new(),
        1 => ", which ends 1 GPU pod".to_owned(),
        _ => format!(", which ends {pods} GPU pods"),
    };
    format!(
        "kubectl drain {name} --ignore-daemonsets --delete-emptydir-data{ended}; take the other device plugin off it; wait for READY in kubectl get gpunodes; kubectl uncordon {name}"
    )
}
