//! An API server as the tests see it: a client, and a namespace of the test's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fake_apiserver::ApiServer;
use http_body_util::BodyExt as _;
use hyper::Request;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "of-the-admin";

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    client: Client,
    /// `None`: the server is a real one.
    stand_in: Option<Arc<ApiServer>>,
    pub(crate) namespace: String,
}

/// Status and body of an answer.
pub(crate) type Answer = (u16, Value);

/// Status, reason and message of a refusal.
pub(crate) fn refusal((code, body): &Answer) -> (u16, &str, &str) {
    (*code, body["reason"].as_str().unwrap_or_default(), body["message"].as_str().unwrap_or_default())
}

/// Asserts that a replacement of this object was refused for want of a `resourceVersion`. Kubernetes 1.33 shows the value as 0x0.
pub(crate) fn assert_lacks_version(answer: &Answer, object: &str) {
    let (code, reason, message) = refusal(answer);
    let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!((code, reason), (422, "Invalid"), "{message}");
    assert_eq!(message.replace(": 0x0:", ": 0:"), format!("{object} is invalid: {why}"));
}

pub(crate) fn config_map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

pub(crate) fn pod(name: &str) -> Value {
    let container = json!({ "name": "main", "image": "app:1", "resources": { "limits": { "nvidia.com/gpu": "1" } } });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "annotations": { "own": "1" } },
        "spec": { "containers": [container], "terminationGracePeriodSeconds": 7 },
    })
}

// === impl Bench ===

impl Bench {
    pub(crate) async fn new(test: &str, kubeconfig: &str, stand_in: Option<&Arc<ApiServer>>) -> Self {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a configuration")).expect("a client");
        let bench = Self { client, stand_in: stand_in.cloned(), namespace: test.replace('_', "-") };
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": bench.namespace } });
        bench.create("/api/v1/namespaces", &namespace).await;
        // Pods need one, and no controller makes it here.
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
        bench.create(&bench.core("serviceaccounts"), &account).await;
        bench
    }

    /// The path of a resource of the core group in the test's namespace.
    pub(crate) fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// The path of a resource of a named group in the test's namespace.
    pub(crate) fn group(&self, group_version: &str, resource: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{resource}", self.namespace)
    }

    async fn text(&self, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let response = self.client.send(request.body(body).unwrap()).await.expect("an answer");
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
        let (code, text) = self.text(method, path, content_type, body).await;
        (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (code, object) = self.ask("GET", path, "", &Value::Null).await;
        assert_eq!(code, 200, "{path}: {object}");
        object
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.ask("POST", path, "application/json", object).await
    }

    /// Creates an object and returns it.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        let (code, created) = self.post(path, object).await;
        assert_eq!(code, 201, "{path}: {created}");
        created
    }

    pub(crate) async fn put(&self, path: &str, object: &Value) -> Answer {
        self.ask("PUT", path, "application/json", object).await
    }

    /// Deletes with these options.
    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Answer {
        self.ask("DELETE", path, "application/json", options).await
    }

    /// Patches in the format of this name, such as `merge-patch+json`.
    pub(crate) async fn patch(&self, format: &str, path: &str, body: &Value) -> Answer {
        self.ask("PATCH", path, &format!("application/{format}"), body).await
    }

    /// Events of a watch that lasts for some seconds.
    pub(crate) async fn watched(&self, path: &str, query: &str, seconds: u32) -> Vec<Value> {
        let path = format!("{path}?watch=1&timeoutSeconds={seconds}&{query}");
        let (code, text) = self.text("GET", &path, "", &Value::Null).await;
        assert_eq!(code, 200, "{path}: {text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Makes all versions so far too old, where a server keeps them for long.
    pub(crate) fn expire(&self) {
        if let Some(stand_in) = &self.stand_in {
            stand_in.expire();
        }
    }

    /// Looks until something is found.
    pub(crate) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self).await {
                return found;
            }
            assert!(Instant::now() < deadline, "no {what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
