//! The API server of the cluster, and who comes there: daemons and kubectl over its socket, this process past it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use divvy_api::annotation::{self, Document as _, Planned};
use serde_json::{Value, json};

use crate::install;
use divvy_testkit::pods::{NAMESPACE, PodShape};
use fake_apiserver::{ApiServer, Request, User};

const DAEMON: &str = "system:serviceaccount:divvy-system:divvy-node";
const WEBHOOK: &str = "system:serviceaccount:divvy-system:divvy-webhook";

/// What an administrator shows.
pub const ADMIN_TOKEN: &str = "of-the-admin";
const DAEMON_TOKEN: &str = "of-the-daemons";
const WEBHOOK_TOKEN: &str = "of-the-webhook";

/// A running API server that knows what a `GpuNode` is, and lets our programs do what their roles say.
pub struct ControlPlane {
    /// The server.
    pub server: Arc<ApiServer>,
    /// For people.
    pub kubeconfig: PathBuf,
    /// For daemons.
    pub daemon_kubeconfig: PathBuf,
    /// For the webhook.
    pub webhook_kubeconfig: PathBuf,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts it, with its files in `directory`.
    pub async fn start(directory: &Path) -> anyhow::Result<Self> {
        let server = ApiServer::start(&[(DAEMON_TOKEN, DAEMON), (WEBHOOK_TOKEN, WEBHOOK)]).await?;
        server.allow(ADMIN_TOKEN, User::from("kubernetes-admin").within("system:masters"));
        let node = [install::NAMESPACE, install::CRD, install::NODE_RBAC, install::NODE_POD_LIST];
        node.into_iter().chain([install::WEBHOOK_RBAC]).try_for_each(|manifest| manifest.install(&server))?;
        server.guard();
        let kubeconfig = |name: &str, token| {
            let file = directory.join(name);
            std::fs::write(&file, server.kubeconfig(token)).with_context(|| format!("writing {}", file.display()))?;
            anyhow::Ok(file)
        };
        Ok(Self {
            kubeconfig: kubeconfig("kubeconfig", ADMIN_TOKEN)?,
            daemon_kubeconfig: kubeconfig("divvy-node.kubeconfig", DAEMON_TOKEN)?,
            webhook_kubeconfig: kubeconfig("divvy-webhook.kubeconfig", WEBHOOK_TOKEN)?,
            server: Arc::new(server),
        })
    }

    /// Creates a pod and binds it to a node, as scheduler and extender do; returns its UID.
    pub fn submit(&self, shape: &PodShape, node: &str, planned: Option<&Planned>) -> anyhow::Result<String> {
        let made =
            self.server.create(&json!(shape.unbound())).with_context(|| format!("creating pod {}", shape.name))?;
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

    /// Writes that daemons and webhooks made and the server took, by resource.
    pub fn writes(&self) -> BTreeMap<String, u64> {
        self.server.read(|view| {
            let mut writes = BTreeMap::new();
            let ours = |asked: &&Request| [DAEMON, WEBHOOK].contains(&asked.user.as_str()) && asked.code < 300;
            let is_write = |asked: &&Request| {
                // Reviews of tokens and rights are questions.
                matches!(asked.verb.as_str(), "create" | "update" | "patch")
                    && !asked.resource.contains("accessreviews")
                    && !asked.resource.contains("tokenreviews")
            };
            for asked in view.requests().iter().filter(ours).filter(is_write) {
                let what = if asked.subresource == "binding" { "bindings" } else { &asked.resource };
                *writes.entry(what.to_owned()).or_default() += 1;
            }
            writes
        })
    }
}
