//! The API server of the cluster, and who comes there: daemons and kubectl over its socket, this process past it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use divvy_contract::annotation::{self, Document as _, Planned};
use divvy_contract::gpunode::GpuNode;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::apiserver::ApiServer;
use crate::cluster::SYSTEM;
use crate::pods::{NAMESPACE, PodShape};

const DAEMON: &str = "system:serviceaccount:divvy-system:divvy-node";

/// A running API server that knows what a `GpuNode` is.
pub struct ControlPlane {
    /// The server.
    pub server: Arc<ApiServer>,
    /// For people.
    pub kubeconfig: PathBuf,
    /// For daemons.
    pub daemon_kubeconfig: PathBuf,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts it, with its files in `directory`.
    pub async fn start(directory: &Path) -> anyhow::Result<Self> {
        let tokens = ["of-the-admin", "of-the-daemons"];
        let server = ApiServer::start(&[(tokens[0], "kubernetes-admin"), (tokens[1], DAEMON)]).await?;
        server.create(&json!(GpuNode::crd()))?;
        server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SYSTEM } }))?;
        let [kubeconfig, daemon_kubeconfig] = ["kubeconfig", "divvy-node.kubeconfig"].map(|name| directory.join(name));
        for (file, token) in [&kubeconfig, &daemon_kubeconfig].into_iter().zip(tokens) {
            std::fs::write(file, server.kubeconfig(token)).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(Self { server: Arc::new(server), kubeconfig, daemon_kubeconfig })
    }

    /// Creates a pod and binds it to a node, as scheduler and extender do; returns its UID.
    pub fn submit(&self, shape: &PodShape, node: &str, planned: Option<&Planned>) -> anyhow::Result<String> {
        let mut object = shape.object();
        if let Some(spec) = &mut object.spec {
            spec.node_name = None;
        }
        let made = self.server.create(&json!(object)).with_context(|| format!("creating pod {}", shape.name))?;
        self.bind(NAMESPACE, &shape.name, node, planned)?;
        Ok(made["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// Binds a pod that is there.
    pub fn bind(&self, namespace: &str, name: &str, node: &str, planned: Option<&Planned>) -> anyhow::Result<()> {
        let annotations: Value = match planned {
            Some(planned) => json!({ Planned::KEY: annotation::encode(planned) }),
            None => json!({}),
        };
        self.server.bind(namespace, name, node, &annotations).with_context(|| format!("binding pod {name}"))?;
        Ok(())
    }

    /// Writes that the daemons made and the server took, by resource.
    pub fn daemon_writes(&self) -> BTreeMap<String, u64> {
        self.server.read(|view| {
            let mut writes = BTreeMap::new();
            let own = view.requests().iter().filter(|asked| asked.user == DAEMON && asked.code < 300);
            for asked in own.filter(|asked| matches!(asked.verb.as_str(), "create" | "patch")) {
                *writes.entry(asked.resource.clone()).or_default() += 1;
            }
            writes
        })
    }
}
