//! Calls of the webhook, as kube-scheduler, the API server and people make them.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::within;

/// What the certificate must say.
const NAME: &str = "divvy-webhook.divvy-system.svc";

/// A client that believes the webhook's authority.
pub(crate) struct Https {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    tls: TlsConnector,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

// === impl Https ===

impl Https {
    /// Shows a chain and its key, PEM, to those who ask.
    pub(crate) fn new(authority: &str, identity: Option<(&str, &str)>) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let config = config.with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().unwrap();
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        };
        let tls = TlsConnector::from(Arc::new(config.clone()));
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
        let connector = connector.with_server_name_resolver(FixedServerNameResolver::new(NAME.try_into().unwrap()));
        Self { client: Client::builder(TokioExecutor::new()).build(connector.enable_http1().build()), tls }
    }

    /// A connection for whatever is no proper call.
    pub(crate) async fn open(&self, to: SocketAddr) -> TlsStream<TcpStream> {
        self.over(TcpStream::connect(to).await.unwrap()).await.unwrap()
    }

    /// TLS over a connection.
    pub(crate) async fn over(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        within("a handshake", self.tls.connect(NAME.try_into().unwrap(), stream)).await
    }

    /// A connection that speaks HTTP/2, and its end.
    pub(crate) async fn http2(&self, to: SocketAddr) -> (SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>) {
        let (stream, tls) = (TcpStream::connect(to).await.unwrap(), self.tls.with_alpn(vec![b"h2".to_vec()]));
        let stream = within("a handshake", tls.connect(NAME.try_into().unwrap(), stream)).await.unwrap();
        let (calls, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        (calls, tokio::spawn(connection))
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        (to, path): (SocketAddr, &str),
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("https://{to}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.client.request(request.body(Full::new(body.into())).unwrap());
        let (head, body) = within(path, answer).await.unwrap_or_else(|error| panic!("{path}: {error:?}")).into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { code: head.status, headers: head.headers, body }
    }

    /// Why there is no answer, if there is none.
    pub(crate) async fn try_post(
        &self,
        to: SocketAddr,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<StatusCode, String> {
        let request = Request::post(format!("https://{to}{path}")).body(Full::new(body.into())).unwrap();
        let answer = within(path, self.client.request(request)).await;
        let answer = answer.map_err(|error| divvy_runtime::api_server::errors::chain(&error))?;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        body.map(|_| status).map_err(|error| error.to_string())
    }

    pub(crate) async fn post(&self, to: SocketAddr, path: &str, body: impl Into<Bytes>) -> Answer {
        self.ask(Method::POST, (to, path), &[("content-type", "application/json")], body).await
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body of an answer that must be 200.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, StatusCode::OK, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}
