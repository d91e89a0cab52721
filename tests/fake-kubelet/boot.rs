//! The start of a kubelet process.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::net::UnixListener;

use super::core::{Core, State};
use super::devices::Devices;
use super::endpoint::Endpoint;
use super::pods_api::PodsServer;
use super::process::Process;
use super::{admission, checkpoint, pod_resources, registration, worker};

/// Name of the kubelet's socket, both in the plugin directory and in the PodResources directory.
pub(crate) const SOCKET: &str = "kubelet.sock";

/// Starts a process, in the real one's order: checkpoint, plugin directory, sockets, pods.
pub(crate) fn boot(core: &Arc<Core>, pods_server: &Arc<PodsServer>) -> io::Result<Process> {
    let process = Process::new(core);
    let restored = checkpoint::read(&core.paths.plugins);
    core.update(|state| state.reset(restored));
    remove_sockets(&core.paths.plugins)?;
    if std::fs::read_dir(&core.paths.plugins)?.next().is_none() {
        // `ShouldResetExtendedResourceCapacity`: a directory without any file looks like a new node.
        core.update(|state| state.allocatable.values_mut().for_each(|amount| *amount = 0));
    }
    remove_sockets(&core.paths.pod_resources)?;
    process.serve_grpc(UnixListener::bind(core.paths.pod_resources.join(SOCKET))?, pod_resources::routes(&process));
    process.serve_grpc(UnixListener::bind(core.paths.plugins.join(SOCKET))?, registration::routes(&process));
    core.update(|state| state.record.boots.push(Instant::now()));
    process.spawn(Arc::clone(pods_server).serve(process.clone()));
    process.spawn(admission::sync_loop(process.clone()));
    // `HandlePodCleanups`: containers of pods that nobody wants.
    let forgotten = |state: &State| {
        let forgotten = state.pods.iter().filter(|pod| pod.forgotten);
        forgotten.map(|pod| pod.uid.clone()).collect::<Vec<_>>()
    };
    for uid in core.read(forgotten) {
        process.spawn(worker::work(process.clone(), uid));
    }
    Ok(process)
}

// === impl State ===

impl State {
    /// Forgets what the process knew; what the API server, the runtime and the disk know stays.
    fn reset(&mut self, devices: Devices) {
        let stub = || Endpoint { plugin: None, options: None, stopped: Some(Instant::now()) };
        self.endpoints = devices.known.keys().map(|resource| (resource.clone(), stub())).collect();
        self.devices = devices;
        self.sources_ready = false;
        for pod in &mut self.pods {
            pod.listed = false;
            pod.unheard = false;
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
