//! The kubelet's side of a device plugin: dialling it and calling it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_proto::deviceplugin as dp;
use divvy_proto::deviceplugin::device_plugin_client::DevicePluginClient;
use hyper_util::rt::TokioIo;
use rand::Rng;
use tokio::net::UnixStream;
use tonic::transport::Endpoint as Transport;
use tonic::{Code, Response, Status};

use super::core::Core;
use super::devices::{Demand, Ids, shuffled};
use super::endpoint::{Client, MOST_BYTES, Plugin};
use super::record::{Call, Method};

/// How long the kubelet dials a plugin inside Register.
const DIAL: Duration = Duration::from_secs(10);
/// The one deadline on a call to a plugin.
const PRE_START: Duration = Duration::from_secs(30);

// === impl Plugin ===

impl Plugin {
    pub(crate) async fn dial(socket: PathBuf, client: Arc<Client>) -> Result<Self, String> {
        let shown = socket.display().to_string();
        let failed = |error: String| format!("failed to dial device plugin with socketPath {shown}: {error}");
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let transport = Transport::from_static("http://localhost");
        let channel = tokio::time::timeout(DIAL, transport.connect_with_connector(connector))
            .await
            .map_err(|_elapsed| failed("context deadline exceeded".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { grpc: DevicePluginClient::new(channel).max_decoding_message_size(MOST_BYTES), client })
    }

    pub(crate) async fn options(&self) -> Result<dp::DevicePluginOptions, Status> {
        let mut grpc = self.grpc.clone();
        self.open(grpc.get_device_plugin_options(dp::Empty {})).await
    }

    pub(crate) async fn list_and_watch(&self) -> Result<tonic::Streaming<dp::ListAndWatchResponse>, Status> {
        let mut grpc = self.grpc.clone();
        self.open(grpc.list_and_watch(dp::Empty {})).await
    }

    /// The IDs preferred; none if the plugin answers nothing.
    pub(crate) async fn preferred(
        &self,
        core: &Core,
        demand: Demand<'_>,
        request: dp::ContainerPreferredAllocationRequest,
    ) -> Result<Ids, Status> {
        let ids = request.available_device_ids.iter().cloned().collect();
        let request = dp::PreferredAllocationRequest { container_requests: vec![request] };
        let mut grpc = self.grpc.clone();
        let call = self.open(grpc.get_preferred_allocation(request));
        let answer = timed(core, Method::GetPreferredAllocation, demand, ids, call).await?;
        Ok(answer.container_responses.into_iter().next().into_iter().flat_map(|first| first.device_ids).collect())
    }

    pub(crate) async fn allocate(
        &self,
        core: &Core,
        demand: Demand<'_>,
        ids: Ids,
    ) -> Result<dp::AllocateResponse, Status> {
        let request = dp::ContainerAllocateRequest { device_ids: core.update(|state| unsorted(&ids, &mut state.rng)) };
        let mut grpc = self.grpc.clone();
        let call = self.open(grpc.allocate(dp::AllocateRequest { container_requests: vec![request] }));
        timed(core, Method::Allocate, demand, ids, call).await
    }

    pub(crate) async fn pre_start(&self, core: &Core, demand: Demand<'_>, ids: Ids) -> Result<(), Status> {
        let request = dp::PreStartContainerRequest { device_ids: core.draw(|rng| unsorted(&ids, rng)) };
        let mut grpc = self.grpc.clone();
        let call = tokio::time::timeout(PRE_START, self.open(grpc.pre_start_container(request)));
        let call =
            async { call.await.unwrap_or_else(|_elapsed| Err(Status::deadline_exceeded("context deadline exceeded"))) };
        timed(core, Method::PreStartContainer, demand, ids, call).await.map(|_empty| ())
    }

    /// A call that ends when the connection is closed.
    async fn open<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
        tokio::select! {
            () = self.client.cut.cancelled() => Err(Status::cancelled("grpc: the client connection is closing")),
            answer = call => answer.map(Response::into_inner),
        }
    }
}

/// Records how long a call took and what came of it, seen from here.
async fn timed<T>(
    core: &Core,
    method: Method,
    demand: Demand<'_>,
    ids: Ids,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let started = Instant::now();
    let answer = call.await;
    let (pod, container, resource) = (demand.pod.to_owned(), demand.container.to_owned(), demand.resource.to_owned());
    let error = answer.as_ref().err().map(rpc_error);
    let call = Call { method, pod, container, resource, ids, started, took: started.elapsed(), error };
    core.update(|state| state.record.calls.push(call));
    answer
}

/// In the order of a Go map.
pub(crate) fn unsorted(ids: &Ids, rng: &mut impl Rng) -> Vec<String> {
    shuffled(ids.iter().cloned().collect(), rng)
}

/// As grpc-go prints a status.
pub(crate) fn rpc_error(status: &Status) -> String {
    let code = if status.code() == Code::Cancelled { "Canceled".to_owned() } else { format!("{:?}", status.code()) };
    format!("rpc error: code = {code} desc = {}", status.message())
}
