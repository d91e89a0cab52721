//! Objects of the cluster that go into the archive.

use std::collections::HashSet;

use divvy_api::installation::{CONFIG_MAP, DAEMON, EXTENDER, MPS, PART_OF, PROGRAM, WEBHOOK};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::archive::Part;
use super::keep::{
    API_SERVICE, CONFIGURATION, DEFINITION, EVENT, Keep, NODE, OWN_OBJECT, OWN_POD, PLAIN, TENANT_POD,
    WEBHOOK_CONFIGURATION, WORKLOAD,
};
use crate::cluster::{Cluster, Refusal};

const CONFIGURATIONS: [&str; 3] = [CONFIG_MAP, DAEMON, WEBHOOK];
const DEFINITIONS: [&str; 2] = ["gpunodes.divvy.dev", "gpuquotas.divvy.dev"];
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

/// A pod of Divvy that is asked for its pages and its logs.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    /// By its label.
    pub(super) program: String,
    pub(super) node: String,
    /// Init containers too, with whether each was restarted.
    pub(super) containers: Vec<(String, bool)>,
}

/// Objects as they go into the archive.
pub(super) struct ObjectFiles<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    pub(super) parts: Vec<Part>,
}

/// A page of JSON that people read.
pub(super) fn json_part(path: &[&str], value: Result<Value, Refusal>) -> Part {
    Part::new(path, value.map_err(|refused| refused.to_string()).and_then(|value| pretty(&value)))
}

