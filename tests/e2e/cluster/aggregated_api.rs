//! The aggregated API of divvy-webhook, switched on and off: with both processes, or with pods by the words of
//! `deploy/aggregated-api`.

use std::net::SocketAddr;

use serde_json::json;
use tokio::task::AbortHandle;

use super::{AggregatedApi, Cluster};

const API: AggregatedApi = AggregatedApi {
    name: "v1alpha1.metrics.nvidia.com",
    namespace: "divvy-system",
    service: "divvy-webhook",
    port_name: "aggregated-api",
    port: 8446,
};
const ROLES: &str = concat!("--filename=", env!("CARGO_MANIFEST_DIR"), "/../../deploy/aggregated-api/roles.yaml");
const API_SERVICE: &str =
    concat!("--filename=", env!("CARGO_MANIFEST_DIR"), "/../../deploy/aggregated-api/apiservice.yaml");

/// The API while it is on.
#[derive(Debug)]
pub struct Aggregated {
    /// Where a replica listens for kube-apiserver.
    pub address: SocketAddr,
    /// What listens in the Service's place; none if the replicas are pods.
    listening: Option<AbortHandle>,
}

// === impl Cluster ===

impl Cluster {
    /// Starts the webhook where it is processes, switches the API on, and waits until kube-apiserver serves it.
    pub async fn switch_on_aggregated_api(&mut self) -> anyhow::Result<Aggregated> {
        if self.installation.is_of_pods() {
            return Ok(Aggregated { address: self.switch_on_aggregated_api_of_pods().await?, listening: None });
        }
        self.start_webhook().await?;
        self.kubectl.run(&["apply", ROLES]).await?;
        self.configure_webhook(&json!({"aggregatedApi": "on"})).await?;
        self.kubectl.run(&["apply", API_SERVICE]).await?;
        let addresses = self.webhook.replicas.each_ref().map(|replica| replica.aggregated_api);
        let listening = self.serve_api(API, addresses.to_vec()).await?;
        Ok(Aggregated { address: addresses[0], listening: Some(listening) })
    }

    /// Takes it out of the API server, and ends the webhook where it is processes.
    pub async fn switch_off_aggregated_api(&mut self, aggregated: Aggregated) -> anyhow::Result<()> {
        let Some(listening) = aggregated.listening else { return self.switch_off_aggregated_api_of_pods().await };
        self.remove_api(API, &listening).await?;
        self.kubectl.run(&["delete", ROLES]).await?;
        self.configure_webhook(&json!({"aggregatedApi": "off"})).await?;
        self.stop_webhook().await
    }
}
