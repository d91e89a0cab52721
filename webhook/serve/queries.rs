//! Queries of users and their tools: why a pod is or isn't placed, and what every node holds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use divvy_index::Index;
use divvy_index::explain::State as PodState;
use divvy_index::pod::PodView;
use divvy_runtime::api_server::errors::describe;
use divvy_runtime::settings::ObjectName;
use http::Request;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use super::apart::apart;
use super::bodies::{self, BodyLimits};
use super::json;
use super::suggestions::suggestions;
use crate::access::{Access, Denied};
use crate::watches::SyncStatus;

/// Answers queries.
#[derive(Clone)]
pub struct Queries {
    /// The cluster state.
    pub index: Arc<Index>,
    /// Whether that has synced.
    pub sync_status: watch::Receiver<SyncStatus>,
    /// Authorization.
    pub access: Arc<Access>,
    /// Client that reads pods.
    pub client: Client,
}

#[derive(Debug, Deserialize)]
struct Which {
    /// `namespace/name`.
    pod: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the watches have not synced yet: try again")]
    Unready,
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("{0}")]
    Unavailable(String),
    #[error("pod={0}: expected NAMESPACE/NAME")]
    Name(String),
    #[error("pod is missing: ask for ?pod=NAMESPACE/NAME, or send a pod")]
    NoPod,
    #[error("the body isn't a pod: {0}")]
    Body(String),
    #[error("{0}")]
    NotFound(String),
}

/// Longest evaluation of nodes, one after another.
const PATIENCE: Duration = Duration::from_secs(2);
/// A pod is refused by the API server beyond 3 MiB.
const BODIES: BodyLimits = BodyLimits { largest: 3 << 20, in_flight: 12 << 20 };

// === impl Queries ===

impl Queries {
    /// The routes.
    pub fn router(self) -> Router {
        let router = Router::new().route("/explain", get(explain).post(explain)).route("/inspect", get(inspect));
        bodies::limit(router.with_state(Arc::new(self)), BODIES)
    }

    /// Lets a caller pass who may do all of this.
    async fn admit(
        &self,
        caller: SocketAddr,
        headers: &HeaderMap,
        wishes: Vec<ResourceAttributes>,
    ) -> Result<(), Refusal> {
        self.access.check(caller.ip(), headers, wishes).await?;
        if self.sync_status.borrow().has_synced() { Ok(()) } else { Err(Refusal::Unready) }
    }

    /// The pod as the API server has it; the index keeps what decides cards, of pods that wait.
    async fn pod(&self, namespace: &str, name: &str) -> Result<Value, Refusal> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let request =
            Request::get(path).body(Vec::new()).map_err(|_bad| Refusal::Name(format!("{namespace}/{name}")))?;
        self.client.request::<Value>(request).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => Refusal::NotFound(status.message),
            other => Refusal::Unavailable(describe(&other)),
        })
    }
}

async fn explain(
    State(queries): State<Arc<Queries>>,
    ConnectInfo(caller): ConnectInfo<SocketAddr>,
    Query(Which { pod }): Query<Which>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let named = pod.map(|text| parse(&text).ok_or(Refusal::Name(text))).transpose()?;
    let pods = named.as_ref().map(|(namespace, _)| get_pods(namespace));
    queries.admit(caller, &headers, pods.into_iter().chain([list_gpu_nodes()]).collect()).await?;
    let pod = match named {
        Some((namespace, name)) => Some(queries.pod(&namespace, &name).await?),
        None if body.is_empty() => return Err(Refusal::NoPod),
        None => None,
    };
    let index = Arc::clone(&queries.index);
    let explained = apart(move || {
        let bad = |error: serde_json::Error| Refusal::Body(error.to_string());
        let pod = pod.map_or_else(|| serde_json::from_slice(&body).map_err(bad), Ok)?;
        let pod = Arc::new(PodView::deserialize(&pod).map_err(bad)?);
        let explained = index.explain(&pod, PATIENCE);
        Ok::<_, Refusal>((pod, explained))
    });
    let (pod, mut explained) = explained.await.map_err(|lost| Refusal::Unavailable(lost.to_string()))??;
    if matches!(explained.state, PodState::Waiting { .. }) {
        // What is read of the API server in our name is what the caller may read.
        let may_look = queries.access.check(caller.ip(), &headers, vec![get_nodes(), list_pods()]).await.is_ok();
        let client = may_look.then_some(&queries.client);
        explained.suggestions = suggestions(&queries.index, client, &pod, &explained).await;
    }
    Ok(answer(&explained))
}

/// `namespace/name`. Both go into a path of the API server and may say nothing else there.
fn parse(text: &str) -> Option<(ObjectName, ObjectName)> {
    let (namespace, name) = text.split_once('/')?;
    Some((namespace.to_owned().try_into().ok()?, name.to_owned().try_into().ok()?))
}

async fn inspect(
    State(queries): State<Arc<Queries>>,
    ConnectInfo(caller): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    queries.admit(caller, &headers, vec![list_gpu_nodes()]).await?;
    let index = Arc::clone(&queries.index);
    let overview = apart(move || answer(&index.snapshot().overview())).await;
    overview.map_err(|lost| Refusal::Unavailable(lost.to_string()))
}

fn get_pods(namespace: &str) -> ResourceAttributes {
    ResourceAttributes {
        verb: Some("get".to_owned()),
        resource: Some("pods".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    }
}

fn get_nodes() -> ResourceAttributes {
    ResourceAttributes {
        verb: Some("get".to_owned()),
        resource: Some("nodes".to_owned()),
        ..ResourceAttributes::default()
    }
}

/// In all namespaces.
fn list_pods() -> ResourceAttributes {
    ResourceAttributes {
        verb: Some("list".to_owned()),
        resource: Some("pods".to_owned()),
        ..ResourceAttributes::default()
    }
}

fn list_gpu_nodes() -> ResourceAttributes {
    ResourceAttributes {
        verb: Some("list".to_owned()),
        group: Some("divvy.dev".to_owned()),
        resource: Some("gpunodes".to_owned()),
        ..ResourceAttributes::default()
    }
}

fn answer(value: &impl serde::Serialize) -> Response {
    json(StatusCode::OK, serde_json::to_vec(value).expect("texts, numbers and lists always serialise"))
}

// === impl Refusal ===

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Unready | Self::Unavailable(_) | Self::Denied(Denied::Unavailable(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Denied(Denied::Unauthenticated(_)) => StatusCode::UNAUTHORIZED,
            Self::Denied(Denied::Forbidden(_)) => StatusCode::FORBIDDEN,
            Self::Denied(Denied::TooMany) => StatusCode::TOO_MANY_REQUESTS,
            Self::Name(_) | Self::NoPod | Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
        };
        (status, format!("{self}\n")).into_response()
    }
}
