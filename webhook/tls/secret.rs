//! The Secret with our own certificates, kept: made, renewed, made anew, and always the same one for all replicas.
//!
//! Only what the API server returns of the Secret is served to clients. The second writer is refused (by the name of a
//! Secret that is created, by the `resourceVersion` of one that is replaced) and takes what the first one wrote.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use divvy_runtime::api_server::{ApiServer, Requests, watch_object, within_deadline};
use divvy_runtime::logging::WarnOnce;
use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::issued::{Decision, decide};
use super::{Identity, Service};

/// The dates are looked at so often, and a write that failed is tried again.
const CHECK: Duration = Duration::from_secs(2);

/// One replica's hand on the Secret.
struct Keeper {
    secrets: Api<Secret>,
    name: String,
    service: Service,
    identity: Identity,
    /// No write before: two replicas whose clocks are months apart would otherwise renew each other's work without end.
    not_before: Instant,
    requests: Requests,
    warning: WarnOnce,
}

/// Keeps the Secret of this name in the Service's namespace, and shows what it holds, until `stop`.
pub async fn keep_secret(
    api_server: ApiServer,
    name: String,
    service: Service,
    identity: Identity,
    stop: CancellationToken,
) {
    let ApiServer { client, requests } = api_server;
    let secrets: Api<Secret> = Api::namespaced(client, &service.namespace);
    let mut changes = std::pin::pin!(watch_object(secrets.clone(), "secrets", &name, requests.clone()));
    let not_before = Instant::now();
    let warning = WarnOnce::default();
    let mut keeper = Keeper { secrets, name, service, identity, not_before, requests, warning };
    let mut seen: Option<Option<Secret>> = None;
    let mut check = Instant::now() + CHECK;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(now) = changes.next() => seen = Some(now),
            () = sleep_until(check) => check = Instant::now() + CHECK,
        }
        if let Some(secret) = &seen {
            keeper.keep(secret.as_ref()).await;
        }
    }
}

// === impl Keeper ===

impl Keeper {
    async fn keep(&mut self, secret: Option<&Secret>) {
        let data = secret.map(|secret| secret.data.clone().unwrap_or_default());
        let decision = match decide(data.as_ref(), &self.service, SystemTime::now()) {
            Ok(decision) => decision,
            Err(error) => return self.warning.warn(format!("no certificate can be made: {error}")),
        };
        let Decision { usable, wanted } = decision;
        if let Some(usable) = usable {
            self.identity.set(usable);
        }
        match wanted {
            None => self.warning.clear(),
            Some((wanted, why)) if self.not_before <= Instant::now() => self.write(secret, wanted, &why).await,
            Some(_) => {}
        }
    }

    async fn write(&mut self, secret: Option<&Secret>, wanted: BTreeMap<String, ByteString>, why: &str) {
        self.not_before = Instant::now() + CHECK;
        let params = PostParams::default();
        let written = match secret {
            None => within_deadline(self.secrets.create(&params, &self.fresh(wanted))).await,
            Some(secret) => {
                let mut secret = secret.clone();
                secret.data.get_or_insert_default().extend(wanted);
                within_deadline(self.secrets.replace(&self.name, &params, &secret)).await
            }
        };
        let name = &self.name;
        let request = format!("{} secrets/{name}", if secret.is_none() { "create" } else { "update" });
        match written {
            Ok(_) => {
                self.requests.succeeded(&request);
                tracing::info!("Secret {name}: certificates issued: {why}");
            }
            // The other replica was first, and the watch will show what it wrote.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => self.requests.failed(&request, &error, CHECK),
        }
    }

    fn fresh(&self, data: BTreeMap<String, ByteString>) -> Secret {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        Secret { metadata, data: Some(data), type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() }
    }
}
