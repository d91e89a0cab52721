//! What a report leaves out, or may show wrongly, for lack of a setting.

use std::collections::BTreeSet;

use divvy_systems::{ALL, Dialect, RequiredSetting};
use kube::ResourceExt as _;

use super::read::{FoundWorkload, MigrateInput};
use super::report::resources;
use crate::admin::dialects::{WrongUnit, wrong_units};
use crate::text::listed;
use crate::view::inspect::NodeView;

/// Most nodes, or workloads, that are named.
const MOST: usize = 3;

/// What `--dialects` should say.
pub(super) fn warnings(objects: &MigrateInput, dialects: &[Dialect], foreign: &BTreeSet<String>) -> Vec<String> {
    let units = wrong_units(dialects, &objects.nodes).into_iter();
    let units = units.map(|WrongUnit { found, system, key, right }| {
        format!("{found}: pass {{name: {system}, {key}: {right}}} in --dialects")
    });
    let required = ALL.into_iter().filter_map(|system| Some((system.name, system.required?)));
    let unknown = required.filter(|(_, setting)| !foreign.contains(setting.resource));
    units.chain(unknown.filter_map(|(system, setting)| left_out(objects, system, setting))).collect()
}

/// Nodes and pods with a system's resource that means nothing without a setting, and whose dialect isn't among the given ones.
fn left_out(objects: &MigrateInput, system: &str, setting: RequiredSetting) -> Option<String> {
    let RequiredSetting { resource, example, unknown, hint } = setting;
    let offers_it = |node: &&NodeView| node.capacity(resource).is_some_and(|number| number != "0");
    let nodes: BTreeSet<String> = objects.nodes.iter().filter(offers_it).map(NodeView::name_any).collect();
    let names_it =
        |found: &&FoundWorkload| found.pod.containers.iter().flat_map(resources).any(|name| name == resource);
    let workloads: BTreeSet<String> = objects.pods.iter().filter(names_it).map(workload).collect();
    let found = [("nodes", nodes), ("workloads", workloads)].into_iter().filter(|(_, names)| !names.is_empty());
    let found: Vec<String> =
        found.map(|(what, names)| format!("{what} {}", listed(&Vec::from_iter(names), MOST))).collect();
    (!found.is_empty()).then(|| {
        format!(
            "{resource} ({}) is left out, as it isn't known {unknown}: pass {{name: {system}, {example}}} in --dialects, \
             beside the other systems; {hint}",
            found.join("; ")
        )
    })
}

fn workload(FoundWorkload { kind, namespace, name, .. }: &FoundWorkload) -> String {
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{} {namespace}{slash}{name}", kind.to_lowercase())
}
