//! What is installed of Divvy in the playground's cluster: the files that people apply, but for what starts pods.

use anyhow::Context as _;
use serde_json::Value;

use fake_apiserver::ApiServer;

/// A file of `deploy`.
pub struct Manifest {
    name: &'static str,
    text: &'static str,
}

/// Namespace of all of it.
pub const NAMESPACE: Manifest = manifest("00-namespace", include_str!("../../deploy/manifests/00-namespace.yaml"));
/// What a `GpuNode` is.
pub const CRD: Manifest = manifest("crd", include_str!("../../deploy/manifests/crd.yaml"));
/// What daemons may do.
pub const NODE_RBAC: Manifest = manifest("node-rbac", include_str!("../../deploy/manifests/node-rbac.yaml"));
/// Lets daemons ask the API server for pods where the kubelet doesn't list them.
pub const NODE_POD_LIST: Manifest = manifest("node-pod-list", include_str!("../../deploy/fallback/node-pod-list.yaml"));
/// What the webhook may do.
pub const WEBHOOK_RBAC: Manifest = manifest("webhook-rbac", include_str!("../../deploy/manifests/webhook-rbac.yaml"));
/// Where API server and scheduler find the webhook.
pub const WEBHOOK_SERVICE: Manifest =
    manifest("webhook-service", include_str!("../../deploy/manifests/webhook-service.yaml"));
/// What the webhook is shown.
pub const WEBHOOK_CONFIGURATIONS: Manifest =
    manifest("webhook-configurations", include_str!("../../deploy/manifests/webhook-configurations.yaml"));

const fn manifest(name: &'static str, text: &'static str) -> Manifest {
    Manifest { name, text }
}

// === impl Manifest ===

impl Manifest {
    /// Creates its objects.
    pub fn install(&self, server: &ApiServer) -> anyhow::Result<()> {
        let Self { name, text } = self;
        let objects: Vec<Value> = serde_saphyr::from_multiple(text).with_context(|| format!("reading {name}.yaml"))?;
        for object in objects {
            server.create(&object).with_context(|| format!("creating what {name}.yaml says"))?;
        }
        Ok(())
    }
}
