//! Pods that other systems' documents print, from a folder that a run is given: neither documents nor pods are the project's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::pods::{BRIEF, LASTING, PODS};
use divvy_e2e::{image, view};
use serde_json::{Map, Value, json};

use crate::dialects;

/// Names the folder, of files of YAML with any objects.
const FOLDER: &str = "DIVVY_E2E_PRINTED";
/// Pods that run at a time: as many as find place together.
const AT_ONCE: usize = 8;

/// A pod template as it is printed.
struct Printed {
    file: String,
    pod: Value,
}

/// Each is refused with a reason, waits with one, or runs with what it is given.
pub(crate) async fn run_as_they_are(cluster: &mut Cluster) -> anyhow::Result<()> {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from).with_context(|| format!("{FOLDER} names no folder"))?;
    let printed = templates(&folder)?;
    ensure!(!printed.is_empty(), "{}: no pod in any file", folder.display());
    dialects::switch_on(cluster).await?;
    // By sums alone the scheduler brings pods that the node has to reject.
    cluster.restart_scheduler(true).await?;
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for some in printed.chunks(AT_ONCE) {
        let mut names = BTreeMap::new();
        for Printed { file, pod } in some {
            match cluster.api.create(PODS, pod).await {
                Ok(made) => drop(names.insert(view::name(&made).to_owned(), file)),
                Err(error) => {
                    *outcomes.entry("refused").or_default() += 1;
                    println!("  {file}: refused: {error:#}");
                }
            }
        }
        let pods = settled(cluster).await?;
        for pod in &pods {
            let file = names.get(view::name(pod)).context("a pod of nobody")?;
            let outcome = if let Some(why) = view::unschedulable(pod) {
                println!("  {file}: waits: {why}");
                "waits"
            } else {
                ensure!(!view::is_over(pod), "{file}: failed: {}", view::failure(pod));
                "runs"
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
        cluster.agree().await.with_context(|| format!("{:?}", names.values()))?;
        cluster.clear().await?;
    }
    println!("  {} pods of {}: {outcomes:?}", printed.len(), folder.display());
    cluster.stop_webhook().await
}

/// Waits until every pod runs, is over, or has no node, and returns them.
async fn settled(cluster: &mut Cluster) -> anyhow::Result<Vec<Value>> {
    cluster
        .until("pods that run or are told why not", PATIENCE, async |this| {
            let pods = this.list().await?;
            let is_settled =
                |pod: &Value| view::is_ready(pod) || view::is_over(pod) || view::unschedulable(pod).is_some();
            let waiting: Vec<&Value> = pods.iter().filter(|pod| !is_settled(pod)).collect();
            ensure!(waiting.is_empty(), "not yet: {:?}", view::names(waiting.into_iter()));
            Ok(Some(pods))
        })
        .await
}

fn templates(folder: &Path) -> anyhow::Result<Vec<Printed>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.sort();
    let mut printed = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let Ok(documents) = serde_saphyr::from_multiple::<Value>(&text) else {
            println!("  {name}: no YAML");
            continue;
        };
        for document in &documents {
            find(document, &name, &mut printed);
        }
    }
    for (number, Printed { pod, .. }) in printed.iter_mut().enumerate() {
        pod["metadata"]["name"] = format!("printed-{number}").into();
    }
    Ok(printed)
}

/// Collects what has a spec with containers, at any depth.
fn find(value: &Value, file: &str, printed: &mut Vec<Printed>) {
    if value["spec"]["containers"].is_array() {
        printed.push(Printed { file: file.to_owned(), pod: pod(value) });
        return;
    }
    match value {
        Value::Object(fields) => fields.values().for_each(|field| find(field, file, printed)),
        Value::Array(items) => items.iter().for_each(|item| find(item, file, printed)),
        _ => {}
    }
}

/// The template's words on GPUs, around containers that this node can run.
fn pod(template: &Value) -> Value {
    let texts = |key: &str| {
        let fields = template["metadata"][key].as_object().into_iter().flatten();
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.into()));
        fields.filter_map(text).collect::<Map<_, _>>()
    };
    let containers = |key: &str, script: &str| {
        let all = template["spec"][key].as_array().into_iter().flatten().enumerate();
        all.map(|(at, written)| container(at, written, script)).collect::<Vec<_>>()
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "annotations": texts("annotations"), "labels": texts("labels") },
        "spec": {
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "hostNetwork": true,
            "initContainers": containers("initContainers", BRIEF), "containers": containers("containers", LASTING),
        },
    })
}

fn container(at: usize, written: &Value, script: &str) -> Value {
    let name = written["name"].as_str().map_or_else(|| format!("c{at}"), str::to_owned);
    let variables = written["env"].as_array().into_iter().flatten();
    let variables: Vec<Value> = variables
        .filter_map(|variable| Some(json!({ "name": variable["name"], "value": variable["value"].as_str()? })))
        .collect();
    let amounts = |key: &str| {
        let all = written["resources"][key].as_object().into_iter().flatten();
        // This node is small, and its CPU and memory are nobody's question.
        all.filter(|(name, _)| name.contains('/'))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect::<Map<_, _>>()
    };
    json!({
        "name": name, "image": image::WORK, "imagePullPolicy": "Never", "env": variables,
        "resources": { "limits": amounts("limits"), "requests": amounts("requests") },
        "command": ["/bin/busybox", "sh", "-c", script],
    })
}
