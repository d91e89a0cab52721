//! Pods as an API server would hand them to a kubelet, for whoever has no API server.

use std::collections::BTreeMap;

use divvy_api::ContainerKind;
use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use serde_json::json;
use uuid::Uuid;

/// A pod to be written; what users don't write is filled in as a real cluster does, down to its size of some 4.6 KB.
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    namespace: String,
    annotations: BTreeMap<String, String>,
    containers: Vec<(ContainerKind, v1::Container)>,
    sysctls: Vec<v1::Sysctl>,
}

// === impl Workload ===

impl Workload {
    /// A pod of this name in namespace `default`, without containers.
    pub fn new(name: impl Into<String>) -> Self {
        let (annotations, containers, sysctls) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { name: name.into(), namespace: "default".to_owned(), annotations, containers, sysctls }
    }

    /// Puts it into another namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Sets a kernel parameter; the kubelet rejects the pod if it doesn't allow that one.
    #[must_use]
    pub fn sysctl(mut self, name: &str, value: &str) -> Self {
        self.sysctls.push(v1::Sysctl { name: name.to_owned(), value: value.to_owned() });
        self
    }

    /// Adds an app container.
    #[must_use]
    pub fn app(self, name: &str, limits: &[(&str, &str)]) -> Self {
        self.container(ContainerKind::App, name, limits)
    }

    /// Adds an ordinary init container.
    #[must_use]
    pub fn init(self, name: &str, limits: &[(&str, &str)]) -> Self {
        self.container(ContainerKind::Init, name, limits)
    }

    /// Adds a sidecar.
    #[must_use]
    pub fn sidecar(self, name: &str, limits: &[(&str, &str)]) -> Self {
        self.container(ContainerKind::Sidecar, name, limits)
    }

    /// The object, with a UID of its own.
    pub fn pod(self) -> v1::Pod {
        let Self { name, namespace, annotations, containers, sysctls } = self;
        let (apps, init): (Vec<_>, Vec<_>) = containers.into_iter().partition(|(kind, _)| *kind == ContainerKind::App);
        let init: Vec<_> = init.into_iter().map(|(_, container)| container).collect();
        let spec = v1::PodSpec {
            containers: apps.into_iter().map(|(_, container)| container).collect(),
            init_containers: (!init.is_empty()).then_some(init),
            node_name: Some("node".to_owned()),
            priority: Some(0),
            restart_policy: Some("Always".to_owned()),
            security_context: (!sysctls.is_empty())
                .then(|| v1::PodSecurityContext { sysctls: Some(sysctls), ..v1::PodSecurityContext::default() }),
            scheduler_name: Some("default-scheduler".to_owned()),
            service_account_name: Some("default".to_owned()),
            termination_grace_period_seconds: Some(30),
            tolerations: Some(
                ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(toleration).into(),
            ),
            volumes: Some(vec![token_volume()]),
            ..v1::PodSpec::default()
        };
        v1::Pod { metadata: metadata(name, namespace, annotations), spec: Some(spec), status: None }
    }

    fn container(mut self, kind: ContainerKind, name: &str, limits: &[(&str, &str)]) -> Self {
        let limits = limits.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
        let limits: BTreeMap<_, _> = limits.collect();
        let resources = v1::ResourceRequirements {
            limits: Some(limits.clone()),
            requests: Some(limits),
            ..v1::ResourceRequirements::default()
        };
        let container = v1::Container {
            name: name.to_owned(),
            image: Some("registry.example/work:1".to_owned()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            command: Some(vec!["/bin/work".to_owned()]),
            resources: Some(resources),
            restart_policy: (kind == ContainerKind::Sidecar).then(|| "Always".to_owned()),
            termination_message_path: Some("/dev/termination-log".to_owned()),
            termination_message_policy: Some("File".to_owned()),
            volume_mounts: Some(vec![v1::VolumeMount {
                name: "kube-api-access".to_owned(),
                mount_path: "/var/run/secrets/kubernetes.io/serviceaccount".to_owned(),
                read_only: Some(true),
                ..v1::VolumeMount::default()
            }]),
            ..v1::Container::default()
        };
        self.containers.push((kind, container));
        self
    }
}

fn metadata(name: String, namespace: String, annotations: BTreeMap<String, String>) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: name.clone(),
        uid: Uuid::new_v4().to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ObjectMeta {
        uid: Some(Uuid::new_v4().to_string()),
        generate_name: Some(format!("{name}-")),
        labels: Some(BTreeMap::from([("app".to_owned(), name.clone())])),
        name: Some(name),
        namespace: Some(namespace),
        annotations: (!annotations.is_empty()).then_some(annotations),
        creation_timestamp: Some(Time(Timestamp::now())),
        resource_version: Some("1".to_owned()),
        owner_references: Some(vec![owner]),
        managed_fields: Some(vec![managed("kube-controller-manager", None), managed("kubelet", Some("status"))]),
        ..ObjectMeta::default()
    }
}

fn managed(manager: &str, subresource: Option<&str>) -> ManagedFieldsEntry {
    let condition = || json!({ ".": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}, "f:reason": {} });
    let container = || json!({ ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {} });
    let fields = json!({
        "f:metadata": { "f:generateName": {}, "f:labels": { ".": {}, "f:app": {} }, "f:ownerReferences": { ".": {} } },
        "f:spec": { "f:containers": { "k:{\"name\":\"main\"}": container() }, "f:schedulerName": {}, "f:volumes": {} },
        "f:status": { "f:conditions": {
            "k:{\"type\":\"ContainersReady\"}": condition(),
            "k:{\"type\":\"Initialized\"}": condition(),
            "k:{\"type\":\"Ready\"}": condition(),
        } },
    });
    ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some("Update".to_owned()),
        api_version: Some("v1".to_owned()),
        time: Some(Time(Timestamp::now())),
        fields_type: Some("FieldsV1".to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        subresource: subresource.map(str::to_owned),
    }
}

fn toleration(key: &str) -> v1::Toleration {
    v1::Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        toleration_seconds: Some(300),
        ..v1::Toleration::default()
    }
}

fn token_volume() -> v1::Volume {
    let token = v1::ServiceAccountTokenProjection {
        expiration_seconds: Some(3607),
        path: "token".to_owned(),
        ..v1::ServiceAccountTokenProjection::default()
    };
    let source = v1::VolumeProjection { service_account_token: Some(token), ..v1::VolumeProjection::default() };
    let projected = v1::ProjectedVolumeSource { default_mode: Some(0o644), sources: Some(vec![source]) };
    v1::Volume { name: "kube-api-access".to_owned(), projected: Some(projected), ..v1::Volume::default() }
}
