//! One life of the kubelet process: its tasks, its sockets, and their sudden end.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

use super::core::{Core, State};
use super::plugin::Endpoint;
use super::pods_api::PodsServer;
use super::{admission, checkpoint, pod_resources, registration, worker};

/// Name of the kubelet's socket, both in the plugin directory and in the PodResources directory.
pub(crate) const SOCKET: &str = "kubelet.sock";

/// A running kubelet process.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) core: Arc<Core>,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

// === impl Run ===

impl Run {
    /// What the process does at its start, in the real one's order: checkpoint, plugin directory, sockets, pods.
    pub(crate) fn boot(core: &Arc<Core>, pods_server: &Arc<PodsServer>) -> io::Result<Self> {
        let run = Self { core: Arc::clone(core), cancel: CancellationToken::new(), tasks: TaskTracker::new() };
        let restored = checkpoint::read(&core.paths.plugins);
        core.update(|state| state.reset(restored));
        remove_sockets(&core.paths.plugins)?;
        if std::fs::read_dir(&core.paths.plugins)?.next().is_none() {
            // `ShouldResetExtendedResourceCapacity`: a directory without any file looks like a new node.
            core.update(|state| state.allocatable.values_mut().for_each(|amount| *amount = 0));
        }
        remove_sockets(&core.paths.pod_resources)?;
        run.serve_grpc(UnixListener::bind(core.paths.pod_resources.join(SOCKET))?, pod_resources::routes(&run));
        run.serve_grpc(UnixListener::bind(core.paths.plugins.join(SOCKET))?, registration::routes(&run));
        core.update(|state| state.record.boots.push(Instant::now()));
        run.spawn(Arc::clone(pods_server).serve(run.clone()));
        run.spawn(admission::sync_loop(run.clone()));
        // `HandlePodCleanups`: containers of pods that nobody wants.
        let forgotten = |state: &State| {
            let forgotten = state.pods.iter().filter(|pod| pod.forgotten);
            forgotten.map(|pod| pod.uid.clone()).collect::<Vec<_>>()
        };
        for uid in core.read(forgotten) {
            run.spawn(worker::work(run.clone(), uid));
        }
        Ok(run)
    }

    /// Ends every task and connection at once, as `kill -9` does: files stay as they are.
    pub(crate) async fn kill(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.core.update(|state| {
            state.endpoints.clear();
            state.clients.clear();
        });
    }

    /// Runs a task until it ends or the process does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = task => {}
            }
        });
    }

    fn serve_grpc(&self, listener: UnixListener, routes: Routes) {
        let run = self.clone();
        self.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(routes.clone());
                let connection = http2::Builder::new(run.clone()).serve_connection(TokioIo::new(stream), service);
                run.spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a connection broke");
                    }
                });
            }
        });
    }
}

impl<F> hyper::rt::Executor<F> for Run
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

// === impl State ===

impl State {
    /// Forgets what the process knew; what the API server, the runtime and the disk know stays.
    fn reset(&mut self, devices: super::devices::Devices) {
        let stub = || Endpoint { plugin: None, options: None, stopped: Some(Instant::now()) };
        self.endpoints = devices.known.keys().map(|resource| (resource.clone(), stub())).collect();
        self.devices = devices;
        self.sources_ready = false;
        for pod in &mut self.pods {
            pod.listed = false;
            for container in &mut pod.containers {
                container.found_running = container.state.is_running();
            }
        }
    }
}

/// `CleanupPluginDirectory`: every socket, and nothing else.
fn remove_sockets(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
