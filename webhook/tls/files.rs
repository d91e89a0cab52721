//! Certificates that others make and put into files, as cert-manager does.
//!
//! Files are compared byte by byte every few seconds: a volume of a Secret is swapped by a link, an editor writes in place, and either
//! way nothing but the content tells.

use std::path::PathBuf;
use std::time::Duration;

use divvy_runtime::logging::WarnOnce;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;

use super::Identity;
use super::credentials::Credentials;

/// Files are read so often.
const POLL: Duration = Duration::from_secs(2);

/// Where the certificate comes from. The program that writes the files keeps `caBundle` too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, then those between it and the authority, PEM.
    pub certificate: PathBuf,
    /// The certificate's key, PEM.
    pub key: PathBuf,
}

/// Why a file is unusable.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", .path.display())]
struct Bad {
    path: PathBuf,
    why: String,
}

/// A file as it was read.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    path: PathBuf,
    bytes: Result<Vec<u8>, String>,
}

/// Serves the certificate in the files, and rotates it when they change, until `stop`. Unusable files change nothing. A pair
/// that is being replaced may be seen in halves: a problem is logged when it has lasted from one look to the next.
pub async fn keep_files(files: Files, identity: Identity, stop: CancellationToken) {
    let mut taken = None;
    let mut bad = None;
    let mut warning = WarnOnce::default();
    let keep = async {
        loop {
            let seen = [&files.certificate, &files.key].map(|path| Content::read(path.clone()));
            if taken.as_ref() == Some(&seen) {
                warning.clear();
            } else {
                match credentials(&seen) {
                    Ok(credentials) => {
                        identity.set(credentials);
                        warning.clear();
                        taken = Some(seen);
                    }
                    Err(why) if bad.as_ref() == Some(&seen) => {
                        warning.warn(format!("{why}; the files read before stay in effect"));
                    }
                    Err(_) => bad = Some(seen),
                }
            }
            tokio::time::sleep(POLL).await;
        }
    };
    stop.run_until_cancelled(keep).await;
}

fn credentials([certificate, key]: &[Content; 2]) -> Result<Credentials, Bad> {
    let chain = certificate.certificates()?;
    let pair = key.bytes().and_then(|bytes| PrivateKeyDer::from_pem_slice(bytes).map_err(|error| key.bad(&error)))?;
    Credentials::new(chain, pair, Vec::new()).map_err(|error| certificate.bad(&error))
}

// === impl Content ===

impl Content {
    /// Small, and on a local disk or in memory: no thread of its own is worth its while.
    fn read(path: PathBuf) -> Self {
        let bytes = std::fs::read(&path).map_err(|error| error.to_string());
        Self { path, bytes }
    }

    fn bytes(&self) -> Result<&[u8], Bad> {
        self.bytes.as_deref().map_err(|error| self.bad(error))
    }

    /// At least one.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Bad> {
        let read = CertificateDer::pem_slice_iter(self.bytes()?).collect::<Result<Vec<_>, _>>();
        match read {
            Ok(read) if read.is_empty() => Err(self.bad(&"holds no certificate")),
            read => read.map_err(|error| self.bad(&error)),
        }
    }

    fn bad(&self, why: &dyn ToString) -> Bad {
        Bad { path: self.path.clone(), why: why.to_string() }
    }
}
