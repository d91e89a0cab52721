//! Certificates; those of a kubelet and the token that its clients present as files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// How the certificate can be checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serving {
    /// Signed by the cluster's CA, in `ca.crt`.
    #[default]
    ByCa,
    /// By itself, as kubelets do without `serverTLSBootstrap`: only `kubelet.crt` on the host tells.
    SelfSigned,
}

/// A certificate that signs others.
pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

/// Names of the files.
pub(crate) const CA: &str = "ca.crt";
pub(crate) const CERTIFICATE: &str = "kubelet.crt";
pub(crate) const TOKEN: &str = "token";

/// Makes a certificate, writes the files into `directory` and returns what serves it.
pub(crate) fn create(directory: &Path, node_name: &str, serving: Serving, token: &str) -> anyhow::Result<TlsAcceptor> {
    let ca = authority("cluster-ca")?;
    let user = format!("system:node:{node_name}");
    let (params, key) = (certificate(&user, &[node_name, "localhost", "127.0.0.1"])?, KeyPair::generate()?);
    let certificate = match serving {
        Serving::ByCa => params.signed_by(&key, &ca)?,
        Serving::SelfSigned => params.self_signed(&key)?,
    };
    for (name, text) in [(CA, ca.pem()), (CERTIFICATE, certificate.pem()), (TOKEN, token.to_owned())] {
        fs::write(directory.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    acceptor(certificate.der().clone(), &key)
}

/// A new certificate authority.
pub(crate) fn authority(name: &str) -> anyhow::Result<Authority> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    ca.distinguished_name.push(DnType::CommonName, name);
    Ok(CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?)
}

/// What serves a new certificate of `authority` for these hosts.
pub(crate) fn signed(authority: &Authority, name: &str, hosts: &[&str]) -> anyhow::Result<TlsAcceptor> {
    let key = KeyPair::generate()?;
    acceptor(certificate(name, hosts)?.signed_by(&key, authority)?.der().clone(), &key)
}

fn certificate(name: &str, hosts: &[&str]) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn acceptor(certificate: CertificateDer<'static>, key: &KeyPair) -> anyhow::Result<TlsAcceptor> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
