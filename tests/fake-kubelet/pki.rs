//! A kubelet's certificate and the token that its clients present, as files.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use fake_apiserver::pki::{acceptor, authority, certificate};
use rcgen::KeyPair;
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
