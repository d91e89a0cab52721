//! The pods that are bound to this node, as the API server has them.

use std::fmt;
use std::sync::Arc;

use divvy_node_core::pod::Pod;
use divvy_runtime::api_server::errors::describe;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;

use crate::kubelet::pods::{self, DecodeError};

/// Asks the API server.
#[derive(Clone)]
pub struct BoundPods {
    client: Client,
    node: String,
}

/// No answer.
#[derive(Debug, thiserror::Error)]
pub enum BoundPodsError {
    /// It refuses, or can't be reached.
    #[error("pods of node {node}: {}{}", describe(.source), hint(.source))]
    Refused {
        /// Whose pods.
        node: String,
        /// What it, or the client, says.
        source: kube::Error,
    },
    /// Not a pod list.
    #[error("pods of node {node}: {source}")]
    Decode {
        /// Whose pods.
        node: String,
        /// What is wrong with it.
        source: DecodeError,
    },
}

// === impl BoundPods ===

impl BoundPods {
    /// Asks with `client` for the pods of this node.
    pub fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned() }
    }

    /// Every pod bound to the node at some moment after the question: it names no resource version, so the answer is not
    /// older than the question (Kubernetes API concepts, "Resource versions": "most recent").
    ///
    /// Without mirrors of static pods: those have other UIDs than the kubelet knows the pods by.
    pub async fn list(&self) -> Result<Vec<Arc<Pod>>, BoundPodsError> {
        let only = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let request = Request::new("/api/v1/pods").list(&only).map_err(kube::Error::BuildRequest);
        let refused = |source| BoundPodsError::Refused { node: self.node.clone(), source };
        let list = self.client.request_text(request.map_err(refused)?).await.map_err(refused)?;
        let pods = pods::decode(list.as_bytes());
        let mut pods = pods.map_err(|source| BoundPodsError::Decode { node: self.node.clone(), source })?;
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
        kube::Error::Api(status) if status.code == 403 => ": the service account needs \"list\" on pods",
        _ => "",
    }
}
