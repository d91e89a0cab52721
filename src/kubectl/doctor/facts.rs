//! Objects that the checks need, read once. What the user may not read is kept as the refusal.

use std::collections::BTreeSet;
use std::ops::Add as _;

use divvy_api::ResourceNames;
use divvy_api::config::{ClusterConfig, Scheduling};
use divvy_api::gpunode::GpuNode;
use divvy_dialects::CRITICAL;
use divvy_index::pod::PodView;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::core::Selector;
use kube::{Api, CustomResourceExt as _, ResourceExt as _};
use serde::Deserialize;
use serde_json::Value;

use super::systems::{SYSTEMS, System};
use crate::cluster::{Cluster, Refusal};
use crate::config;
use crate::inspect::NodeView;
use crate::limits::Limit;

/// What was read, or why it couldn't be.
pub(super) type Fact<T> = Result<T, Refusal>;

/// Objects of the cluster that concern Divvy.
pub(super) struct Facts {
    pub(super) now: Timestamp,
    /// Namespace that Divvy is installed in.
    pub(super) namespace: String,
    pub(super) definition: Fact<Option<CustomResourceDefinition>>,
    pub(super) home: Fact<Option<Namespace>>,
    /// What the ConfigMap that all parts share says, or what is wrong with it.
    pub(super) config: Fact<Result<ClusterConfig, String>>,
    pub(super) daemons: Fact<Option<DaemonSet>>,
    pub(super) nodes: Fact<Vec<NodeView>>,
    pub(super) gpu_nodes: Fact<Vec<DynamicObject>>,
    pub(super) policies: Fact<Vec<ValidatingAdmissionPolicy>>,
    pub(super) bindings: Fact<Vec<ValidatingAdmissionPolicyBinding>>,
    pub(super) webhook: WebhookFacts,
    pub(super) agents: Fact<Vec<Agent>>,
    /// Objects of other systems that belong to no namespace.
    pub(super) objects: Fact<Vec<Object>>,
    /// Namespaces with the label [`HIDES_GPUS`], whatever its value.
    pub(super) hiding: Fact<Vec<Namespace>>,
    /// Those of them that have pods which `hide.divvy.dev` leaves alone.
    pub(super) needed_first: Fact<Vec<String>>,
    /// `ResourceQuota`s and `LimitRange`s.
    pub(super) limits: Fact<Vec<Limit>>,
    /// Pods that haven't started.
    pub(super) pending: Fact<Vec<PodView>>,
    /// Pods that run; read only if the scheduler should call the extender, and nothing else shows that it does.
    pub(super) running: Fact<Vec<PodView>>,
}

/// The webhook's objects.
pub(super) struct WebhookFacts {
    pub(super) deployment: Fact<Option<Deployment>>,
    /// Service to which the API server sends admission reviews.
    pub(super) service: ServiceFacts,
    /// Service to which the scheduler sends the extender's calls. It has no selector: the leader writes its EndpointSlice.
    pub(super) extender: ServiceFacts,
    pub(super) mutating: Fact<Option<Configuration>>,
    pub(super) validating: Fact<Option<Configuration>>,
    /// Configuration of the replicas.
    pub(super) config: Fact<Option<ConfigMap>>,
    pub(super) secret: Fact<Option<Secret>>,
    pub(super) lease: Fact<Option<Lease>>,
    pub(super) replicas: Fact<Vec<Replica>>,
}

/// A DaemonSet in any namespace whose pods allocate GPUs: divvy-node, or another system's.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) namespace: String,
    pub(super) name: String,
    /// How many nodes should have a pod of it.
    pub(super) wanted: usize,
    /// Nodes that have one.
    pub(super) nodes: BTreeSet<String>,
    /// Whether NVIDIA's GPU operator keeps it, by a ClusterPolicy.
    pub(super) is_operators: bool,
}

/// An object of another system.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Name of the system.
    pub(super) system: &'static str,
    /// Resource and name, as kubectl takes them: `apiservices/v1.example`.
    pub(super) name: String,
    /// Service that the API server calls for it, with its namespace, and whether that exists.
    pub(super) service: Option<(String, bool)>,
    /// Whether requests are refused if the call fails (`failurePolicy: Fail`).
    pub(super) refuses: bool,
    /// Why the API server has no answer for it, of an APIService.
    pub(super) unavailable: Option<String>,
}

