//! Keeps us registered: one session after another, each from fresh sockets to the kubelet's next restart.
//!
//! All resources share a session: each has a socket of its own, and they begin and end together. What is concluded from
//! the order of the kubelet's calls, across resources, so has one beginning.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::ResourceName;
use divvy_node_core::allocator::lock;
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
use super::device_list::DeviceList;
use super::plugin::{Calls, Plugin};
use super::pod_resources::PodResources;
use super::rivals::{self, Rivalry, Verdict};
use super::socket::{DirectoryWatch, SocketFile};
use super::units::Units;
use super::unix_channel;

/// Registers our resources with the kubelet.
#[derive(Debug)]
pub struct Registrar<S> {
    /// The kubelet's plugin directory.
    pub directory: PathBuf,
    /// What calls are answered by.
    pub calls: Calls<S>,
    /// Our resources, and all devices of each with their health.
    pub offers: watch::Receiver<Arc<Vec<Offer>>>,
    /// Where conflicting device plugins show.
    pub pod_resources: PodResources,
    /// How long another plugin of our cards must be seen before we stand back, and be gone before we come.
    pub patience: Duration,
    /// Told how we stand with the kubelet.
    pub standing: watch::Sender<Standing>,
}

/// How we stand with the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It doesn't have us registered.
    #[default]
    Unregistered,
    /// It asks us for devices.
    Registered,
    /// Another plugin serves our cards or our resource, so we don't: which, and what to do.
    Rivalled(String),
}

/// A plain file in the plugin directory. A kubelet that starts and finds no file in the plugin directory zeroes the node's extended
/// resources (`ShouldResetExtendedResourceCapacity`), our amounts among them; sockets it has deleted by then.
pub(crate) const NOTE: &str = "divvy-node.txt";
const NOTE_TEXT: &str = "Keeps a kubelet that starts from zeroing this node's card memory and cores.\n";
/// A kubelet that doesn't answer a `Register` within this is still cleaning up; it is asked again at once.
const REGISTER_DEADLINE: Duration = Duration::from_secs(1);
/// One that has answered a first `Register` has cleaned up, and only takes its time, over long lists of devices for one.
/// To begin anew would take the other resources from it, and fail pods that it admits once more.
const LONGEST_REGISTER: Duration = Duration::from_secs(10);
/// How often another plugin of our cards is looked for: [`Registrar::patience`] parted by this.
const LOOKS: u32 = 4;
/// How long calls in flight may take to end with their session.
const SESSION_DRAIN: Duration = Duration::from_millis(500);
/// Largest request: all free slots at each `GetPreferredAllocation`, above tonic's 4 MiB on nodes of many slots.
const LARGEST_REQUEST: usize = 64 << 20;

/// A session that could not begin.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("socket {path}: {source}")]
    Socket { path: PathBuf, source: std::io::Error },
    #[error("our own socket {path} doesn't answer: {problem}")]
    SelfDial { path: PathBuf, problem: String },
    #[error("the kubelet at {path} doesn't register us: {problem}")]
    Register { path: PathBuf, problem: String },
}

/// Running servers, one for each resource.
struct Session {
    token: CancellationToken,
    /// Cancelled when another plugin has taken one of our resources: then nothing more is listed.
    silence: CancellationToken,
    /// What was registered.
    resources: Vec<ResourceName>,
    servers: Vec<JoinHandle<Result<(), tonic::transport::Error>>>,
    /// The kubelet's socket and ours, as they were when we registered.
    sockets: Vec<(PathBuf, Option<SocketFile>)>,
}

/// Name of a resource's socket in the plugin directory.
fn socket_name(resource: &ResourceName) -> String {
    let name = resource.as_str().rsplit('/').next().unwrap_or_default();
    format!("divvy-{name}.sock")
}

