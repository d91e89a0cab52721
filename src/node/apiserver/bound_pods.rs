//! Pods bound to this node, listed from the API server.

use std::fmt;
use std::sync::Arc;

use divvy_node_core::pod::Pod;
use divvy_runtime::api_server::errors::describe;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;

use crate::pod_list::{self, DecodeError};

/// Lists the pods bound to one node.
#[derive(Clone)]
pub struct BoundPods {
    client: Client,
    node: String,
}

/// A list of bound pods that failed.
#[derive(Debug, thiserror::Error)]
pub enum BoundPodsError {
    /// The API server refuses the request, or can't be reached.
    #[error("pods of node {node}: {}{}", describe(.source), hint(.source))]
    Refused {
        /// The node.
        node: String,
        /// Error of the client or the API server.
        source: kube::Error,
    },
    /// The response is not a pod list.
    #[error("pods of node {node}: {source}")]
    Decode {
        /// The node.
        node: String,
        /// Why it can't be decoded.
        source: DecodeError,
    },
}

// === impl BoundPods ===

impl BoundPods {
    /// A client for the pods of `node`.
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
        let pods = pod_list::decode(list.as_bytes());
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
