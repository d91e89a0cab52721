//! The watch of `GpuNode`s, and the store that it fills.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use divvy_api::gpunode::GpuNode;
use divvy_runtime::api_server::{ApiServer, watch_all};
use kube::Api;
use kube::Resource as _;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;

use crate::objects::{Kind, NodeView};
use crate::store::{Clock, Store, Version};
use crate::watch_state::WatchState;

/// Changes of each kind that are kept, for watches that begin again: minutes of a busy cluster.
const HISTORY: usize = 8192;

/// The served objects. Clones share them.
#[derive(Clone, Debug)]
pub struct Nodes {
    store: Arc<Mutex<Store>>,
    state: WatchState,
    /// The latest version of each kind.
    latest: [watch::Sender<Version>; 2],
}

// === impl Nodes ===

impl Default for Nodes {
    fn default() -> Self {
        let store = Store::new(Clock::new(millis()), HISTORY);
        let latest = Kind::ALL.map(|kind| watch::Sender::new(store.latest(kind)));
        Self { store: Arc::new(Mutex::new(store)), state: WatchState::default(), latest }
    }
}

impl Nodes {
    /// Fills the store, for ever.
    pub async fn follow(self, api_server: ApiServer) {
        let api: Api<DeserializeGuard<GpuNode>> = Api::all(api_server.client);
        let events = watch_all(api, "gpunodes", watcher::Config::default(), api_server.requests);
        let mut listed = HashSet::new();
        self.state.follow(events, |event| self.take(event, &mut listed)).await;
    }

    /// The store. It is locked meanwhile.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State of the watch.
    pub fn state(&self) -> &WatchState {
        &self.state
    }

    /// The latest version of a kind's objects.
    pub fn latest(&self, kind: Kind) -> watch::Receiver<Version> {
        let [pods, infos] = &self.latest;
        match kind {
            Kind::PodResource => pods.subscribe(),
            Kind::GpuInfo => infos.subscribe(),
        }
    }

    fn take(&self, event: &Event<DeserializeGuard<GpuNode>>, listed: &mut HashSet<Arc<str>>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => {
                let view = view(node);
                listed.insert(Arc::clone(&view.name));
                self.store().apply(view, millis());
            }
            Event::InitDone => {
                let mut store = self.store();
                let gone: Vec<_> = store.nodes().filter(|name| !listed.contains(*name)).cloned().collect();
                for name in gone {
                    store.remove(&name, millis());
                }
            }
            Event::Apply(node) => {
                let view = view(node);
                self.store().apply(view, millis());
            }
            Event::Delete(node) => self.store().remove(node.meta().name.as_deref().unwrap_or_default(), millis()),
        }
        let latest = Kind::ALL.map(|kind| self.store().latest(kind));
        for (sender, latest) in self.latest.iter().zip(latest) {
            sender.send_if_modified(|known| std::mem::replace(known, latest) != latest);
        }
    }
}

fn view(node: &DeserializeGuard<GpuNode>) -> NodeView {
    if let Err(invalid) = &node.0 {
        let name = node.meta().name.as_deref().unwrap_or_default();
        tracing::warn!("GpuNode {name} can't be read, and is shown without GPUs: {}", invalid.error);
    }
    let readable = node.0.as_ref().ok();
    let excess = readable.and_then(NodeView::excess);
    if let Some(excess) = &excess {
        let name = node.meta().name.as_deref().unwrap_or_default();
        tracing::warn!("GpuNode {name} is too large, and is shown without GPUs: {excess}");
    }
    NodeView::new(node.meta(), readable.filter(|_| excess.is_none()))
}

/// Milliseconds since 1970.
fn millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis().try_into().unwrap_or(u64::MAX)
}
