//! The API server: its client, watches with back-off, its errors in words, and the log of failed requests.
//!
//! Programs outlive it: nothing here ends because it is unreachable, and a lasting failure is logged at growing distance.

mod backoff;
pub mod errors;
pub mod pages;
mod requests;
mod watch;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::{Response, StatusCode};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::util::MapResponseLayer;

use crate::outage::seconds;

pub use backoff::{Delays, backoff};
pub use requests::Requests;
pub use watch::watch_object;

/// The API server.
#[derive(Clone)]
pub struct ApiServer {
    /// The client.
    pub client: Client,
    /// Log of failed requests.
    pub requests: Requests,
}

/// Longest wait for one answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Longest wait for a connection, below the deadline of an answer: an API server that can't be reached isn't overloaded.
const CONNECTING: Duration = Duration::from_secs(3);

/// The API server: of the kubeconfig, or of the cluster that runs this pod; `None` outside of any.
pub async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Option<ApiServer>> {
    let config = if let Some(path) = kubeconfig {
        let file = Kubeconfig::read_from(path).with_context(|| format!("kubeconfig {}", path.display()))?;
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
    } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        Config::incluster()?
    } else {
        return Ok(None);
    };
    Ok(Some(ApiServer::new(config)?))
}

/// An answer, if it comes in time.
pub async fn within_deadline<T>(answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    tokio::time::timeout(DEADLINE, answer).await.map_err(|_elapsed| unanswered(DEADLINE))?
}

/// No answer within so much time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no answer within {}", seconds(*.0))]
struct Unanswered(Duration);

/// The error of a request that had no answer when so much time had passed.
pub fn unanswered(time: Duration) -> kube::Error {
    kube::Error::Service(Box::new(Unanswered(time)))
}

// === impl ApiServer ===

impl ApiServer {
    /// A client for this configuration; nothing is connected yet.
    pub fn new(mut config: Config) -> kube::Result<Self> {
        config.connect_timeout = Some(CONNECTING);
        let requests = Requests::new(config.cluster_url.to_string().trim_end_matches('/'));
        let log = requests.clone();
        let answered = MapResponseLayer::new(move |answer: Response<_>| {
            log.answered(answer.status() == StatusCode::UNAUTHORIZED);
            answer
        });
        Ok(Self { client: ClientBuilder::try_from(config)?.with_layer(&answered).build(), requests })
    }
}
