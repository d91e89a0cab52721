//! The API's routes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, Version as HttpVersion, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use divvy_runtime::settings::Switch;
use divvy_serving::connections::{Connection, SILENCE};
use futures::stream;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::accept::Form;
use super::query::{Query, Verb, WatchQuery};
use super::status::Refusal;
use super::watching::{Life, Selection, Watching};
use super::{discovery, openapi};
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::objects::Kind;
use crate::store::Version;

/// Most watches at a time.
pub const WATCHES: usize = 2000;
/// Most lists that are on their way at a time: one of 5 000 nodes has 10 MB.
pub const LISTS: usize = 16;
/// Bytes of a list that are sent at a time.
const PIECE: usize = 64 << 10;
/// Longest time of a watch. Clients begin another one where it ended, perhaps at another replica.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// Longest time over HTTP/1.1, where a connection on which nothing is received looks as if its client were gone.
const LONGEST_HTTP1: Duration = SILENCE.saturating_sub(Duration::from_secs(10));

/// Answers kube-apiserver.
#[derive(Clone, Debug)]
pub struct Api {
    /// The objects.
    pub nodes: Nodes,
    /// Whether plain watches are answered as nvidia-gpu-scheduler does.
    pub legacy_watch: Switch,
    /// Places of watches.
    pub watches: Arc<Semaphore>,
    /// Places of lists.
    pub lists: Arc<Semaphore>,
    /// Counters.
    pub metrics: Metrics,
}

// === impl Api ===

impl Api {
    /// The routes.
    pub fn router(self) -> Router {
        let mut router = Router::new();
        for (path, document) in discovery::documents().into_iter().chain(openapi::documents()) {
            router = router.route(&path, fixed(&document));
        }
        for kind in Kind::ALL {
            let all = format!("/apis/metrics.nvidia.com/v1alpha1/{}", kind.plural());
            let one = format!("{all}/{{name}}");
            router = router.route(
                &all,
                get(async move |State(api): State<Self>, RawQuery(query), request: Request| {
                    api.many(kind, &query.unwrap_or_default(), &request)
                }),
            );
            router = router.route(
                &one,
                get(
                    async move |State(api): State<Self>,
                                RawQuery(query),
                                name: Result<Path<String>, PathRejection>,
                                headers: HeaderMap| {
                        let answer = name.map_err(|error| Refusal::bad_request(error.body_text()));
                        let answer =
                            answer.and_then(|Path(name)| api.one(kind, &query.unwrap_or_default(), &name, &headers));
                        api.counted(kind, "get", answer)
                    },
                ),
            );
        }
        router
            .method_not_allowed_fallback(async || Refusal::method())
            .fallback(async || Refusal::not_found("the server could not find the requested resource"))
            .with_state(self)
    }

    /// A list or a watch.
    fn many(&self, kind: Kind, query: &str, request: &Request) -> Response {
        let (verb, answer) = match Query::parse(query) {
            Err(refusal) => ("list", Err(refusal)),
            Ok(query) => match query.verb {
                Verb::List(version) => ("list", self.list(kind, query, version, request.headers())),
                Verb::Watch(watch) => ("watch", self.watch(kind, query, watch, request)),
            },
        };
        self.counted(kind, verb, answer)
    }

    fn list(
        &self,
        kind: Kind,
        query: Query,
        version: Option<Version>,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        let form = Form::accepted(headers, query.include.as_deref())?;
        self.listed()?;
        let permit = Arc::clone(&self.lists).try_acquire_owned().map_err(|_none| Refusal::too_many(LISTS, "lists"))?;
        let mut listing = {
            let store = self.nodes.store();
            version.map_or(Ok(()), |version| store.check(version))?;
            store.list(kind)
        };
        if let Some(name) = query.name {
            listing.objects.retain(|object| object.name == name);
        }
        let text: Bytes = form.list(kind, &listing).map_err(|error| Refusal::internal(&error))?.into();
        let length = text.len();
        let pieces = stream::unfold((text, permit), async |(mut rest, permit)| {
            let piece = rest.split_to(rest.len().min(PIECE));
            (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), (rest, permit)))
        });
        let headers =
            [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, length.to_string())];
        Ok((headers, Body::from_stream(pieces)).into_response())
    }

    fn one(&self, kind: Kind, query: &str, name: &str, headers: &HeaderMap) -> Result<Response, Refusal> {
        let form = Form::accepted(headers, Query::parse(query)?.include.as_deref())?;
        self.listed()?;
        let object = self.nodes.store().get(kind, name).cloned();
        let missing = || Refusal::not_found(format!("{}.metrics.nvidia.com {name:?} not found", kind.plural()));
        Ok(json(&form.object(&*object.ok_or_else(missing)?, true)))
    }

    fn watch(&self, kind: Kind, query: Query, watch: WatchQuery, request: &Request) -> Result<Response, Refusal> {
        let form = Form::accepted(request.headers(), query.include.as_deref())?;
        let is_legacy = self.legacy_watch == Switch::On && watch.is_plain && kind == Kind::PodResource;
        let form = if is_legacy && form == Form::Objects { Form::Legacy } else { form };
        self.listed()?;
        let longest = if request.version() == HttpVersion::HTTP_2 { LONGEST } else { LONGEST_HTTP1 };
        let timeout = watch.timeout.map_or(longest, |timeout| timeout.min(longest));
        let permit =
            Arc::clone(&self.watches).try_acquire_owned().map_err(|_none| Refusal::too_many(WATCHES, "watches"))?;
        let connection = request.extensions().get::<Connection>().cloned();
        let selection = Selection { kind, name: query.name, form };
        let watching = Watching::begin(&self.nodes, selection, watch, Life { timeout, connection, permit })?;
        let mut response = Body::from_stream(watching.lines()).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    fn listed(&self) -> Result<(), Refusal> {
        if self.nodes.state().now().listed { Ok(()) } else { Err(Refusal::not_listed()) }
    }

    fn counted(&self, kind: Kind, verb: &'static str, answer: Result<Response, Refusal>) -> Response {
        let response = answer.unwrap_or_else(Refusal::into_response);
        self.metrics.answered(kind.plural(), verb, response.status().as_u16());
        response
    }
}

/// A document that never changes.
fn fixed(document: &Value) -> axum::routing::MethodRouter<Api> {
    let text: Arc<str> = document.to_string().into();
    get(async move || json_text(text.to_string()))
}

fn json(value: &Value) -> Response {
    json_text(value.to_string())
}

fn json_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
