//! The API-server stand-in, seen by kube-rs, by raw requests and by kubectl, each over its real socket.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

use std::time::Duration;

use fake_apiserver::{ApiServer, View};
use http_body_util::BodyExt as _;
use hyper::{Request, StatusCode};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

mod access;
mod custom;
mod kinds;
mod kubectl;
mod objects;
mod ownership;
mod patches;
mod pods;
mod reviews;
mod tables;
mod watches;
mod webhooks;
mod wording;

const TOKEN: &str = "of-the-admin";

/// A server and a client of kube-rs.
struct Bench {
    server: ApiServer,
    client: Client,
}

impl Bench {
    async fn new() -> Self {
        let server = ApiServer::start(&[(TOKEN, "admin")]).await.expect("the server starts");
        let client = client(&server, TOKEN).await;
        Self { server, client }
    }

    /// Sends a request as it stands and returns the status and the body.
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> (StatusCode, Value) {
        let (code, text) = self.text(method, path, headers, body).await;
        let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"));
        (code, json)
    }

    async fn text(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> (StatusCode, String) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let response = self.client.send(request.body(body).unwrap()).await.expect("an answer");
        let code = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &[], &Value::Null).await.1
    }

    async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.ask("POST", path, &[("content-type", "application/json")], body).await
    }

    /// Patches in the format of this name, such as `merge-patch+json`.
    async fn patch(&self, format: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        self.ask("PATCH", path, &[("content-type", &format!("application/{format}"))], body).await
    }

    /// All lines of a watch that lasts a second.
    async fn watched(&self, path: &str) -> Vec<Value> {
        let (_, text) = self.text("GET", &format!("{path}&watch=1&timeoutSeconds=1"), &[], &Value::Null).await;
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    async fn until<T>(&self, what: &str, look: impl FnMut(&View<'_>) -> Option<T>) -> T {
        let found = tokio::time::timeout(Duration::from_secs(60), self.server.wait_for(look)).await;
        found.unwrap_or_else(|_| panic!("waiting for {what}"))
    }
}

async fn client(server: &ApiServer, token: &str) -> Client {
    Client::try_from(config(server, token).await).unwrap()
}

async fn config(server: &ApiServer, token: &str) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(token)).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "default" }, "data": data })
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{ "name": "main", "image": "app:1", "resources": { "limits": { "nvidia.com/gpumem": "80000" } } }] },
    })
}

fn node(name: &str) -> Value {
    let status = json!({ "capacity": { "cpu": "8" }, "conditions": [{ "type": "Ready", "status": "True" }] });
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "status": status })
}
