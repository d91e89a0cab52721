//! Calls as kube-apiserver makes them, over HTTP/2.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::within;

pub(crate) const BASE: &str = "/apis/metrics.nvidia.com/v1alpha1";
const NAME: &str = "divvy-webhook.divvy-system.svc";

/// A client that believes the replica's authority.
pub(crate) struct Client(TlsConnector);

/// Lines of a watch.
pub(crate) struct Lines {
    body: Incoming,
    rest: Vec<u8>,
    read: VecDeque<Value>,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(authority: &str, identity: Option<(&str, &str)>) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let config = config.with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        };
        Self(TlsConnector::from(Arc::new(config)))
    }

    async fn open(&self, to: SocketAddr, alpn: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(to).await?;
        let tls = self.0.with_alpn(vec![alpn.to_vec()]);
        within("a handshake", tls.connect(NAME.try_into().unwrap(), stream)).await
    }

    /// The answer over HTTP/2, or why there is none.
    pub(crate) async fn send(
        &self,
        to: SocketAddr,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let mut calls = self.connect(to).await?;
        within("an answer", calls.send_request(request)).await.map_err(|error| error.to_string())
    }

    /// A connection for several calls at a time.
    pub(crate) async fn connect(&self, to: SocketAddr) -> Result<http2::SendRequest<Empty<Bytes>>, String> {
        let stream = self.open(to, b"h2").await.map_err(|error| error.to_string())?;
        let (calls, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(calls)
    }

    /// The answer over HTTP/1.1, or why there is none.
    pub(crate) async fn send_http1(&self, to: SocketAddr, path: &str) -> Result<Response<Incoming>, String> {
        let stream = self.open(to, b"http/1.1").await.map_err(|error| error.to_string())?;
        let (mut calls, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let request = Request::get(path).header("host", NAME).body(Empty::<Bytes>::new()).unwrap();
        within("an answer", calls.send_request(request)).await.map_err(|error| error.to_string())
    }

    pub(crate) async fn ask(&self, to: SocketAddr, method: Method, path: &str, accept: &str) -> (u16, Value) {
        let request = Request::builder().method(method).uri(format!("https://{to}{path}")).header("accept", accept);
        let answer = self.send(to, request.body(Empty::new()).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = within("the whole answer", answer.into_body().collect()).await.unwrap().to_bytes();
        let json = serde_json::from_slice(&body);
        (code, json.unwrap_or_else(|error| panic!("{path}: {error}: {body:?}")))
    }

    /// An answer that must be 200.
    pub(crate) async fn get(&self, to: SocketAddr, path: &str) -> Value {
        let (code, body) = self.ask(to, Method::GET, &format!("{BASE}{path}"), "application/json").await;
        assert_eq!(code, 200, "{path}: {body}");
        body
    }

    pub(crate) async fn watch(&self, to: SocketAddr, path: &str, accept: &str) -> Lines {
        let request = Request::get(format!("https://{to}{BASE}{path}")).header("accept", accept);
        let answer = self.send(to, request.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        Lines { body: answer.into_body(), rest: Vec::new(), read: VecDeque::new() }
    }
}

// === impl Lines ===

impl Lines {
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(line) = self.read.pop_front() {
                return Some(line);
            }
            let frame = within("a line", self.body.frame()).await?.unwrap();
            self.rest.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                self.read.push_back(serde_json::from_slice(&line).unwrap());
            }
        }
    }

    /// Type and name of the next line.
    pub(crate) async fn event(&mut self) -> (String, String) {
        let line = self.next().await.expect("a line");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&line["type"]), text(&line["object"]["metadata"]["name"]))
    }
}
