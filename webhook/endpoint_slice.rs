//! The EndpointSlice of the Service `divvy-extender`. That Service has no selector: its one endpoint is the leader, which
//! writes its own address here, and kube-proxy routes the scheduler's calls to it. The Service owns the EndpointSlice, so the
//! garbage collector removes it when Divvy is uninstalled.

use std::net::SocketAddr;

use divvy_api::installation::{EXTENDER, WEBHOOK};
use divvy_runtime::api_server::within_deadline;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource as _};

/// Name of the Service's port.
const PORT: &str = "https";

/// This replica as the endpoint of the extender's Service.
pub struct ExtenderEndpoint {
    services: Api<Service>,
    slices: Api<EndpointSlice>,
    /// Without its owner.
    slice: EndpointSlice,
}

// === impl ExtenderEndpoint ===

impl ExtenderEndpoint {
    /// Describes a replica that serves the extender at this address.
    pub fn new(client: Client, namespace: &str, address: SocketAddr) -> Self {
        let labels = [("kubernetes.io/service-name", EXTENDER), ("endpointslice.kubernetes.io/managed-by", WEBHOOK)];
        let metadata = ObjectMeta {
            name: Some(EXTENDER.to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        };
        let endpoint = Endpoint {
            addresses: vec![address.ip().to_string()],
            conditions: Some(EndpointConditions { ready: Some(true), ..EndpointConditions::default() }),
            ..Endpoint::default()
        };
        let port = EndpointPort {
            name: Some(PORT.to_owned()),
            port: Some(address.port().into()),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        };
        let slice = EndpointSlice {
            metadata,
            address_type: if address.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned(),
            endpoints: vec![endpoint],
            ports: Some(vec![port]),
        };
        Self { services: Api::namespaced(client.clone(), namespace), slices: Api::namespaced(client, namespace), slice }
    }

    /// Routes the Service here. Without the Service there is nothing to route, and nothing is written.
    pub async fn publish(&self) -> kube::Result<()> {
        let service = within_deadline(self.services.get(EXTENDER)).await?;
        let mut slice = self.slice.clone();
        slice.metadata.owner_references = service.owner_ref(&()).map(|owner| vec![owner]);
        let params = PatchParams::apply(WEBHOOK).force();
        within_deadline(self.slices.patch(EXTENDER, &params, &Patch::Apply(&slice))).await.map(drop)
    }
}
