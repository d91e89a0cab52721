//! Pods and workloads, from the API server or from a file, as translation reads them.

use std::collections::BTreeMap;
use std::path::Path;

use divvy_systems::{Container, Pod};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::admin::limits::Limit;
use crate::manifests::templates;
use crate::view::inspect::NodeView;

/// What is known of a cluster, or of a file.
#[derive(Debug, Default)]
pub(super) struct MigrateInput {
    pub(super) nodes: Vec<NodeView>,
    pub(super) pods: Vec<FoundWorkload>,
    /// `ResourceQuota`s and `LimitRange`s, with the resources that they name.
    pub(super) limits: Vec<Limit>,
}

/// A pod, or the template of one.
#[derive(Debug)]
pub(super) struct FoundWorkload {
    /// `Deployment`, or `Pod` for one that nobody controls.
    pub(super) kind: String,
    pub(super) namespace: String,
    /// Name of the workload.
    pub(super) name: String,
    /// Path of the pod's template in the workload, if that has several.
    pub(super) template: Option<String>,
    /// Where it runs.
    pub(super) node: Option<String>,
    pub(super) scheduler: Option<String>,
    pub(super) pod: Pod,
}

/// Fields that are read of a pod or a template. Everything may be absent, or null, which is the same to the API server.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Template {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    annotations: Option<Texts>,
    labels: Option<Texts>,
    owner_references: Option<Vec<Owner>>,
}

/// Texts by key; null is the empty one.
type Texts = BTreeMap<String, Option<String>>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, expecting = "an object")]
struct Owner {
    kind: String,
    name: String,
    controller: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Spec {
    node_name: Option<String>,
    scheduler_name: Option<String>,
    init_containers: Option<Vec<ManifestContainer>>,
    containers: Option<Vec<ManifestContainer>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ManifestContainer {
    name: Option<String>,
    resources: Option<Resources>,
    env: Option<Vec<Variable>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct Resources {
    limits: Option<Quantities>,
    requests: Option<Quantities>,
}

/// Quantities by resource, texts or numbers; null is zero.
type Quantities = BTreeMap<String, Value>;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Variable {
    name: Option<String>,
    value: Option<String>,
    value_from: Option<IgnoredAny>,
}

/// Pods and workloads of a file of manifests; `-` is standard input. What of it can't be read is said in remarks.
pub(super) fn file(path: &Path, remarks: &mut Vec<String>) -> anyhow::Result<MigrateInput> {
    manifests(&crate::manifests::read(path)?, remarks)
}

/// Pods and workloads of a text of one or more documents.
pub(super) fn manifests(text: &str, remarks: &mut Vec<String>) -> anyhow::Result<MigrateInput> {
    let mut objects = MigrateInput::default();
    for (line, object) in crate::manifests::objects(text)? {
        let Some(kind) = object["kind"].as_str() else { continue };
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let named = if object["metadata"]["name"].is_string() { "name" } else { "generateName" };
        let namespace = text("namespace");
        let name = text(named);
        objects.limits.extend(Limit::read(kind, &object));
        let templates = templates(&object);
        let is_one = templates.len() == 1;
        for (path, template) in templates {
            match Template::deserialize(&*template) {
                Ok(template) => {
                    let path = Some(path).filter(|path| !is_one && !path.is_empty());
                    let found = template.into_found(kind.to_owned(), namespace.clone(), name.clone(), path);
                    objects.pods.push(FoundWorkload { node: None, ..found });
                }
                Err(error) => remarks.push(format!("error: {kind} {name} at line {line} is left out: {error}")),
            }
        }
    }
    Ok(objects)
}

// === impl Template ===

impl Template {
    /// A pod of a cluster, by the workload that it belongs to.
    pub(super) fn found(mut self) -> FoundWorkload {
        let metadata = self.metadata.get_or_insert_default();
        let name = metadata.name.take();
        let namespace = metadata.namespace.take();
        let owners = metadata.owner_references.take().into_iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
        let hash = metadata.labels.as_ref().and_then(|labels| labels.get("pod-template-hash")?.clone());
        let (kind, name) = match owner {
            Some(Owner { kind, name, .. }) if kind == "ReplicaSet" => {
                let deployment = hash.and_then(|hash| Some(name.strip_suffix(&*hash)?.strip_suffix('-')?.to_owned()));
                deployment.map_or((kind, name), |name| ("Deployment".to_owned(), name))
            }
            Some(Owner { kind, name, .. }) => (kind, name),
            None => ("Pod".to_owned(), name.unwrap_or_default()),
        };
        self.into_found(kind, namespace.unwrap_or_default(), name, None)
    }

    /// A pod of this workload, from the template at this path if it has several.
    fn into_found(self, kind: String, namespace: String, name: String, template: Option<String>) -> FoundWorkload {
        let metadata = self.metadata.unwrap_or_default();
        let spec = self.spec.unwrap_or_default();
        let lists = [("spec.initContainers", false, spec.init_containers), ("spec.containers", true, spec.containers)];
        let containers = lists.into_iter().flat_map(|(list, is_app, containers)| {
            let containers = containers.into_iter().flatten().enumerate();
            containers.map(move |(at, container)| container.read(format!("{list}[{at}]"), is_app))
        });
        let texts = |texts: Option<Texts>| {
            texts.into_iter().flatten().map(|(key, text)| (key, text.unwrap_or_default())).collect()
        };
        let pod = Pod {
            containers: containers.collect(),
            annotations: texts(metadata.annotations),
            labels: texts(metadata.labels),
        };
        FoundWorkload { kind, namespace, name, template, node: spec.node_name, scheduler: spec.scheduler_name, pod }
    }
}

impl ManifestContainer {
    fn read(self, field: String, is_app: bool) -> Container {
        let text = |amount: Value| match amount {
            Value::Null => "0".to_owned(),
            Value::String(text) => text,
            amount => amount.to_string(),
        };
        let amounts = |amounts: Option<Quantities>| {
            amounts.into_iter().flatten().map(|(name, amount)| (name, text(amount))).collect()
        };
        let variables = self.env.into_iter().flatten().filter_map(|Variable { name, value, value_from }| {
            let text = value_from.is_none().then(|| value.unwrap_or_default());
            Some((name?, text))
        });
        let Resources { limits, requests } = self.resources.unwrap_or_default();
        Container {
            field,
            name: self.name.unwrap_or_default(),
            is_app,
            is_totalled: false,
            limits: amounts(limits),
            requests: amounts(requests),
            variables: variables.collect(),
        }
    }
}
