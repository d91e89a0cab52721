//! Who may call: kube-apiserver, by the client certificate of its front proxy. It publishes the authorities that sign such
//! certificates, and the names that are allowed in them, in the ConfigMap `extension-apiserver-authentication`, which is followed.
//!
//! The certificate is all that counts. `X-Remote-User` and the other headers that name a user are read by nobody: the user has
//! been authenticated and authorized before the call was proxied, and a second SubjectAccessReview would ask the same roles the
//! same question. Without the certificate the handshake fails, so forged headers reach nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use divvy_runtime::api_server::{ApiServer, watch_object};
use divvy_runtime::logging::WarnOnce;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, Error, RootCertStore};
use tokio::sync::watch;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::connections::Connections;
use crate::tls::{CheckClient, provider};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const AUTHORITIES: &str = "requestheader-client-ca-file";
const NAMES: &str = "requestheader-allowed-names";

/// The front proxy as it is known now. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct FrontProxy(watch::Sender<Option<Arc<RequestHeader>>>);

/// What the ConfigMap says.
struct RequestHeader {
    /// The authorities, PEM.
    bundle: String,
    /// Common names that are allowed; empty: any.
    names: Vec<String>,
    /// By these authorities.
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Why the ConfigMap says nothing.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(
        "{AUTHORITIES} is missing: kube-apiserver runs without --requestheader-client-ca-file, and aggregates no APIs"
    )]
    NoAuthority,
    #[error("{AUTHORITIES}: {0}")]
    Authority(String),
    #[error("{NAMES}: {0}")]
    Names(serde_json::Error),
}

// === impl FrontProxy ===

impl FrontProxy {
    /// Follows the ConfigMap, for ever. What can't be read changes nothing. When it changes, `connections` are closed, so that
    /// clients of a revoked authority are refused.
    pub async fn follow(self, api_server: ApiServer, connections: Connections) {
        let ApiServer { client, requests } = api_server;
        let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
        let mut changes = std::pin::pin!(watch_object(api, "configmaps", NAME, requests));
        let mut warning = WarnOnce::default();
        while let Some(seen) = changes.next().await {
            let data = seen.map(|map| map.data.unwrap_or_default()).unwrap_or_default();
            match RequestHeader::read(&data) {
                Ok(read) => {
                    warning.clear();
                    if self.set(read) {
                        connections.close();
                    }
                }
                Err(why) => {
                    warning.warn(format!("ConfigMap {NAMESPACE}/{NAME}: {why}; what was read before stays in effect"));
                }
            }
        }
    }

    /// Whether anybody may call yet.
    pub fn is_known(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Whether that is a change.
    fn set(&self, read: RequestHeader) -> bool {
        let is_same = |known: &Arc<RequestHeader>| (&known.bundle, &known.names) == (&read.bundle, &read.names);
        let is_new = !self.0.borrow().as_ref().is_some_and(is_same);
        if is_new {
            self.0.send_replace(Some(Arc::new(read)));
        }
        is_new
    }
}

impl CheckClient for FrontProxy {
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let known = self.0.borrow().clone();
        let known = known.ok_or_else(|| Error::General("the front proxy isn't known yet".to_owned()))?;
        let verified = known.verifier.verify_client_cert(certificate, intermediates, now)?;
        let names = &known.names;
        let is_allowed = names.is_empty() || names_of(certificate).iter().any(|name| names.contains(name));
        if is_allowed { Ok(verified) } else { Err(CertificateError::ApplicationVerificationFailure.into()) }
    }
}

/// Common names of a certificate's subject.
fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect()
}

// === impl RequestHeader ===

impl RequestHeader {
    fn read(data: &BTreeMap<String, String>) -> Result<Self, Unreadable> {
        let bundle = data.get(AUTHORITIES).ok_or(Unreadable::NoAuthority)?;
        let names = data.get(NAMES).map_or("[]", String::as_str);
        let names: Vec<String> = serde_json::from_str(names).map_err(Unreadable::Names)?;
        let unreadable = |error: &dyn ToString| Unreadable::Authority(error.to_string());
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(authority.map_err(|error| unreadable(&error))?).map_err(|error| unreadable(&error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(|error| unreadable(&error))?;
        Ok(Self { bundle: bundle.clone(), names, verifier })
    }
}

impl fmt::Debug for RequestHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHeader")
            .field("bundle", &self.bundle)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
