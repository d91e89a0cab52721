//! What the API server tells: pods, nodes and `GpuNode`s become entries of the index, and nothing else is kept of them.
//!
//! An API server that is away changes nothing of what is known. What it says after its return is compared with that: what
//! it no longer has is forgotten.

mod objects;
mod promises;

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use divvy_api::gpunode::GpuNode;
use divvy_index::Index;
use divvy_runtime::api_server::backoff;
use divvy_runtime::api_server::errors::describe_watch;
use divvy_runtime::logging::WarnOnce;
use futures::{StreamExt as _, TryStreamExt as _, future};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use self::objects::{Machine, PodObject};
pub use self::promises::Promises;

/// What is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All but those that have ended.
    Pods,
    /// Whether they are there, cordoned and ready.
    Nodes,
    /// What daemons report.
    GpuNodes,
}

/// How well each kind is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    kinds: [Followed; 3],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Followed {
    /// All of them have been seen once.
    listed: bool,
    /// Why nothing is heard of them at the moment.
    problem: Option<String>,
}

/// Feeds an index.
#[derive(Clone)]
pub struct Feed {
    client: Client,
    index: Arc<Index>,
    standing: Arc<watch::Sender<Standing>>,
}

/// What is done about an object of one kind.
trait Entry: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static {
    const KIND: Kind;
    /// By which the index knows it.
    fn key(&self) -> &str;
    fn apply(&self, index: &Index);
    fn delete(&self, index: &Index);
    /// Forgets what isn't listed.
    fn keep(index: &Index, listing: &Listing);
}

/// All objects of a kind, as they come page by page.
#[derive(Default)]
struct Listing {
    /// Their keys.
    keys: HashSet<String>,
    /// Pods that the index knew when the list was asked for. Others may be younger than the list, and promised meanwhile.
    pods_before: HashSet<Arc<str>>,
}

/// What an event says of the whole kind.
#[derive(PartialEq, Eq)]
enum News {
    /// All are about to be listed. That is tried also where nobody answers: it is no sign of life.
    Begins,
    Told,
    AllListed,
}

/// Pods that hold nothing any more: they outnumber the others where Jobs run.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

// === impl Kind ===

impl Kind {
    const ALL: [Self; 3] = [Self::Pods, Self::Nodes, Self::GpuNodes];

    /// As kubectl names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
            Self::GpuNodes => "gpunodes",
        }
    }
}

// === impl Standing ===

impl Standing {
    /// Whether the index knows the whole cluster.
    pub fn is_complete(&self) -> bool {
        self.kinds.iter().all(|followed| followed.listed)
    }

    /// Kinds of which all have been seen once.
    pub fn listed(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| self.kinds[*kind as usize].listed)
    }

    /// The others.
    pub fn unlisted(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| !self.kinds[*kind as usize].listed)
    }

    /// Why nothing is heard of a kind at the moment.
    pub fn problem(&self, kind: Kind) -> Option<&str> {
        self.kinds[kind as usize].problem.as_deref()
    }
}

// === impl Feed ===

impl Feed {
    /// Will feed this index from this API server.
    pub fn new(client: Client, index: Arc<Index>) -> Self {
        Self { client, index, standing: Arc::default() }
    }

    /// How well the cluster is known.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Follows everything, for ever.
    pub async fn run(self) {
        let pods = watcher::Config::default().fields(NOT_ENDED);
        tokio::join!(
            self.follow::<PodObject>(pods),
            self.follow::<Machine>(watcher::Config::default()),
            self.follow::<DeserializeGuard<GpuNode>>(watcher::Config::default()),
        );
    }

    /// What was promised lately, to be read as the API server has it.
    pub fn promises(&self) -> Promises {
        Promises::new(Api::all(self.client.clone()), Arc::clone(&self.index))
    }

    async fn follow<E: Entry>(&self, config: watcher::Config) {
        let mut listing = Listing::default();
        let news = watcher(Api::<E>::all(self.client.clone()), config)
            .map_ok(|event| self.take(event, &mut listing))
            .try_filter(|news| future::ready(*news != News::Begins))
            .backoff(backoff());
        let mut news = std::pin::pin!(news);
        let mut warning = WarnOnce::default();
        while let Some(news) = news.next().await {
            match news {
                Ok(news) => {
                    warning.clear();
                    self.note(E::KIND, |followed| {
                        followed.listed |= news == News::AllListed;
                        followed.problem = None;
                    });
                }
                // The API server has forgotten where we were, as it does every few minutes: all are listed anew.
                Err(watcher::Error::WatchError(status)) if status.code == 410 => {}
                Err(error) => {
                    let problem = describe_watch(&error);
                    warning.warn(format!("{} aren't followed for now: {problem}", E::KIND.as_str()));
                    self.note(E::KIND, |followed| followed.problem = Some(problem));
                }
            }
        }
    }

    fn take<E: Entry>(&self, event: Event<E>, listing: &mut Listing) -> News {
        match event {
            Event::Init => {
                let pods_before = if E::KIND == Kind::Pods { self.index.pods() } else { HashSet::new() };
                *listing = Listing { keys: HashSet::new(), pods_before };
                return News::Begins;
            }
            Event::InitApply(entry) => {
                listing.keys.insert(entry.key().to_owned());
                entry.apply(&self.index);
            }
            Event::InitDone => {
                E::keep(&self.index, &std::mem::take(listing));
                return News::AllListed;
            }
            Event::Apply(entry) => entry.apply(&self.index),
            Event::Delete(entry) => entry.delete(&self.index),
        }
        News::Told
    }

    fn note(&self, kind: Kind, change: impl FnOnce(&mut Followed)) {
        self.standing.send_if_modified(|standing| {
            let followed = &mut standing.kinds[kind as usize];
            let before = followed.clone();
            change(followed);
            *followed != before
        });
    }
}

// === impl Entry ===

impl Entry for PodObject {
    const KIND: Kind = Kind::Pods;

    fn key(&self) -> &str {
        &self.pod.uid
    }

    fn apply(&self, index: &Index) {
        index.apply_pod(&self.pod, Instant::now());
    }

    fn delete(&self, index: &Index) {
        index.delete_pod(&self.pod.uid);
    }

    fn keep(index: &Index, listing: &Listing) {
        let gone = listing.pods_before.iter().filter(|uid| !listing.keys.contains(&***uid));
        gone.for_each(|uid| index.delete_pod(uid));
    }
}

impl Entry for Machine {
    const KIND: Kind = Kind::Nodes;

    fn key(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn apply(&self, index: &Index) {
        index.apply_node(self.key(), self.bar(), self.cpu_milli());
    }

    /// The API server deletes the node's `GpuNode` too, but later.
    fn delete(&self, index: &Index) {
        index.delete_node(self.key());
        index.delete_gpu_node(self.key());
    }

    fn keep(index: &Index, listing: &Listing) {
        index.keep_nodes(&listing.keys);
    }
}

impl Entry for DeserializeGuard<GpuNode> {
    const KIND: Kind = Kind::GpuNodes;

    fn key(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    fn apply(&self, index: &Index) {
        match &self.0 {
            Ok(node) => index.apply_gpu_node(self.key(), node),
            Err(invalid) => index.apply_unreadable(self.key(), &invalid.error),
        }
    }

    fn delete(&self, index: &Index) {
        index.delete_gpu_node(self.key());
    }

    fn keep(index: &Index, listing: &Listing) {
        index.keep_gpu_nodes(&listing.keys);
    }
}
