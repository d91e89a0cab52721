//! The serving certificate with its key, and the authorities: clients trust it by them, and it trusts clients by them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pem::{EncodeConfig, LineEnding, Pem};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, client};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A certificate chain with its key, and the authorities that clients are to trust meanwhile.
#[derive(Debug)]
pub struct Credentials {
    served: Arc<CertifiedKey>,
    /// Those that signed the certificate, or will sign the next one.
    authorities: Vec<CertificateDer<'static>>,
    /// By these authorities; without one there are no clients to verify.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

/// Why a certificate can't be served.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Certificate and key aren't a pair, or one of them can't be read.
    #[error("certificate and key: {0}")]
    Pair(rustls::Error),
    /// An authority's certificate can't be read.
    #[error("CA certificate: {0}")]
    Authority(rustls::Error),
}

// === impl Credentials ===

impl Credentials {
    /// Pairs a chain, the server's own certificate first, with its key.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Result<Self, Unusable> {
        let served = CertifiedKey::from_der(chain, key, &provider()).map_err(Unusable::Pair)?;
        let roots = Arc::new(roots(&authorities)?);
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider()).build().ok();
        Ok(Self { served: Arc::new(served), authorities, clients })
    }

    pub(super) fn served(&self) -> &Arc<CertifiedKey> {
        &self.served
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        (&self.served.cert, &self.authorities) == (&other.served.cert, &other.authorities)
    }

    /// Whether clients that trust the authorities accept the certificate at this time, under all of these names.
    pub(super) fn check(&self, names: &[String], now: SystemTime) -> Result<(), rustls::Error> {
        let certificate = self.served.cert.first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verify(certificate, now)?;
        let certificate = ParsedCertificate::try_from(certificate)?;
        names.iter().try_for_each(|name| {
            let name =
                ServerName::try_from(name.as_str()).map_err(|error| rustls::Error::General(error.to_string()))?;
            client::verify_server_name(&certificate, &name)
        })
    }

    /// Whether one of the authorities signed a server's certificate that is valid at this time.
    pub(super) fn verify(&self, certificate: &CertificateDer<'_>, now: SystemTime) -> Result<(), rustls::Error> {
        let roots = roots(&self.authorities).map_err(|error| rustls::Error::General(error.to_string()))?;
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = provider().signature_verification_algorithms.all;
        client::verify_server_cert_signed_by_trust_anchor(&certificate, &roots, &[], unix(now), algorithms)
    }

    /// Whether one of the authorities signed a client's certificate that is valid at this time.
    pub(super) fn verify_client(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let unknown = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        self.clients.as_ref().ok_or_else(unknown)?.verify_client_cert(certificate, intermediates, now)
    }

    /// The value of `caBundle` in a webhook configuration or an APIService: the authorities in PEM, as base64.
    pub fn bundle(&self) -> String {
        STANDARD.encode(pem(&self.authorities))
    }
}

/// The one provider of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub(super) fn roots(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone()).map_err(Unusable::Authority)?;
    }
    Ok(roots)
}

/// Certificates as text.
pub(super) fn pem(certificates: &[CertificateDer<'_>]) -> String {
    let encode = |certificate: &CertificateDer<'_>| {
        let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
        pem::encode_config(&Pem::new("CERTIFICATE", certificate.as_ref()), lines)
    };
    certificates.iter().map(encode).collect()
}

/// From when until when a certificate holds.
pub(super) fn dates(certificate: &CertificateDer<'_>) -> Option<(SystemTime, SystemTime)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    // Whatever was before 1970 is over, or has begun.
    let time = |seconds: i64| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.max(0).cast_unsigned()));
    let validity = parsed.validity();
    Some((time(validity.not_before.timestamp())?, time(validity.not_after.timestamp())?))
}

/// A clock before 1970 says 1970.
pub(super) fn unix(time: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}
