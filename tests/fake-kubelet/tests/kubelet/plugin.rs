//! A device plugin of 8 cards with 4 slots each, whose answers a test chooses.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use divvy_proto::deviceplugin as dp;
use divvy_proto::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use divvy_proto::deviceplugin::registration_client::RegistrationClient;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

pub(crate) const GPU: &str = "nvidia.com/gpu";

type Preference = Box<dyn Fn(&dp::ContainerPreferredAllocationRequest) -> Vec<String> + Send>;
type Answer = Box<dyn Fn(&[String]) -> Result<dp::AllocateResponse, Status> + Send>;

/// What a test changes and reads.
pub(crate) struct Script {
    pub(crate) options: dp::DevicePluginOptions,
    pub(crate) preference: Mutex<Preference>,
    pub(crate) answer: Mutex<Answer>,
    pub(crate) pre_start: Mutex<Result<(), Status>>,
    /// A permit lets one Allocate through.
    pub(crate) allocates: Semaphore,
    /// A permit lets one PreStartContainer through.
    pub(crate) pre_starts: Semaphore,
    pub(crate) asked: Mutex<Vec<dp::ContainerPreferredAllocationRequest>>,
    pub(crate) allocated: watch::Sender<Vec<Vec<String>>>,
    pub(crate) pre_started: watch::Sender<Vec<Vec<String>>>,
    pub(crate) devices: watch::Sender<Vec<dp::Device>>,
    cut: Mutex<CancellationToken>,
}

/// One process of the plugin on its socket.
pub(crate) struct TestPlugin {
    pub(crate) script: Arc<Script>,
    directory: PathBuf,
    socket: String,
    stop: CancellationToken,
}

pub(crate) fn slots() -> BTreeSet<String> {
    (0..8).flat_map(|card| (0..4).map(move |slot| format!("GPU-{card}::{slot}"))).collect()
}

pub(crate) fn healthy(ids: impl IntoIterator<Item = String>) -> Vec<dp::Device> {
    ids.into_iter().map(|id| dp::Device { id, health: dp::HEALTHY.to_owned(), topology: None }).collect()
}

/// An answer that names the IDs in an environment variable.
pub(crate) fn answer(ids: &[String]) -> dp::AllocateResponse {
    let envs = [("SLOTS".to_owned(), ids.join(","))].into();
    dp::AllocateResponse { container_responses: vec![dp::ContainerAllocateResponse { envs, ..Default::default() }] }
}

pub(crate) fn options(pre_start: bool, preferred: bool) -> dp::DevicePluginOptions {
    dp::DevicePluginOptions { pre_start_required: pre_start, get_preferred_allocation_available: preferred }
}

// === impl Script ===

impl Script {
    pub(crate) fn new(options: dp::DevicePluginOptions) -> Arc<Self> {
        Arc::new(Self {
            options,
            preference: Mutex::new(Box::new(|_| Vec::new())),
            answer: Mutex::new(Box::new(|ids| Ok(answer(ids)))),
            pre_start: Mutex::new(Ok(())),
            allocates: Semaphore::new(1 << 20),
            pre_starts: Semaphore::new(1 << 20),
            asked: Mutex::default(),
            allocated: watch::Sender::new(Vec::new()),
            pre_started: watch::Sender::new(Vec::new()),
            devices: watch::Sender::new(healthy(slots())),
            cut: Mutex::default(),
        })
    }

    pub(crate) fn prefer(&self, f: impl Fn(&dp::ContainerPreferredAllocationRequest) -> Vec<String> + Send + 'static) {
        *self.preference.lock().unwrap() = Box::new(f);
    }

    pub(crate) fn answer(&self, f: impl Fn(&[String]) -> Result<dp::AllocateResponse, Status> + Send + 'static) {
        *self.answer.lock().unwrap() = Box::new(f);
    }

    /// Ends the ListAndWatch streams that are open now.
    pub(crate) fn end_streams(&self) {
        std::mem::take(&mut *self.cut.lock().unwrap()).cancel();
    }
}

// === impl TestPlugin ===

impl TestPlugin {
    /// Serves on `socket` in `directory`, without registering.
    pub(crate) fn serve(script: &Arc<Script>, directory: &Path, socket: &str) -> Self {
        let listener = UnixListener::bind(directory.join(socket)).expect("the plugin's socket is free");
        let stop = CancellationToken::new();
        let server = Server::builder().add_service(DevicePluginServer::from_arc(Arc::clone(script)));
        let serving = server.serve_with_incoming(UnixListenerStream::new(listener));
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        Self { script: Arc::clone(script), directory: directory.to_owned(), socket: socket.to_owned(), stop }
    }

    pub(crate) async fn register(&self, resource: &str) -> Result<(), Status> {
        let request = dp::RegisterRequest {
            version: dp::VERSION.to_owned(),
            endpoint: self.socket.clone(),
            resource_name: resource.to_owned(),
            options: None,
        };
        let channel = unix(self.directory.join("kubelet.sock")).await;
        RegistrationClient::new(channel).register(request).await.map(|_| ())
    }

    /// Ends the process, streams and all.
    pub(crate) fn kill(self) {
        self.stop.cancel();
        self.script.end_streams();
        std::fs::remove_file(self.directory.join(&self.socket)).expect("its socket is there");
    }
}

pub(crate) async fn unix(path: PathBuf) -> Channel {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let connector = {
            let path = path.clone();
            tower::service_fn(move |_| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            })
        };
        match Endpoint::from_static("http://localhost").connect_with_connector(connector).await {
            Ok(channel) => return channel,
            Err(error) if tokio::time::Instant::now() > deadline => panic!("{}: {error}", path.display()),
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

#[tonic::async_trait]
impl DevicePlugin for Script {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<dp::ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<dp::Empty>,
    ) -> Result<Response<dp::DevicePluginOptions>, Status> {
        Ok(Response::new(self.options))
    }

    async fn list_and_watch(&self, _: Request<dp::Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = WatchStream::new(self.devices.subscribe()).map(|devices| Ok(dp::ListAndWatchResponse { devices }));
        let cut = self.cut.lock().unwrap().clone();
        let (send, receive) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let forward = async {
                let mut lists = std::pin::pin!(lists);
                while let Some(list) = lists.next().await {
                    if send.send(list).await.is_err() {
                        return;
                    }
                }
            };
            cut.run_until_cancelled(forward).await;
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(receive))))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<dp::PreferredAllocationRequest>,
    ) -> Result<Response<dp::PreferredAllocationResponse>, Status> {
        let request = request.into_inner().container_requests.remove(0);
        let device_ids = self.preference.lock().unwrap()(&request);
        self.asked.lock().unwrap().push(request);
        let container_responses = vec![dp::ContainerPreferredAllocationResponse { device_ids }];
        Ok(Response::new(dp::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(&self, request: Request<dp::AllocateRequest>) -> Result<Response<dp::AllocateResponse>, Status> {
        let ids = request.into_inner().container_requests.remove(0).device_ids;
        self.allocated.send_modify(|all| all.push(ids.clone()));
        self.allocates.acquire().await.expect("never closed").forget();
        self.answer.lock().unwrap()(&ids).map(Response::new)
    }

    async fn pre_start_container(
        &self,
        request: Request<dp::PreStartContainerRequest>,
    ) -> Result<Response<dp::PreStartContainerResponse>, Status> {
        self.pre_started.send_modify(|all| all.push(request.into_inner().device_ids));
        self.pre_starts.acquire().await.expect("never closed").forget();
        self.pre_start.lock().unwrap().clone().map(|()| Response::new(dp::PreStartContainerResponse {}))
    }
}
