//! `/pods` over HTTPS, behind a bearer token.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use fake_apiserver::go_json;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::core::Core;
use super::devices::shuffled;
use super::faults::{Faults, PodsFault};
use super::process::Process;
use super::status;

type Body = BoxBody<Bytes, Infallible>;

/// Bytes that are encoded before any of them is sent.
const PART: usize = 256 << 10;

/// What `/pods` needs besides the state; outlives a kubelet process, as its port and its certificate do.
pub(crate) struct PodsServer {
    pub(crate) address: SocketAddr,
    /// Bound but never listening: keeps the port while nobody listens.
    _reserved: TcpSocket,
    tls: Mutex<TlsAcceptor>,
    /// The one token that is let in.
    token: String,
}

// === impl PodsServer ===

impl PodsServer {
    pub(crate) fn new(tls: TlsAcceptor, token: String) -> io::Result<Self> {
        let reserved = bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { address: reserved.local_addr()?, _reserved: reserved, tls: Mutex::new(tls), token })
    }

    /// Serves another certificate, to those who connect from now on.
    pub(crate) fn serve_with(&self, tls: TlsAcceptor) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }

    pub(crate) async fn serve(self: Arc<Self>, process: Process) {
        let mut faults = process.core.faults.subscribe();
        let refused = |faults: &Faults| faults.pods == PodsFault::Refused;
        while faults.wait_for(|now| !refused(now)).await.is_ok() {
            let listener = match bind(self.address).and_then(|socket| socket.listen(128)) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, address = %self.address, "listening failed"),
            };
            let cut = CancellationToken::new();
            tokio::select! {
                () = self.accept(&process, &listener, &cut) => {}
                _ = faults.wait_for(refused) => {}
            }
            cut.cancel();
        }
    }

    async fn accept(self: &Arc<Self>, process: &Process, listener: &TcpListener, cut: &CancellationToken) {
        while let Ok((stream, _)) = listener.accept().await {
            let (server, core, cut) = (Arc::clone(self), Arc::clone(&process.core), cut.clone());
            process.spawn(async move {
                tokio::select! {
                    () = cut.cancelled() => {}
                    () = server.connection(core, stream) => {}
                }
            });
        }
    }

    async fn connection(&self, core: Arc<Core>, stream: TcpStream) {
        // As Go's own server does; without it one list in a hundred waits 40 ms for an acknowledgement.
        if let Err(error) = stream.set_nodelay(true) {
            return tracing::debug!(%error, "a connection broke");
        }
        let tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = match tls.accept(stream).await {
            Ok(stream) => TokioIo::new(stream),
            Err(error) => return tracing::debug!(%error, "a TLS handshake failed"),
        };
        let core = &core;
        let service = service_fn(|request| async move { Ok::<_, Infallible>(self.answer(core, &request).await) });
        if let Err(error) = http1::Builder::new().serve_connection(stream, service).await {
            tracing::debug!(%error, "a connection broke");
        }
    }

    async fn answer(&self, core: &Core, request: &Request<Incoming>) -> Response<Body> {
        let presented = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if presented.and_then(|value| value.strip_prefix("Bearer ")) != Some(&self.token) {
            return text(StatusCode::UNAUTHORIZED, "Unauthorized");
        }
        if request.method() != Method::GET || !matches!(request.uri().path(), "/pods" | "/pods/") {
            return text(StatusCode::NOT_FOUND, "404 page not found");
        }
        let fault = core.faults.borrow().pods;
        core.update(|state| state.record.pod_lists += 1);
        match fault {
            PodsFault::None | PodsFault::Refused => whole(pod_list(core, 0)),
            PodsFault::WithoutTheLast => whole(pod_list(core, 1)),
            PodsFault::Slow(delay) => {
                tokio::time::sleep(delay).await;
                whole(pod_list(core, 0))
            }
            PodsFault::CutShort => cut_short(&pod_list(core, 0).flatten().collect()),
            PodsFault::Status(status) => text(status, "refused by a fault"),
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// A `v1.PodList` in the order of a Go map, without so many of the pods that came last; in parts, as it may be long.
fn pod_list(core: &Core, left_out: usize) -> impl Iterator<Item = Bytes> + Send + Sync + use<> {
    let mut items: Vec<_> = core.read(|state| state.pods.iter().filter(|pod| pod.listed).map(status::render).collect());
    items.truncate(items.len().saturating_sub(left_out));
    let items: Vec<_> = core.draw(|rng| shuffled(items, rng));
    // Go's nil slice.
    let [before, after] = if items.is_empty() { ["null", ""] } else { ["[", "]"] };
    let mut part = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":{before}"#).into_bytes();
    let mut items = items.into_iter().peekable();
    let mut is_over = false;
    std::iter::from_fn(move || {
        while part.len() < PART
            && let Some(item) = items.next()
        {
            part.extend(go_json::escape_html(&json!(item).to_string()));
            part.extend(items.peek().map(|_| b','));
        }
        if items.peek().is_none() && !is_over {
            is_over = true;
            part.extend(format!("{after}}}\n").into_bytes());
        }
        let part = std::mem::take(&mut part);
        (!part.is_empty()).then(|| part.into())
    })
}

/// Parts without a length before them, as the kubelet writes a list.
fn whole(list: impl Iterator<Item = Bytes> + Send + Sync + 'static) -> Response<Body> {
    let frames = tokio_stream::iter(list.map(|part| Ok(Frame::data(part))));
    answer(StatusCode::OK, "application/json", BodyExt::boxed(StreamBody::new(frames)))
}

fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    answer(status, "text/plain; charset=utf-8", Full::new(Bytes::from_static(text.as_bytes())).boxed())
}

/// Announces all of it and ends in the middle.
fn cut_short(list: &Bytes) -> Response<Body> {
    let half = Ok(Frame::data(list.slice(..list.len() / 2)));
    let mut response =
        answer(StatusCode::OK, "application/json", BodyExt::boxed(StreamBody::new(tokio_stream::once(half))));
    response.headers_mut().insert(CONTENT_LENGTH, list.len().into());
    response
}

fn answer(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}
