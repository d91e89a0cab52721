//! Nodes without kubelets, a scheduler, and an extender of the test's own over TLS.

use std::sync::Arc;

use divvy_e2e::contract::RealApiServer;
use divvy_e2e::control_plane::configure_scheduler;
use divvy_testkit::json_server::JsonServer;
use fake_apiserver::ApiServer;
use fake_apiserver::https::Trust;
use fake_scheduler::extender::Extender;
use fake_scheduler::live::Scheduler;
use serde_json::{Value, json};

use crate::server::{Bench, TOKEN};

/// The API server under the scheduler.
pub(crate) enum Servers {
    StandIn(Arc<ApiServer>),
    Real(Box<RealApiServer>),
}

pub(crate) struct Cluster<'s> {
    servers: &'s mut Servers,
    pub(crate) api: Arc<Bench>,
    nodes: Vec<String>,
    extender: Option<JsonServer>,
    scheduler: Option<Scheduler>,
}

/// An answer of the extender; null for a bind call has the pod bound.
type Answer = dyn Fn(&str, &Value) -> Value + Send + Sync;

/// A pod with these limits.
pub(crate) fn pod(name: &str, limits: &Value) -> Value {
    let container = json!({ "name": "main", "image": "app:1", "resources": { "limits": limits } });
    let spec =
        json!({ "containers": [container], "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0 });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
}

/// A filter's answer that keeps these nodes.
pub(crate) fn keeps(names: &[String]) -> Value {
    json!({ "Nodes": null, "NodeNames": names, "FailedNodes": null, "FailedAndUnresolvableNodes": null, "Error": "" })
}

// === impl Cluster ===

impl<'s> Cluster<'s> {
    pub(crate) async fn new(test: &str, servers: &'s mut Servers) -> Self {
        let kubeconfig = match servers {
            Servers::StandIn(server) => server.kubeconfig(TOKEN),
            Servers::Real(server) => server.kubeconfig().unwrap(),
        };
        let api = Arc::new(Bench::new(test, &kubeconfig, None).await);
        Self { servers, api, nodes: Vec::new(), extender: None, scheduler: None }
    }

    /// Makes so many nodes, with four CPUs and eight GPUs each, and starts the scheduler with an extender.
    pub(crate) async fn start(
        &mut self,
        nodes: usize,
        fields: Value,
        answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
    ) {
        for letter in ["a", "b", "c"].iter().take(nodes) {
            let name = format!("{}-{letter}", self.api.namespace);
            self.add_node(&name).await;
            self.nodes.push(name);
        }
        let (api, answer) = (Arc::clone(&self.api), Arc::new(answer) as Arc<Answer>);
        let extender =
            JsonServer::start(&["127.0.0.1"], move |path, body| (200, respond(&api, &*answer, path, body))).await;
        let mut entry = json!({
            "urlPrefix": format!("https://{}", extender.address), "filterVerb": "filter", "prioritizeVerb": "prioritize",
            "bindVerb": "bind", "weight": 1, "enableHTTPS": true, "nodeCacheCapable": true, "httpTimeout": "5s",
            "managedResources": [{ "name": "nvidia.com/gpu", "ignoredByScheduler": false }],
        });
        let Value::Object(fields) = fields else { panic!("fields are an object") };
        entry.as_object_mut().unwrap().extend(fields);
        match &mut *self.servers {
            Servers::StandIn(server) => {
                let mut config: Extender = serde_json::from_value(entry).unwrap();
                config.trust = Trust { authority: extender.authority.clone(), ..Trust::default() };
                self.scheduler = Some(Scheduler::start(server, Some(config), 1).unwrap());
            }
            Servers::Real(server) => {
                let authority = server.files.write("extender.crt", &extender.authority).unwrap();
                entry["tlsConfig"] = json!({ "caFile": authority });
                configure_scheduler(&server.files, Some(entry)).unwrap();
                server.control_plane.scheduler.start().unwrap();
            }
        }
        self.extender = Some(extender);
    }

    /// Makes a node as a kubelet would, and takes the taint off that a new node has.
    async fn add_node(&self, name: &str) {
        let metadata = json!({ "name": name, "labels": { "kubernetes.io/hostname": name } });
        self.api.create("/api/v1/nodes", &json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })).await;
        let amounts = json!({ "cpu": "4", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "8" });
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "Ready" }]);
        let status = json!({ "status": { "capacity": amounts, "allocatable": amounts, "conditions": ready } });
        let path = format!("/api/v1/nodes/{name}");
        assert_eq!(self.api.patch("merge-patch+json", &format!("{path}/status"), &status).await.0, 200);
        assert_eq!(self.api.patch("merge-patch+json", &path, &json!({ "spec": { "taints": null } })).await.0, 200);
    }

    /// The name of the node with this letter.
    pub(crate) fn node(&self, letter: &str) -> String {
        format!("{}-{letter}", self.api.namespace)
    }

    pub(crate) async fn create(&self, name: &str, limits: &Value) -> Value {
        self.api.create(&self.api.core("pods"), &pod(name, limits)).await
    }

    pub(crate) async fn create_gpu_pod(&self, name: &str) -> Value {
        self.create(name, &json!({ "nvidia.com/gpu": "1" })).await
    }

    pub(crate) async fn get(&self, pod: &str) -> Value {
        self.api.get(&self.api.core(&format!("pods/{pod}"))).await
    }

    /// Waits until a pod has a node.
    pub(crate) async fn bound(&self, pod: &str) -> String {
        let what = format!("binding of {pod}");
        self.api.until(&what, async |_| Some(self.get(pod).await["spec"]["nodeName"].as_str()?.to_owned())).await
    }

    /// Waits until a pod's condition says why it has no node: reason and message.
    pub(crate) async fn unscheduled(&self, pod: &str) -> (String, String) {
        let condition = async |_: &Bench| {
            let pod = self.get(pod).await;
            let condition = pod["status"]["conditions"].as_array()?.first()?.clone();
            assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("False")));
            Some((condition["reason"].as_str()?.to_owned(), condition["message"].as_str()?.to_owned()))
        };
        self.api.until("condition", condition).await
    }

    /// Waits for an event about a pod that a test looks for: type, reason and text.
    pub(crate) async fn event(&self, pod: &str, found: impl Fn(&str) -> bool) -> String {
        let look = async |api: &Bench| {
            let events = api.get(&format!("{}?fieldSelector=involvedObject.name%3D{pod}", api.core("events"))).await;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let line =
                |own: &Value| format!("{} {} {}", text(&own["type"]), text(&own["reason"]), text(&own["message"]));
            events["items"].as_array()?.iter().map(line).find(|line| found(line))
        };
        self.api.until("event", look).await
    }

    /// Calls of the extender so far: verb and body.
    pub(crate) fn calls(&self) -> Vec<(String, Value)> {
        self.extender.as_ref().unwrap().requests()
    }

    pub(crate) fn verbs(&self) -> Vec<String> {
        self.calls().into_iter().map(|(path, _)| path).collect()
    }

    /// Ends the scheduler, and takes pods and nodes away.
    pub(crate) async fn end(self) {
        drop(self.scheduler);
        if let Servers::Real(server) = self.servers {
            server.control_plane.scheduler.kill().await.unwrap();
        }
        self.api.delete(&self.api.core("pods"), &json!({ "gracePeriodSeconds": 0 })).await;
        for node in &self.nodes {
            self.api.delete(&format!("/api/v1/nodes/{node}"), &Value::Null).await;
        }
    }
}

/// Answers a call as the test wants it, after the pod was bound where a bind call is to succeed or to seem to fail.
fn respond(api: &Arc<Bench>, answer: &Answer, path: &str, body: &Value) -> Value {
    let answered = answer(path, body);
    if path != "/bind" || !(answered.is_null() || answered["Bound"] == true) {
        return answered;
    }
    let metadata = json!({
        "name": body["PodName"], "uid": body["PodUID"], "annotations": { "divvy.dev/planned": "cards" },
    });
    let target = json!({ "apiVersion": "v1", "kind": "Node", "name": body["Node"] });
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target });
    let path = api.core(&format!("pods/{}/binding", body["PodName"].as_str().unwrap()));
    let posted = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(api.post(&path, &binding)));
    let error = if posted.0 == 201 { "" } else { posted.1["message"].as_str().unwrap_or("refused") };
    if answered.is_null() { json!({ "Error": error }) } else { answered }
}
