//! Registration with the kubelet: one session after another, each from fresh sockets to the kubelet's next restart.
//!
//! All resources share a session: each has a socket of its own, and they begin and end together, because conclusions are
//! drawn from the order of the kubelet's calls across resources.
//!
//! A kubelet that still runs has an endpoint of the last session, and the end of that session's stream stops the resource
//! by its name (`runClient` in `plugin/v1beta1/handler.go` calls `disconnectClient`, which calls `PluginDisconnected` in
//! `devicemanager/manager.go`: `markResourceUnhealthy` and `setStopTime`). If it gets to that only after the next
//! `Register`, it stops the new endpoint, whose connection may stay open: the node has no healthy device and nothing would
//! register it again. So the next session with the same kubelet begins when the kubelet lists none of its devices any more.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::ResourceName;
use divvy_node_core::allocator::{Refusal, lock};
use divvy_node_core::ports::PodSource;
use divvy_proto::deviceplugin as api;
use divvy_proto::deviceplugin::device_plugin_client::DevicePluginClient;
use divvy_proto::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use divvy_proto::deviceplugin::registration_client::RegistrationClient;
use divvy_runtime::logging::WarnOnce;
use futures::future::try_join_all;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tonic::transport::{Channel, Endpoint, Server};
use tracing::{debug, info, warn};

use super::advertise::Offer;
use super::advertise::devices::UnitPlugin;
use super::conflict::{self, ConflictTracker, Verdict};
use super::device_list::DeviceList;
use super::plugin::{Calls, Plugin};
use super::pod_resources::PodResources;
use super::socket::{DirectoryWatch, SocketFile};
use super::unix_channel;

/// Registers Divvy's resources with the kubelet.
#[derive(Debug)]
pub struct Registrar<S> {
    /// The kubelet's plugin directory.
    pub directory: PathBuf,
    /// Answers the kubelet's calls.
    pub calls: Calls<S>,
    /// Resources to register, with all devices of each and their health.
    pub offers: watch::Receiver<Arc<Vec<Offer>>>,
    /// Source of the allocatable devices, which show conflicting device plugins.
    pub pod_resources: PodResources,
    /// Time for which a conflicting plugin must be registered before the daemon unregisters, and be gone before it registers.
    pub patience: Duration,
    /// Receives every change of the status.
    pub status: watch::Sender<RegistrationStatus>,
}

/// Status of the registration with the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RegistrationStatus {
    /// Not registered.
    #[default]
    Unregistered,
    /// Registered: the kubelet allocates this daemon's devices.
    Registered,
    /// Not registered because another device plugin serves the same GPUs or resource: which one, and what to do.
    Conflict(String),
}

/// Plain file in the plugin directory. A kubelet that starts and finds no file there zeroes the node's extended resources
/// (`ShouldResetExtendedResourceCapacity`), Divvy's amounts among them; sockets it has deleted by then.
pub(crate) const NOTE: &str = "divvy-node.txt";
const NOTE_TEXT: &str = "Keeps a kubelet that starts from zeroing this node's GPU memory and cores.\n";
/// Deadline of the first `Register`. A kubelet that misses it is still cleaning up; the request is repeated at once.
const REGISTER_DEADLINE: Duration = Duration::from_secs(1);
/// Deadline of further ones. A kubelet that has answered a first `Register` has cleaned up and is only slow, for one over
/// long lists of devices. A new session would take the other resources from it, and fail pods that it admits again.
const LONGEST_REGISTER: Duration = Duration::from_secs(10);
/// Looks for a conflicting plugin in each [`Registrar::patience`].
const LOOKS: u32 = 4;
/// Time that calls in flight have to finish when their session ends.
const SESSION_DRAIN: Duration = Duration::from_millis(500);
/// Largest request in bytes: `GetPreferredAllocation` carries all free slots, above tonic's 4 MiB on nodes of many slots.
const LARGEST_REQUEST: usize = 64 << 20;

/// A session that could not begin.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("socket {path}: {source}")]
    Socket { path: PathBuf, source: std::io::Error },
    #[error("plugin socket {path} doesn't answer: {problem}")]
    SelfDial { path: PathBuf, problem: String },
    #[error("registering with the kubelet at {path}: {problem}")]
    Register { path: PathBuf, problem: String },
}

