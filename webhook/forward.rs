//! Calls of the scheduler, passed on to the replica that leads.
//!
//! Connections are kept, and each side shows the other the Service's certificate: the caller so that it is believed as the
//! scheduler would be, the called one so that nobody else is told.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use divvy_runtime::api_server::errors::chain;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::tls::{Identity, Service, Unusable, provider};

/// Says who passed a call on. A receiver that doesn't lead answers 503 to such a call and passes nothing on.
pub const FORWARDED: HeaderName = HeaderName::from_static("divvy-forwarded");

/// Longest wait for the leader's answer: the scheduler gives up after 5 s (`HTTPTimeout` of an extender, by default).
const DEADLINE: Duration = Duration::from_secs(4);
/// Longest wait for a connection. A pod whose node is gone answers nothing at all.
const CONNECT: Duration = Duration::from_secs(1);
/// A connection is kept for so long without a call.
const IDLE: Duration = Duration::from_secs(60);

/// Passes calls on. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Forwarder {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    us: HeaderValue,
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The leader is slow.
    #[error("the leader at {to} didn't answer within {}s", DEADLINE.as_secs())]
    Late {
        /// Who was asked.
        to: SocketAddr,
    },
    /// The leader can't be reached, or isn't one of us.
    #[error("the leader at {to} can't be asked: {why}")]
    Failed {
        /// Who was asked.
        to: SocketAddr,
        /// Every cause.
        why: String,
    },
    /// The call makes no request.
    #[error("{path:?} can't be asked for: {source}")]
    Request {
        /// What was to be asked for.
        path: String,
        /// Why it can't.
        source: http::Error,
    },
}

/// Why there is no forwarder.
#[derive(Debug, thiserror::Error)]
pub enum ForwarderError {
    /// The Service's name makes no DNS name.
    #[error(transparent)]
    Service(#[from] Unusable),
    /// TLS can't be set up.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// Our own name can't stand in a header.
    #[error("{0:?} can't stand in a header")]
    Name(String),
}

/// Believes whom our identity vouches for.
#[derive(Debug)]
struct Replicas {
    identity: Identity,
    provider: Arc<CryptoProvider>,
}

// === impl Forwarder ===

impl Forwarder {
    /// Calls in the name of `us`, the pod's, and as `identity` says at the time of each connection.
    pub fn new(us: &str, service: &Service, identity: Identity) -> Result<Self, ForwarderError> {
        let provider = provider();
        let config =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let replicas = Replicas { identity: identity.clone(), provider };
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(replicas));
        let mut config = config.with_client_cert_resolver(Arc::new(identity));
        // A resumed session shows no certificate: one that is trusted no longer would go on.
        config.resumption = Resumption::disabled();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let name = FixedServerNameResolver::new(service.server_name()?);
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
        let connector = connector.with_server_name_resolver(name).enable_http1().wrap_connector(tcp);
        let mut builder = Client::builder(TokioExecutor::new());
        let client = builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector);
        let us = HeaderValue::from_str(us).map_err(|_invalid| ForwarderError::Name(us.to_owned()))?;
        Ok(Self { client, us })
    }

    /// Posts a JSON body to `path` of the replica at `to`; whatever it answers, refusals too, is the answer.
    pub async fn send(&self, to: SocketAddr, path: &str, body: Bytes) -> Result<Response<Bytes>, ForwardError> {
        let request = Request::post(format!("https://{to}{path}"));
        let request = request.header(CONTENT_TYPE, "application/json").header(FORWARDED, self.us.clone());
        let request = request.body(Full::new(body));
        let request = request.map_err(|source| ForwardError::Request { path: path.to_owned(), source })?;
        let answer = async {
            let answer = self.client.request(request).await.map_err(|error| failed(to, &error))?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.map_err(|error| failed(to, &error))?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        tokio::time::timeout(DEADLINE, answer).await.map_err(|_elapsed| ForwardError::Late { to })?
    }
}

fn failed(to: SocketAddr, error: &dyn Error) -> ForwardError {
    ForwardError::Failed { to, why: chain(error) }
}

// === impl Replicas ===

impl ServerCertVerifier for Replicas {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let own = self.identity.now().ok_or(CertificateError::UnknownIssuer)?;
        own.vouch(certificate, intermediates, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
