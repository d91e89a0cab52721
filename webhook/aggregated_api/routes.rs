//! The API's routes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version as HttpVersion, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use futures::stream;
use serde_json::Value;

use super::accept::Form;
use super::objects::{API_VERSION, GROUP, ServedKind};
use super::query::{Query, Verb, WatchQuery};
use super::status::StatusError;
use super::store::Version;
use super::watching::{Lifetime, Selection, Watching};
use super::{AggregatedApi, MOST_LISTS, MOST_WATCHES, discovery, openapi};
use crate::connections::{Connection, SILENCE};

/// Bytes of a list that are sent at a time.
const PIECE: usize = 64 << 10;
/// Longest time of a watch. Clients begin another one where it ended, perhaps at another replica.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// Longest time over HTTP/1.1, where a connection on which nothing is received looks as if its client were gone.
const LONGEST_HTTP1: Duration = SILENCE.saturating_sub(Duration::from_secs(10));
const READ_ONLY: &str = "the server does not allow this method on the requested resource: it is read-only";
const UNKNOWN: &str = "the server could not find the requested resource";

// === impl AggregatedApi ===

impl AggregatedApi {
    /// The routes.
    pub fn router(self) -> Router {
        let documents = discovery::documents().into_iter().chain(openapi::documents());
        let router = documents.fold(Router::new(), |router, (path, document)| router.route(&path, fixed(&document)));
        let router = ServedKind::ALL.into_iter().fold(router, |router, kind| {
            let all = format!("/apis/{API_VERSION}/{}", kind.plural());
            router.route(&format!("{all}/{{name}}"), one(kind)).route(&all, many(kind))
        });
        router
            .method_not_allowed_fallback(async || StatusError::new(StatusCode::METHOD_NOT_ALLOWED, READ_ONLY))
            .fallback(async || StatusError::new(StatusCode::NOT_FOUND, UNKNOWN))
            .with_state(self)
    }

    /// A list or a watch.
    fn many(&self, kind: ServedKind, query: &str, request: &Request) -> Response {
        let (verb, answer) = match Query::parse(query) {
            Err(refused) => ("list", Err(refused)),
            Ok(query) => match query.verb {
                Verb::List(version) => ("list", self.list(kind, query, version, request.headers())),
                Verb::Watch(watch) => ("watch", self.watch(kind, query, watch, request)),
            },
        };
        self.counted(kind, verb, answer)
    }

    fn list(
        &self,
        kind: ServedKind,
        query: Query,
        version: Option<Version>,
        headers: &HeaderMap,
    ) -> Result<Response, StatusError> {
        let form = Form::accepted(headers, query.include.as_deref())?;
        self.listed()?;
        let permit = Arc::clone(&self.lists).try_acquire_owned();
        let permit = permit.map_err(|_none| StatusError::too_many(MOST_LISTS, "lists"))?;
        let mut listing = {
            let store = self.store.lock();
            version.map_or(Ok(()), |version| store.check(version))?;
            store.list(kind)
        };
        if let Some(name) = query.name {
            listing.objects.retain(|object| object.name == name);
        }
        let internal =
            |error: serde_json::Error| StatusError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        let text: Bytes = form.list(kind, &listing).map_err(internal)?.into();
        let length = text.len();
        let pieces = stream::unfold((text, permit), async |(mut rest, permit)| {
            let piece = rest.split_to(rest.len().min(PIECE));
            (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), (rest, permit)))
        });
        let headers =
            [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, length.to_string())];
        Ok((headers, Body::from_stream(pieces)).into_response())
    }

    fn one(&self, kind: ServedKind, query: &str, name: &str, headers: &HeaderMap) -> Result<Response, StatusError> {
        let form = Form::accepted(headers, Query::parse(query)?.include.as_deref())?;
        self.listed()?;
        let object = self.store.lock().get(kind, name).cloned();
        let missing = || format!("{}.{GROUP} {name:?} not found", kind.plural());
        let object = object.ok_or_else(|| StatusError::new(StatusCode::NOT_FOUND, missing()))?;
        Ok(json_text(form.object(&object, true).to_string()))
    }

    fn watch(
        &self,
        kind: ServedKind,
        query: Query,
        watch: WatchQuery,
        request: &Request,
    ) -> Result<Response, StatusError> {
        let form = Form::accepted(request.headers(), query.include.as_deref())?;
        let is_legacy = self.is_legacy && watch.is_plain && kind == ServedKind::PodResource;
        let form = if is_legacy && form == Form::Objects { Form::Legacy } else { form };
        self.listed()?;
        let longest = if request.version() == HttpVersion::HTTP_2 { LONGEST } else { LONGEST_HTTP1 };
        let timeout = watch.timeout.map_or(longest, |timeout| timeout.min(longest));
        let permit = Arc::clone(&self.watches).try_acquire_owned();
        let permit = permit.map_err(|_none| StatusError::too_many(MOST_WATCHES, "watches"))?;
        let connection = request.extensions().get::<Connection>().cloned();
        let selection = Selection { kind, name: query.name, form };
        let watching = Watching::begin(&self.store, selection, watch, Lifetime { timeout, connection, permit })?;
        let mut response = Body::from_stream(watching.lines()).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    fn listed(&self) -> Result<(), StatusError> {
        let unlisted = || StatusError::new(StatusCode::SERVICE_UNAVAILABLE, "the GpuNodes aren't listed yet");
        if self.store.lock().is_listed() { Ok(()) } else { Err(unlisted()) }
    }

    fn counted(&self, kind: ServedKind, verb: &'static str, answer: Result<Response, StatusError>) -> Response {
        let response = answer.unwrap_or_else(StatusError::into_response);
        self.requests.answered(kind, verb, response.status().as_u16());
        response
    }
}

/// Lists and watches of a kind.
fn many(kind: ServedKind) -> MethodRouter<AggregatedApi> {
    get(async move |State(api): State<AggregatedApi>, RawQuery(query): RawQuery, request: Request| {
        api.many(kind, &query.unwrap_or_default(), &request)
    })
}

/// An object of a kind.
fn one(kind: ServedKind) -> MethodRouter<AggregatedApi> {
    type Name = Result<Path<String>, PathRejection>;
    get(async move |State(api): State<AggregatedApi>, RawQuery(query): RawQuery, name: Name, headers: HeaderMap| {
        let name = name.map_err(|error| StatusError::bad_request(error.body_text()));
        let answer = name.and_then(|Path(name)| api.one(kind, &query.unwrap_or_default(), &name, &headers));
        api.counted(kind, "get", answer)
    })
}

/// A document that never changes.
fn fixed(document: &Value) -> MethodRouter<AggregatedApi> {
    let text: Arc<str> = document.to_string().into();
    get(async move || json_text(text.to_string()))
}

fn json_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
