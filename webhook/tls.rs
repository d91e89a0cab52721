//! The serving certificate: where it comes from, how it is rotated while connections live, and who calls.
//!
//! ```text
//! Secret ──issued──▶ ┐            ┌──▶ acceptor   serves the certificate, authenticates clients
//!                    ├─▶ Identity ┤
//! files ─────files─▶ ┘            └──▶ bundle     keeps caBundle of webhook configurations and APIServices
//! ```
//!
//! An [`Identity`] is one value that changes; a handshake takes the current one, and open connections stay. Wall clocks are
//! compared with certificates' dates and with nothing else.

mod acceptor;
mod bundle;
mod credentials;
mod files;
mod issued;
mod secret;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

pub use self::acceptor::{CheckClient, for_clients, for_everybody, for_scheduler};
pub use self::bundle::{Bundles, keep_bundle};
pub use self::credentials::{Credentials, Unusable, provider};
pub use self::files::{Files, keep_files};
pub use self::secret::keep_secret;

/// The Service at which clients reach the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Name of the Service.
    pub name: String,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the client that is known by a certificate of the Service's authority.
    pub client: &'static str,
}

/// The current serving certificate. Clones share it.
#[derive(Clone, Debug)]
pub struct Identity(Arc<watch::Sender<Option<Arc<Credentials>>>>);

// === impl Service ===

impl Service {
    /// The names that clients may call it by, from the shortest to the longest; the API server uses the third
    /// (`k8s.io/apiserver/pkg/util/webhook/client.go: HookClient`).
    pub fn names(&self) -> [String; 4] {
        let Self { name, namespace, client: _ } = self;
        [
            name.clone(),
            format!("{name}.{namespace}"),
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
        ]
    }
}

// === impl Identity ===

impl Identity {
    /// Starts without a certificate: handshakes fail until there is one.
    pub fn unknown() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// The current credentials.
    pub fn now(&self) -> Option<Arc<Credentials>> {
        self.0.borrow().clone()
    }

    /// Subscribes to changes of the credentials.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Credentials>>> {
        self.0.subscribe()
    }

    /// Serves these from the next handshake on, if they differ.
    pub(crate) fn set(&self, credentials: Credentials) {
        self.0.send_if_modified(|now| {
            let new = now.as_ref().is_none_or(|now| !now.is_same_as(&credentials));
            if new {
                *now = Some(Arc::new(credentials));
            }
            new
        });
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.now().map(|credentials| Arc::clone(credentials.served()))
    }
}
