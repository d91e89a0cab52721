//! The service of units: the kubelet counts them, and nothing is decided by them.
//!
//! A container's cards are settled by its slots, in whatever order the kubelet asks for slots and units. So each
//! container that asks for units has to ask for slots as well.

use std::time::Instant;

use divvy_api::ResourceName;
use divvy_proto::deviceplugin as api;
use divvy_proto::deviceplugin::device_plugin_server::DevicePlugin;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::plugin::{Devices, PluginParts, lists, lock, only};
use crate::allocation::Refusal;
use crate::observer;

/// Hands out units of one resource for one session.
#[derive(Debug)]
pub(super) struct Units {
    pub(super) resource: ResourceName,
    pub(super) parts: PluginParts,
    pub(super) session: CancellationToken,
    pub(super) silence: CancellationToken,
}

#[tonic::async_trait]
impl DevicePlugin for Units {
    async fn get_device_plugin_options(
        &self,
        _request: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions {
            pre_start_required: false,
            get_preferred_allocation_available: true,
        }))
    }

    type ListAndWatchStream = Devices;

    async fn list_and_watch(&self, _request: Request<api::Empty>) -> Result<Response<Devices>, Status> {
        Ok(Response::new(lists(&self.parts, &self.resource, &self.session, &self.silence)))
    }

    /// Units of the cards of the pod under admission, so that a card's units are mostly with those who share it.
    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        let request = only(request.into_inner().container_requests)?;
        let size = usize::try_from(request.allocation_size).unwrap_or(0);
        let device_ids = lock(&self.parts.allocator).prefer_units(
            request.available_device_ids,
            request.must_include_device_ids,
            size,
        );
        let container_responses = vec![api::ContainerPreferredAllocationResponse { device_ids }];
        Ok(Response::new(api::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let started = Instant::now();
        let result = self.count(request.into_inner()).await;
        self.parts.metrics.observe("AllocateUnits", started, &result);
        result?;
        // Nothing: the container is given its cards with its slots.
        let container_responses = vec![api::ContainerAllocateResponse::default()];
        Ok(Response::new(api::AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _request: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        Ok(Response::new(api::PreStartContainerResponse {}))
    }
}

// === impl Units ===

impl Units {
    async fn count(&self, request: api::AllocateRequest) -> Result<(), Refusal> {
        let ids = only(request.container_requests)?.device_ids;
        let pods = observer::look(&self.parts).await?;
        lock(&self.parts.allocator).count_units(&self.resource, &pods, &ids)
    }
}
