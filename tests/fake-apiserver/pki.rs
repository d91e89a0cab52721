//! Certificates: an authority, and what serves a certificate that it has signed.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate that signs others.
pub type Authority = CertifiedIssuer<'static, KeyPair>;

/// A new certificate authority.
pub fn authority(name: &str) -> anyhow::Result<Authority> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    ca.distinguished_name.push(DnType::CommonName, name);
    Ok(CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?)
}

/// What serves a new certificate of `authority` for these hosts.
pub fn signed(authority: &Authority, name: &str, hosts: &[&str]) -> anyhow::Result<TlsAcceptor> {
    let key = KeyPair::generate()?;
    acceptor(certificate(name, hosts)?.signed_by(&key, authority)?.der().clone(), &key)
}

/// What a certificate for these hosts says.
pub fn certificate(name: &str, hosts: &[&str]) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// What serves this certificate.
pub fn acceptor(certificate: CertificateDer<'static>, key: &KeyPair) -> anyhow::Result<TlsAcceptor> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