/// System of an APIService that leads to divvy-webhook.
pub(super) const AGGREGATED: &str = "Divvy's aggregated API";

/// A Service and its endpoints.
pub(super) struct ServiceFacts {
    pub(super) name: &'static str,
    pub(super) service: Fact<Option<Service>>,
    pub(super) endpoints: Fact<Vec<EndpointSlice>>,
}

/// A webhook configuration of either kind.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Configuration {
    #[serde(default)]
    pub(super) webhooks: Vec<Webhook>,
}

/// A webhook of a configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Webhook {
    pub(super) name: String,
    #[serde(default)]
    pub(super) client_config: ClientConfig,
    #[serde(default)]
    pub(super) failure_policy: String,
    #[serde(default)]
    pub(super) match_conditions: Vec<MatchCondition>,
}

/// CEL that the API server evaluates before it calls.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct MatchCondition {
    pub(super) name: String,
    pub(super) expression: String,
}

/// A pod, as far as it says whether `hide.divvy.dev` leaves it alone.
#[derive(Clone, Debug, Deserialize)]
struct Placed {
    spec: PlacedSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PlacedSpec {
    host_network: bool,
    priority_class_name: String,
}

/// Certificate authorities that the API server trusts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientConfig {
    pub(super) ca_bundle: Option<ByteString>,
}

/// A pod of the webhook, and its answers.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) pod: String,
    pub(super) readyz: Result<(), String>,
    /// Calls of the scheduler that it counts; `None` if it can't be asked.
    pub(super) calls: Option<f64>,
}

/// Name of the daemon's DaemonSet.
pub(super) const DAEMON: &str = "divvy-node";
/// Name of the webhook's objects.
pub(super) const WEBHOOK: &str = "divvy-webhook";
/// Name of the extender's Service and its EndpointSlice.
pub(super) const EXTENDER: &str = "divvy-extender";
/// Label of a namespace: with `true`, its pods see no GPU unless they request one.
pub(super) const HIDES_GPUS: &str = "divvy.dev/hide-gpus";
/// Port at which a replica serves `/readyz` and `/metrics`.
const METRICS_PORT: u16 = 9403;
const CALLS: &str = "divvy_extender_calls_total";

// === impl Facts ===

impl Facts {
    pub(super) async fn gather(cluster: &Cluster, namespace: String, with_secrets: bool) -> Self {
        let client = || cluster.client();
        let webhook = Box::pin(WebhookFacts::gather(cluster, &namespace, with_secrets)).await; // large: it holds every answer
        let config = config::read(cluster, &namespace).await;
        let has_extender = matches!(&config, Ok(Ok(config)) if config.scheduling == Scheduling::Extender);
        let is_called = webhook.calls().is_some_and(|calls| calls > 0.0);
        let pods = async |phase: &str| {
            let selected = ListParams::default().fields(&format!("status.phase={phase}"));
            cluster.list_at::<PodView>("/api/v1/pods", selected).await
        };
        let hiding = cluster.list(&Api::all(client()), Some(HIDES_GPUS)).await;
        Self {
            now: Timestamp::now(),
            definition: optional(cluster.get(&Api::all(client()), GpuNode::crd_name()).await),
            home: optional(cluster.get(&Api::all(client()), &namespace).await),
            config,
            daemons: optional(cluster.get(&Api::namespaced(client(), &namespace), DAEMON).await),
            nodes: cluster.list(&Api::all(client()), None).await,
            gpu_nodes: cluster.list(&cluster.gpu_nodes(), None).await,
            policies: cluster.list(&Api::all(client()), None).await,
            bindings: cluster.list(&Api::all(client()), None).await,
            agents: agents(cluster).await,
            objects: objects(cluster).await,
            needed_first: needed_first(cluster, hiding.as_deref().unwrap_or_default()).await,
            hiding,
            limits: Limit::list(cluster).await,
            pending: pods("Pending").await,
            running: if has_extender && !is_called { pods("Running").await } else { Ok(Vec::new()) },
            webhook,
            namespace,
        }
    }

    /// Resources that requests are written in; the defaults, where the configuration isn't known.
    pub(super) fn names(&self) -> ResourceNames {
        self.known_config().and_then(|config| config.resource_names().ok()).unwrap_or_default()
    }

