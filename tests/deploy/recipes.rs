//! Recipes for other systems: their files against what Divvy calls its resources, labels and annotations.

use std::collections::BTreeMap;

use divvy_api::config::ClusterConfig;
use divvy_api::names::{PREFIX, annotation};
use divvy_api::{Memory, ResourceNames};
use divvy_webhook::admission::Endpoint;
use serde_json::Value;

use crate::{examples, objects};

const RECIPES: &str = "deploy/recipes";

fn names() -> Vec<String> {
    let entries = std::fs::read_dir(objects::at(RECIPES)).unwrap().map(Result::unwrap);
    let directories = entries.filter(|entry| entry.path().is_dir());
    directories.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// All objects of all recipes.
fn all() -> Vec<Value> {
    let directories = names().into_iter().map(|name| format!("{RECIPES}/{name}")).chain([RECIPES.to_owned()]);
    directories.flat_map(|directory| objects::all(&directory)).collect()
}

/// Every value in one, and in the documents that its texts are.
fn visit(value: &Value, see: &mut impl FnMut(&Value)) {
    see(value);
    match value {
        Value::Object(members) => members.values().for_each(|member| visit(member, see)),
        Value::Array(items) => items.iter().for_each(|item| visit(item, see)),
        Value::String(text) if text.contains('\n') => {
            for document in &objects::parse(text) {
                visit(document, see);
            }
        }
        _ => {}
    }
}

/// Names that stand in the files, of fields as of values.
fn mentioned(prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for object in &all() {
        visit(object, &mut |value| match value {
            Value::Object(members) => found.extend(members.keys().cloned()),
            Value::String(text) => found.push(text.clone()),
            _ => {}
        });
    }
    found.retain(|name| name.starts_with(prefix));
    found.sort();
    found.dedup();
    found
}

#[test]
fn the_index_has_every_recipe() {
    let index = objects::text(&format!("{RECIPES}/README.md"));
    for name in names() {
        assert!(index.contains(&format!("({name}/README.md)")), "{name}");
        objects::text(&format!("{RECIPES}/{name}/README.md"));
    }
}

#[test]
fn recipes_use_names_that_exist() {
    let resources = ResourceNames::default();
    // The label that divvy-node shares with NVIDIA's GPU feature discovery.
    let labels = objects::text("src/node/apiserver/node/labels.rs");
    for name in mentioned("nvidia.com/") {
        let label = format!("(\"{}\",", name.trim_start_matches("nvidia.com/"));
        assert!(resources.is_ours(&name) || labels.contains(&label), "{name}");
    }
    let webhooks = objects::text("deploy/manifests/webhook-configurations.yaml");
    let selected = |name: &str| webhooks.contains(&format!("        {name}: \"true\"\n"));
    for name in mentioned(PREFIX) {
        assert!(annotation::INPUTS.contains(&&*name) || selected(&name), "{name}");
    }
}

#[test]
fn pods_of_recipes_are_admitted() {
    let mut admitted = 0;
    for object in &all() {
        visit(object, &mut |value| {
            if value["spec"]["containers"].is_array() {
                let mut pod = value.clone();
                pod["metadata"]["name"] = "pod".into();
                let request = &examples::admitted(pod)["metadata"]["annotations"][annotation::REQUEST];
                assert!(request.is_string(), "{}", objects::called(object));
                admitted += 1;
            }
        });
        if object["kind"] == "Job" && object["apiVersion"] == "batch/v1" {
            examples::ask(Endpoint::Jobs, "Job", object);
        }
    }
    assert!(admitted >= 5, "{admitted}");
}

/// Who declares what a new node will have declares all of it, for eight GPUs of 80 GiB.
#[test]
fn declared_nodes_have_what_the_daemon_publishes() {
    let ResourceNames { count, memory, memory_percentage, cores, .. } = ResourceNames::default();
    let slots = u64::from(ClusterConfig::default().slots_per_card.get());
    let gpus = 8;
    let wanted: BTreeMap<String, u64> = [
        (count, gpus * slots),
        (memory, gpus * Memory::mib(80 << 10).as_mib()),
        (memory_percentage, gpus * 100),
        (cores, gpus * 100),
    ]
    .map(|(name, amount)| (name.to_string(), amount))
    .into();
    let mut declared = 0;
    for object in &all() {
        visit(object, &mut |value| {
            for list in ["capacity", "allocatable"] {
                let Some(amounts) = value[list].as_object() else { continue };
                for (name, amount) in &wanted {
                    assert_eq!(amounts[name], amount.to_string(), "{name} of {}", objects::called(object));
                }
                declared += 1;
            }
        });
    }
    assert_eq!(declared, 3, "an overlay, and a template's capacity and allocatable");
}

#[test]
fn the_quota_of_kueue_covers_every_form() {
    let queues = objects::read(&format!("{RECIPES}/kueue/queues.yaml"));
    let queue = objects::find(&queues, "ClusterQueue /gpus");
    let group = &queue["spec"]["resourceGroups"][0];
    let names = ResourceNames::default();
    for name in [names.count, names.memory, names.memory_percentage, names.cores] {
        let name = Value::from(name.to_string());
        assert!(group["coveredResources"].as_array().unwrap().contains(&name), "{name}");
    }
}
