//! Aggregated APIs of processes: kube-apiserver calls them at the ClusterIP of their Service, where this program listens for them.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::ensure;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::webhook::listen;
use super::{Cluster, PATIENCE};
use crate::webhook::serve;

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// An aggregated API.
#[derive(Clone, Copy, Debug)]
pub struct AggregatedApi {
    /// Name of its `APIService`.
    pub name: &'static str,
    /// Namespace of its Service.
    pub namespace: &'static str,
    /// The Service.
    pub service: &'static str,
    /// Name of the Service's port.
    pub port_name: &'static str,
    /// The port.
    pub port: u16,
}

// === impl Cluster ===

impl Cluster {
    /// Serves an API that is registered, at these addresses in turn, and waits until kube-apiserver finds it available. Returns
    /// what listens in their place.
    pub async fn serve_api(&mut self, api: AggregatedApi, addresses: Vec<SocketAddr>) -> anyhow::Result<AbortHandle> {
        let AggregatedApi { name, namespace, service, port_name, port } = api;
        let path = format!("/api/v1/namespaces/{namespace}/services/{service}");
        let listener = listen(self, &path, port).await?;
        let served = serve(listener, Arc::default(), move || std::future::ready(addresses.clone()));
        let listening = tokio::spawn(served).abort_handle();
        // An APIService whose Service has no endpoints isn't called. The address is no process's: the ClusterIP is served above.
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": slice(api), "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "endpoints": [{ "addresses": ["192.0.2.1"], "conditions": { "ready": true } }],
            "ports": [{ "name": port_name, "port": port, "protocol": "TCP" }],
        });
        self.api.create(&slices(namespace), &slice).await?;
        self.api_available(name).await?;
        Ok(listening)
    }

    /// Takes an API out of the API server, and ends what listens.
    pub async fn remove_api(&self, api: AggregatedApi, listening: &AbortHandle) -> anyhow::Result<()> {
        self.api.delete(&format!("{API_SERVICES}/{}", api.name)).await?;
        self.api.delete(&format!("{}/{}", slices(api.namespace), slice(api))).await?;
        listening.abort();
        Ok(())
    }

    /// Waits until kube-apiserver finds an API available.
    async fn api_available(&mut self, name: &str) -> anyhow::Result<()> {
        self.until(&format!("{name} that is available"), PATIENCE, async |this| {
            let service = this.api.get(&format!("{API_SERVICES}/{name}")).await?;
            let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let available = conditions.iter().find(|condition: &&Value| condition["type"] == "Available");
            ensure!(available.is_some_and(|it| it["status"] == "True"), "{conditions:?}");
            Ok(Some(()))
        })
        .await
    }
}

fn slices(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

fn slice(api: AggregatedApi) -> String {
    format!("{}-{}-process", api.service, api.port_name)
}
