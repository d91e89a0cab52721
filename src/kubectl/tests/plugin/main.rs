//! `kubectl-divvy` as a process, against the API-server stand-in.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod dashboard;
mod debug_bundle;
mod docs;
mod doctor;
mod explain;
mod inspect;
mod migrate;
mod quota;
mod simulate;
mod top;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fake_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::process::Command;

const TOKEN: &str = "of-the-admin";
const PROGRAM: &str = env!("CARGO_BIN_EXE_kubectl-divvy");
const CARD: &str = "GPU-1d97b7c2-0b1c-4e2a-9a51-3f1f5a1a0001";

/// An API server and a home with a kubeconfig for it.
struct Bench {
    server: ApiServer,
    home: tempfile::TempDir,
}

/// How a process ended.
#[derive(Debug, PartialEq)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Bench {
    async fn new() -> Self {
        let server = ApiServer::start(&[(TOKEN, "admin")]).await.unwrap();
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config"), server.kubeconfig(TOKEN)).unwrap();
        Self { server, home }
    }

    fn node(&self, name: &str, labels: &[(&str, &str)], shares: &Value) {
        let labels: Value = labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } });
        self.server.create(&node).unwrap();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Registered", "message": "m",
            "lastTransitionTime": "2026-11-21T12:00:00Z",
        });
        let card = json!({ "uuid": CARD, "model": "NVIDIA L4", "memoryMi": 24576, "health": "Healthy" });
        let status = json!({ "cards": [card], "shares": shares, "tier": "accounting", "conditions": [ready] });
        let gpu_node =
            json!({ "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": { "name": name }, "spec": {} });
        self.server.create(&gpu_node).unwrap();
        self.server.edit("GpuNode", "", name, |node| node["status"] = status).unwrap();
    }

    fn command(&self, program: impl AsRef<Path>, arguments: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command.args(arguments.split_whitespace()).env_clear().current_dir(self.home.path());
        command.env("HOME", self.home.path()).env("KUBECONFIG", self.home.path().join("config"));
        command.kill_on_drop(true).stdin(Stdio::null());
        command
    }
}

async fn ended(mut command: Command) -> Ended {
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await.expect("it ends").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}