/// Running servers, one for each resource.
struct Session {
    token: CancellationToken,
    /// Cancelled when another plugin has taken one of the resources: then no list is sent any more.
    silence: CancellationToken,
    /// Registered resources.
    resources: Vec<ResourceName>,
    servers: Vec<JoinHandle<Result<(), tonic::transport::Error>>>,
    /// The kubelet's socket and the plugins', as they were at registration.
    sockets: Vec<(PathBuf, Option<SocketFile>)>,
}

/// Name of a resource's socket in the plugin directory.
fn socket_name(resource: &ResourceName) -> String {
    let name = resource.as_str().rsplit('/').next().unwrap_or_default();
    format!("divvy-{name}.sock")
}

/// Divvy's sockets in the plugin directory, also of resources that aren't offered any more.
pub(crate) fn own_sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_own = |name: &str| name.strip_suffix(".sock").is_some_and(|name| name.starts_with("divvy-"));
    let own = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_own));
    own.map(|entry| entry.path()).collect()
}

// === impl Registrar ===

impl<S: PodSource + 'static> Registrar<S> {
    /// Stays registered until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut watch = DirectoryWatch::new(&self.directory);
        self.keep_note();
        let mut backoff = Backoff::default();
        let mut conflicts = ConflictTracker::new(self.patience);
        let mut last = None;
        // Whether another plugin may have allocated GPUs since the kubelet's records were read.
        let mut is_behind = false;
        while !stop.is_cancelled() {
            let Some(kubelet) = SocketFile::at(&self.kubelet_socket()) else {
                tokio::select! { () = watch.changed() => {}, () = stop.cancelled() => {} }
                continue;
            };
            backoff.reset_for(kubelet);
            // A kubelet that has restarted is registered with at once: it has no endpoint of the last session, and a
            // conflicting plugin is found during the next one.
            let has_restarted = last.is_some_and(|last| last != kubelet);
            if !has_restarted || *conflicts.verdict() != Verdict::None {
                self.look_for_conflict(&mut conflicts, None).await;
            }
            if *conflicts.verdict() != Verdict::None {
                tokio::select! { () = tokio::time::sleep(backoff.next()) => {}, () = stop.cancelled() => {} }
                continue;
            }
            is_behind |= conflicts.take_found();
            if is_behind && let Err(refusal) = self.recover().await {
                backoff.warning.warn(format!("not registering with the kubelet again yet: {refusal}"));
                tokio::select! { () = tokio::time::sleep(backoff.next()) => {}, () = stop.cancelled() => {} }
                continue;
            }
            is_behind = false;
            match self.begin(&stop).await {
                Ok(session) => {
                    (backoff, last) = (Backoff::default(), Some(kubelet));
                    self.status.send_replace(RegistrationStatus::Registered);
                    let resources = session.resources.iter().map(ResourceName::as_str).collect::<Vec<_>>().join(", ");
                    info!(resources, "registered with the kubelet");
                    self.until_over(&session, &mut watch, &mut conflicts).await;
                    // Before anything else: a kubelet that has just started lists pods one by one.
                    lock(self.calls.daemon.allocator()).begin_session();
                    self.status.send_if_modified(|status| {
                        let over = *status == RegistrationStatus::Registered;
                        over.then(|| *status = RegistrationStatus::Unregistered).is_some()
                    });
                    session.end().await;
                    info!(stopping = stop.is_cancelled(), "session with the kubelet is over");
                }
                Err(error) => {
                    backoff.warning.warn(error.to_string());
                    tokio::select! { () = tokio::time::sleep(backoff.next()) => {}, () = watch.changed() => {}, () = stop.cancelled() => {} }
                }
            }
        }
        for socket in own_sockets(&self.directory) {
            let _absent_is_as_good = std::fs::remove_file(socket);
        }
    }

    /// Reads the kubelet's records once more. Without its pods they are compared with the first list, before which nothing is
    /// allocated.
    async fn recover(&self) -> Result<(), Refusal> {
        match self.calls.daemon.recover().await {
            Err(refusal) if refusal.is_unlisted() => Ok(()),
            recovered => recovered,
        }
    }

    /// Connects to the kubelet, serves on fresh sockets, makes sure that they answer, registers.
    ///
    /// In this order: a kubelet that starts deletes every socket in the directory before it listens, so one that accepts
    /// the connection has done that and leaves the sockets that are made now. A kubelet that dials a socket which it has
    /// just deleted tries again after a second at the earliest, and fails pods meanwhile. One that was killed has left its
    /// socket behind, on which nobody listens: the plugins' sockets stay as they are then.
    async fn begin(&self, stop: &CancellationToken) -> Result<Session, SessionError> {
        let kubelet = self.kubelet_socket();
        let channel = Self::connect(&kubelet).await?;
        let resources = resources(&self.offers.borrow());
        let sockets = vec![(kubelet.clone(), SocketFile::at(&kubelet))];
        let token = stop.child_token();
        let silence = CancellationToken::new();
        let mut session = Session { token, silence, resources, servers: Vec::new(), sockets };
        match self.open(&mut session, channel).await {
            Ok(()) => Ok(session),
            Err(error) => {
                session.end().await;
                Err(error)
            }
        }
    }

    async fn open(&self, session: &mut Session, kubelet: Channel) -> Result<(), SessionError> {
        for resource in &session.resources {
            let own = self.directory.join(socket_name(resource));
            let list = DeviceList {
                resource: resource.clone(),
                offers: self.offers.clone(),
                session: session.token.clone(),
                silence: session.silence.clone(),
            };
            let calls = self.calls.clone();
            let token = session.token.clone();
            let server = if self.pod_resources.names.counts_cards(resource.as_str()) {
                serve(&own, Plugin { list, calls }, token)?
            } else {
                serve(&own, UnitPlugin { list, calls }, token)?
            };
            session.servers.push(server);
            session.sockets.push((own.clone(), SocketFile::at(&own)));
            self_dial(&own).await?;
        }
        let Some((first, others)) = session.resources.split_first() else { return Ok(()) };
        self.register(kubelet.clone(), first, REGISTER_DEADLINE).await?;
        // At once: the kubelet may admit its pods again any moment, and fails those that lack one resource.
        let others = others.iter().map(|resource| self.register(kubelet.clone(), resource, LONGEST_REGISTER));
        try_join_all(others).await.map(drop)
    }

    fn keep_note(&self) {
        let path = self.directory.join(NOTE);
        if !path.exists()
            && let Err(error) = std::fs::write(&path, NOTE_TEXT)
        {
            warn!(path = %path.display(), %error, "a kubelet that starts may zero this node's amounts for a moment");
        }
    }

    async fn connect(kubelet: &Path) -> Result<Channel, SessionError> {
        let endpoint = Endpoint::from_static("http://localhost").connect_timeout(REGISTER_DEADLINE);
        let channel = unix_channel(endpoint.timeout(LONGEST_REGISTER), kubelet.to_owned()).await;
        channel.map_err(|problem| SessionError::Register { path: kubelet.to_owned(), problem })
    }

    async fn register(
        &self,
        kubelet: Channel,
        resource: &ResourceName,
        deadline: Duration,
    ) -> Result<(), SessionError> {
        let failed = |problem: String| SessionError::Register { path: self.kubelet_socket(), problem };
        let mut request = Request::new(api::RegisterRequest {
            version: api::VERSION.to_owned(),
            endpoint: socket_name(resource),
            resource_name: resource.to_string(),
            options: None,
        });
        request.set_timeout(deadline);
        let answer = RegistrationClient::new(kubelet).register(request).await;
        answer.map(drop).map_err(|status| failed(format!("{}: {}", status.code(), status.message())))
    }

    /// Returns when the session is over: the kubelet closed a stream, a socket is another file, other resources are to be
    /// registered, the daemon stops, or another plugin offers this node's GPUs.
    ///
    /// A resource that another plugin has taken is left to it: no list is sent any more, and the stream stays open until
    /// the other plugin is gone, because kubelets up to 1.36 take the end of the stream for its end (kubernetes#121994).
    async fn until_over(&self, session: &Session, watch: &mut DirectoryWatch, conflicts: &mut ConflictTracker) {
        let unchanged = || session.sockets.iter().all(|(path, known)| SocketFile::at(path) == *known);
        let mut offers = self.offers.clone();
        let mut others = async || drop(offers.wait_for(|offers| resources(offers) != session.resources).await);
        let mut listed = self.offers.borrow().clone();
        let mut looks = tokio::time::interval(self.patience / LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.reset();
        while unchanged() {
            tokio::select! {
                () = session.token.cancelled() => return,
                () = watch.changed() => continue,
                () = others() => return info!("resources to register have changed"),
                _ = looks.tick() => {}
            }
            if !session.silence.is_cancelled() {
                listed = self.offers.borrow().clone();
            }
            self.look_for_conflict(conflicts, Some(&listed)).await;
            match conflicts.verdict() {
                Verdict::Confirmed(plugin) if plugin.same_resource => session.silence.cancel(),
                Verdict::Confirmed(_) => return,
                Verdict::None if session.silence.is_cancelled() => return,
                Verdict::None | Verdict::Suspected => {}
            }
        }
        debug!("a socket in the plugin directory was replaced");
    }

    /// Updates the verdict from the kubelet's allocatable devices. `listed`: what was sent to the kubelet, while the daemon
    /// is registered. A kubelet that doesn't answer changes nothing.
    async fn look_for_conflict(&self, conflicts: &mut ConflictTracker, listed: Option<&[Offer]>) {
        let known = match self.pod_resources.allocatable().await {
            Ok(known) => known,
            Err(error) => return debug!(%error, "failed to look for conflicting device plugins"),
        };
        let ours = listed.map_or_else(|| self.offers.borrow().to_vec(), <[_]>::to_vec);
        let was = conflicts.verdict().clone();
        conflicts.observe(Instant::now(), conflict::find(&known, &ours, listed.is_some()));
        match conflicts.verdict() {
            Verdict::Confirmed(plugin) if !matches!(was, Verdict::Confirmed(_)) => {
                let own = ours.iter().map(|offer| socket_name(&offer.resource));
                let known: Vec<String> = own.chain(["kubelet.sock".to_owned()]).collect();
                let listening = conflict::listening(&self.directory, &known).await.join(", ");
                let listening = if listening.is_empty() { "none".to_owned() } else { listening };
                let text = format!(
                    "{}; other sockets in the plugin directory: {listening}; no GPU is allocated until that plugin is removed from this node",
                    plugin.evidence
                );
                warn!("{text}");
                self.status.send_replace(RegistrationStatus::Conflict(text));
            }
            Verdict::None if matches!(was, Verdict::Confirmed(_)) => {
                info!("the conflicting device plugin is gone");
                self.status.send_replace(RegistrationStatus::Unregistered);
            }
            _ => {}
        }
    }

    fn kubelet_socket(&self) -> PathBuf {
        self.directory.join("kubelet.sock")
    }
}

