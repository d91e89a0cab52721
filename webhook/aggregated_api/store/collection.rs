//! The objects of one kind, and their latest changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Clock, Draft, Version};
use crate::aggregated_api::objects::{API_VERSION, ServedKind};

/// Bytes of `spec`, at most, in the history of a kind, however few changes that is.
const HISTORY_BYTES: usize = 32 << 20;

/// A served object at one version.
#[derive(Debug, PartialEq)]
pub struct Object {
    /// The kind.
    pub kind: ServedKind,
    /// The name.
    pub name: String,
    /// The version that made it so; of a deleted one the version that deleted it.
    pub version: Version,
    draft: Draft,
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// New.
    Added,
    /// Changed.
    Modified,
    /// Gone.
    Deleted,
}

/// A change, and the object after it; of a deleted one, as it was last.
#[derive(Clone, Debug)]
pub struct Event {
    /// The change.
    pub change: Change,
    /// The object.
    pub object: Arc<Object>,
}

/// A version whose later changes aren't known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Expired {
    /// The version.
    pub asked: Version,
    /// The oldest version that is known.
    pub oldest: Version,
}

#[derive(Debug)]
pub(super) struct Collection {
    kind: ServedKind,
    objects: BTreeMap<String, Arc<Object>>,
    history: VecDeque<Event>,
    /// Bytes of `spec` in the history.
    bytes: usize,
    /// Changes after this version are in the history.
    since: Version,
    most: usize,
}

// === impl Object ===

impl Object {
    /// `metadata`.
    pub fn metadata(&self) -> Value {
        let mut metadata = json!({ "name": self.name, "resourceVersion": self.version.to_string() });
        if let Some(uid) = &self.draft.uid {
            metadata["uid"] = uid.as_str().into();
        }
        metadata
    }

    /// `spec`.
    pub fn spec(&self) -> Value {
        serde_json::from_str(&self.draft.spec).unwrap_or_default()
    }

    /// `status`.
    pub fn status(&self) -> Value {
        json!(self.draft.status)
    }
}

/// All of it, with `spec` as the text that is kept: a tree of it would take several times as much.
impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Whole<'a> {
            kind: &'a str,
            api_version: &'a str,
            metadata: Value,
            spec: &'a RawValue,
            status: Value,
        }
        let spec = serde_json::from_str(&self.draft.spec).map_err(serde::ser::Error::custom)?;
        let kind = self.kind.as_str();
        let metadata = self.metadata();
        let status = self.status();
        Whole { kind, api_version: API_VERSION, metadata, spec, status }.serialize(serializer)
    }
}

// === impl Collection ===

impl Collection {
    pub(super) fn new(kind: ServedKind, since: Version, most: usize) -> Self {
        Self { kind, objects: BTreeMap::new(), history: VecDeque::new(), bytes: 0, since, most }
    }

    pub(super) fn objects(&self) -> impl ExactSizeIterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(name)
    }

    /// Adds or changes an object, unless it is so already.
    pub(super) fn put(&mut self, name: &str, draft: Draft, clock: &mut Clock, millis: u64) {
        let change = match self.objects.get(name) {
            Some(object) if object.draft.is_same_as(&draft) => return,
            // Another pod of this name: nobody may take it for the same one.
            Some(object) if object.draft.uid != draft.uid => {
                self.delete(name, clock, millis);
                Change::Added
            }
            Some(_) => Change::Modified,
            None => Change::Added,
        };
        let version = clock.tick(millis);
        let object = Arc::new(Object { kind: self.kind, name: name.to_owned(), version, draft });
        self.objects.insert(name.to_owned(), Arc::clone(&object));
        self.record(change, object);
    }

    pub(super) fn delete(&mut self, name: &str, clock: &mut Clock, millis: u64) {
        let Some(object) = self.objects.remove(name) else { return };
        let Object { kind, name, draft, .. } = &*object;
        let version = clock.tick(millis);
        let last = Object { kind: *kind, name: name.clone(), version, draft: draft.clone() };
        self.record(Change::Deleted, Arc::new(last));
    }

    /// At most so many changes after a version.
    pub(super) fn after(&self, version: Version, most: usize) -> Result<Vec<Event>, Expired> {
        if version < self.since {
            return Err(Expired { asked: version, oldest: self.since });
        }
        let start = self.history.partition_point(|event| event.object.version <= version);
        Ok(self.history.range(start..).take(most).cloned().collect())
    }

    /// The version of the last change.
    pub(super) fn latest(&self) -> Version {
        self.history.back().map_or(self.since, |event| event.object.version)
    }

    fn record(&mut self, change: Change, object: Arc<Object>) {
        self.bytes += object.draft.spec.len();
        self.history.push_back(Event { change, object });
        while self.history.len() > self.most || self.bytes > HISTORY_BYTES {
            let Some(forgotten) = self.history.pop_front() else { return };
            self.bytes -= forgotten.object.draft.spec.len();
            self.since = forgotten.object.version;
        }
    }
}
