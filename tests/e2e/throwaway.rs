//! A device plugin that answers at once, and gives nothing: what divvy-node is measured against.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::thread::JoinHandle;

use anyhow::Context as _;
use divvy_proto::deviceplugin as api;
use divvy_proto::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use divvy_proto::deviceplugin::registration_client::RegistrationClient;
use divvy_testkit::pods::GPU;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::daemon::PLUGIN_DIRECTORY;

/// Name of its socket in the plugin directory.
const SOCKET: &str = "throwaway.sock";

/// The plugin, registered.
#[derive(Debug)]
pub struct Throwaway {
    stop: DropGuard,
    /// A thread of its own, so that it waits for nobody here.
    thread: JoinHandle<anyhow::Result<()>>,
}

#[derive(Clone, Debug)]
struct Plugin {
    devices: Vec<api::Device>,
}

type Devices = Pin<Box<dyn Stream<Item = Result<api::ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    async fn get_device_plugin_options(
        &self,
        _request: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions::default()))
    }

    type ListAndWatchStream = Devices;

    async fn list_and_watch(&self, _request: Request<api::Empty>) -> Result<Response<Devices>, Status> {
        let list = Ok(api::ListAndWatchResponse { devices: self.devices.clone() });
        // The kubelet takes the end of the stream for the plugin's.
        Ok(Response::new(Box::pin(tokio_stream::once(list).chain(tokio_stream::pending()))))
    }

    async fn get_preferred_allocation(
        &self,
        _request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("no option says that it is"))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let answers =
            request.into_inner().container_requests.into_iter().map(|_| api::ContainerAllocateResponse::default());
        Ok(Response::new(api::AllocateResponse { container_responses: answers.collect() }))
    }

    async fn pre_start_container(
        &self,
        _request: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        Err(Status::unimplemented("no option says that it is"))
    }
}

// === impl Throwaway ===

impl Throwaway {
    /// Serves these devices as divvy-node's resource, and registers them.
    pub async fn start(devices: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let device = |id| api::Device { id, health: api::HEALTHY.to_owned(), topology: None };
        let plugin = Plugin { devices: devices.into_iter().map(device).collect() };
        let own = Path::new(PLUGIN_DIRECTORY).join(SOCKET);
        // Left by an earlier one.
        std::fs::remove_file(&own).unwrap_or_default();
        let listener = std::os::unix::net::UnixListener::bind(&own).context("listening in the plugin directory")?;
        listener.set_nonblocking(true)?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || serve(plugin, listener, &stopped));
        let plugin = Self { stop: stop.drop_guard(), thread };
        register().await.context("registering the throwaway plugin")?;
        Ok(plugin)
    }

    /// Ends it. The kubelet then has no devices.
    pub fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.thread.join().map_err(|_panic| anyhow::anyhow!("the throwaway plugin panicked"))?
    }
}

fn serve(plugin: Plugin, listener: std::os::unix::net::UnixListener, stop: &CancellationToken) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let incoming = UnixListenerStream::new(UnixListener::from_std(listener)?);
        let server = Server::builder().add_service(DevicePluginServer::new(plugin));
        tokio::select! {
            ended = server.serve_with_incoming(incoming) => ended.context("serving the throwaway plugin"),
            () = stop.cancelled() => Ok(()),
        }
    })
}

async fn register() -> anyhow::Result<()> {
    let request = api::RegisterRequest {
        version: api::VERSION.to_owned(),
        endpoint: SOCKET.to_owned(),
        resource_name: GPU.to_owned(),
        options: None,
    };
    let kubelet = channel(Path::new(PLUGIN_DIRECTORY).join("kubelet.sock")).await?;
    RegistrationClient::new(kubelet).register(request).await?;
    Ok(())
}

async fn channel(socket: PathBuf) -> anyhow::Result<Channel> {
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Ok(Endpoint::from_static("http://localhost").connect_with_connector(connector).await?)
}
