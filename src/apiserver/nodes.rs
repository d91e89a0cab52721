//! The watch of `GpuNode`s, and the store that it fills.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use divvy_api::gpunode::GpuNode;
use divvy_runtime::api_server::{ApiServer, watch_all};
use futures::StreamExt as _;
use kube::Api;
use kube::Resource as _;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use crate::objects::NodeView;
use crate::store::{Clock, Store};

/// Changes of each kind that are kept, for watches that begin again: minutes of a busy cluster, and a few MiB.
const HISTORY: usize = 8192;

/// The served objects. Clones share them.
#[derive(Clone, Debug)]
pub struct Nodes {
    store: Arc<Mutex<Store>>,
    /// Sent to at every change.
    state: watch::Sender<State>,
}

/// State of the watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Whether all `GpuNode`s have been listed once.
    pub listed: bool,
    /// Why the watch fails now.
    pub problem: Option<String>,
}

// === impl Nodes ===

impl Default for Nodes {
    fn default() -> Self {
        Self { store: Arc::new(Mutex::new(Store::new(Clock::new(millis()), HISTORY))), state: watch::Sender::default() }
    }
}

impl Nodes {
    /// Fills the store, for ever.
    pub async fn follow(self, api_server: ApiServer) {
        let api: Api<DeserializeGuard<GpuNode>> = Api::all(api_server.client);
        let mut events = std::pin::pin!(watch_all(api, "gpunodes", api_server.requests));
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Err(problem) => self.note(|state| state.problem = Some(problem)),
                Ok(event) => {
                    let is_listed = matches!(event, Event::InitDone);
                    self.take(event, &mut listed);
                    self.note(|state| *state = State { listed: state.listed || is_listed, problem: None });
                }
            }
        }
    }

    /// The store. It is locked meanwhile.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, which is marked as changed at every change of the store.
    pub fn subscribe(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    fn take(&self, event: Event<DeserializeGuard<GpuNode>>, listed: &mut HashSet<Arc<str>>) {
        let mut store = self.store();
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => {
                let view = view(&node);
                listed.insert(Arc::clone(&view.name));
                store.apply(view, millis());
            }
            Event::InitDone => {
                let gone: Vec<_> = store.nodes().filter(|name| !listed.contains(*name)).cloned().collect();
                for name in gone {
                    store.remove(&name, millis());
                }
            }
            Event::Apply(node) => store.apply(view(&node), millis()),
            Event::Delete(node) => store.remove(node.meta().name.as_deref().unwrap_or_default(), millis()),
        }
    }

    fn note(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
    }
}

fn view(node: &DeserializeGuard<GpuNode>) -> NodeView {
    if let Err(invalid) = &node.0 {
        let name = node.meta().name.as_deref().unwrap_or_default();
        tracing::warn!("GpuNode {name} can't be read, and is shown without GPUs: {}", invalid.error);
    }
    NodeView::new(node.meta(), node.0.as_ref().ok())
}

/// Milliseconds since 1970.
fn millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis().try_into().unwrap_or(u64::MAX)
}
