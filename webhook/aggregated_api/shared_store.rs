//! The store, shared by the watch that fills it and the calls that read it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use divvy_api::gpunode::GpuNodeReport;
use kube::ResourceExt as _;
use tokio::sync::watch;

use super::objects::{NodeView, ServedKind};
use super::store::{Clock, Store, Version};

/// Changes of each kind that are kept, for watches that begin again: minutes of a busy cluster.
const HISTORY: usize = 8192;

/// The served objects. Clones share them.
#[derive(Clone, Debug)]
pub struct SharedStore {
    store: Arc<Mutex<Store>>,
    /// The latest version of each kind.
    latest: [watch::Sender<Version>; ServedKind::ALL.len()],
}

// === impl SharedStore ===

impl Default for SharedStore {
    fn default() -> Self {
        let store = Store::new(Clock::new(millis()), HISTORY);
        let latest = ServedKind::ALL.map(|kind| watch::Sender::new(store.latest(kind)));
        Self { store: Arc::new(Mutex::new(store)), latest }
    }
}

impl SharedStore {
    /// The store, locked until the guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest version of a kind's objects.
    pub fn latest(&self, kind: ServedKind) -> watch::Receiver<Version> {
        self.latest[kind as usize].subscribe()
    }

    /// Takes a node's report.
    pub fn apply(&self, node: &GpuNodeReport) {
        let view = view(node);
        self.change(|store, millis| store.apply(view, millis));
    }

    /// Forgets a node.
    pub fn delete(&self, name: &str) {
        self.change(|store, millis| store.remove(name, millis));
    }

    /// Forgets the nodes that aren't listed: these are all.
    pub fn keep(&self, listed: &HashSet<String>) {
        self.change(|store, millis| store.keep(listed, millis));
    }

    /// Changes the store, and wakes the watches that have something to tell.
    fn change(&self, change: impl FnOnce(&mut Store, u64)) {
        let mut store = self.lock();
        change(&mut store, millis());
        let latest = ServedKind::ALL.map(|kind| store.latest(kind));
        drop(store);
        for (sender, latest) in self.latest.iter().zip(latest) {
            sender.send_if_modified(|known| std::mem::replace(known, latest) != latest);
        }
    }
}

fn view(node: &GpuNodeReport) -> NodeView {
    let name = node.name_any();
    let unread = node.unread.first();
    if let Some(unread) = unread {
        tracing::warn!("GpuNode {name} can't be read, and is shown without GPUs: {unread}");
    }
    let excess = NodeView::excess(node);
    if let Some(excess) = &excess {
        tracing::warn!("GpuNode {name} is too large, and is shown without GPUs: {excess}");
    }
    NodeView::new(&node.metadata, Some(node).filter(|_| unread.is_none() && excess.is_none()))
}

/// Milliseconds since 1970.
fn millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis().try_into().unwrap_or(u64::MAX)
}
