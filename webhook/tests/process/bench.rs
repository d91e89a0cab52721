//! A cluster: its API server, nodes and pods, and replicas of the webhook.

use std::net::{IpAddr, SocketAddr};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use divvy_api::annotation::{self, Planned};
use divvy_api::gpunode::GpuNode;
use divvy_api::names::annotation::PLANNED;
use divvy_index::fixture;
use divvy_index::pod_group::PodGroupApi;
use fake_apiserver::endpoints::{first_endpoint, pod_ip};
use fake_apiserver::{ApiServer, User, View};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, CustomResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::https::{Answer, Https};
use crate::replica::Replica;
use crate::{until, within};

const RIGHTS: &str = include_str!("../../../deploy/manifests/webhook-rbac.yaml");
const SERVICES: &str = include_str!("../../../deploy/manifests/webhook-service.yaml");
const CONFIGURATIONS: &str = include_str!("../../../deploy/manifests/webhook-configurations.yaml");
const ACCOUNT: &str = "system:serviceaccount:divvy-system:divvy-webhook";
const TOKENS: [&str; 2] = ["of-the-webhook", "of-the-admin"];
const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) struct Bench {
    pub(crate) server: ApiServer,
    pub(crate) home: TempDir,
    admin: Client,
}

/// What the API server makes of something that is created.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) code: u16,
    pub(crate) object: Value,
    /// The texts of the `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

// === impl Bench ===

impl Bench {
    /// Defines the kind of this API, as the program that brings it does.
    pub(crate) fn define_pod_groups(&self, api: PodGroupApi) {
        let group = api.group();
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version =
            json!({ "name": api.version(), "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
        let names =
            json!({ "kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList" });
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("podgroups.{group}") },
            "spec": { "group": group, "scope": "Namespaced", "names": names, "versions": [version] },
        });
        self.server.create(&definition).unwrap();
    }

    /// A cluster without nodes, in which everybody may do what roles allow.
    pub(crate) async fn new() -> Self {
        let server = ApiServer::start(&[(TOKENS[0], ACCOUNT)]).await.unwrap();
        server.allow(TOKENS[1], User::from("admin").within("system:masters"));
        server.create(&json!(GpuNode::crd())).unwrap();
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "divvy-system" } });
        server.create(&namespace).unwrap();
        for object in installed() {
            server.create(&object).unwrap();
        }
        server.guard();
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("kubeconfig"), server.kubeconfig(TOKENS[0])).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(TOKENS[1])).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Self { server, home, admin: Client::try_from(config).unwrap() }
    }

    /// A cluster with these nodes, of so many cards of 40 GiB each.
    pub(crate) async fn with_nodes(nodes: &[(&str, usize)]) -> Self {
        let bench = Self::new().await;
        for (name, cards) in nodes {
            bench.node(name, *cards);
        }
        bench
    }

    pub(crate) fn node(&self, name: &str, cards: usize) {
        self.server.create(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })).unwrap();
        let node = json!(fixture::node(name, cards));
        self.server.create(&node).unwrap();
        self.report(name, |status| *status = node["status"].clone());
    }

    /// Changes what a node reports.
    pub(crate) fn report(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.server.edit("GpuNode", "", name, |node| change(&mut node["status"])).unwrap();
    }

    /// The object of the manifests with this kind.
    pub(crate) fn installed(kind: &str) -> Value {
        installed().find(|object| object["kind"] == kind).unwrap()
    }

    /// A replica that was just started.
    pub(crate) fn start(&self, name: &'static str, keys: &Value) -> Replica {
        Replica::start(self.home.path(), name, keys)
    }

    /// A replica that is ready, leads, and is called by the API server.
    pub(crate) async fn alone(&self, keys: &Value) -> Replica {
        let replica = self.start("divvy-webhook-a", keys);
        replica.ready().await;
        replica.leads().await;
        self.called(&[&replica]).await;
        replica
    }

    /// Two replicas that are ready and called by the API server. The first one leads.
    pub(crate) async fn pair(&self, keys: &Value) -> [Replica; 2] {
        let leader = self.start("divvy-webhook-a", keys);
        leader.leads().await;
        let follower = self.start("divvy-webhook-b", keys);
        leader.ready().await;
        follower.ready().await;
        follower.says("new leader elected: divvy-webhook-a").await;
        self.called(&[&leader, &follower]).await;
        [leader, follower]
    }

    /// Has the API server call these, and waits until it believes them.
    pub(crate) async fn called(&self, replicas: &[&Replica]) {
        let addresses: Vec<_> = replicas.iter().map(|replica| replica.address).collect();
        self.server.resolve("divvy-system", "divvy-webhook", &addresses);
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let filled = self.server.wait_for(|view| {
                let configuration = view.get(kind, "", "divvy-webhook")?;
                let own = configuration["webhooks"].as_array()?;
                own.iter().all(|webhook| webhook["clientConfig"]["caBundle"].is_string()).then_some(())
            });
            within(&format!("caBundle of {kind}"), filled).await;
        }
    }

    /// A file of the webhook's Secret, PEM.
    pub(crate) fn issued(&self, name: &str) -> String {
        let secret = self.server.get("Secret", "divvy-system", "divvy-webhook-tls").unwrap();
        String::from_utf8(BASE64_STANDARD.decode(secret["data"][name].as_str().unwrap()).unwrap()).unwrap()
    }

    /// With the scheduler's certificate, which only the extender asks for.
    pub(crate) fn https(&self) -> Https {
        Https::new(&self.issued("ca.crt"), Some((&self.issued("client.crt"), &self.issued("client.key"))))
    }

    /// Creates something as a user does.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Created {
        let request = Request::post(path).header("content-type", "application/json");
        let answer = self.admin.send(request.body(Body::from(object.to_string().into_bytes())).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let told = answer.headers().get_all("warning").iter();
        let told = told.map(|text| String::from_utf8(text.as_bytes().to_vec()).unwrap()).collect();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        Created { code, object: serde_json::from_slice(&body).unwrap(), warnings: told }
    }

    /// Asks as somebody who may do everything.
    pub(crate) async fn explain(&self, replica: &Replica, pod: &Value) -> Value {
        let token = format!("Bearer {}", TOKENS[1]);
        let headers = [("authorization", &*token)];
        self.https().ask(Method::POST, (replica.queries, "/explain"), &headers, pod.to_string()).await.json()
    }

    /// Creates a pod that must be admitted, and returns it as it is stored.
    pub(crate) async fn pod(&self, pod: &Value) -> Value {
        let made = self.create(PODS, pod).await;
        assert_eq!(made.code, 201, "{}", made.object);
        made.object
    }

    /// What the pod was told, once it is bound.
    pub(crate) fn planned(&self, name: &str) -> Option<Planned> {
        let pod = self.server.get("Pod", "default", name)?;
        pod["spec"]["nodeName"].as_str()?;
        Some(annotation::decode(pod["metadata"]["annotations"][PLANNED].as_str().unwrap()).unwrap())
    }

    /// Requests so far of this verb that end so.
    pub(crate) fn asked(&self, verb: &str, path: &str) -> usize {
        let requests = self.server.requests();
        requests.iter().filter(|request| request.verb == verb && request.path.ends_with(path)).count()
    }

    /// Calls until the answer isn't 503: the scheduler tries again, too.
    pub(crate) async fn patiently(&self, https: &Https, to: &Replica, path: &str, body: &Value) -> Answer {
        let call = async || {
            let answer = https.post(to.extender, path, body.to_string()).await;
            (answer.code.as_u16() != 503).then_some(answer)
        };
        until(&format!("an answer of {path}"), call).await
    }
}

