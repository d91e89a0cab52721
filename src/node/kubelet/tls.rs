//! Verification of the kubelet's serving certificate.
//!
//! A kubelet with `serverTLSBootstrap` has its certificate from the cluster's authority, another one signs its own and
//! leaves it on the host (`k8s.io/client-go/util/certificate`, `cmd/kubelet/app: InitializeTLS`). Which of them it is may
//! change with its configuration, so both are tried for every connection, and both files are read again: authorities and
//! certificates are replaced while the daemon runs.

mod shown;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme, version,
};

use self::shown::Shown;

/// Files that the kubelet's certificate is verified with. Either may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// CA certificates, one of which may have signed it for the requested address.
    pub authorities: PathBuf,
    /// The kubelet's own certificate, on the host.
    pub certificate: PathBuf,
}

/// A certificate that can't be verified.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kubelet's certificate is not trusted: it is {shown}; kubeletCa {}: {authorities}; kubeletCertificate {}: {certificate}; \
     name the authority that signs it in kubeletCa, or in kubeletCertificate the file that the kubelet serves with, \
     kubelet.crt or (if it is rotated) kubelet-server-current.pem in the kubelet's certDirectory",
    .trust.authorities.display(), .trust.certificate.display()
)]
pub struct Untrusted {
    /// Result of each verification.
    trust: Trust,
    shown: Shown,
    authorities: String,
    certificate: String,
}

/// A client configuration that trusts the kubelet alone.
pub fn client_config(trust: Trust) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(&[&version::TLS13, &version::TLS12])?.dangerous();
    let verifier = Arc::new(Verifier { trust, provider });
    let mut config = builder.with_custom_certificate_verifier(verifier).with_no_client_auth();
    // A resumed session shows no certificate: one that is trusted no longer would go on.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The error about the certificate, if that is why a connection failed.
pub fn untrusted<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Untrusted> {
    // The source of an I/O error is that of the error within, which itself is passed over.
    let within = |error: &'a (dyn Error + 'static)| {
        let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        within.map_or_else(|| error.source(), |within| Some(within as &(dyn Error + 'static)))
    };
    let mut causes = std::iter::successors(Some(error), |error| within(*error));
    causes.find_map(|cause| match cause.downcast_ref() {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why)))) => why.downcast_ref(),
        _ => None,
    })
}

/// Verifies with the CA certificates, then with the file on the host. The handshake proves possession of the private key.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

// === impl Verifier ===

impl Verifier {
    fn signed(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, String> {
        let mut roots = RootCertStore::empty();
        for authority in read(&self.trust.authorities)? {
            roots.add(authority).map_err(|error| error.to_string())?;
        }
        let judge = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider));
        let judge = judge.build().map_err(|error| error.to_string())?;
        // A kubelet staples no answers of its authority.
        judge.verify_server_cert(certificate, intermediates, name, &[], now).map_err(|error| match error {
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => "did not sign it".to_owned(),
            error => error.to_string(),
        })
    }

    fn pinned(&self, certificate: &CertificateDer<'_>) -> Result<ServerCertVerified, String> {
        let own = read(&self.trust.certificate)?;
        if own.contains(certificate) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(format!("another one, {}", Shown::read(&own[0])))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let signed = self.signed(end_entity, intermediates, server_name, now);
        signed.or_else(|authorities| {
            self.pinned(end_entity).map_err(|certificate| {
                let trust = self.trust.clone();
                let shown = Shown::read(end_entity);
                let why = Untrusted { trust, shown, authorities, certificate };
                CertificateError::Other(OtherError(Arc::new(why))).into()
            })
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificates of a file, at least one.
fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| error.to_string())?;
    if certificates.is_empty() { Err("holds no certificate".to_owned()) } else { Ok(certificates) }
}