    /// Who chooses the nodes; the default, where the configuration isn't known.
    pub(super) fn scheduling(&self) -> Scheduling {
        self.known_config().map(|config| config.scheduling).unwrap_or_default()
    }

    fn known_config(&self) -> Option<&ClusterConfig> {
        self.config.as_ref().ok()?.as_ref().ok()
    }
}

/// Which of these namespaces have pods on the host's network or of the system's priority classes.
async fn needed_first(cluster: &Cluster, namespaces: &[Namespace]) -> Fact<Vec<String>> {
    let mut found = Vec::new();
    for name in namespaces.iter().map(Namespace::name_any) {
        let pods = cluster.list_at::<Placed>(&format!("/api/v1/namespaces/{name}/pods"), ListParams::default()).await?;
        if pods.iter().any(Placed::is_needed_first) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Reads an object that may not exist.
fn optional<T>(read: Fact<T>) -> Fact<Option<T>> {
    match read {
        Ok(object) => Ok(Some(object)),
        Err(Refusal::NotFound(_) | Refusal::UnknownKind) => Ok(None),
        Err(refused) => Err(refused),
    }
}

async fn agents(cluster: &Cluster) -> Fact<Vec<Agent>> {
    let mut agents = Vec::new();
    for daemons in cluster.list::<DaemonSet>(&Api::all(cluster.client()), None).await? {
        let (name, namespace) = (daemons.name_any(), daemons.namespace().unwrap_or_default());
        let is_operators = daemons.owner_references().iter().any(|owner| owner.kind == "ClusterPolicy");
        if name != DAEMON && System::of_daemon_set(&name).is_none() {
            continue;
        }
        let selector = Selector::try_from(daemons.spec.map(|spec| spec.selector).unwrap_or_default());
        let selector = selector.map_err(|error| Refusal::Other {
            reason: "Invalid".to_owned(),
            message: format!("selector of DaemonSet {namespace}/{name}: {error}"),
        })?;
        let selected = ListParams::default().labels_from(&selector);
        let pods = cluster.list_at::<PodView>(&format!("/api/v1/namespaces/{namespace}/pods"), selected).await?;
        let nodes = pods.into_iter().filter(|pod| !pod.ended).filter_map(|pod| pod.node).collect();
        let wanted = daemons.status.map_or(0, |status| status.desired_number_scheduled);
        agents.push(Agent { namespace, name, wanted: wanted.try_into().unwrap_or(0), nodes, is_operators });
    }
    Ok(agents)
}

async fn objects(cluster: &Cluster) -> Fact<Vec<Object>> {
    let mut objects = Vec::new();
    for (system, path) in SYSTEMS.iter().flat_map(|system| system.objects.iter().map(|path| (system.name, *path))) {
        let Some(found) = optional(cluster.read::<Value>(path).await)? else { continue };
        let of_webhook = &found["webhooks"][0];
        let service = [&found["spec"]["service"], &of_webhook["clientConfig"]["service"]];
        let service = service.into_iter().find_map(|it| Some((it["namespace"].as_str()?, it["name"].as_str()?)));
        let service = match service {
            Some((namespace, name)) => {
                let found =
                    optional(cluster.get(&Api::<Service>::namespaced(cluster.client(), namespace), name).await)?;
                Some((format!("{namespace}/{name}"), found.is_some()))
            }
            None => None,
        };
        let name = path.splitn(5, '/').last().unwrap_or(path).to_owned();
        let unavailable = unavailable(&found);
        let is_ours = found["spec"]["service"]["name"] == "divvy-webhook";
        if is_ours && unavailable.is_none() {
            continue;
        }
        let system = if is_ours { AGGREGATED } else { system };
        let refuses = of_webhook["failurePolicy"] == "Fail";
        objects.push(Object { system, name, service, refuses, unavailable });
    }
    Ok(objects)
}

/// Why an APIService isn't available, as its condition says.
fn unavailable(object: &Value) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array()?;
    let available = conditions.iter().find(|condition| condition["type"] == "Available")?;
    let text = |field: &str| available[field].as_str().unwrap_or_default().to_owned();
    (available["status"] != "True").then(|| format!("{}: {}", text("reason"), text("message")))
}

// === impl Placed ===

impl Placed {
    fn is_needed_first(&self) -> bool {
        self.spec.host_network || CRITICAL.contains(&&*self.spec.priority_class_name)
    }
}

// === impl ServiceFacts ===

impl ServiceFacts {
    async fn gather(cluster: &Cluster, namespace: &str, name: &'static str) -> Self {
        let slices = Api::<EndpointSlice>::namespaced(cluster.client(), namespace);
        let of_service = format!("kubernetes.io/service-name={name}");
        Self {
            name,
            service: optional(cluster.get(&Api::namespaced(cluster.client(), namespace), name).await),
            endpoints: cluster.list(&slices, Some(&of_service)).await,
        }
    }

    /// Endpoints that take connections.
    pub(super) fn ready(&self) -> Result<usize, &Refusal> {
        let endpoints = self.endpoints.as_ref()?.iter().flat_map(|slice| &slice.endpoints);
        let is_ready =
            |endpoint: &&Endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
        Ok(endpoints.filter(is_ready).count())
    }
}

// === impl WebhookFacts ===

impl WebhookFacts {
    async fn gather(cluster: &Cluster, namespace: &str, with_secrets: bool) -> Self {
        let client = || cluster.client();
        let configuration = async |kind: &str| {
            optional(cluster.read(&format!("/apis/admissionregistration.k8s.io/v1/{kind}/{WEBHOOK}")).await)
        };
        Self {
            deployment: optional(cluster.get(&Api::namespaced(client(), namespace), WEBHOOK).await),
            service: ServiceFacts::gather(cluster, namespace, WEBHOOK).await,
            extender: ServiceFacts::gather(cluster, namespace, EXTENDER).await,
            mutating: configuration("mutatingwebhookconfigurations").await,
            validating: configuration("validatingwebhookconfigurations").await,
            config: optional(cluster.get(&Api::namespaced(client(), namespace), WEBHOOK).await),
            secret: if with_secrets { serving_secret(cluster, namespace).await } else { Ok(None) },
            lease: optional(cluster.get(&Api::namespaced(client(), namespace), WEBHOOK).await),
            replicas: replicas(cluster, namespace).await,
        }
    }

    /// Whether any object of the webhook exists.
    pub(super) fn is_installed(&self) -> bool {
        matches!(self.deployment, Ok(Some(_)))
            || matches!(self.service.service, Ok(Some(_)))
            || matches!(self.mutating, Ok(Some(_)))
            || matches!(self.validating, Ok(Some(_)))
    }

    /// Calls of the scheduler that the replicas count; `None` if none of them can be asked.
    pub(super) fn calls(&self) -> Option<f64> {
        let calls = self.replicas.as_ref().ok()?.iter().filter_map(|replica| replica.calls);
        calls.reduce(f64::add)
    }
}

/// The Secret with the serving certificate: cert-manager's, if the chart has been told to use it, else the webhook's own.
async fn serving_secret(cluster: &Cluster, namespace: &str) -> Fact<Option<Secret>> {
    let get = async |name| optional(cluster.get(&Api::namespaced(cluster.client(), namespace), name).await);
    match get("divvy-webhook-certificate").await {
        Ok(None) => get("divvy-webhook-tls").await,
        found => found,
    }
}

async fn replicas(cluster: &Cluster, namespace: &str) -> Fact<Vec<Replica>> {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let selected = ListParams::default().labels(&format!("app.kubernetes.io/name={WEBHOOK}"));
    let mut replicas = Vec::new();
    for pod in cluster.list_at::<PodView>(&pods, selected).await?.into_iter().filter(|pod| !pod.ended) {
        let proxy = format!("{pods}/http:{}:{METRICS_PORT}/proxy", pod.name);
        let readyz = match cluster.text(&format!("{proxy}/readyz")).await {
            Ok(_) => Ok(()),
            Err(forbidden @ Refusal::Forbidden(_)) => return Err(forbidden),
            Err(Refusal::Other { message, .. }) => Err(message),
            Err(Refusal::UnknownKind) => Err(format!("it serves no /readyz on port {METRICS_PORT}")),
            Err(refused) => Err(refused.to_string()),
        };
        let calls = cluster.text(&format!("{proxy}/metrics")).await.ok().map(|metrics| sum(&metrics, CALLS));
        replicas.push(Replica { pod: pod.name, readyz, calls });
    }
    Ok(replicas)
}

/// The sum over all labels of a counter in Prometheus' text format.
pub(super) fn sum(metrics: &str, counter: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(counter).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    };
    metrics.lines().filter_map(value).sum()
}
