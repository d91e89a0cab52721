//! A certificate with its key, and the authorities that speak for it: one generation of what we show.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pem::{EncodeConfig, LineEnding, Pem};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, VerifierBuilderError};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, client};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Service;

/// One generation of what we show, and whom we believe meanwhile.
#[derive(Debug)]
pub struct Credentials {
    shown: Arc<CertifiedKey>,
    /// They signed what we show, or will sign what comes next.
    authorities: Vec<CertificateDer<'static>>,
    judge: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

/// Why a certificate can't be shown.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The Service's name makes no DNS name.
    #[error("{name:?} is not a DNS name: {source}")]
    Name {
        /// What was tried.
        name: String,
        /// Why it isn't one.
        source: InvalidDnsNameError,
    },
    /// Certificate and key aren't a pair, or one of them can't be read.
    #[error("certificate and key: {0}")]
    Pair(rustls::Error),
    /// An authority's certificate can't be read.
    #[error("the authority's certificate: {0}")]
    Authority(rustls::Error),
    /// There is no authority.
    #[error("the authority's certificate: {0}")]
    Authorities(#[from] VerifierBuilderError),
}

// === impl Credentials ===

impl Credentials {
    /// What is shown under the names of `service`: the certificate first, then those between it and the authorities.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authorities: Vec<CertificateDer<'static>>,
        service: &Service,
    ) -> Result<Self, Unusable> {
        let provider = provider();
        let shown = CertifiedKey::from_der(chain, key, &provider).map_err(Unusable::Pair)?;
        let judge = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(&authorities)?), provider).build()?;
        Ok(Self { shown: Arc::new(shown), authorities, judge, name: service.server_name()? })
    }

    pub(super) fn shown(&self) -> &Arc<CertifiedKey> {
        &self.shown
    }

    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        (&self.shown.cert, &self.authorities) == (&other.shown.cert, &other.authorities)
    }

    /// Whether a certificate makes its owner one of us: it is the one that we show, or one of the authorities signed it for
    /// our Service. Who owns such a certificate could answer the API server in our place, so nothing more is asked.
    pub fn vouch(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        if self.shown.cert.first() == Some(certificate) {
            return Ok(());
        }
        self.judge.verify_server_cert(certificate, intermediates, &self.name, &[], now).map(drop)
    }

    /// Whether clients will believe what we show, at this time and by all of these names.
    pub(super) fn stand(&self, names: &[String], now: SystemTime) -> Result<(), rustls::Error> {
        let (certificate, intermediates) =
            self.shown.cert.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.judge.verify_server_cert(certificate, intermediates, &self.name, &[], unix(now))?;
        let certificate = ParsedCertificate::try_from(certificate)?;
        names.iter().try_for_each(|name| {
            let name =
                ServerName::try_from(name.as_str()).map_err(|error| rustls::Error::General(error.to_string()))?;
            client::verify_server_name(&certificate, &name)
        })
    }

    /// What `caBundle` of a webhook configuration says if it believes the same authorities: base64 of PEM.
    pub fn bundle(&self) -> String {
        STANDARD.encode(pem(&self.authorities))
    }

    /// The end of what we show, for metrics; `None` if the certificate can't be read.
    pub fn until(&self) -> Option<SystemTime> {
        Some(dates(self.shown.cert.first()?)?.1)
    }
}

/// The one provider of cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
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
