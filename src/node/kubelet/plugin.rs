//! Device-plugin service for slots: decodes the kubelet's requests, passes them to the core, and encodes the responses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use divvy_api::SlotId;
use divvy_node_core::Daemon;
use divvy_node_core::allocator::{Choice, Refusal, lock};
use divvy_node_core::ports::{ContainerResponse, PodSource};
use divvy_proto::deviceplugin as api;
use divvy_proto::deviceplugin::device_plugin_server::DevicePlugin;
use tokio::sync::Notify;
use tonic::{Request, Response, Status};

use super::device_list::{DeviceList, Devices};
use super::metrics::Metrics;
use super::response::{response, status};
use crate::prompt::Prompter;

/// Device-plugin service of one resource, for one session with the kubelet.
#[derive(Debug)]
pub(super) struct Plugin<S> {
    pub(super) list: DeviceList,
    pub(super) calls: Calls<S>,
}

/// Shared state of all services.
#[derive(Debug)]
pub struct Calls<S> {
    /// Decides about allocations.
    pub daemon: Arc<Daemon<S>>,
    /// Notified after every call that may have changed the ledger.
    pub ledger_changed: Arc<Notify>,
    /// Notified after every call that was refused for what the next one may be refused for too.
    pub doubt: Arc<Notify>,
    /// Waits until the Node shows what came of a call; `None` without an API server.
    pub node: Option<Prompter>,
    /// Metrics of the calls.
    pub metrics: Arc<Metrics>,
}

#[tonic::async_trait]
impl<S: PodSource + 'static> DevicePlugin for Plugin<S> {
    async fn get_device_plugin_options(
        &self,
        _request: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        }))
    }

    type ListAndWatchStream = Devices;

    async fn list_and_watch(&self, _request: Request<api::Empty>) -> Result<Response<Devices>, Status> {
        Ok(Response::new(self.list.stream()))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        let slots = self.calls.answer("GetPreferredAllocation", self.propose(request.into_inner())).await?;
        let device_ids = slots.iter().map(ToString::to_string).collect();
        let container_responses = vec![api::ContainerPreferredAllocationResponse { device_ids }];
        Ok(Response::new(api::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let container = self.calls.answer("Allocate", self.allocate_slots(request.into_inner())).await?;
        Ok(Response::new(api::AllocateResponse { container_responses: vec![response(container)] }))
    }

    async fn pre_start_container(
        &self,
        request: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        self.calls.answer("PreStartContainer", self.pre_start(request.into_inner())).await?;
        Ok(Response::new(api::PreStartContainerResponse {}))
    }
}

// === impl Plugin ===

impl<S: PodSource> Plugin<S> {
    async fn propose(&self, request: api::PreferredAllocationRequest) -> Result<Vec<SlotId>, Refusal> {
        let request = only(request.container_requests)?;
        let choice = Choice {
            available: slots(&request.available_device_ids)?.into_iter().collect(),
            required: slots(&request.must_include_device_ids)?.into_iter().collect::<BTreeSet<_>>(),
            size: usize::try_from(request.allocation_size).map_err(|_negative| {
                Refusal::Call(format!("allocation size {} is negative", request.allocation_size))
            })?,
        };
        self.calls.daemon.propose(&self.list.resource, &choice).await
    }

    async fn allocate_slots(&self, request: api::AllocateRequest) -> Result<ContainerResponse, Refusal> {
        let slots = slots(&only(request.container_requests)?.device_ids)?;
        self.calls.daemon.allocate(&self.list.resource, &slots).await
    }

    async fn pre_start(&self, request: api::PreStartContainerRequest) -> Result<(), Refusal> {
        // Others are of another plugin, whose containers run on and are restarted by a kubelet that knows this one alone: there
        // is nothing to write for them.
        let Ok(slots) = slots(&request.device_ids) else { return Ok(()) };
        self.calls.daemon.pre_start(&slots).await
    }
}

// === impl Calls ===

impl<S: PodSource> Calls<S> {
    /// Records the outcome and the duration of a call.
    pub(super) async fn answer<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Status> {
        let started = Instant::now();
        let result = work.await;
        self.ledger_changed.notify_one();
        let has_unplaced = lock(self.daemon.allocator()).has_unplaced();
        if let Some(node) = self.node.as_ref().filter(|_| has_unplaced) {
            node.shown().await;
        }
        self.metrics.observe(call, started, &result);
        if result.as_ref().is_err_and(Refusal::doubts_serving) {
            self.doubt.notify_one();
        }
        result.map_err(|refusal| status(&refusal))
    }
}

impl<S> Clone for Calls<S> {
    fn clone(&self) -> Self {
        let Self { daemon, ledger_changed, doubt, node, metrics } = self;
        Self {
            daemon: Arc::clone(daemon),
            ledger_changed: Arc::clone(ledger_changed),
            doubt: Arc::clone(doubt),
            node: node.clone(),
            metrics: Arc::clone(metrics),
        }
    }
}

/// The single container request of a call: the kubelet sends one, and each further one would have to be identified by itself.
pub(super) fn only<T>(mut requests: Vec<T>) -> Result<T, Refusal> {
    match (requests.len(), requests.pop()) {
        (1, Some(request)) => Ok(request),
        (count, _) => Err(Refusal::Call(format!("expected one container request, got {count}"))),
    }
}

fn slots(ids: &[String]) -> Result<Vec<SlotId>, Refusal> {
    ids.iter().map(|id| id.parse().map_err(|_id| Refusal::UnknownSlot { slot: id.clone() })).collect()
}