/// Our sockets in the plugin directory, also of resources that aren't offered any more.
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
        let mut pause = Pause::default();
        let (mut rivalry, mut is_known) = (Rivalry::new(self.patience), false);
        while !stop.is_cancelled() {
            let Some(kubelet) = SocketFile::at(&self.kubelet_socket()) else {
                tokio::select! { () = watch.changed() => {}, () = stop.cancelled() => {} }
                continue;
            };
            pause.meet(kubelet);
            // A kubelet that comes back finds us at once. Whoever came in between is seen during the session.
            if !is_known || *rivalry.verdict() != Verdict::Nobody {
                self.look_for_rivals(&mut rivalry, None).await;
            }
            if *rivalry.verdict() != Verdict::Nobody {
                tokio::select! { () = tokio::time::sleep(pause.next()) => {}, () = stop.cancelled() => {} }
                continue;
            }
            match self.begin(&stop).await {
                Ok(session) => {
                    (pause, is_known) = (Pause::default(), true);
                    self.standing.send_replace(Standing::Registered);
                    let resources = session.resources.iter().map(ResourceName::as_str).collect::<Vec<_>>().join(", ");
                    info!(resources, "registered with the kubelet");
                    self.until_over(&session, &mut watch, &mut rivalry).await;
                    // First of all: a kubelet that has just started lists pods one by one.
                    lock(self.calls.daemon.allocator()).begin_session();
                    self.standing.send_if_modified(|standing| {
                        let over = *standing == Standing::Registered;
                        over.then(|| *standing = Standing::Unregistered).is_some()
                    });
                    session.end().await;
                    info!(stopping = stop.is_cancelled(), "session with the kubelet is over");
                }
                Err(error) => {
                    pause.warning.warn(error.to_string());
                    tokio::select! { () = tokio::time::sleep(pause.next()) => {}, () = watch.changed() => {}, () = stop.cancelled() => {} }
                }
            }
        }
        for socket in own_sockets(&self.directory) {
            let _absent_is_as_good = std::fs::remove_file(socket);
        }
    }

    /// Connects to the kubelet, serves on fresh sockets, makes sure that they answer, registers.
    ///
    /// In this order: a kubelet that starts deletes every socket in the directory before it listens, so one that takes
    /// our connection has done that and leaves the sockets that we make now. A kubelet that is asked to dial a socket
    /// which it has just deleted tries again after a second at the earliest, and fails pods meanwhile. One that was
    /// killed has left its socket behind, which nobody answers: ours stay as they are then.
    async fn begin(&self, stop: &CancellationToken) -> Result<Session, SessionError> {
        let kubelet = self.kubelet_socket();
        let channel = Self::connect(&kubelet).await?;
        let resources = resources(&self.offers.borrow());
        let sockets = vec![(kubelet.clone(), SocketFile::at(&kubelet))];
        let (token, silence) = (stop.child_token(), CancellationToken::new());
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
            let (calls, token) = (self.calls.clone(), session.token.clone());
            let server = if self.pod_resources.names.counts_cards(resource.as_str()) {
                serve(&own, Plugin { list, calls }, token)?
            } else {
                serve(&own, Units { list, calls }, token)?
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

    /// Returns when the session is over: the kubelet closed a stream, a socket is another file, our resources are others,
    /// we stop, or another plugin offers our cards.
    ///
    /// One that has taken our resource is not fought: we fall silent, and keep the stream open until it is gone, because
    /// kubelets up to 1.36 would take the end of our stream for its end (kubernetes#121994).
    async fn until_over(&self, session: &Session, watch: &mut DirectoryWatch, rivalry: &mut Rivalry) {
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
                () = others() => return info!("other resources are to be registered"),
                _ = looks.tick() => {}
            }
            if !session.silence.is_cancelled() {
                listed = self.offers.borrow().clone();
            }
            self.look_for_rivals(rivalry, Some(&listed)).await;
            match rivalry.verdict() {
                Verdict::Somebody(rival) if rival.same_resource => session.silence.cancel(),
                Verdict::Somebody(_) => return,
                Verdict::Nobody if session.silence.is_cancelled() => return,
                Verdict::Nobody | Verdict::Perhaps => {}
            }
        }
        debug!("a socket in the plugin directory was replaced");
    }

    /// `listed`: what the kubelet has from us, while we are registered. A kubelet that doesn't answer shows nothing.
    async fn look_for_rivals(&self, rivalry: &mut Rivalry, listed: Option<&[Offer]>) {
        let known = match self.pod_resources.allocatable().await {
            Ok(known) => known,
            Err(error) => return debug!(%error, "not known whether another plugin serves our cards"),
        };
        let ours = listed.map_or_else(|| self.offers.borrow().to_vec(), <[_]>::to_vec);
        let was = rivalry.verdict().clone();
        rivalry.observe(Instant::now(), rivals::find(&known, &ours, listed.is_some()));
        match rivalry.verdict() {
            Verdict::Somebody(rival) if !matches!(was, Verdict::Somebody(_)) => {
                let own = ours.iter().map(|offer| socket_name(&offer.resource));
                let known: Vec<String> = own.chain(["kubelet.sock".to_owned()]).collect();
                let listening = rivals::listening(&self.directory, &known).await.join(", ");
                let listening = if listening.is_empty() { "nobody".to_owned() } else { listening };
                let text = format!(
                    "{}; listening beside us: {listening}; nothing is allocated here until it is removed from this node",
                    rival.evidence
                );
                warn!("{text}");
                self.standing.send_replace(Standing::Rivalled(text));
            }
            Verdict::Nobody if matches!(was, Verdict::Somebody(_)) => {
                info!("the other device plugin is gone");
                self.standing.send_replace(Standing::Unregistered);
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
    /// Ends every stream, waits for calls in flight, and lets go of the sockets. A server whose connections don't close
    /// would wait for ever, so it is given up after [`SESSION_DRAIN`].
    async fn end(self) {
        self.token.cancel();
        let given_up = Instant::now() + SESSION_DRAIN;
        for mut server in self.servers {
            match tokio::time::timeout_at(given_up.into(), &mut server).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(error))) => warn!(%error, "plugin server failed"),
                Ok(Err(error)) => warn!(%error, "plugin server broke off"),
                Err(_elapsed) => server.abort(),
            }
        }
    }
}

/// Pauses between tries: short at first, then longer, and each problem said once.
#[derive(Default)]
struct Pause {
    kubelet: Option<SocketFile>,
    tries: u32,
    warning: WarnOnce,
}

impl Pause {
    /// Begins anew with another kubelet: its socket is seen before it listens, and then the next try succeeds.
    fn meet(&mut self, kubelet: SocketFile) {
        if self.kubelet.replace(kubelet) != Some(kubelet) {
            self.tries = 0;
        }
    }

    fn next(&mut self) -> Duration {
        self.tries += 1;
        Duration::from_millis(1 << self.tries.min(10))
    }
}
