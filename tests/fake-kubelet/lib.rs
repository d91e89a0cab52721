//! A kubelet stand-in: the real wire protocols on real sockets, with the real one's habits.
//!
//! ```text
//! plugin ──Register──▶ registration ──ListAndWatch──▶ devices ◀──checkpoint──▶ disk
//! add_pod ──▶ pods ──▶ admission (one at a time) ──GetPreferredAllocation, Allocate──▶ plugin
//!                └───▶ worker (one a pod) ──PreStartContainer──▶ plugin
//! /pods (HTTPS) and PodResources (gRPC) show pods and devices
//! ```
//!
//! With an API server it [joins](Kubelet::join) a cluster: its Node, the pods bound to it, their statuses.
//!
//! Many of them live in one process. A kubelet's death is the end of its tasks and connections; its files, its pods and
//! their containers stay, as on a real node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use divvy_proto::deviceplugin::ContainerAllocateResponse;
use k8s_openapi::api::core::v1;
use tokio_rustls::TlsAcceptor;

mod admission;
mod allocate;
mod boot;
mod checkpoint;
mod core;
pub mod devices;
mod endpoint;
mod faults;
mod fit;
mod membership;
mod pki;
mod plugin;
mod pod_resources;
mod pods;
mod pods_api;
mod process;
mod record;
mod registration;
pub mod spec;
mod status;
mod timing;
mod view;
mod worker;
mod workload;

pub use devices::Ids;
pub use faults::{Faults, PodsFault};
pub use membership::Membership;
pub use pki::Serving;
pub use pods::{Admission, ContainerState, Phase, Refusal};
pub use record::{Call, Method, Registered};
pub use spec::SpecError;
pub use timing::Timing;
pub use view::{ContainerView, KubeletView, PodView};
pub use workload::Workload;

use self::core::{Core, Paths};
use self::devices::{Demand, Grant};
use self::pods::Pod;
use self::pods_api::PodsServer;
use self::process::Process;

/// How a kubelet is to be.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// Root of its files; short, since socket paths end at 107 bytes.
    pub dir: PathBuf,
    /// Name of its node.
    pub node_name: String,
    /// Seed of all random draws.
    pub seed: u64,
    /// Faults from the start.
    pub faults: Faults,
    /// How long things take.
    pub timing: Timing,
    /// How its certificate is signed.
    pub serving: Serving,
}

/// How a kubelet is restarted.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestartOptions {
    /// How long there is no kubelet.
    pub down_for: Duration,
    /// Whether the checkpoint file is deleted meanwhile.
    pub lose_checkpoint: bool,
}

/// A node with a kubelet on it.
pub struct Kubelet {
    core: Arc<Core>,
    pods_server: Arc<PodsServer>,
    process: tokio::sync::Mutex<Process>,
}

// === impl KubeletOptions ===

impl KubeletOptions {
    /// A kubelet without faults.
    pub fn new(dir: impl Into<PathBuf>, node_name: impl Into<String>, seed: u64) -> Self {
        let (faults, timing, serving) = (Faults::default(), Timing::default(), Serving::default());
        Self { dir: dir.into(), node_name: node_name.into(), seed, faults, timing, serving }
    }
}

// === impl Kubelet ===

impl Kubelet {
    /// Makes the directories, the certificate and the token, and starts.
    pub async fn start(options: KubeletOptions) -> anyhow::Result<Self> {
        let KubeletOptions { dir, node_name, seed, faults, timing, serving } = options;
        let paths = Paths {
            root: dir.clone(),
            plugins: dir.join("device-plugins"),
            pod_resources: dir.join("pod-resources"),
            pki: dir.join("pki"),
            cgroups: dir.join("cgroup"),
        };
        for path in [&paths.plugins, &paths.pod_resources, &paths.pki, &paths.cgroups] {
            std::fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
        }
        let token = format!("token-{seed:016x}");
        let tls = certificate(&paths.pki, &node_name, serving, &token).await?;
        let pods_server = Arc::new(PodsServer::new(tls, token).context("binding /pods")?);
        let core = Arc::new(Core::new(node_name, paths, timing, faults, seed));
        let process = boot::boot(&core, &pods_server).context("starting the kubelet")?;
        Ok(Self { core, pods_server, process: tokio::sync::Mutex::new(process) })
    }

    /// Binds a pod to this node; returns its UID. It is admitted after all pods that came before.
    pub fn add_pod(&self, pod: v1::Pod) -> Result<String, SpecError> {
        self.core.add(Pod::new(pod)?)
    }

    /// Waits for the outcome of a pod's (first) admission.
    pub async fn admitted(&self, uid: &str) -> Result<Admission, SpecError> {
        let outcome = self.core.read(|state| state.pod(uid).map(|pod| pod.outcome.subscribe()));
        let mut outcome = outcome.ok_or_else(|| SpecError::Unknown(uid.to_owned()))?;
        let known = outcome.wait_for(Option::is_some).await;
        Ok(known.ok().and_then(|outcome| outcome.clone()).unwrap_or(Admission::Deleted))
    }

    /// Waits for a pod that was bound at the API server to come here.
    pub async fn arrived(&self, uid: &str) {
        self.core.wait(|state| state.pod(uid).map(drop)).await;
    }

    /// Takes over labels and annotations, as after an update at the API server.
    pub fn update_pod(&self, uid: &str, object: &v1::Pod) -> Result<(), SpecError> {
        self.core.tell(uid, |pod| pod.relabel(object))
    }

    /// Ends a pod's work, well or badly; it stays listed.
    pub fn finish(&self, uid: &str, success: bool) -> Result<(), SpecError> {
        self.core.tell(uid, |pod| pod.finish(i32::from(!success)))
    }

