//! The scheduler stand-in, with an extender of the test's own over TLS.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

use std::sync::Arc;
use std::time::Duration;

use divvy_testkit::json_server::JsonServer;
use fake_apiserver::https::Trust;
use fake_apiserver::{ApiServer, View};
use fake_scheduler::extender::Extender;
use fake_scheduler::live::Scheduler;
use serde_json::{Value, json};

mod alone;
mod extended;

/// The error of an extender that has bound the pod all the same.
const LATE: &str = "nobody knows whether it is bound";

/// An API server with some nodes, and a scheduler.
struct Bench {
    server: Arc<ApiServer>,
    extender: Option<JsonServer>,
    _scheduler: Scheduler,
}

impl Bench {
    /// Nodes called `a`, `b` and so on, with four CPUs and eight cards each, and no extender.
    async fn alone(nodes: usize) -> Self {
        let server = cluster(nodes).await;
        let scheduler = Scheduler::start(&server, None, 1).unwrap();
        Self { server, extender: None, _scheduler: scheduler }
    }

    /// As before, with an extender that `answer`s filter and prioritize calls, and binds as it is told to.
    async fn extended(
        nodes: usize,
        change: impl FnOnce(&mut Extender),
        answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
    ) -> Self {
        let server = cluster(nodes).await;
        let binder = Arc::clone(&server);
        let extender = JsonServer::start(&["127.0.0.1"], move |path, body| {
            let answered = answer(path, body);
            if path != "/bind" || !(answered.is_null() || answered["Error"] == LATE) {
                return (200, answered);
            }
            let of = |field: &str| body[field].as_str().unwrap();
            let annotations = json!({ "divvy.dev/planned": "cards" });
            let bound = binder.bind(of("PodNamespace"), of("PodName"), of("Node"), &annotations);
            let error = bound.err().map(|refusal| refusal.to_string());
            (200, if answered.is_null() { json!({ "Error": error.unwrap_or_default() }) } else { answered })
        })
        .await;
        let trust = Trust { authority: extender.authority.clone(), ..Trust::default() };
        let url = format!("https://{}", extender.address);
        let mut config = Extender::new(url, trust, &["nvidia.com/gpu"]);
        change(&mut config);
        let scheduler = Scheduler::start(&server, Some(config), 1).unwrap();
        Self { server, extender: Some(extender), _scheduler: scheduler }
    }

    fn create(&self, pod: &Value) {
        self.server.create(pod).unwrap();
    }

    async fn until<T>(&self, what: &str, look: impl FnMut(&View<'_>) -> Option<T>) -> T {
        let found = tokio::time::timeout(Duration::from_secs(60), self.server.wait_for(look)).await;
        found.unwrap_or_else(|_| panic!("waiting for {what}: {:#?}", self.server.list("Pod")))
    }

    /// The node that the pod is bound to.
    async fn bound(&self, pod: &str) -> String {
        let node = |pod: Value| Some(pod["spec"]["nodeName"].as_str()?.to_owned());
        self.until("a binding", |view| node(view.get("Pod", "default", pod)?)).await
    }

    /// What the pod's condition says of why it has no node.
    async fn refused(&self, pod: &str) -> (String, String) {
        let condition = |pod: Value| {
            let condition = pod["status"]["conditions"].as_array()?.first()?.clone();
            assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("False")));
            let of = |field: &str| condition[field].as_str().map(String::from);
            Some((of("reason")?, of("message")?))
        };
        self.until("a refusal", |view| condition(view.get("Pod", "default", pod)?)).await
    }

    /// So many events about the pod: type, reason and text.
    async fn events(&self, pod: &str, count: usize) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |own: &Value| format!("{} {} {}", text(&own["type"]), text(&own["reason"]), text(&own["message"]));
        let look = |view: &View<'_>| {
            let events = view.list("Event").into_iter().filter(|event| event["involvedObject"]["name"] == pod);
            Some(events.map(|event| line(&event)).collect::<Vec<_>>()).filter(|events| events.len() >= count)
        };
        self.until("events", look).await
    }

    /// Calls of the extender so far: verb and body.
    fn calls(&self) -> Vec<(String, Value)> {
        self.extender.as_ref().unwrap().requests()
    }
}

async fn cluster(nodes: usize) -> Arc<ApiServer> {
    let server = ApiServer::start(&[]).await.unwrap();
    for name in ["a", "b", "c", "d"].iter().take(nodes) {
        let amounts = json!({ "cpu": "4", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "8" });
        let metadata = json!({ "name": name, "labels": { "kubernetes.io/hostname": name } });
        let node =
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": { "allocatable": amounts } });
        server.create(&node).unwrap();
    }
    Arc::new(server)
}

fn pod(name: &str, limits: &Value) -> Value {
    let container = json!({ "name": "main", "image": "app:1", "resources": { "limits": limits } });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [container] },
    })
}
