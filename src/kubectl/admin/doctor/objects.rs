//! Objects that the checks look at, each read once. What the user may not read is kept as the refusal.

mod hidden;
mod others;
mod webhook;

use std::fmt::Debug;

use divvy_api::ResourceNames;
use divvy_api::config::{ClusterConfig, Scheduling};
use divvy_api::gpunode::{GpuNode, GpuNodeReport};
use divvy_api::installation::{CERT_MANAGER_SECRET, DAEMON, EXTENDER, SECRET, WEBHOOK};
use divvy_api::names::label::HIDE_GPUS;
use divvy_index::pod::PodView;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::ListParams;
use kube::{Api, CustomResourceExt as _, Resource};
use serde::de::DeserializeOwned;

pub(super) use self::others::{AGGREGATED, Agent, ForeignObject};
#[cfg(test)]
pub(super) use self::webhook::sum;
pub(super) use self::webhook::{Configuration, Replica, Webhook, calls};
use crate::admin::limits::Limit;
use crate::cluster::{Cluster, Refusal};
use crate::config;
use crate::view::inspect::NodeView;

/// What was read, or why it couldn't be.
pub(super) type Fact<T> = Result<T, Refusal>;

/// Reads objects for the table below.
struct Reader<'a> {
    cluster: &'a Cluster,
    /// Divvy's.
    namespace: &'a str,
    /// Whether the webhook's Secret is looked at.
    with_secrets: bool,
}

