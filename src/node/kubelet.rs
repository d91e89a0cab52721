//! The kubelet's interfaces: device plugin, pod list, PodResources.

pub mod advertise;
pub mod age;
pub mod client;
pub mod conflict;
mod device_list;
pub mod metrics;
pub mod plugin;
pub mod pod_resources;
pub mod registration;
pub mod response;
pub mod socket;
pub mod tls;

use std::path::PathBuf;

use divvy_runtime::api_server::errors::chain;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Connects to a unix socket. The authority is "localhost", which every gRPC server takes.
async fn unix_channel(endpoint: Endpoint, path: PathBuf) -> Result<Channel, String> {
    let connect = move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    };
    endpoint.connect_with_connector(service_fn(connect)).await.map_err(|error| chain(&error))
}
