//! Real handshakes, and several replicas at one API server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http_body_util::{BodyExt as _, Empty};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::ByteString;
use prometheus_client::metrics::counter::Counter;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::credentials::{provider, roots};
use super::*;
use crate::connections::{Connections, Limits, Served, serve as serve_connections};

mod cluster;
mod connections;
mod files;

type Data = BTreeMap<String, ByteString>;

/// Longest wait for anything.
const LONG: Duration = Duration::from_secs(60);

pub(crate) fn service() -> Service {
    Service { name: "divvy-webhook".to_owned(), namespace: "divvy-system".to_owned(), client: "divvy-scheduler" }
}

/// What a new Secret holds, made as in production.
fn secret() -> Data {
    issued::decide(None, &service(), SystemTime::now()).unwrap().wanted.unwrap().0
}

fn understood(secret: &Data) -> Credentials {
    issued::decide(Some(secret), &service(), SystemTime::now()).unwrap().usable.unwrap()
}

/// Credentials of a new authority.
pub(crate) fn issue() -> Credentials {
    understood(&secret())
}

pub(crate) fn known(credentials: Credentials) -> Identity {
    let identity = Identity::unknown();
    identity.set(credentials);
    identity
}

/// Serves `/`, on a free port.
pub(crate) async fn serve(router: Router, tls: Result<TlsAcceptor, rustls::Error>) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let limits = Limits { connections: 64, per_address: 64 };
    let server = serve_connections(
        listener,
        Some(tls.unwrap()),
        limits,
        Served { router, panics: Counter::default() },
        Connections::until(CancellationToken::new(), stop.clone()),
    );
    tokio::spawn(server);
    (address, stop.drop_guard())
}

/// Answers with the caller's port, which tells connections apart.
fn who() -> Router {
    let answer = async |ConnectInfo(address): ConnectInfo<SocketAddr>| address.port().to_string();
    Router::new().route("/", get(answer))
}

/// The name by which the API server calls the webhook.
fn server_name() -> ServerName<'static> {
    service().names()[2].clone().try_into().unwrap()
}

/// A client with an authority that it believes, and perhaps a certificate of its own.
struct Asker(HttpClient<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl Asker {
    fn new(believed: &Credentials, own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>) -> Self {
        let config = believing(believed);
        let config = match own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
        };
        let name = FixedServerNameResolver::new(server_name());
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
        let connector = connector.with_server_name_resolver(name).enable_http1().build();
        Self(HttpClient::builder(TokioExecutor::new()).build(connector))
    }

    /// The port.
    async fn ask(&self, address: SocketAddr) -> Result<String, String> {
        let answer = self.0.get(format!("https://{address}/").parse().unwrap()).await;
        let answer = answer.map_err(|error| divvy_runtime::api_server::errors::chain(&error))?;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        Ok(String::from_utf8(body.to_vec()).unwrap())
    }
}

fn believing(credentials: &Credentials) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let bundle = decode(&credentials.bundle());
    let authorities = CertificateDer::pem_slice_iter(&bundle).map(Result::unwrap);
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    config.with_root_certificates(roots(&authorities.collect::<Vec<_>>()).unwrap())
}

fn decode(bundle: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(bundle).unwrap()
}

/// The scheduler's certificate of a Secret, and its key.
fn client(secret: &Data) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from_pem_slice(&secret["client.crt"].0).unwrap();
    (certificate, PrivateKeyDer::from_pem_slice(&secret["client.key"].0).unwrap())
}

fn leaf(credentials: &Credentials) -> CertificateDer<'static> {
    credentials.served().cert[0].clone()
}
