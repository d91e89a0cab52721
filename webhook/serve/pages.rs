//! `/metrics`, `/healthz` and `/readyz` for every client, `/config` on the loopback interface, with the pages of [`divvy_runtime`].

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use divvy_runtime::pages::{self, Readiness};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::aggregated_api::front_proxy::FrontProxy;
use crate::tls::Identity;
use crate::watches::SyncStatus;

/// Content of the pages.
#[derive(Clone, Debug)]
pub struct Pages {
    /// For `/metrics`.
    pub registry: Arc<Registry>,
    /// For `/readyz`.
    pub sync_status: watch::Receiver<SyncStatus>,
    /// For `/readyz`: whether there are certificates to serve.
    pub identities: [Identity; 2],
    /// For `/readyz`: whether kube-apiserver would be let in to the aggregated API, where it is served.
    pub front_proxy: Option<FrontProxy>,
    /// For `/readyz`: whether the process is shutting down.
    pub retired: CancellationToken,
}

/// The route of `adminAddress` beside `/debug`; `config` is the effective configuration.
pub fn admin_router(config: Arc<str>) -> Router {
    Router::new().route("/config", get(async |State(config): State<Arc<str>>| config.to_string())).with_state(config)
}

// === impl Pages ===

impl Pages {
    /// The routes of `metricsAddress`.
    pub fn router(self) -> Router {
        pages::router(Arc::clone(&self.registry), move || self.readiness())
    }

    /// Ready: the cluster has been listed once and there is a serving certificate. While the API server is away answers come from
    /// memory, and a line says so.
    fn readiness(&self) -> Readiness {
        Readiness { missing: self.missing(), lacking: self.lacking() }
    }

    /// Reasons why the replica isn't ready.
    fn missing(&self) -> Vec<String> {
        let sync_status = self.sync_status.borrow();
        let why = |kind| sync_status.problem(kind).map(|why| format!(": {why}")).unwrap_or_default();
        let stopping = self.retired.is_cancelled().then(|| "stopping".to_owned());
        let awaited = sync_status.unlisted().filter(|kind| !sync_status.is_waived(*kind));
        let unlisted = awaited.map(|kind| format!("{} not listed yet{}", kind.as_str(), why(kind)));
        let is_unknown = self.identities.iter().any(|identity| identity.now().is_none());
        let certificate = is_unknown.then(|| "no certificate yet".to_owned());
        stopping.into_iter().chain(unlisted).chain(certificate).collect()
    }

    /// What a ready replica lacks: kinds whose watch fails, which are answered from memory or done without, and the front proxy's
    /// authorities. Those are the aggregated API's alone, and reviews don't wait for them.
    fn lacking(&self) -> Vec<String> {
        let sync_status = self.sync_status.borrow();
        let known = sync_status.listed().filter_map(|kind| Some((kind, sync_status.problem(kind)?)));
        let known = known.map(|(kind, why)| format!("{} from memory, watch failing: {why}", kind.as_str()));
        let waived = sync_status.unlisted().filter(|kind| sync_status.is_waived(*kind));
        let waived = waived.filter_map(|kind| Some((kind, sync_status.problem(kind)?)));
        let waived = waived.map(|(kind, why)| format!("{} left out, list failing: {why}", kind.as_str()));
        let is_unknown = self.front_proxy.as_ref().is_some_and(|front_proxy| !front_proxy.is_known());
        let front_proxy =
            is_unknown.then(|| "aggregated API not served, no authority of the front proxy yet".to_owned());
        known.chain(waived).chain(front_proxy).collect()
    }
}
