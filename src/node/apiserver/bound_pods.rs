//! Pods bound to this node, listed from the API server.

use std::fmt;
use std::sync::Arc;

use divvy_node_core::pod::Pod;
use divvy_node_core::ports::PodSourceError;
use divvy_runtime::api_server::ApiServer;
use divvy_runtime::api_server::errors::describe;
use kube::api::ListParams;
use kube::core::Request;

use crate::pod_list;

/// Lists the pods bound to one node.
#[derive(Clone)]
pub struct BoundPods {
    api_server: ApiServer,
    node: String,
}

// === impl BoundPods ===

impl BoundPods {
    /// A client for the pods of `node`.
    pub fn new(api_server: ApiServer, node: &str) -> Self {
        Self { api_server, node: node.to_owned() }
    }

    /// Every pod bound to the node at some moment after the question: it names no resource version, so the answer is not
    /// older than the question (Kubernetes API concepts, "Resource versions": "most recent").
    ///
    /// Without mirrors of static pods: those have other UIDs than the kubelet knows the pods by.
    pub async fn list(&self) -> Result<Vec<Arc<Pod>>, PodSourceError> {
        let only = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let request = Request::new("/api/v1/pods").list(&only).map_err(kube::Error::BuildRequest);
        let ApiServer { client, requests } = &self.api_server;
        let asked = format!("API server {}: list pods of node {}", requests.address(), self.node);
        let error = |problem: &str| PodSourceError::BoundPods(format!("{asked}: {problem}"));
        let refused = |cause: kube::Error| error(&(describe(&cause) + hint(&cause)));
        let list = client.request_text(request.map_err(refused)?).await.map_err(refused)?;
        let mut pods = pod_list::decode(list.as_bytes()).map_err(|cause| error(&cause.to_string()))?;
        pods.retain(|pod| !pod.is_static());
        Ok(pods)
    }
}

impl fmt::Debug for BoundPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundPods").field("node", &self.node).finish_non_exhaustive()
    }
}

fn hint(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            ": the right to list pods is not part of the installation: deploy/fallback/node-pod-list.yaml grants it"
        }
        _ => "",
    }
}
