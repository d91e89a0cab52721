//! Registration beside another plugin of the same resource, and after an earlier session, over the kubelet's real sockets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use divvy_node::cgroups::PodCgroups;
use divvy_node::config::{KeySet as _, Keys};
use divvy_node::container::Containers;
use divvy_node::container::isolation::Accounting;
use divvy_node::kubelet::advertise::Offer;
use divvy_node::kubelet::age::KubeletAge;
use divvy_node::kubelet::client::{KubeletEndpoint, PodListClient};
use divvy_node::kubelet::metrics::Metrics;
use divvy_node::kubelet::plugin::Calls;
use divvy_node::kubelet::pod_resources::PodResources;
use divvy_node::kubelet::registration::{Registrar, RegistrationStatus};
use divvy_node::kubelet::tls::Trust;
use divvy_node::pod_source::NodePods;
use divvy_node_core::Daemon;
use divvy_node_core::allocator::{AllocationSettings, Allocator};
use divvy_node_core::ledger::Ledger;
use divvy_placement::Policy;
use divvy_proto::deviceplugin as dp;
use divvy_proto::deviceplugin::device_plugin_client::DevicePluginClient;
use divvy_proto::deviceplugin::registration_server::{Registration, RegistrationServer};
use divvy_proto::podresources as pr;
use divvy_proto::podresources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tower::service_fn;

const GPU: &str = "nvidia.com/gpu";
const OURS: &str = "GPU-1::0";

/// As much of a kubelet as registration needs: it counts registrations, and lists devices as it is told to.
#[derive(Clone)]
struct Kubelet {
    registrations: watch::Sender<u32>,
    /// Healthy devices of our resource.
    devices: Arc<Mutex<Vec<String>>>,
    /// Questions for all records.
    listed: Arc<AtomicU32>,
}

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn register(&self, request: Request<dp::RegisterRequest>) -> Result<Response<dp::Empty>, Status> {
        assert_eq!(request.into_inner().resource_name, GPU);
        self.list(&[OURS]);
        self.registrations.send_modify(|count| *count += 1);
        Ok(Response::new(dp::Empty {}))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn list(
        &self,
        _request: Request<pr::ListPodResourcesRequest>,
    ) -> Result<Response<pr::ListPodResourcesResponse>, Status> {
        self.listed.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(pr::ListPodResourcesResponse::default()))
    }

    async fn get(
        &self,
        _request: Request<pr::GetPodResourcesRequest>,
    ) -> Result<Response<pr::GetPodResourcesResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn get_allocatable_resources(
        &self,
        _request: Request<pr::AllocatableResourcesRequest>,
    ) -> Result<Response<pr::AllocatableResourcesResponse>, Status> {
        let device_ids = self.devices.lock().unwrap().clone();
        let devices = vec![pr::ContainerDevices { resource_name: GPU.to_owned(), device_ids, topology: None }];
        Ok(Response::new(pr::AllocatableResourcesResponse { devices, ..pr::AllocatableResourcesResponse::default() }))
    }
}

impl Kubelet {
    fn start(directory: &Path) -> Self {
        let kubelet = Self { registrations: watch::channel(0).0, devices: Arc::default(), listed: Arc::default() };
        let registration = RegistrationServer::new(kubelet.clone());
        let lister = PodResourcesListerServer::new(kubelet.clone());
        for (name, server) in [
            ("kubelet.sock", Server::builder().add_service(registration)),
            ("pod-resources.sock", Server::builder().add_service(lister)),
        ] {
            let socket = UnixListenerStream::new(UnixListener::bind(directory.join(name)).unwrap());
            tokio::spawn(server.serve_with_incoming(socket));
        }
        kubelet
    }

    fn list(&self, devices: &[&str]) {
        *self.devices.lock().unwrap() = devices.iter().map(|device| (*device).to_owned()).collect();
    }

    async fn registered(&self, times: u32) {
        let mut registrations = self.registrations.subscribe();
        let waited = registrations.wait_for(|count| *count >= times);
        tokio::time::timeout(Duration::from_secs(60), waited).await.expect("registered within a minute").unwrap();
    }
}

/// A registrar of one slot, and the sender of its lists.
fn registrar(
    directory: &TempDir,
) -> (Registrar<NodePods>, watch::Sender<Arc<Vec<Offer>>>, watch::Receiver<RegistrationStatus>) {
    let path = |name: &str| directory.path().join(name);
    let config = Keys::from_env(|name| (name == "NODE_NAME").then(|| "n1".into())).unwrap().into_config().unwrap();
    let settings = AllocationSettings {
        node_name: "n1".to_owned(),
        names: config.resource_names(),
        defaults: config.cluster().request_defaults(),
        policy: Policy::default(),
        accounting_namespaces: std::collections::BTreeSet::new(),
    };
    let (ledger, _) = Ledger::open(&path("state")).unwrap();
    let containers = Arc::new(Containers::new((&config).into(), Box::new(Accounting)));
    let allocator = Arc::new(Mutex::new(Allocator::new(settings, ledger, containers)));
    let (status, statuses) = watch::channel(RegistrationStatus::default());
    let slot = dp::Device { id: OURS.to_owned(), health: dp::HEALTHY.to_owned(), topology: None };
    let offer = Offer { resource: GPU.parse().unwrap(), devices: vec![slot] };
    let (sender, offers) = watch::channel(Arc::new(vec![offer]));
    let endpoint = KubeletEndpoint {
        url: "https://localhost:1".to_owned(),
        token_file: path("token"),
        trust: Trust { authorities: path("ca"), certificate: path("certificate") },
        timeout: Duration::from_secs(1),
    };
    let metrics = Arc::new(Metrics::register(&mut Registry::default()));
    let pod_resources = PodResources { socket: path("pod-resources.sock"), names: config.resource_names() };
    let source = NodePods {
        kubelet: PodListClient::new(endpoint).unwrap(),
        pod_resources: pod_resources.clone(),
        bound: None,
        cgroups: Arc::new(PodCgroups::new(path("cgroup"))),
        kubelet_age: KubeletAge::new(path("kubelet.sock")),
        unlisted: Arc::default(),
        metrics: Arc::clone(&metrics),
    };
    let daemon = Arc::new(Daemon::new(allocator, source, Arc::clone(&metrics) as _, Duration::ZERO));
    let registrar = Registrar {
        directory: directory.path().into(),
        calls: Calls { daemon, ledger_changed: Arc::default(), doubt: Arc::default(), node: None, metrics },
        offers,
        pod_resources,
        patience: Duration::from_millis(100),
        status,
    };
    (registrar, sender, statuses)
}

