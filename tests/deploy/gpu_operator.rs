//! docs/gpu-operator.md beside what it tells to install.

use divvy_node::config::Keys;
use serde_json::Value;

use crate::{chart, configuration, objects};

/// What the page makes a file of that name contain.
fn file(name: &str) -> Value {
    let page = objects::text("docs/gpu-operator.md");
    let (_, text) = page.split_once(&format!("```yaml\n# {name}\n")).unwrap_or_else(|| panic!("no {name}"));
    objects::parse(text.split("```").next().unwrap()).remove(0)
}

#[test]
fn paths_of_a_driver_container_are_below_a_mount() {
    let mut keys = file("divvy.yaml")["node"].take();
    keys["nodeName"] = "node-1".into();
    let config = serde_json::from_value::<Keys>(keys).unwrap().into_config().unwrap();
    let all = objects::all("deploy/manifests");
    let pod = &objects::find(&all, "DaemonSet divvy-system/divvy-node")["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let host = mounts.iter().find(|mount| mount["name"] == "host").unwrap();
    assert_eq!(host["mountPropagation"], "HostToContainer", "a driver container mounts its root later");
    let host = std::path::Path::new(host["mountPath"].as_str().unwrap());
    assert_eq!(*configuration::node().host_root, *host);
    assert!(config.driver_root.starts_with("/run"), "which the host mounts");
}

#[test]
fn page_and_manifest_name_the_same_keys() {
    let text = objects::text("deploy/manifests/node-config.yaml");
    let Some(keys) = file("divvy.yaml")["node"].as_object().cloned() else { panic!("no keys") };
    for (key, value) in keys {
        let line = format!("#   {key}: {}\n", value.as_str().unwrap());
        assert!(text.contains(&line), "node-config.yaml lacks {line}");
    }
}

#[test]
fn chart_takes_the_values_of_the_page() {
    let Some(helm) = chart::helm() else { return };
    let values = file("divvy.yaml");
    let rendered = chart::render(&helm, "divvy-system", &values);
    let config = objects::find(&rendered, "ConfigMap divvy-system/divvy-node");
    let config = objects::parse(config["data"]["divvy-node.yaml"].as_str().unwrap()).remove(0);
    for (key, value) in values["node"].as_object().unwrap() {
        assert_eq!(&config[key], value, "{key}");
    }
}
