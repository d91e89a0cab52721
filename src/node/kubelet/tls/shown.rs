//! Description of a certificate, for errors about why it isn't trusted.

use std::fmt;
use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Fields of a certificate; empty where it lacks them, or can't be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    subject: String,
    issuer: String,
    /// Host names and addresses.
    names: Vec<String>,
}

// === impl Shown ===

impl Shown {
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Self::default() };
        let names = certificate.subject_alternative_name().ok().flatten();
        Self {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            names: names.iter().flat_map(|names| &names.value.general_names).filter_map(host).collect(),
        }
    }
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let address = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = address.or_else(|_longer| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, issuer, names } = self;
        let issuer = if issuer == subject { "itself".to_owned() } else { format!("\"{issuer}\"") };
        let names = if names.is_empty() { "no host".to_owned() } else { names.join(", ") };
        write!(f, "of \"{subject}\", signed by {issuer}, for {names}")
    }
}