/// The table of objects: the name of each, its type, and the call of [`Reader`] that reads it, which may take those before it.
macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $read:ident($($argument:expr),*);)*) => {
        /// Objects of the cluster that concern Divvy.
        pub(super) struct Objects {
            pub(super) now: Timestamp,
            /// Namespace that Divvy is installed in.
            pub(super) namespace: String,
            $($(#[$doc])* pub(super) $name: Fact<$kind>,)*
        }

        impl Objects {
            /// Reads all of them; the webhook's Secret only `with_secrets`.
            pub(super) async fn read(cluster: &Cluster, namespace: String, with_secrets: bool) -> Self {
                let reader = Reader { cluster, namespace: &namespace, with_secrets };
                $(let $name: Fact<$kind> = reader.$read($($argument),*).await;)*
                Self { now: Timestamp::now(), $($name,)* namespace }
            }
        }
    };
}

objects! {
    definition: Option<CustomResourceDefinition> = named(GpuNode::crd_name());
    home: Option<Namespace> = home();
    /// What the ConfigMap that all parts share says, or what is wrong with it.
    config: Result<ClusterConfig, String> = config();
    daemons: Option<DaemonSet> = own(DAEMON);
    nodes: Vec<NodeView> = all();
    gpu_nodes: Vec<GpuNodeReport> = gpu_nodes();
    policies: Vec<ValidatingAdmissionPolicy> = all();
    bindings: Vec<ValidatingAdmissionPolicyBinding> = all();
    deployment: Option<Deployment> = own(WEBHOOK);
    /// Service to which the API server sends admission reviews.
    service: Option<Service> = own(WEBHOOK);
    endpoints: Vec<EndpointSlice> = endpoints(WEBHOOK);
    /// Service to which the scheduler sends the extender's calls. It has no selector: the leader writes its EndpointSlice.
    extender: Option<Service> = own(EXTENDER);
    extender_endpoints: Vec<EndpointSlice> = endpoints(EXTENDER);
    mutating: Option<Configuration> = webhooks("mutatingwebhookconfigurations");
    validating: Option<Configuration> = webhooks("validatingwebhookconfigurations");
    /// Configuration of the replicas.
    webhook_config: Option<ConfigMap> = own(WEBHOOK);
    /// The Secret with the serving certificate.
    secret: Option<Secret> = secret();
    lease: Option<Lease> = own(WEBHOOK);
    replicas: Vec<Replica> = replicas();
    agents: Vec<Agent> = agents();
    /// Objects of other systems that belong to no namespace.
    foreign: Vec<ForeignObject> = foreign_objects();
    /// Namespaces with the label [`HIDE_GPUS`], whatever its value.
    hiding: Vec<Namespace> = labelled(HIDE_GPUS);
    /// Those of them that have pods which `hide.divvy.dev` leaves alone.
    needed_first: Vec<String> = needed_first(&hiding);
    /// `ResourceQuota`s and `LimitRange`s.
    limits: Vec<Limit> = limits();
    /// Pods that haven't started.
    pending: Vec<PodView> = pods("Pending");
    /// Pods that run; read only if the scheduler should call the extender, and nothing else shows that it does.
    running: Vec<PodView> = running(&config, &replicas);
}

// === impl Objects ===

impl Objects {
    /// Resources that requests are written in; the defaults, where the configuration isn't known.
    pub(super) fn names(&self) -> ResourceNames {
        self.known_config().and_then(|config| config.resource_names().ok()).unwrap_or_default()
    }

    /// Who chooses the nodes; the default, where the configuration isn't known.
    pub(super) fn scheduling(&self) -> Scheduling {
        self.known_config().map(|config| config.scheduling).unwrap_or_default()
    }

    /// Whether any object of the webhook exists.
    pub(super) fn has_webhook(&self) -> bool {
        matches!(self.deployment, Ok(Some(_)))
            || matches!(self.service, Ok(Some(_)))
            || matches!(self.mutating, Ok(Some(_)))
            || matches!(self.validating, Ok(Some(_)))
    }

    fn known_config(&self) -> Option<&ClusterConfig> {
        self.config.as_ref().ok()?.as_ref().ok()
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// An object of Divvy's namespace, if it exists.
    async fn own<K>(&self, name: &str) -> Fact<Option<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        self.cluster.find(&Api::namespaced(self.cluster.client(), self.namespace), name).await
    }

    /// An object without namespace, if it exists.
    async fn named<K>(&self, name: &str) -> Fact<Option<K>>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        self.cluster.find(&Api::all(self.cluster.client()), name).await
    }

    /// All objects of a kind.
    async fn all<K>(&self) -> Fact<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
    {
        self.cluster.list(&Api::all(self.cluster.client()), None).await
    }

    /// All objects of a kind that have this label.
    async fn labelled<K>(&self, label: &str) -> Fact<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
    {
        self.cluster.list(&Api::all(self.cluster.client()), Some(label)).await
    }

    async fn home(&self) -> Fact<Option<Namespace>> {
        self.named(self.namespace).await
    }

    async fn config(&self) -> Fact<Result<ClusterConfig, String>> {
        config::read(self.cluster, self.namespace).await
    }

    async fn gpu_nodes(&self) -> Fact<Vec<GpuNodeReport>> {
        self.cluster.list(&self.cluster.gpu_nodes(), None).await
    }

    /// EndpointSlices of a Service of Divvy.
    async fn endpoints(&self, service: &str) -> Fact<Vec<EndpointSlice>> {
        let slices = Api::namespaced(self.cluster.client(), self.namespace);
        self.cluster.list(&slices, Some(&format!("kubernetes.io/service-name={service}"))).await
    }

    /// cert-manager's, if the chart has been told to use it, else the webhook's own.
    async fn secret(&self) -> Fact<Option<Secret>> {
        if !self.with_secrets {
            return Ok(None);
        }
        match self.own(CERT_MANAGER_SECRET).await {
            Ok(None) => self.own(SECRET).await,
            found => found,
        }
    }

    async fn limits(&self) -> Fact<Vec<Limit>> {
        Limit::list(self.cluster).await
    }

    async fn pods(&self, phase: &str) -> Fact<Vec<PodView>> {
        let selected = ListParams::default().fields(&format!("status.phase={phase}"));
        self.cluster.pods(None, selected).await
    }

    async fn running(
        &self,
        config: &Fact<Result<ClusterConfig, String>>,
        replicas: &Fact<Vec<Replica>>,
    ) -> Fact<Vec<PodView>> {
        let has_extender = matches!(config, Ok(Ok(config)) if config.scheduling == Scheduling::Extender);
        let is_called = calls(replicas).is_some_and(|calls| calls > 0.0);
        if has_extender && !is_called { self.pods("Running").await } else { Ok(Vec::new()) }
    }
}