fn resources(offers: &[Offer]) -> Vec<ResourceName> {
    offers.iter().map(|offer| offer.resource.clone()).collect()
}

fn serve(
    path: &Path,
    plugin: impl DevicePlugin,
    session: CancellationToken,
) -> Result<JoinHandle<Result<(), tonic::transport::Error>>, SessionError> {
    let failed = |source| SessionError::Socket { path: path.to_owned(), source };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let ended = session.cancelled_owned();
    let service = DevicePluginServer::new(plugin).max_decoding_message_size(LARGEST_REQUEST);
    let server = Server::builder().add_service(service);
    let incoming = UnixListenerStream::new(listener);
    Ok(tokio::spawn(server.serve_with_incoming_shutdown(incoming, ended)))
}

async fn self_dial(path: &Path) -> Result<(), SessionError> {
    let failed = |problem: String| SessionError::SelfDial { path: path.to_owned(), problem };
    let endpoint = Endpoint::from_static("http://localhost").connect_timeout(REGISTER_DEADLINE);
    let channel = unix_channel(endpoint.timeout(REGISTER_DEADLINE), path.to_owned()).await.map_err(failed)?;
    let answer = DevicePluginClient::new(channel).get_device_plugin_options(api::Empty {}).await;
    answer.map(drop).map_err(|status| failed(status.to_string()))
}

