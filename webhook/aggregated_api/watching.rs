//! A watch: lines of changes, each read from the store when the client takes it. No watch has a buffer, and none that is slow
//! holds up another.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::accept::Form;
use super::objects::ServedKind;
use super::query::{Start, WatchQuery};
use super::shared_store::SharedStore;
use super::status::StatusError;
use super::store::{Change, Event, Object, Store, Version};
use crate::connections::Connection;

/// Changes that are read at a time.
const BATCH: usize = 100;
/// Time between bookmarks, as in Kubernetes.
const BOOKMARK: Duration = Duration::from_secs(60);

/// A watch that goes on.
pub struct Watching {
    store: SharedStore,
    changes: watch::Receiver<Version>,
    selection: Selection,
    bookmarks: bool,
    /// Until it has been sent.
    beginning: Option<Beginning>,
    version: Version,
    has_sent: bool,
    is_over: bool,
    deadline: Instant,
    next_bookmark: Instant,
    lifetime: Lifetime,
}

/// What is watched, and how it is shown.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Objects of this kind.
    pub kind: ServedKind,
    /// The one of this name alone.
    pub name: Option<String>,
    /// Form of the lines.
    pub form: Form,
}

/// How long a watch may go on.
#[derive(Debug)]
pub struct Lifetime {
    /// Longest time.
    pub timeout: Duration,
    /// The client's connection: the watch ends when that is to close.
    pub connection: Option<Connection>,
    /// Place among the watches.
    pub permit: OwnedSemaphorePermit,
}

/// The objects as they were when the watch began.
struct Beginning {
    objects: VecDeque<Arc<Object>>,
    /// Whether a bookmark follows on them.
    is_marked: bool,
}

/// What ends a wait.
enum Woken {
    Changed,
    Bookmark,
    Over,
}

// === impl Watching ===

impl Watching {
    /// Begins a watch.
    pub fn begin(
        store: &SharedStore,
        selection: Selection,
        query: WatchQuery,
        lifetime: Lifetime,
    ) -> Result<Self, StatusError> {
        let changes = store.latest(selection.kind);
        let (version, beginning) = start(&store.lock(), selection.kind, query)?;
        let now = Instant::now();
        Ok(Self {
            store: store.clone(),
            changes,
            selection,
            bookmarks: query.bookmarks,
            beginning,
            version,
            has_sent: false,
            is_over: false,
            deadline: now + lifetime.timeout,
            next_bookmark: now + BOOKMARK,
            lifetime,
        })
    }

    /// Lines of JSON.
    pub fn lines(self) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        stream::unfold(self, |mut watching| async move { Some((Ok(watching.next().await?), watching)) })
    }

    /// The next lines; none: it is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Where there are always lines nothing waits.
            let is_closing = self.lifetime.connection.as_ref().is_some_and(Connection::is_closing);
            self.is_over |= is_closing || Instant::now() >= self.deadline;
            let mut lines = if self.is_over { Vec::new() } else { self.ready() };
            if lines.is_empty() && !self.is_over {
                match self.wait().await {
                    Woken::Changed => continue,
                    Woken::Bookmark => {}
                    Woken::Over => self.is_over = true,
                }
                lines.extend(self.bookmark());
            }
            if !lines.is_empty() || self.is_over {
                return (!lines.is_empty()).then(|| text(&lines));
            }
        }
    }

    /// Lines that need no wait. None: nothing has happened that the client is to know, or the watch is over.
    fn ready(&mut self) -> Vec<Value> {
        while let Some(mut beginning) = self.beginning.take() {
            let most = beginning.objects.len().min(BATCH);
            let added = beginning.objects.drain(..most).map(|object| Event { change: Change::Added, object });
            let mut lines = self.events(added.collect());
            if !beginning.objects.is_empty() {
                self.beginning = Some(beginning);
            } else if beginning.is_marked {
                lines.push(self.selection.form.bookmark(self.selection.kind, self.version, true));
            }
            if !lines.is_empty() {
                return lines;
            }
        }
        self.changes.mark_unchanged();
        loop {
            let changes = self.store.lock().after(self.selection.kind, self.version, BATCH);
            match changes {
                Ok(changes) => {
                    let is_all = changes.events.len() < BATCH;
                    self.version = changes.version;
                    let lines = self.events(changes.events);
                    if is_all || !lines.is_empty() {
                        return lines;
                    }
                }
                Err(expired) => {
                    self.is_over = true;
                    return self.selection.form.error(&expired.into()).into_iter().collect();
                }
            }
        }
    }

    fn events(&mut self, events: Vec<Event>) -> Vec<Value> {
        let Selection { name, form, .. } = &self.selection;
        let events = events.into_iter().filter(|event| name.as_ref().is_none_or(|name| event.object.name == *name));
        events.map(|event| form.event(&event, !std::mem::replace(&mut self.has_sent, true))).collect()
    }

    async fn wait(&mut self) -> Woken {
        let closed = async {
            match &self.lifetime.connection {
                Some(connection) => connection.closing().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.changes.changed() => if changed.is_ok() { Woken::Changed } else { Woken::Over },
            () = sleep_until(self.deadline) => Woken::Over,
            () = closed => Woken::Over,
            () = sleep_until(self.next_bookmark), if self.bookmarks => Woken::Bookmark,
        }
    }

    fn bookmark(&mut self) -> Option<Value> {
        self.next_bookmark = Instant::now() + BOOKMARK;
        self.bookmarks.then(|| self.selection.form.bookmark(self.selection.kind, self.version, false))
    }
}

/// The version from which a watch goes on, and the objects that it begins with.
fn start(store: &Store, kind: ServedKind, query: WatchQuery) -> Result<(Version, Option<Beginning>), StatusError> {
    if let Start::After(version) = query.start {
        let version = version.unwrap_or_else(|| store.now());
        store.after(kind, version, 0)?;
        return Ok((version, None));
    }
    if let Start::MarkedObjects(Some(version)) = query.start {
        store.check(version)?;
    }
    let listing = store.list(kind);
    let is_marked = query.bookmarks && matches!(query.start, Start::MarkedObjects(_));
    Ok((listing.version, Some(Beginning { objects: listing.objects.into(), is_marked })))
}

/// Lines as text.
fn text(lines: &[Value]) -> Bytes {
    lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect::<String>().into()
}
