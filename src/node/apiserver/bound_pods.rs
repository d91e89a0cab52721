//! Pods bound to this node, listed from the API server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use divvy_node_core::pod::Pod;
use divvy_node_core::ports::PodSourceError;
use divvy_runtime::api_server::ApiServer;
use divvy_runtime::api_server::pages::{PageError, Pages};

use crate::pod_list::{DecodeError, Decoder};
use crate::token::remedy;

/// Longest time for all pages.
const LONGEST: Duration = Duration::from_secs(60);

/// Lists the pods bound to one node.
#[derive(Clone)]
pub struct BoundPods {
    api_server: ApiServer,
    node: String,
    token_file: PathBuf,
}

// === impl BoundPods ===

impl BoundPods {
    /// A client for the pods of `node`, with the token in this file.
    pub fn new(api_server: ApiServer, node: &str, token_file: &Path) -> Self {
        Self { api_server, node: node.to_owned(), token_file: token_file.to_owned() }
    }

    /// Every pod bound to the node at some moment after the question: it names no resource version, so the answer is not
    /// older than the question (Kubernetes API concepts, "Resource versions": "most recent").
    ///
    /// Without mirrors of static pods: those have other UIDs than the kubelet knows the pods by.
    pub async fn list(&self) -> Result<Vec<Arc<Pod>>, PodSourceError> {
        let address = self.api_server.requests.address();
        let asked = format!("API server {address}: list pods of node {}", self.node);
        let error = |problem: &str| PodSourceError::BoundPods(format!("{asked}: {problem}"));
        let listed = tokio::time::timeout(LONGEST, self.pages()).await;
        let listed =
            listed.map_err(|_elapsed| error(&format!("not all of them came within {}s", LONGEST.as_secs())))?;
        let mut pods = listed.map_err(|cause| error(&(cause.to_string() + &self.hint(&cause))))?;
        pods.retain(|pod| !pod.is_static());
        Ok(pods)
    }

    fn hint(&self, error: &PageError<DecodeError>) -> String {
        match error {
            PageError::Api(kube::Error::Api(status)) if status.code == 401 => format!(": {}", remedy(&self.token_file)),
            PageError::Api(kube::Error::Api(status)) if status.code == 403 => {
                ": the right to list pods is not part of the installation: deploy/fallback/node-pod-list.yaml grants it"
                    .to_owned()
            }
            _ => String::new(),
        }
    }

    async fn pages(&self) -> Result<Vec<Arc<Pod>>, PageError<DecodeError>> {
        let mut pages = Pages::new("/api/v1/pods", &format!("spec.nodeName={}", self.node));
        let mut decoder = Decoder::default();
        loop {
            (decoder, _) = pages.read(&self.api_server.client, decoder).await?;
            if pages.is_at_start() {
                return Ok(decoder.into_pods());
            }
        }
    }
}

impl fmt::Debug for BoundPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundPods").field("node", &self.node).finish_non_exhaustive()
    }
}