// === impl Session ===

impl Session {
    /// Ends every stream, waits for calls in flight, and closes the sockets. A server whose connections don't close would
    /// wait forever, so it is aborted after [`SESSION_DRAIN`].
    async fn end(self) {
        self.token.cancel();
        let deadline = Instant::now() + SESSION_DRAIN;
        for mut server in self.servers {
            match tokio::time::timeout_at(deadline.into(), &mut server).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(error))) => warn!(%error, "plugin server failed"),
                Ok(Err(error)) => warn!(%error, "plugin server panicked or was cancelled"),
                Err(_elapsed) => server.abort(),
            }
        }
    }
}

/// Delays between attempts, 2 ms doubling to 1 s; each problem is logged once.
#[derive(Default)]
struct Backoff {
    kubelet: Option<SocketFile>,
    attempts: u32,
    warning: WarnOnce,
}

impl Backoff {
    /// Starts over for another kubelet: its socket exists before it listens, and the attempt after that succeeds.
    fn reset_for(&mut self, kubelet: SocketFile) {
        if self.kubelet.replace(kubelet) != Some(kubelet) {
            self.attempts = 0;
        }
    }

    fn next(&mut self) -> Duration {
        self.attempts += 1;
        Duration::from_millis(1 << self.attempts.min(10))
    }
}
