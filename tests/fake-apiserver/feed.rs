//! Changes as those see them who live in the same process.

use std::sync::Arc;

use serde_json::Value;

use super::core::{Core, State};

/// All changes of one kind, one after another: an informer that needs no socket and misses nothing.
pub struct Feed {
    core: Arc<Core>,
    kind: &'static str,
    /// Revision of the last change seen.
    seen: u64,
}

/// An object that was created, changed or dropped; as it is kept.
#[derive(Clone, Debug)]
pub struct News {
    /// `None`: it was created.
    pub before: Option<Arc<Value>>,
    /// `None`: it was dropped.
    pub after: Option<Arc<Value>>,
}

// === impl Feed ===

impl Feed {
    /// Changes of this kind, and first of all every object that is there.
    pub(crate) fn new(core: &Arc<Core>, kind: &'static str) -> (Self, Vec<News>) {
        let (seen, there) = core.read(|state| {
            let resource = state.store.resources.of_kind(kind);
            let objects = resource.map(|resource| state.store.list(resource, None)).unwrap_or_default();
            let there = objects.into_values().map(|object| News { before: None, after: Some(object) });
            (state.store.revision, there.collect())
        });
        (Self { core: Arc::clone(core), kind, seen }, there)
    }

    /// Waits for the next changes.
    pub async fn next(&mut self) -> Vec<News> {
        let Self { core, kind, seen } = self;
        let news = |state: &State| {
            let store = &state.store;
            let storage = store.resources.of_kind(kind).map(|resource| &resource.storage);
            let own = store.remembered(*seen).filter(|change| Some(&change.key.storage) == storage);
            let news = own.map(|change| News { before: change.before.clone(), after: change.after.clone() });
            let news = news.collect::<Vec<_>>();
            *seen = store.revision;
            (!news.is_empty()).then_some(news)
        };
        core.wait(news).await
    }
}
