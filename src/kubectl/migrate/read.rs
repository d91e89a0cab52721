//! Pods and workloads, from the API server or from a file, as translation reads them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use divvy_dialects::{Container, Pod};
use serde::Deserialize;
use serde_json::Value;

use crate::limits::Limit;
use crate::manifests::{documents, template};

/// What is known of a cluster, or of a file.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Resources that Nodes advertise, by node.
    pub(super) nodes: BTreeMap<String, Vec<String>>,
    pub(super) pods: Vec<Found>,
    /// `ResourceQuota`s and `LimitRange`s, with the resources that they name.
    pub(super) limits: Vec<Limit>,
}

/// A pod, or the template of one.
#[derive(Debug)]
pub(super) struct Found {
    /// `Deployment`, or `Pod` for one that nobody controls.
    pub(super) kind: String,
    pub(super) namespace: String,
    /// Name of the workload.
    pub(super) name: String,
    /// Where it runs.
    pub(super) node: Option<String>,
    pub(super) scheduler: Option<String>,
    pub(super) pod: Pod,
}

/// Fields that are read of a pod or a template. Everything may be absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Template {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    annotations: Option<BTreeMap<String, String>>,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: String,
    name: String,
    controller: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Option<String>,
    scheduler_name: Option<String>,
    init_containers: Vec<Written>,
    containers: Vec<Written>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    name: String,
    resources: Resources,
    env: Vec<Variable>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    limits: BTreeMap<String, Value>,
    requests: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
    value: Option<String>,
}

/// Pods and workloads of a file of manifests; `-` is standard input.
pub(super) fn file(path: &Path) -> anyhow::Result<Objects> {
    manifests(&crate::manifests::read(path)?)
}

/// Pods and workloads of a text of one or more documents.
pub(super) fn manifests(text: &str) -> anyhow::Result<Objects> {
    let documents = documents(text)?;
    let mut objects = Objects::default();
    for object in documents.iter().flat_map(items) {
        let (kind, text) = (object["kind"].as_str().unwrap_or_default(), |field: &str| {
            object["metadata"][field].as_str().unwrap_or_default().to_owned()
        });
        let (namespace, name) = (text("namespace"), text("name"));
        objects.limits.extend(Limit::read(kind, object));
        let Some(template) = template(object) else { continue };
        let template = Template::deserialize(template).map_err(|error| anyhow!("{kind} {name}: {error}"))?;
        let Template { spec: Spec { ref scheduler_name, .. }, .. } = template;
        let scheduler = scheduler_name.clone();
        objects.pods.push(Found { kind: kind.to_owned(), namespace, name, node: None, scheduler, pod: template.pod() });
    }
    Ok(objects)
}

/// The object, or those of a List.
fn items(object: &Value) -> Vec<&Value> {
    match object["items"].as_array() {
        Some(items) if object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => items.iter().collect(),
        _ => vec![object],
    }
}

// === impl Template ===

impl Template {
    /// A pod of a cluster, by the workload that it belongs to.
    pub(super) fn found(self) -> Found {
        let Metadata { name, namespace, labels, owner_references, .. } = &self.metadata;
        let owner = owner_references.iter().find(|owner| owner.controller);
        let hash = labels.as_ref().and_then(|labels| labels.get("pod-template-hash"));
        let (kind, name) = match owner {
            Some(Owner { kind, name, .. }) if kind == "ReplicaSet" => {
                let deployment = hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'));
                deployment.map_or((kind.clone(), name.clone()), |name| ("Deployment".to_owned(), name.to_owned()))
            }
            Some(Owner { kind, name, .. }) => (kind.clone(), name.clone()),
            None => ("Pod".to_owned(), name.clone()),
        };
        let (namespace, node) = (namespace.clone(), self.spec.node_name.clone());
        Found { kind, namespace, name, node, scheduler: self.spec.scheduler_name.clone(), pod: self.pod() }
    }

    fn pod(self) -> Pod {
        let lists = [
            ("spec.initContainers", false, self.spec.init_containers),
            ("spec.containers", true, self.spec.containers),
        ];
        let containers = lists.into_iter().flat_map(|(list, is_app, containers)| {
            containers
                .into_iter()
                .enumerate()
                .map(move |(at, container)| container.read(format!("{list}[{at}]"), is_app))
        });
        Pod {
            containers: containers.collect(),
            annotations: self.metadata.annotations.unwrap_or_default(),
            labels: self.metadata.labels.unwrap_or_default(),
        }
    }
}

impl Written {
    fn read(self, field: String, is_app: bool) -> Container {
        let amounts = |amounts: BTreeMap<String, Value>| {
            let text = |amount: Value| amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            amounts.into_iter().map(|(name, amount)| (name, text(amount))).collect()
        };
        let variables = self.env.into_iter().filter_map(|variable| Some((variable.name, variable.value?)));
        Container {
            field,
            name: self.name,
            is_app,
            is_totalled: false,
            limits: amounts(self.resources.limits),
            requests: amounts(self.resources.requests),
            variables: variables.collect(),
        }
    }
}
