//! HTTPS on one port, which stays ours while nobody listens.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full, Limited, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE, USER_AGENT, WARNING,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::warning_header;
use super::core::Core;
use super::dispatch::{Asked, Outcome, dispatch};
use super::go_json;
use super::port_forward::{Offer, PROTOCOL};

type Body = BoxBody<Bytes, Infallible>;

/// The largest body that is read, as with a real server.
const BODY_LIMIT: usize = 3 << 20;

/// A port and what is served there.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Bound but never listening: keeps the port while nobody listens.
    _reserved: TcpSocket,
    tls: TlsAcceptor,
    core: Arc<Core>,
}

// === impl Server ===

impl Server {
    pub(crate) fn bind(tls: TlsAcceptor, core: Arc<Core>) -> io::Result<Self> {
        let reserved = bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { address: reserved.local_addr()?, _reserved: reserved, tls, core })
    }

    /// Opens the port; what connects is served as soon as `serve` runs.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        bind(self.address)?.listen(1024)
    }

    /// Serves until `end`, but for the times when nobody is to answer.
    pub(crate) async fn serve(self: Arc<Self>, mut listener: TcpListener, end: CancellationToken) {
        let mut wanted = self.core.wanted.subscribe();
        loop {
            let (cut, connections) = (end.child_token(), TaskTracker::new());
            tokio::select! {
                () = end.cancelled() => return,
                () = self.accept(&listener, &cut, &connections) => {}
                _ = wanted.wait_for(|wanted| !wanted) => {}
            }
            cut.cancel();
            drop(listener);
            connections.close();
            connections.wait().await;
            self.core.open.send_replace(false);
            tokio::select! {
                () = end.cancelled() => return,
                back = wanted.wait_for(|wanted| *wanted) => if back.is_err() { return },
            }
            listener = match self.listen() {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, address = %self.address, "listening failed"),
            };
            self.core.open.send_replace(true);
        }
    }

    async fn accept(self: &Arc<Self>, listener: &TcpListener, cut: &CancellationToken, connections: &TaskTracker) {
        while let Ok((stream, _)) = listener.accept().await {
            let (server, cut) = (Arc::clone(self), cut.clone());
            connections.spawn(async move {
                tokio::select! {
                    () = cut.cancelled() => {}
                    () = server.connection(stream, &cut) => {}
                }
            });
        }
    }

    async fn connection(&self, stream: TcpStream, cut: &CancellationToken) {
        let stream = match self.tls.accept(stream).await {
            Ok(stream) => TokioIo::new(stream),
            Err(error) => return tracing::debug!(%error, "a TLS handshake failed"),
        };
        let service = service_fn(|request| async move { Ok::<_, Infallible>(self.answer(request, cut).await) });
        if let Err(error) = http1::Builder::new().serve_connection(stream, service).with_upgrades().await {
            tracing::debug!(%error, "a connection broke");
        }
    }

    /// Answers, and goes on with what isn't HTTP any more until it is over or `cut`.
    async fn answer(&self, mut request: Request<Incoming>, cut: &CancellationToken) -> Response<Body> {
        let upgrade = hyper::upgrade::on(&mut request);
        let asked = match read(request).await {
            Ok(asked) => asked,
            Err(error) => {
                tracing::debug!(%error, "a request could not be read");
                return whole(StatusCode::PAYLOAD_TOO_LARGE, "text/plain; charset=utf-8", "request entity too large");
            }
        };
        let (outcome, warnings) = loop {
            match self.core.update(|state| dispatch(state, &asked)) {
                Outcome::Held(held) => {
                    if let Some(((code, body), warnings)) = held.decide(&self.core).await {
                        break (Outcome::Json(code, body), warnings);
                    }
                }
                outcome => break (outcome, Vec::new()),
            }
        };
        let mut response = match outcome {
            Outcome::Json(code, body) => whole(code, "application/json", go_json::escape_html(&body.to_string())),
            Outcome::Late(code, body) => {
                // The server lets go of the sender at its end.
                drop(self.core.prompt.subscribe().wait_for(|prompt| *prompt).await);
                whole(code, "application/json", go_json::escape_html(&body.to_string()))
            }
            Outcome::Proxied(url) => proxied(&url).await,
            Outcome::Log(text) => whole(StatusCode::OK, "text/plain", text),
            Outcome::Forwarded(forwarding) => {
                let response = switching(&forwarding.accept);
                tokio::spawn(cut.clone().run_until_cancelled_owned(forwarding.run(upgrade)));
                response
            }
            Outcome::Text(code, text) => whole(code, "text/plain; charset=utf-8", text),
            Outcome::Watch(watch) => {
                let (sender, frames) = mpsc::channel(16);
                tokio::spawn(watch.run(Arc::clone(&self.core), sender));
                response(StatusCode::OK, "application/json", StreamBody::new(ReceiverStream::new(frames)).boxed())
            }
            // The connection stays open until the client closes it.
            Outcome::Silence => std::future::pending().await,
            Outcome::Held(_) => unreachable!("what is held is decided just above"),
        };
        let warnings = warnings.iter().filter_map(|text| HeaderValue::try_from(warning_header(text)?).ok());
        response.headers_mut().extend(warnings.map(|warning| (WARNING, warning)));
        response
    }
}

/// What a pod answers there, by plain HTTP.
async fn proxied(url: &str) -> Response<Body> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let asked = async {
        let answer = client.get(url.parse()?).await?;
        let code = answer.status();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((code, answer.into_body().collect().await?.to_bytes()))
    };
    match asked.await {
        Ok((code, body)) => whole(code, "application/json", body),
        Err(error) => whole(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", error.to_string()),
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn read(request: Request<Incoming>) -> Result<Asked, Box<dyn std::error::Error + Send + Sync>> {
    let (head, body) = request.into_parts();
    let header = |name: HeaderName| {
        let values = head.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.collect::<Vec<_>>().join(",")
    };
    Ok(Asked {
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        token: header(AUTHORIZATION).strip_prefix("Bearer ").unwrap_or_default().to_owned(),
        accept: header(ACCEPT),
        content_type: header(CONTENT_TYPE),
        user_agent: header(USER_AGENT),
        websocket: header(UPGRADE)
            .eq_ignore_ascii_case("websocket")
            .then(|| Offer { key: header(SEC_WEBSOCKET_KEY), protocols: header(SEC_WEBSOCKET_PROTOCOL) }),
        method: head.method,
        body: Limited::new(body, BODY_LIMIT).collect().await?.to_bytes().to_vec(),
    })
}

/// Goes on in WebSocket.
fn switching(accept: &str) -> Response<Body> {
    let mut response = Response::new(Empty::new().boxed());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    headers.extend(HeaderValue::try_from(accept).ok().map(|accept| (SEC_WEBSOCKET_ACCEPT, accept)));
    response
}

fn whole(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    response(code, content_type, Full::new(body.into()).boxed())
}

fn response(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if code == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
