//! Watches: changes as a stream of events.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::core::Core;
use super::go_json;
use super::object::{self, Object, metadata};
use super::resource::Resource;
use super::selector::Selector;
use super::status::Refusal;
use super::store::Change;
use super::table::Form;

/// How often who asked for bookmarks gets one, as a real server does.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// What a client watches.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) resource: Arc<Resource>,
    /// The one namespace that is watched; `None` for all.
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
    pub(crate) form: Form,
    /// The revision at its start.
    pub(crate) from: u64,
    /// The last revision that the client has seen.
    pub(crate) seen: u64,
    /// What is there already, if the client wants to be told.
    pub(crate) initial: Vec<Arc<Object>>,
    /// Whether a bookmark says where the initial events end.
    pub(crate) marks_initial: bool,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
}

pub(crate) type Frames = mpsc::Sender<Result<Frame<Bytes>, std::convert::Infallible>>;

/// The client is gone.
struct Gone;

// === impl Watch ===

impl Watch {
    /// Sends events until the time is up, the client leaves, watches are dropped or the client is too far behind.
    pub(crate) async fn run(mut self, core: Arc<Core>, frames: Frames) {
        let (mut changes, mut hang_ups) = (core.changes(), core.hang_ups.subscribe());
        let (mut ticks, end) = (tokio::time::interval(BOOKMARK_EVERY), tokio::time::sleep(self.timeout));
        tokio::pin!(end);
        ticks.reset();
        if self.greet(&frames).await.is_err() {
            return;
        }
        loop {
            changes.borrow_and_update();
            if self.catch_up(&core, &frames).await.is_err() {
                return;
            }
            tokio::select! {
                news = changes.changed() => if news.is_err() { return },
                _ = ticks.tick() => if self.bookmark(&frames).await.is_err() { return },
                () = &mut end => return drop(self.bookmark(&frames).await),
                _ = hang_ups.changed() => return,
                () = frames.closed() => return,
            }
        }
    }

    async fn greet(&mut self, frames: &Frames) -> Result<(), Gone> {
        for object in std::mem::take(&mut self.initial) {
            self.send(frames, "ADDED", self.form.one(&self.resource, &object)).await?;
        }
        if self.marks_initial {
            let mut mark = self.mark();
            metadata(&mut mark).insert("annotations".to_owned(), json!({ "k8s.io/initial-events-end": "true" }));
            self.send_mark(frames, &mark).await?;
        }
        Ok(())
    }

    async fn catch_up(&mut self, core: &Core, frames: &Frames) -> Result<(), Gone> {
        let missed = core.read(|state| {
            let changes = state.store.since(self.seen)?;
            let own = changes.filter(|change| self.concerns(change)).cloned().collect::<Vec<_>>();
            Ok::<_, Refusal>((own, state.store.revision))
        });
        match missed {
            Ok((changes, revision)) => {
                for (kind, object) in changes.iter().filter_map(|change| self.event(change)) {
                    self.send(frames, kind, self.form.one(&self.resource, &object)).await?;
                }
                self.seen = self.seen.max(revision);
                Ok(())
            }
            Err(refusal) => {
                self.send(frames, "ERROR", refusal.to_json()).await?;
                Err(Gone)
            }
        }
    }

    fn concerns(&self, change: &Change) -> bool {
        change.key.storage == self.resource.storage
            && self.namespace.as_ref().is_none_or(|own| change.key.namespace == *own)
    }

    /// What a change is to somebody who sees selected objects only.
    fn event(&self, change: &Change) -> Option<(&'static str, Arc<Object>)> {
        let taken = |object: &Option<Arc<Object>>| object.clone().filter(|object| self.selector.takes(object));
        match (taken(&change.before), taken(&change.after)) {
            (None, Some(after)) => Some(("ADDED", after)),
            (Some(_), Some(after)) => Some(("MODIFIED", after)),
            (Some(before), None) => {
                let mut last = (*before).clone();
                metadata(&mut last).insert("resourceVersion".to_owned(), change.revision.to_string().into());

                Some(("DELETED", Arc::new(last)))
            }
            (None, None) => None,
        }
    }

    /// Marks how far the watch is, if anything at all has changed since its start.
    async fn bookmark(&self, frames: &Frames) -> Result<(), Gone> {
        if self.bookmarks && self.seen > self.from { self.send_mark(frames, &self.mark()).await } else { Ok(()) }
    }

    /// An object that is nothing but a version.
    fn mark(&self) -> Object {
        let (kind, version) = (&self.resource.kind, self.resource.api_version());
        let metadata = json!({ "resourceVersion": self.seen.to_string(), "creationTimestamp": null });
        json!({ "kind": kind, "apiVersion": version, "metadata": metadata })
    }

    async fn send_mark(&self, frames: &Frames, mark: &Object) -> Result<(), Gone> {
        let mut shown = self.form.one(&self.resource, mark);
        if let Form::Table(_) = self.form {
            object::map(&mut shown)["rows"][0]["object"] = mark.clone();
        }
        self.send(frames, "BOOKMARK", shown).await
    }

    /// Sends an event in the order of Go's `metav1.WatchEvent`.
    async fn send(&self, frames: &Frames, kind: &'static str, object: Value) -> Result<(), Gone> {
        let mut line = go_json::escape_html(&format!(r#"{{"type":"{kind}","object":{object}}}"#));
        line.push(b'\n');
        frames.send(Ok(Frame::data(line.into()))).await.map_err(|_unsent| Gone)
    }
}
