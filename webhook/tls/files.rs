//! Certificates that others make and put into files, as cert-manager does.
//!
//! Files are compared byte by byte every few seconds: a volume of a Secret is swapped by a link, an editor writes in place, and either
//! way nothing but the content tells.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use divvy_runtime::logging::WarnOnce;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Identity;
use super::credentials::{Credentials, provider, roots};

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

/// The authority that signs the scheduler's client certificate. Clones share it.
#[derive(Clone, Debug)]
pub struct SchedulerAuthority(watch::Receiver<Option<Arc<dyn ClientCertVerifier>>>);

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

/// Serves the certificate in the files, and rotates it when they change, until `stop`. Unusable files change nothing.
pub async fn keep_files(files: Files, identity: Identity, stop: CancellationToken) {
    let kept = poll([files.certificate, files.key], credentials, |credentials| identity.set(credentials));
    stop.run_until_cancelled_owned(kept).await;
}

fn credentials([certificate, key]: &[Content; 2]) -> Result<Credentials, Bad> {
    let chain = certificate.certificates()?;
    let pair = key.bytes().and_then(|bytes| PrivateKeyDer::from_pem_slice(bytes).map_err(|error| key.bad(&error)))?;
    Credentials::new(chain, pair, Vec::new()).map_err(|error| certificate.bad(&error))
}

/// Reads the files whenever their bytes have changed. A pair that is being replaced may be seen in halves: a problem is said
/// once it has lasted from one look to the next.
async fn poll<T, const N: usize>(
    paths: [PathBuf; N],
    load: impl Fn(&[Content; N]) -> Result<T, Bad>,
    take: impl Fn(T),
) {
    let (mut taken, mut bad) = (None, None);
    let mut warning = WarnOnce::default();
    loop {
        let seen = Some(paths.clone().map(Content::read));
        if seen == taken {
            warning.clear();
        } else if let Some(contents) = &seen {
            match load(contents) {
                Ok(loaded) => {
                    take(loaded);
                    warning.clear();
                    taken = seen;
                }
                Err(why) if seen == bad => warning.warn(format!("{why}; the files read before stay in effect")),
                Err(_) => bad = seen,
            }
        }
        tokio::time::sleep(POLL).await;
    }
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

// === impl SchedulerAuthority ===

impl SchedulerAuthority {
    /// Reads a file of certificates, PEM, again and again until `stop`. Nobody is authenticated before it was read once.
    pub fn follow(file: PathBuf, stop: CancellationToken) -> Self {
        let (sender, receiver) = watch::channel(None);
        let load = |[file]: &[Content; 1]| {
            let roots = roots(&file.certificates()?).map_err(|error| file.bad(&error))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
            verifier.map_err(|error| file.bad(&error))
        };
        tokio::spawn(async move {
            stop.run_until_cancelled(poll([file], load, |verifier| drop(sender.send_replace(Some(verifier))))).await
        });
        Self(receiver)
    }

    /// Whether it signed this chain of a client, whose own certificate comes first.
    pub(super) fn has_signed(&self, chain: &[CertificateDer<'_>]) -> bool {
        let verifier = self.0.borrow().clone();
        let Some((verifier, (certificate, intermediates))) = verifier.zip(chain.split_first()) else { return false };
        verifier.verify_client_cert(certificate, intermediates, UnixTime::now()).is_ok()
    }
}