async fn until(
    statuses: &mut watch::Receiver<RegistrationStatus>,
    what: &str,
    holds: impl Fn(&RegistrationStatus) -> bool,
) -> RegistrationStatus {
    let waited = tokio::time::timeout(Duration::from_secs(60), statuses.wait_for(holds)).await;
    waited.unwrap_or_else(|_| panic!("not within a minute: {what}")).unwrap().clone()
}

/// The list that a plugin of ours sends next.
async fn next_list(lists: &mut Streaming<dp::ListAndWatchResponse>) -> Vec<dp::Device> {
    lists.message().await.unwrap().expect("a list").devices
}

#[tokio::test]
async fn conflicting_plugin_keeps_the_resource_until_it_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = Kubelet::start(directory.path());
    kubelet.list(&["GPU-1"]);
    let _other = UnixListener::bind(directory.path().join("nvidia-gpu.sock")).unwrap();
    let (registrar, _devices, mut statuses) = registrar(&directory);
    let stop = CancellationToken::new();
    let running = tokio::spawn(registrar.run(stop.clone()));
    let conflict =
        until(&mut statuses, "the conflict is found", |now| matches!(now, RegistrationStatus::Conflict(_))).await;
    let RegistrationStatus::Conflict(text) = conflict else { unreachable!() };
    let start = "another device plugin serves nvidia.com/gpu, with devices such as GPU-1; \
                 other sockets in the plugin directory: nvidia-gpu.sock (process";
    assert!(text.starts_with(start), "{text}");
    assert_eq!(*kubelet.registrations.borrow(), 0);
    assert_eq!(kubelet.listed.load(Ordering::Relaxed), 0);
    kubelet.list(&[]);
    kubelet.registered(1).await;
    assert_eq!(kubelet.listed.load(Ordering::Relaxed), 1, "the other one may have allocated GPUs");
    until(&mut statuses, "we are registered", |now| *now == RegistrationStatus::Registered).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn resource_of_another_plugin_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = Kubelet::start(directory.path());
    let (registrar, offers, mut statuses) = registrar(&directory);
    let stop = CancellationToken::new();
    let running = tokio::spawn(registrar.run(stop.clone()));
    kubelet.registered(1).await;
    let socket = directory.path().join("divvy-gpu.sock");
    let connect = service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap();
    let lists = DevicePluginClient::new(channel).list_and_watch(dp::Empty {}).await;
    let mut lists = lists.unwrap().into_inner();
    assert_eq!(next_list(&mut lists).await.len(), 1);

    kubelet.list(&["GPU-1"]);
    until(&mut statuses, "the conflict is found", |now| matches!(now, RegistrationStatus::Conflict(_))).await;
    offers.send_modify(|offers| Arc::make_mut(offers)[0].devices.clear());
    let silent = tokio::time::timeout(Duration::from_millis(300), lists.message()).await;
    assert!(silent.is_err(), "neither another list nor the stream's end: {silent:?}");
    assert_eq!(*kubelet.registrations.borrow(), 1);

    kubelet.list(&[]);
    assert!(next_end(&mut lists).await, "the old session ends");
    kubelet.registered(2).await;
    stop.cancel();
    running.await.unwrap();
}

/// A kubelet is slow to notice the end of a session. It disconnects the resource by its name then, so it would stop a plugin
/// that has registered before (`runClient` in `plugin/v1beta1/handler.go`).
#[tokio::test]
async fn session_begins_after_kubelet_dropped_the_last_one() {
    let directory = tempfile::tempdir().unwrap();
    let kubelet = Kubelet::start(directory.path());
    let (registrar, _devices, mut statuses) = registrar(&directory);
    let registrar = Registrar { patience: Duration::from_secs(60), ..registrar };
    let stop = CancellationToken::new();
    let running = tokio::spawn(registrar.run(stop.clone()));
    kubelet.registered(1).await;
    until(&mut statuses, "registered", |now| *now == RegistrationStatus::Registered).await;
    std::fs::remove_file(directory.path().join("divvy-gpu.sock")).unwrap();
    until(&mut statuses, "the session is over", |now| *now == RegistrationStatus::Unregistered).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(*kubelet.registrations.borrow(), 1, "the kubelet still lists the last session's devices");

    kubelet.list(&[]);
    kubelet.registered(2).await;
    stop.cancel();
    running.await.unwrap();
}

async fn next_end(lists: &mut Streaming<dp::ListAndWatchResponse>) -> bool {
    let ended = tokio::time::timeout(Duration::from_secs(60), lists.message()).await;
    !matches!(ended.expect("within a minute"), Ok(Some(_)))
}
