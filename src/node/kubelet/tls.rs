//! Whether it is really the kubelet that answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// How the kubelet's certificate is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Signed by one of these authorities, for the address that is asked (kubelets with `serverTLSBootstrap`).
    Authorities(PathBuf),
    /// One of exactly these certificates: the self-signed `kubelet.crt` on the host.
    Pinned(PathBuf),
}

/// Certificates that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Unreadable or not PEM.
    #[error("certificates {path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// rustls refuses the configuration.
    #[error("tls: {0}")]
    Rustls(#[from] rustls::Error),
}

/// A client configuration that trusts the kubelet alone; files are read anew at every call.
pub fn client_config(trust: &Trust) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    Ok(match trust {
        Trust::Authorities(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in read(path)? {
                roots.add(certificate)?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Pinned(path) => {
            let verifier = PinnedVerifier { certificates: read(path)?, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
    })
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refused = |problem: String| TlsError::File { path: path.to_owned(), problem };
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| refused(error.to_string()))?;
    if certificates.is_empty() { Err(refused("holds no certificate".to_owned())) } else { Ok(certificates) }
}

/// Accepts the certificates of one file and nothing else. Who holds the private key is still proved by the handshake.
#[derive(Debug)]
struct PinnedVerifier {
    certificates: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.certificates.iter().any(|pinned| pinned == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General("the certificate is not the one in kubeletCertificate".to_owned()))
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
