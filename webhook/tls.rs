//! Certificates: what we show, whom we believe, and how both change while connections live.
//!
//! ```text
//! Secret ──issued──▶ ┐            ┌──▶ listener   shows a certificate, tells handlers who called
//!                    ├─▶ Identity ├──▶ forward    shows the same one, believes the other replica
//! files ─────files─▶ ┘            └──▶ bundle     tells the API server whom to believe
//! ```
//!
//! An [`Identity`] is one value that changes; a handshake takes it as it is at that moment, and a connection that is open
//! goes on. Wall clocks are compared with certificates' dates and with nothing else.

mod bundle;
mod credentials;
mod files;
mod issued;
mod listener;
mod secret;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

pub use self::bundle::keep_bundle;
pub(crate) use self::credentials::provider;
pub use self::credentials::{Credentials, Unusable};
pub use self::files::{Files, SchedulerAuthority, keep_files};
pub use self::listener::{Caller, HTTP2, Shown, TlsListener};
pub use self::secret::keep_secret;

/// The Service that clients call us by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// What we show to clients and whom we believe, as of now. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Identity(Arc<watch::Sender<Option<Arc<Credentials>>>>);

// === impl Service ===

impl Service {
    /// The names that clients may call it by, from the shortest to the longest; the API server uses the third
    /// (`k8s.io/apiserver/pkg/util/webhook/client.go: HookClient`).
    pub fn names(&self) -> [String; 4] {
        let Self { name, namespace } = self;
        [
            name.clone(),
            format!("{name}.{namespace}"),
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
        ]
    }

    /// The name in the certificate that one replica looks for in the other's.
    pub fn server_name(&self) -> Result<ServerName<'static>, Unusable> {
        let [_, _, name, _] = self.names();
        ServerName::try_from(name.clone()).map_err(|source| Unusable::Name { name, source })
    }
}

// === impl Identity ===

impl Identity {
    /// Nobody yet: handshakes fail until there are credentials.
    pub fn unknown() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// The credentials of now.
    pub fn now(&self) -> Option<Arc<Credentials>> {
        self.0.borrow().clone()
    }

    /// Follows the credentials.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Credentials>>> {
        self.0.subscribe()
    }

    /// Shows these from the next handshake on, if they are others.
    pub(crate) fn show(&self, credentials: Credentials) {
        self.0.send_if_modified(|now| {
            let new = now.as_ref().is_none_or(|now| !now.says_the_same(&credentials));
            if new {
                *now = Some(Arc::new(credentials));
            }
            new
        });
    }

    fn shown(&self) -> Option<Arc<CertifiedKey>> {
        self.now().map(|credentials| Arc::clone(credentials.shown()))
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.shown()
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.shown()
    }

    fn has_certs(&self) -> bool {
        self.0.borrow().is_some()
    }
}
