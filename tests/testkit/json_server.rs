//! A server that answers JSON with JSON over TLS, as a test tells it to.

#![allow(clippy::unwrap_used, reason = "only tests start it")]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use fake_apiserver::pki;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A running server; stops when dropped.
pub struct JsonServer {
    /// Where it listens.
    pub address: SocketAddr,
    /// What signed its certificate, PEM.
    pub authority: String,
    seen: Arc<Mutex<Seen>>,
    _end: DropGuard,
}

#[derive(Default)]
struct Seen {
    /// Path with query, and body, of every request.
    requests: Vec<(String, Value)>,
    connections: usize,
}

type Answer = Arc<dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync>;

impl JsonServer {
    /// Serves under these names. `answer` gets the path and the body and gives status and body.
    pub async fn start(names: &[&str], answer: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let authority = pki::authority("test-ca").unwrap();
        let tls = pki::signed(&authority, "server", names).unwrap();
        let authority = authority.pem();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, end, answer) = (Arc::<Mutex<Seen>>::default(), CancellationToken::new(), Arc::new(answer) as Answer);
        let (kept, over) = (Arc::clone(&seen), end.clone());
        tokio::spawn(over.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, seen, answer) = (tls.clone(), Arc::clone(&kept), Arc::clone(&answer));
                tokio::spawn(over.clone().run_until_cancelled_owned(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    seen.lock().unwrap().connections += 1;
                    let service = service_fn(|request| respond(request, &seen, &answer));
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                }));
            }
        }));
        Self { address, authority, seen, _end: end.drop_guard() }
    }

    /// Path with query, and body, of every request so far.
    pub fn requests(&self) -> Vec<(String, Value)> {
        self.seen.lock().unwrap().requests.clone()
    }

    /// How often somebody has connected.
    pub fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }
}

async fn respond(
    request: Request<Incoming>,
    seen: &Mutex<Seen>,
    answer: &Answer,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    seen.lock().unwrap().requests.push((path.clone(), body.clone()));
    let (code, body) = answer(&path, &body);
    let mut response = Response::new(Full::new(body.to_string().into()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
