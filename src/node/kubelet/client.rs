//! Client for the kubelet's pod list, over a persistent connection.

mod connection;
mod patience;

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use divvy_node_core::pod::{ConnectionId, PodList};
use divvy_node_core::ports::PodSourceError;
use divvy_runtime::api_server::Requests;
use divvy_runtime::api_server::errors::chain;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use self::patience::Patience;
use super::tls;
use crate::pod_list::{DecodeError, Known};

/// Address of the kubelet's API, and how its certificate is verified.
#[derive(Clone, Debug)]
pub struct KubeletEndpoint {
    /// `https://<node's address>:10250`.
    pub url: String,
    /// File of the bearer token, read again for every request: projected tokens are rotated.
    pub token_file: PathBuf,
    /// How the kubelet's certificate is checked.
    pub trust: tls::Trust,
    /// Longest time without progress, until the response begins and between its parts: a slow response fails one pod, a
    /// hanging one would block the node. A kubelet whose responses are known to begin later is waited for longer, as is
    /// [`PodListClient::list_patiently`].
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
    known: Mutex<Arc<Known>>,
    patience: Patience,
    /// Log of requests to the API server, which the kubelet asks about tokens.
    api_server: Option<Requests>,
}

type HttpsClient = Client<HttpsConnector<connection::Connector>, Empty<Bytes>>;

/// Longest time for a whole list, however steadily it comes: 100 pods of 8 MB take seconds.
const LONGEST_LIST: Duration = Duration::from_secs(60);

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
        let patience = Patience::new(endpoint.timeout);
        Ok(Self { endpoint, uri, client: Mutex::default(), known: Mutex::default(), patience, api_server: None })
    }

    /// This client beside that of the API server, whose answers tell why a token isn't accepted.
    #[must_use]
    pub fn beside(self, api_server: Option<Requests>) -> Self {
        Self { api_server, ..self }
    }

    /// The kubelet's pods. Of its response no more than one pod is in memory at a time.
    pub async fn list(&self) -> Result<PodList, PodSourceError> {
        self.list_within(self.patience.now()).await
    }

    /// The same, waited for as long as a list may take.
    pub async fn list_patiently(&self) -> Result<PodList, PodSourceError> {
        self.list_within(self.patience.longest()).await
    }

    async fn list_within(&self, deadline: Duration) -> Result<PodList, PodSourceError> {
        let before = Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let mut reader = before.reader();
        let connection = self.read(deadline, |part| reader.push(part)).await?;
        let (pods, known) = reader.finish().map_err(|error| self.error(error))?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        Ok(PodList { pods, connection })
    }

    /// Reads the list as the kubelet sends it, and drops it: what [`Self::list`] costs without decoding.
    pub async fn raw(&self) -> Result<(), PodSourceError> {
        self.read(self.patience.now(), |_part| Ok(())).await.map(drop)
    }

    /// Passes on the parts of the response as they come; it has to begin within the deadline.
    async fn read(
        &self,
        deadline: Duration,
        mut take: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<Option<ConnectionId>, PodSourceError> {
        let started = Instant::now();
        let response = self.response(deadline).await?;
        let connection = response.extensions().get::<ConnectionId>().copied();
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(part) = self.in_time(started, bytes, body.frame()).await? {
            let part = part.map_err(|error| self.broken(&error))?.into_data().unwrap_or_default();
            bytes += part.len();
            take(&part).map_err(|error| self.error(error))?;
        }
        Ok(connection)
    }

    async fn response(&self, deadline: Duration) -> Result<Response<Incoming>, PodSourceError> {
        let client = self.client()?;
        let request = Request::get(self.uri.clone()).header(AUTHORIZATION, self.bearer()?);
        let request = request.body(Empty::new()).map_err(|error| self.broken(&error))?;
        let response = self.patience.wait(deadline, client.request(request)).await.map_err(|deadline| {
            self.forget();
            self.error(format!("no answer within {}ms", deadline.as_millis()))
        })?;
        let response = response.map_err(|error| self.broken(&error))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            status => Err(self.error(format!("answered {status}{}", self.hint(status)))),
        }
    }

    /// The next part of a response that began at `started` and has had so many bytes.
    async fn in_time<T>(
        &self,
        started: Instant,
        bytes: usize,
        next: impl Future<Output = T>,
    ) -> Result<T, PodSourceError> {
        let so_far = started.elapsed();
        let stalled = self.endpoint.timeout;
        let next = tokio::time::timeout(stalled.min(LONGEST_LIST.saturating_sub(so_far)), next).await;
        next.map_err(|_elapsed| {
            self.forget();
            let mib = bytes >> 20;
            self.error(if started.elapsed() < LONGEST_LIST {
                format!("nothing more for {}ms after {mib} MiB", stalled.as_millis())
            } else {
                let seconds = LONGEST_LIST.as_secs();
                format!("more than the {mib} MiB that came within {seconds}s: pods of this node are very large")
            })
        })
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

    /// The likely cause. The kubelet asks the API server about tokens, unless its webhook authentication is off.
    fn hint(&self, status: StatusCode) -> &'static str {
        let is_refused_by_both = || self.api_server.as_ref().is_some_and(|requests| requests.unauthorized().is_some());
        match status {
            StatusCode::UNAUTHORIZED if is_refused_by_both() => ": nor does the API server accept the token",
            StatusCode::UNAUTHORIZED => {
                ": the token isn't accepted; if the API server accepts it, switch on the kubelet's webhook authentication \
                 (authentication.webhook.enabled)"
            }
            StatusCode::FORBIDDEN => {
                ": the service account needs \"get\" on nodes/pods (or nodes/proxy before Kubernetes 1.33)"
            }
            _ => "",
        }
    }
}
