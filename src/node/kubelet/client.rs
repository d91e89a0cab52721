//! Client for the kubelet's pod list, over a persistent connection.

mod connection;

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use divvy_node_core::pod::{ConnectionId, PodList};
use divvy_node_core::ports::PodSourceError;
use divvy_runtime::api_server::errors::chain;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::tls;
use crate::pod_list::Known;

/// Address of the kubelet's API, and how its certificate is verified.
#[derive(Clone, Debug)]
pub struct KubeletEndpoint {
    /// `https://<node's address>:10250`.
    pub url: String,
    /// File of the bearer token, read again for every request: projected tokens are rotated.
    pub token_file: PathBuf,
    /// How the kubelet's certificate is checked.
    pub trust: tls::Trust,
    /// Deadline of one request; a slow response fails one pod, a hanging one would block the node.
    pub timeout: Duration,
}

/// Client for `GET /pods`.
#[derive(Debug)]
pub struct PodListClient {
    endpoint: KubeletEndpoint,
    uri: Uri,
    /// HTTP client, replaced after a failed connection. Never locked across an await.
    client: Mutex<Option<HttpsClient>>,
    /// Decoded pods of the previous list.
    known: Mutex<Known>,
}

type HttpsClient = Client<HttpsConnector<connection::Connector>, Empty<Bytes>>;

/// Largest accepted list in bytes: 500 pods of 4.6 KB are 2.3 MB.
const LARGEST_LIST: usize = 64 << 20;

/// Read buffer of the connection in bytes, which an idle connection keeps; the default is up to 400 KiB.
const READ_BUFFER: usize = 64 << 10;

// === impl PodListClient ===

impl PodListClient {
    /// A client for this endpoint; nothing is connected yet.
    pub fn new(endpoint: KubeletEndpoint) -> Result<Self, PodSourceError> {
        let KubeletEndpoint { url, .. } = &endpoint;
        let uri = format!("{}/pods", url.trim_end_matches('/')).parse::<Uri>().map_err(|error| error.to_string());
        let uri = uri.and_then(|uri| if uri.host().is_some() { Ok(uri) } else { Err("host is missing".to_owned()) });
        let refused = |problem| PodSourceError::KubeletPods(format!("kubeletUrl \"{url}\" is not a URL: {problem}"));
        let uri = uri.map_err(refused)?;
        Ok(Self { endpoint, uri, client: Mutex::default(), known: Mutex::default() })
    }

    /// The kubelet's pods.
    pub async fn list(&self) -> Result<PodList, PodSourceError> {
        let (body, connection) = self.raw().await?;
        let pods = self.known.lock().unwrap_or_else(PoisonError::into_inner).decode(&body);
        Ok(PodList { pods: pods.map_err(|error| self.error(error))?, connection })
    }

    /// The list as the kubelet sends it: what [`Self::list`] costs without decoding.
    pub async fn raw(&self) -> Result<(Bytes, Option<ConnectionId>), PodSourceError> {
        let timeout = self.endpoint.timeout;
        let answer = tokio::time::timeout(timeout, self.fetch()).await;
        answer.unwrap_or_else(|_elapsed| {
            self.forget();
            Err(self.error(format!("no answer within {}ms", timeout.as_millis())))
        })
    }

    async fn fetch(&self) -> Result<(Bytes, Option<ConnectionId>), PodSourceError> {
        let client = self.client()?;
        let request = Request::get(self.uri.clone()).header(AUTHORIZATION, self.bearer()?);
        let request = request.body(Empty::new()).map_err(|error| self.broken(&error))?;
        let response = client.request(request).await.map_err(|error| self.broken(&error))?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(self.error(format!("answered {status}{}", hint(status))));
        }
        let connection = response.extensions().get::<ConnectionId>().copied();
        let body = Limited::new(response.into_body(), LARGEST_LIST).collect().await;
        Ok((body.map_err(|error| self.broken(&*error))?.to_bytes(), connection))
    }

    fn bearer(&self) -> Result<HeaderValue, PodSourceError> {
        let path = &self.endpoint.token_file;
        let token = std::fs::read_to_string(path).and_then(|token| {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            value.map_err(|_control| std::io::Error::other("holds characters that no token has"))
        });
        token.map_err(|error| PodSourceError::KubeletPods(format!("kubelet token {}: {error}", path.display())))
    }

    fn client(&self) -> Result<HttpsClient, PodSourceError> {
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*kept {
            return Ok(client.clone());
        }
        let tls = tls::client_config(self.endpoint.trust.clone());
        let tls = tls.map_err(|error| PodSourceError::KubeletPods(format!("tls: {error}")))?;
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        // Longer than the minute after which the question is repeated when nothing else asks it.
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_idle_timeout(Duration::from_secs(180)).pool_max_idle_per_host(2);
        builder.http1_max_buf_size(READ_BUFFER);
        let client = builder.build(connector.wrap_connector(connection::numbered(tcp)));
        *kept = Some(client.clone());
        Ok(client)
    }

    fn forget(&self) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// No connection, a broken one, or one whose certificate isn't the kubelet's.
    fn broken(&self, error: &(dyn std::error::Error + 'static)) -> PodSourceError {
        self.forget();
        self.error(tls::untrusted(error).map_or_else(|| chain(error), ToString::to_string))
    }

    fn error(&self, problem: impl Display) -> PodSourceError {
        PodSourceError::KubeletPods(format!("kubelet pod list {}: {problem}", self.uri))
    }
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => ": the token isn't accepted; is the kubelet's webhook authentication on?",
        StatusCode::FORBIDDEN => {
            ": the service account needs \"get\" on nodes/pods (or nodes/proxy before Kubernetes 1.33)"
        }
        _ => "",
    }
}
