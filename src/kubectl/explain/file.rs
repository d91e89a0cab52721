//! A pod from a file: one that is written there, or the one of a workload's template.

use std::io;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use divvy_index::pod::PodView;
use serde::Deserialize as _;
use serde_json::Value;

/// What a file says of a pod.
#[derive(Debug, PartialEq)]
pub(super) struct Written {
    /// The pod. A workload's pod has the workload's name; the namespace may be missing.
    pub(super) pod: PodView,
    /// Whose value is its priority.
    pub(super) priority_class: Option<String>,
}

/// Reads the only pod of a file; `-` is standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<Written> {
    let text = if path == Path::new("-") { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
    text.map_err(anyhow::Error::from)
        .and_then(|text| only_pod(&text))
        .map_err(|error| anyhow!("error: {}: {error:#}", path.display()))
}

/// The only pod of a text of one or more documents.
pub(super) fn only_pod(text: &str) -> anyhow::Result<Written> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| anyhow!("{}", error.to_string().lines().next().unwrap_or_default().to_owned()))?;
    let with_pods: Vec<(&Value, &Value)> =
        documents.iter().filter_map(|object| Some((object, template(object)?))).collect();
    let [(object, template)] = with_pods.as_slice() else {
        let kind = |object: &Value| object["kind"].as_str().unwrap_or("an object without a kind").to_owned();
        if with_pods.is_empty() {
            let kinds: Vec<String> = documents.iter().map(kind).collect();
            let found = if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") };
            bail!("expected a Pod, or a workload with a pod template, found {found}");
        }
        let named: Vec<String> = with_pods
            .iter()
            .map(|(object, _)| format!("{} {}", kind(object), object["metadata"]["name"].as_str().unwrap_or_default()))
            .collect();
        bail!("expected one pod or workload, found {}", named.join(", "));
    };
    let mut pod = PodView::deserialize(*template).context("the pod")?;
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (pod.namespace, pod.name) = (text("namespace"), text("name"));
    let priority_class = template["spec"]["priorityClassName"].as_str().filter(|name| !name.is_empty());
    // What a pod was is no matter of what it would be.
    let has_priority = template["spec"]["priority"].is_i64();
    Ok(Written { pod, priority_class: priority_class.filter(|_| !has_priority).map(str::to_owned) })
}

/// The object itself, if it is a pod, or its template: in its spec, or, a CronJob's, in that of its job.
fn template(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Pod" => Some(object),
        "CronJob" => object.pointer("/spec/jobTemplate/spec/template"),
        _ => object.pointer("/spec/template").filter(|template| template["spec"]["containers"].is_array()),
    }
}
