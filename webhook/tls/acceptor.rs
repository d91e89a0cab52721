//! TLS of the listeners: which certificate they serve, and which clients they let in.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::metrics::gauge::Gauge;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio_rustls::TlsAcceptor;

use super::Identity;
use super::credentials::{dates, provider};

/// Protocols of ALPN.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// A check of client certificates, beyond that clients hold the key.
pub trait CheckClient: fmt::Debug + Send + Sync + 'static {
    /// Whether a client with this certificate is let in.
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error>;
}

/// TLS for every client. HTTP/1.1 alone: the API server's webhook client speaks nothing else
/// (`k8s.io/apiserver/pkg/util/webhook/client.go`: `NextProtos`), and one connection is one call at a time.
pub fn for_everybody(identity: Identity) -> Result<TlsAcceptor, rustls::Error> {
    without_client_certificates(identity, &[HTTP1])
}

/// TLS for the scheduler, which speaks HTTP/2 where it can. With a gauge only for clients with a client certificate that the
/// authority of `identity` has signed; its end of validity goes into the gauge. Without a gauge for every client.
pub fn for_scheduler(identity: Identity, expiration: Option<Gauge>) -> Result<TlsAcceptor, rustls::Error> {
    match expiration {
        Some(expiration) => for_clients(identity.clone(), Issued { identity, expiration }),
        None => without_client_certificates(identity, &[HTTP2, HTTP1]),
    }
}

/// TLS for clients that pass the check and speak HTTP/2 where they can.
pub fn for_clients(identity: Identity, check: impl CheckClient) -> Result<TlsAcceptor, rustls::Error> {
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let config = config.with_client_cert_verifier(Arc::new(Clients(check)));
    let mut config = config.with_cert_resolver(Arc::new(identity));
    // A session that is resumed brings its client along, and nobody checks the certificate: an authority that is gone would let
    // in whoever it let in before.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = [HTTP2, HTTP1].map(Vec::from).into();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn without_client_certificates(identity: Identity, protocols: &[&[u8]]) -> Result<TlsAcceptor, rustls::Error> {
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(identity));
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Clients with a certificate that a check accepts.
#[derive(Debug)]
struct Clients<C>(C);

/// Clients with a certificate of the current authorities of an identity.
#[derive(Debug)]
struct Issued {
    identity: Identity,
    /// End of validity of the last certificate, in seconds since 1970.
    expiration: Gauge,
}

impl CheckClient for Issued {
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let unknown = || rustls::Error::General("there is no authority yet".to_owned());
        let verified = self.identity.now().ok_or_else(unknown)?.verify_client(certificate, intermediates, now)?;
        let until = dates(certificate).and_then(|(_, until)| until.duration_since(SystemTime::UNIX_EPOCH).ok());
        self.expiration.set(until.map_or(0, |until| until.as_secs().cast_signed()));
        Ok(verified)
    }
}

impl<C: CheckClient> ClientCertVerifier for Clients<C> {
    /// None: a client that has a certificate presents it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.check(certificate, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