fn pretty(value: &Value) -> Result<Vec<u8>, String> {
    serde_json::to_vec_pretty(value).map_err(|error| error.to_string())
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a pod asks for devices, or Divvy has written something about it.
fn has_gpus(pod: &Value) -> bool {
    let containers = ["/spec/initContainers", "/spec/containers"].into_iter();
    let mut containers = containers.filter_map(|list| pod.pointer(list)?.as_array()).flatten();
    let has_own = pod.pointer("/metadata/annotations").and_then(Value::as_object).is_some_and(|own| !own.is_empty());
    has_own || containers.any(has_extended)
}

/// Whether one of Divvy's programs has written an event.
fn is_by_divvy(event: &Value) -> bool {
    ["/reportingComponent", "/source/component"].iter().any(|by| text(event, by).starts_with("divvy"))
}

/// Whether a container asks for devices.
fn has_extended(container: &Value) -> bool {
    let limits = container.pointer("/resources/limits").and_then(Value::as_object);
    limits.is_some_and(|limits| limits.keys().any(|name| name.contains('/')))
}

// === impl ObjectFiles ===

impl<'a> ObjectFiles<'a> {
    pub(super) fn new(cluster: &'a Cluster, namespace: &'a str) -> Self {
        Self { cluster, namespace, parts: Vec::new() }
    }

    /// Reads everything but what the pods of Divvy answer. Returns these pods, if they can be listed.
    pub(super) async fn read(&mut self) -> Option<Vec<Pod>> {
        self.versions().await;
        let group = "/apis/divvy.dev/v1alpha1";
        self.list(OWN_OBJECT, &["gpunodes.json"], &format!("{group}/gpunodes"), "").await;
        self.list(OWN_OBJECT, &["gpuquotas.json"], &format!("{group}/gpuquotas"), "").await;
        self.list(NODE, &["nodes.json"], "/api/v1/nodes", "").await;
        let pods = self.gpu_pods().await;
        let own = self.installation().await;
        self.events(pods).await;
        self.cluster_wide().await;
        own
    }

    async fn versions(&mut self) {
        let server = self.cluster.read::<Value>("/version").await;
        let versions = server.map(|server| json!({ "kubectl-divvy": env!("CARGO_PKG_VERSION"), "kubernetes": server }));
        self.parts.push(json_part(&["versions.json"], versions));
    }

    /// Pods that ask for GPUs, in all namespaces. Returns their UIDs.
    async fn gpu_pods(&mut self) -> HashSet<String> {
        let pods = self.parts_of(TENANT_POD, "/api/v1/pods", ListParams::default()).await;
        let pods = pods.map(|pods| pods.into_iter().filter(has_gpus).collect::<Vec<_>>());
        let of = pods.iter().flatten().map(|pod| text(pod, "/metadata/uid").to_owned()).collect();
        self.parts.push(json_part(&["gpu-pods.json"], pods.map(Value::from)));
        of
    }

    /// Objects of Divvy's namespace.
    async fn installation(&mut self) -> Option<Vec<Pod>> {
        let namespace = self.namespace;
        let core = |kind: &str| format!("/api/v1/namespaces/{namespace}/{kind}");
        let of_group = |group: &str, kind: &str| format!("/apis/{group}/namespaces/{namespace}/{kind}");
        for kind in ["daemonsets", "deployments"] {
            let file = format!("{kind}.json");
            self.list(WORKLOAD, &["divvy", &file], &of_group("apps/v1", kind), PART_OF).await;
        }
        self.list(PLAIN, &["divvy", "services.json"], &core("services"), PART_OF).await;
        let slices = of_group("discovery.k8s.io/v1", "endpointslices");
        let own = &format!("kubernetes.io/service-name in ({EXTENDER},{WEBHOOK})");
        self.list(PLAIN, &["divvy", "endpointslices.json"], &slices, own).await;
        let leases = of_group("coordination.k8s.io/v1", "leases");
        self.named(PLAIN, &["divvy", "leases.json"], &leases, &[WEBHOOK]).await;
        self.named(CONFIGURATION, &["divvy", "configmaps.json"], &core("configmaps"), &CONFIGURATIONS).await;
        let selected = ListParams::default().labels(&format!("{PROGRAM} in ({MPS},{DAEMON},{WEBHOOK})"));
        let pods = self.parts_of(OWN_POD, &core("pods"), selected).await;
        let found = pods.as_ref().ok().map(|pods| pods.iter().map(Pod::new).collect());
        self.parts.push(json_part(&["divvy", "pods.json"], pods.map(Value::from)));
        found
    }

    /// Events about these pods, about Divvy's namespace, and those that Divvy has written.
    async fn events(&mut self, pods: HashSet<String>) {
        let concerns = |event: &Value| {
            let about = |field: &str| text(event, &format!("/involvedObject/{field}"));
            pods.contains(about("uid")) || about("namespace") == self.namespace || is_by_divvy(event)
        };
        let events = self.parts_of(EVENT, "/api/v1/events", ListParams::default()).await;
        let events = events.map(|events| events.into_iter().filter(concerns).collect::<Vec<_>>());
        self.parts.push(json_part(&["events.json"], events.map(Value::from)));
    }

    async fn cluster_wide(&mut self) {
        for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let file = format!("{kind}.json");
            let path = format!("{ADMISSION}/{kind}");
            self.named(WEBHOOK_CONFIGURATION, &[&file], &path, &[WEBHOOK]).await;
        }
        for kind in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
            let file = format!("{kind}.json");
            self.list(OWN_OBJECT, &[&file], &format!("{ADMISSION}/{kind}"), PART_OF).await;
        }
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.named(DEFINITION, &["customresourcedefinitions.json"], definitions, &DEFINITIONS).await;
        let services = "/apis/apiregistration.k8s.io/v1/apiservices";
        self.named(API_SERVICE, &["apiservices.json"], services, &["v1alpha1.metrics.nvidia.com"]).await;
    }

    /// What is kept of the objects of a collection. The rest is forgotten page by page: the pods of a large cluster need
    /// little memory then.
    async fn parts_of(&self, keep: Keep, collection: &str, selected: ListParams) -> Result<Vec<Value>, Refusal> {
        self.cluster.list_parts(collection, selected, |object| keep.part_of(object)).await
    }

    /// Adds the objects of a collection that have these labels.
    async fn list(&mut self, keep: Keep, path: &[&str], collection: &str, labels: &str) {
        let selected = ListParams {
            label_selector: Some(labels.to_owned()).filter(|labels| !labels.is_empty()),
            ..ListParams::default()
        };
        let list = self.parts_of(keep, collection, selected).await;
        let part = match list {
            Err(Refusal::UnknownKind) => {
                let note = Some("the server doesn't have this kind".to_owned());
                Part { note, ..json_part(path, Ok(json!([]))) }
            }
            list => json_part(path, list.map(Value::from)),
        };
        self.parts.push(part);
    }

    /// Adds those of these objects that there are: each may be read by its name alone.
    async fn named(&mut self, keep: Keep, path: &[&str], collection: &str, names: &[&str]) {
        let mut found = Vec::new();
        for name in names {
            match self.cluster.find_at(&format!("{collection}/{name}")).await {
                Ok(object) => found.extend(object.map(|object| keep.part_of(object))),
                Err(refused) => return self.parts.push(json_part(path, Err(refused))),
            }
        }
        self.parts.push(json_part(path, Ok(found.into())));
    }
}

// === impl Pod ===

impl Pod {
    fn new(pod: &Value) -> Self {
        let list = |path: &str| pod.pointer(path).and_then(Value::as_array).into_iter().flatten();
        let statuses = || list("/status/initContainerStatuses").chain(list("/status/containerStatuses"));
        let restarted = |name: &str| {
            let of = statuses().find(|status| text(status, "/name") == name);
            of.and_then(|status| status["restartCount"].as_u64()).unwrap_or(0) > 0
        };
        let containers = list("/spec/initContainers").chain(list("/spec/containers"));
        let containers = containers.map(|container| text(container, "/name"));
        Self {
            name: text(pod, "/metadata/name").to_owned(),
            program: pod["metadata"]["labels"][PROGRAM].as_str().unwrap_or_default().to_owned(),
            node: text(pod, "/spec/nodeName").to_owned(),
            containers: containers.map(|name| (name.to_owned(), restarted(name))).collect(),
        }
    }
}
