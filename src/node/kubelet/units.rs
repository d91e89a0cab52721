//! The service of units: the kubelet counts them, and nothing is decided by them.
//!
//! A container's cards are settled by its slots, in whatever order the kubelet asks for slots and units. So each
//! container that asks for units has to ask for slots as well.

use divvy_node_core::allocator::{Refusal, lock};
use divvy_node_core::ports::PodSource;
use divvy_proto::deviceplugin as api;
use divvy_proto::deviceplugin::device_plugin_server::DevicePlugin;
use tonic::{Request, Response, Status};

use super::device_list::{DeviceList, Devices};
use super::plugin::{Calls, only};
use super::response::status;

/// Hands out units of one resource for one session.
#[derive(Debug)]
pub(super) struct Units<S> {
    pub(super) list: DeviceList,
    pub(super) calls: Calls<S>,
}

#[tonic::async_trait]
impl<S: PodSource + 'static> DevicePlugin for Units<S> {
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
        Ok(Response::new(self.list.stream()))
    }

    /// Units of the cards of the pod under admission, so that a card's units are mostly with those who share it.
    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        let request = only(request.into_inner().container_requests).map_err(|refusal| status(&refusal))?;
        let size = usize::try_from(request.allocation_size).unwrap_or(0);
        let device_ids = lock(self.calls.daemon.allocator()).prefer_units(
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
        self.calls.answer("AllocateUnits", self.allocate_units(request.into_inner())).await?;
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

impl<S: PodSource> Units<S> {
    async fn allocate_units(&self, request: api::AllocateRequest) -> Result<(), Refusal> {
        let ids = only(request.container_requests)?.device_ids;
        self.calls.daemon.allocate_units(&self.list.resource, &ids).await
    }
}