    /// Asks for a pod's deletion; it is listed until its containers are gone.
    pub fn delete(&self, uid: &str) -> Result<(), SpecError> {
        self.core.tell(uid, Pod::delete)
    }

    /// Deletes a pod by force: it is listed no more, and its containers end a little later.
    pub fn delete_by_force(&self, uid: &str) -> Result<(), SpecError> {
        self.core.tell(uid, Pod::forget)
    }

    /// Evicts a pod: it is Failed at once, and its containers end a little later.
    pub fn evict(&self, uid: &str) -> Result<(), SpecError> {
        let (reason, message) = ("Evicted".to_owned(), "The node was low on resource: memory.".to_owned());
        self.core.tell(uid, |pod| pod.failure = Some(Refusal { reason, message }))
    }

    /// Ends a container's process, so that the kubelet starts it again.
    pub fn restart_container(&self, uid: &str, name: &str) -> Result<(), SpecError> {
        self.core.tell(uid, |pod| {
            if let Some(container) = pod.container_mut(name).filter(|container| container.state.is_running()) {
                container.state = ContainerState::waiting("CrashLoopBackOff");
            }
        })
    }

    /// Kills the kubelet and starts it again. Containers run on meanwhile.
    pub async fn restart(&self, options: RestartOptions) -> anyhow::Result<()> {
        let mut process = self.process.lock().await;
        process.kill().await;
        tokio::time::sleep(options.down_for).await;
        if options.lose_checkpoint {
            let checkpoint = checkpoint::path(&self.core.paths.plugins);
            if let Err(error) = std::fs::remove_file(checkpoint) {
                tracing::debug!(%error, "there was no checkpoint to lose");
            }
        }
        *process = boot::boot(&self.core, &self.pods_server).context("restarting the kubelet")?;
        Ok(())
    }

    /// Replaces the serving certificate, and the CA with it; kept connections stay as they are.
    pub async fn renew_certificate(&self, serving: Serving) -> anyhow::Result<()> {
        let token = std::fs::read_to_string(self.token_file()).context("reading the token")?;
        let tls = certificate(&self.core.paths.pki, &self.core.node_name, serving, &token).await?;
        self.pods_server.serve_with(tls);
        Ok(())
    }

    /// Stops for good.
    pub async fn shutdown(self) {
        self.process.into_inner().kill().await;
    }

    /// Sets or removes an extended resource in the node's allocatable, which pods are checked against from now on.
    pub fn set_allocatable(&self, resource: &str, amount: Option<u64>) {
        self.core.update(|state| match amount {
            Some(amount) => state.allocatable.insert(resource.to_owned(), amount),
            None => state.allocatable.remove(resource),
        });
    }

    /// Puts devices on record for a container, as if a plugin that is gone by now had allocated them.
    pub fn record_devices(&self, uid: &str, container: &str, resource: &str, ids: Ids) -> anyhow::Result<()> {
        let devices = self.core.update(|state| {
            let demand = Demand { pod: uid, container, resource, count: ids.len() };
            state.devices.insert(demand, Grant { ids, answer: ContainerAllocateResponse::default() });
            state.devices.recount();
            state.devices.clone()
        });
        checkpoint::write(&self.core.paths.plugins, &devices)
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        self.core.faults.send_modify(change);
    }

    /// What there is to see now.
    pub fn view(&self) -> KubeletView {
        self.core.read(KubeletView::of)
    }

    /// Calls to plugins that have ended, in that order; kept over restarts.
    pub fn calls(&self) -> Vec<Call> {
        self.core.read(|state| state.record.calls.clone())
    }

    /// Waits until a view satisfies `condition`; has no deadline of its own.
    pub async fn wait_until(&self, mut condition: impl FnMut(&KubeletView) -> bool) {
        self.core.wait(|state| condition(&KubeletView::of(state)).then_some(())).await;
    }

    /// Name of its node.
    pub fn node_name(&self) -> &str {
        &self.core.node_name
    }

    /// The directory in which the others are, as its `--root-dir`.
    pub fn root_dir(&self) -> &Path {
        &self.core.paths.root
    }

    /// The directory of kubelet.sock, plugins' sockets and the checkpoint.
    pub fn plugin_dir(&self) -> &Path {
        &self.core.paths.plugins
    }

    /// The PodResources socket.
    pub fn pod_resources_socket(&self) -> PathBuf {
        self.core.paths.pod_resources.join(boot::SOCKET)
    }

    /// Where `/pods` is served, over restarts too.
    pub fn address(&self) -> SocketAddr {
        self.pods_server.address
    }

    /// The bearer token that `/pods` wants.
    pub fn token_file(&self) -> PathBuf {
        self.core.paths.pki.join(pki::TOKEN)
    }

    /// Where pods have their cgroups, as below the mount point of one hierarchy.
    pub fn cgroups(&self) -> &Path {
        &self.core.paths.cgroups
    }

    /// The cluster's CA; it signed the serving certificate under [`Serving::ByCa`].
    pub fn ca_file(&self) -> PathBuf {
        self.core.paths.pki.join(pki::CA)
    }

    /// The serving certificate itself.
    pub fn certificate_file(&self) -> PathBuf {
        self.core.paths.pki.join(pki::CERTIFICATE)
    }
}

/// Makes a certificate, in files and to serve with.
async fn certificate(pki: &Path, node_name: &str, serving: Serving, token: &str) -> anyhow::Result<TlsAcceptor> {
    let (pki, node_name, token) = (pki.to_owned(), node_name.to_owned(), token.to_owned());
    let made = tokio::task::spawn_blocking(move || pki::create(&pki, &node_name, serving, &token)).await?;
    made.context("making the serving certificate")
}
