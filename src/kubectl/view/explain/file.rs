//! A pod from a file: one that is written there, or the one of a workload's template.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use divvy_index::pod::PodView;
use serde::Deserialize as _;
use serde_json::Value;

use crate::manifests::{self, template};

/// What a file says of a pod.
#[derive(Debug)]
pub(super) struct FilePod {
    /// The pod. A workload's pod has the workload's name; the namespace may be missing.
    pub(super) pod: PodView,
    /// Whose value is its priority.
    pub(super) priority_class: Option<String>,
}

/// Reads the only pod of a file; `-` is standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<FilePod> {
    manifests::read(path)
        .map_err(anyhow::Error::from)
        .and_then(|text| only_pod(&text))
        .map_err(|error| anyhow!("error: {}: {error:#}", path.display()))
}

/// The only pod of a text of one or more documents.
pub(super) fn only_pod(text: &str) -> anyhow::Result<FilePod> {
    let documents = manifests::documents(text)?;
    let with_pods: Vec<(&Value, Cow<'_, Value>)> =
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
    let mut pod = PodView::deserialize(&**template).context("the pod")?;
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (pod.namespace, pod.name) = (text("namespace"), text("name"));
    let priority_class = template["spec"]["priorityClassName"].as_str().filter(|name| !name.is_empty());
    // What a pod was is no matter of what it would be.
    let has_priority = template["spec"]["priority"].is_i64();
    Ok(FilePod { pod, priority_class: priority_class.filter(|_| !has_priority).map(str::to_owned) })
}
