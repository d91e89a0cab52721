//! The manifests, applied as an administrator would.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind;
use divvy_testkit::pods::PodShape;
use serde_json::json;

use super::{Cluster, PATIENCE};
use crate::node::NODE;
use crate::pods;

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/manifests");
const UNINSTALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/uninstall");

// === impl Cluster ===

impl Cluster {
    /// Everything of the manifests but what would start pods, and what would ask webhooks that don't run here. The daemon runs
    /// beside the kubelet, with a token that is bound to the node as one fetched for a pod is.
    pub(super) async fn install(&mut self) -> anyhow::Result<()> {
        let node = ["00-namespace", "crd", "node-config", "node-rbac", "policy", "../fallback/node-pod-list"];
        let webhook = ["webhook-config", "webhook-rbac", "webhook-service"];
        self.apply(&[node.as_slice(), &webhook].concat()).await?;
        // The rest too is as this API server wants it: fields, amounts, and the CEL of the match conditions.
        let all = [MANIFESTS, UNINSTALL].map(|directory| format!("--filename={directory}"));
        self.kubectl.run(&["apply", "--dry-run=server", &all[0], &all[1]]).await?;
        self.kubectl.run(&["wait", "--for=condition=Established", "crd/gpunodes.divvy.dev", "--timeout=60s"]).await?;
        let bound = ["--bound-object-kind=Node", &format!("--bound-object-name={NODE}"), "--duration=24h"];
        let args = ["create", "token", "divvy-node", "--namespace=divvy-system"];
        let token = self.kubectl.run(&[args.as_slice(), bound.as_slice()].concat()).await?;
        self.files.write("token", token)?;
        self.until("policies in force", PATIENCE, async |this| {
            let foreign =
                json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "b"}, "spec": {}});
            let refused = this.api.create("/apis/divvy.dev/v1alpha1/gpunodes?dryRun=All", &foreign).await.err();
            Ok(refused.filter(|error| error.to_string().contains("divvy-gpunodes")).map(drop))
        })
        .await?;
        // A kubelet without any pod of the API server's says nothing by its list; on a real node the daemon is one.
        self.until("the daemon's own service account", PATIENCE, async |this| {
            this.api.find("/api/v1/namespaces/divvy-system/serviceaccounts/default").await
        })
        .await?;
        let own = pods::object(PodShape::new("divvy-node").with(ContainerKind::App, "divvy-node", &[]))?;
        self.api.create("/api/v1/namespaces/divvy-system/pods", &own).await.map(drop)
    }

    /// Applies these of the manifests, or puts them back.
    pub async fn apply(&self, names: &[&str]) -> anyhow::Result<()> {
        self.with_manifests("apply", names).await
    }

    /// Deletes what these of the manifests made.
    pub async fn delete(&self, names: &[&str]) -> anyhow::Result<()> {
        self.with_manifests("delete", names).await
    }

    /// Creates the kinds that are defined in a file of another project's manifests, and waits until they are served. The file that
    /// is returned has the definitions alone.
    pub async fn define_kinds(&self, manifests: &Path) -> anyhow::Result<PathBuf> {
        let text = std::fs::read_to_string(manifests).with_context(|| format!("reading {}", manifests.display()))?;
        let is_definition = |object: &&str| object.contains("kind: CustomResourceDefinition\n");
        let definitions: Vec<_> = text.split("\n---\n").filter(is_definition).collect();
        ensure!(!definitions.is_empty(), "{} defines no kinds", manifests.display());
        let name = manifests.file_name().context("a file")?;
        let file = self.files.write(name, definitions.join("\n---\n"))?;
        let argument = format!("--filename={}", file.display());
        // Beyond what fits into the annotation of a client-side apply.
        self.kubectl.run(&["apply", "--server-side", &argument]).await?;
        self.kubectl.run(&["wait", "--for=condition=Established", &argument, "--timeout=60s"]).await?;
        Ok(file)
    }

    /// Deletes the kinds of such a file, with all objects of them.
    pub async fn remove_kinds(&self, file: &Path) -> anyhow::Result<()> {
        let argument = format!("--filename={}", file.display());
        self.kubectl.run(&["delete", "--ignore-not-found", "--wait=false", &argument]).await.map(drop)
    }

    async fn with_manifests(&self, verb: &str, names: &[&str]) -> anyhow::Result<()> {
        let files: Vec<_> = names.iter().map(|name| format!("--filename={MANIFESTS}/{name}.yaml")).collect();
        let args: Vec<&str> = [verb].into_iter().chain(files.iter().map(String::as_str)).collect();
        self.kubectl.run(&args).await.map(drop)
    }
}