/// Where kube-proxy sends connections to the Service of the extender.
pub(crate) fn route(view: &View<'_>) -> Option<SocketAddr> {
    let slice = view.get("EndpointSlice", "divvy-system", "divvy-extender")?;
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "divvy-extender");
    let route = first_endpoint(&slice)?;
    let IpAddr::V4(replica) = route.ip() else { panic!("{route}") };
    assert_eq!(slice["endpoints"][0]["addresses"][0], pod_ip(replica).to_string(), "not where it listens");
    Some(route)
}

/// The objects of the manifests.
fn installed() -> impl Iterator<Item = Value> {
    [RIGHTS, SERVICES, CONFIGURATIONS].into_iter().flat_map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap())
}

/// A pod with one container that asks for a card with so many GiB and cores; all of it if both are 0.
pub(crate) fn pod(name: &str, gib: u64, cores: u32) -> Value {
    let mut limits = json!({ "nvidia.com/gpu": "1" });
    if gib > 0 {
        limits["nvidia.com/gpumem"] = format!("{gib}Gi").into();
    }
    if cores > 0 {
        limits["nvidia.com/gpucores"] = cores.to_string().into();
    }
    let container = json!({ "name": "main", "image": "x", "resources": { "limits": limits } });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [container] },
    })
}

/// The arguments of `filter` and `prioritize`.
pub(crate) fn about(pod: &Value, nodes: &[&str]) -> Value {
    json!({ "Pod": pod, "Nodes": null, "NodeNames": nodes })
}

/// The arguments of `bind`.
pub(crate) fn to(pod: &Value, node: &str) -> Value {
    let metadata = &pod["metadata"];
    json!({
        "PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"], "Node": node,
    })
}
