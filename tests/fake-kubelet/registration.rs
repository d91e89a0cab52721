//! The registration service, and what follows a plugin's list to its end.

use std::sync::Arc;
use std::time::Instant;

use divvy_api::names::ResourceName;
use divvy_proto::deviceplugin as dp;
use divvy_proto::deviceplugin::registration_server::{Registration, RegistrationServer};
use tokio::sync::oneshot;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::checkpoint;
use super::endpoint::{Client, Endpoint, Plugin};
use super::plugin::rpc_error;
use super::process::Process;
use super::record::Registered;

/// The service on the plugin directory's kubelet.sock.
struct Service(Process);

pub(crate) fn routes(process: &Process) -> Routes {
    Routes::new(RegistrationServer::new(Service(process.clone())))
}

// === impl Service ===

#[tonic::async_trait]
impl Registration for Service {
    /// Goes on to its end even if the plugin stops waiting for the answer.
    async fn register(&self, request: Request<dp::RegisterRequest>) -> Result<Response<dp::Empty>, Status> {
        let (answer, answered) = oneshot::channel();
        let (process, request) = (self.0.clone(), request.into_inner());
        self.0.spawn(async move {
            let outcome = register(&process, request).await;
            if answer.send(outcome).is_err() {
                tracing::debug!("a plugin didn't wait for its registration");
            }
        });
        let outcome = answered.await.map_err(|_closed| Status::unavailable("the kubelet is stopping"))?;
        outcome.map(|()| Response::new(dp::Empty {})).map_err(Status::unknown)
    }
}

async fn register(process: &Process, request: dp::RegisterRequest) -> Result<(), String> {
    let dp::RegisterRequest { version, endpoint, resource_name: resource, options: _ } = request;
    if version != dp::VERSION {
        let supported = dp::VERSION;
        return Err(format!(
            "requested API version \"{version}\" is not supported by kubelet. Supported version is \"{supported}\""
        ));
    }
    if resource.parse::<ResourceName>().is_err() {
        return Err(format!("the ResourceName \"{resource}\" is invalid"));
    }
    let client = Arc::new(Client::default());
    process.core.update(|state| state.clients.insert(resource.clone(), Arc::clone(&client)));
    let connected = connect(process, &endpoint, &resource, client).await;
    let plugin = connected.inspect_err(|_failed| {
        process.core.update(|state| {
            state.record.unanswered += 1;
            state.clients.remove(&resource);
        });
    })?;
    process.spawn(follow(process.clone(), resource, plugin));
    Ok(())
}

async fn connect(process: &Process, endpoint: &str, resource: &str, client: Arc<Client>) -> Result<Plugin, String> {
    let plugin = Plugin::dial(process.core.paths.plugins.join(endpoint), client).await?;
    let options = plugin.options().await;
    let options = options.map_err(|status| format!("failed to get device plugin options: {}", rpc_error(&status)))?;
    let connected = Endpoint { plugin: Some(plugin.clone()), options: Some(options), stopped: None };
    process.core.update(|state| state.endpoints.insert(resource.to_owned(), connected));
    Ok(plugin)
}

/// `runClient`. At the stream's end it disconnects whoever is registered by that name *then*, as kubelets up to 1.36
/// do: after a second registration the end of the first stream stops the second plugin. As the stream of a connection
/// that is closed ends a little later, a third registration that comes at once is stopped by it too.
async fn follow(process: Process, resource: String, plugin: Plugin) {
    let cut = plugin.client.cut.clone();
    tokio::select! {
        () = cut.cancelled() => process.core.about(process.core.timing.close).await,
        () = receive(&process, &resource, plugin) => {}
    }
    process.core.update(|state| {
        let Some(client) = state.clients.remove(&resource) else { return };
        client.cut.cancel();
        state.devices.mark_unhealthy(&resource);
        if let Some(endpoint) = state.endpoints.get_mut(&resource) {
            endpoint.plugin = None;
            endpoint.stopped = Some(Instant::now());
        }
    });
}

/// Takes lists until the stream ends or one of them is too long.
async fn receive(process: &Process, resource: &str, plugin: Plugin) {
    let mut connected = Some(Instant::now());
    let lists = async {
        let mut stream = plugin.list_and_watch().await?;
        while let Some(list) = stream.message().await? {
            take_list(process, resource, list.devices, connected.take());
        }
        Ok::<_, Status>(())
    };
    if let Err(status) = lists.await {
        tracing::info!(resource, error = rpc_error(&status), "ListAndWatch ended");
    }
}

/// `connected`: when the plugin was, if this is its first list.
fn take_list(process: &Process, resource: &str, list: Vec<dp::Device>, connected: Option<Instant>) {
    let devices = process.core.update(|state| {
        state.devices.replace_list(resource, list);
        state.allocatable.remove(resource);
        if let Some(connected) = connected {
            let (resource, listed) = (resource.to_owned(), Instant::now());
            state.record.registrations.push(Registered { resource, connected, listed });
        }
        state.devices.clone()
    });
    if let Err(error) = checkpoint::write(&process.core.paths.plugins, &devices) {
        tracing::error!(%error, "writing the checkpoint failed");
    }
}
