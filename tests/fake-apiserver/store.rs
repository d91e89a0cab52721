//! What is kept: objects, and every change of the last time for those who watch. Plain and synchronous.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::object::{self, Object, items, metadata, text};
use super::resource::{Resource, Resources};
use super::status::{Answer, Refusal};

/// Changes that are remembered; who is further behind is told to list again.
const REMEMBERED: usize = 20_000;

/// Where an object is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) storage: Arc<str>,
    /// Empty for what belongs to the cluster.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Object>>,
    pub(crate) after: Option<Arc<Object>>,
}

type Objects = BTreeMap<Key, Arc<Object>>;

/// Everything that the API server keeps.
pub(crate) struct Store {
    /// Revision of the last write; every object's resourceVersion is one of these.
    pub(crate) revision: u64,
    pub(crate) resources: Resources,
    objects: Objects,
    /// Who names an object, by its UID, as an owner.
    dependents: HashMap<String, BTreeSet<Key>>,
    history: VecDeque<Change>,
    /// The oldest revision that a watch can go on from.
    horizon: u64,
}

// === impl Key ===

impl Key {
    pub(crate) fn new(resource: &Resource, namespace: &str, name: &str) -> Self {
        let namespace = if resource.namespaced { namespace } else { "" };
        Self { storage: Arc::clone(&resource.storage), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

// === impl Store ===

impl Default for Store {
    fn default() -> Self {
        Self {
            revision: 1,
            resources: Resources::default(),
            objects: Objects::new(),
            dependents: HashMap::new(),
            history: VecDeque::new(),
            horizon: 1,
        }
    }
}

impl Store {
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// All of a resource, of one namespace or of all, in order of names.
    pub(crate) fn list(&self, resource: &Resource, namespace: Option<&str>) -> Objects {
        let within = |key: &Key| key.storage == resource.storage && namespace.is_none_or(|own| key.namespace == own);
        let from = Key::new(resource, namespace.unwrap_or_default(), "");
        let own = self.objects.range(from..).take_while(|(key, _)| within(key));
        own.map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }

    /// The list as it was at an earlier revision.
    pub(crate) fn list_at(&self, revision: u64, resource: &Resource, namespace: Option<&str>) -> Answer<Objects> {
        let mut objects = self.list(resource, namespace);
        for change in self.since(revision)?.rev() {
            let Change { key, before, .. } = change;
            if key.storage == resource.storage && namespace.is_none_or(|own| key.namespace == own) {
                match before {
                    Some(before) => objects.insert(key.clone(), Arc::clone(before)),
                    None => objects.remove(key),
                };
            }
        }
        Ok(objects)
    }

    /// Everything in a namespace.
    pub(crate) fn inside(&self, namespace: &str) -> Vec<Key> {
        self.objects.keys().filter(|key| key.namespace == namespace).cloned().collect()
    }

    /// Everything kept under this name.
    pub(crate) fn stored(&self, storage: &str) -> Vec<Key> {
        self.objects.keys().filter(|key| &*key.storage == storage).cloned().collect()
    }

    /// Who names this UID as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Key> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Changes after `revision`, unless some of them are forgotten.
    pub(crate) fn since(&self, revision: u64) -> Answer<impl DoubleEndedIterator<Item = &Change>> {
        if revision < self.horizon {
            return Err(Refusal::expired(format!("too old resource version: {revision} ({})", self.horizon)));
        }
        Ok(self.remembered(revision))
    }

    /// Changes after `revision`, for whoever was there all the time.
    pub(crate) fn remembered(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Change> {
        let from = self.history.partition_point(|change| change.revision <= revision);
        self.history.range(from..)
    }

    /// Lets no watch go on from before now: whoever isn't up to date must list again.
    pub(crate) fn forget(&mut self) {
        self.revision += 1;
        self.horizon = self.revision;
    }

    /// Writes an object with a new resourceVersion.
    pub(crate) fn put(&mut self, key: Key, mut object: Object) -> Arc<Object> {
        let revision = self.revision + 1;
        metadata(&mut object).insert("resourceVersion".to_owned(), revision.to_string().into());
        let object = Arc::new(object);
        self.change(key, Some(Arc::clone(&object)));
        object
    }

    /// Drops an object.
    pub(crate) fn remove(&mut self, key: &Key) {
        if self.objects.contains_key(key) {
            self.change(key.clone(), None);
        }
    }

    fn change(&mut self, key: Key, after: Option<Arc<Object>>) {
        self.revision += 1;
        let before = match &after {
            Some(object) => self.objects.insert(key.clone(), Arc::clone(object)),
            None => self.objects.remove(&key),
        };
        for owner in before.iter().flat_map(|object| owners(object)) {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(&key);
            }
        }
        for owner in after.iter().flat_map(|object| owners(object)) {
            self.dependents.entry(owner.to_owned()).or_default().insert(key.clone());
        }
        if &*key.storage == "customresourcedefinitions.apiextensions.k8s.io" {
            let defined = after.as_deref().map(Resource::defined_by).unwrap_or_default();
            self.resources.redefine(&key.name, defined);
        }
        if self.history.len() == REMEMBERED {
            self.horizon = self.history.pop_front().map_or(self.horizon, |oldest| oldest.revision);
        }
        self.history.push_back(Change { revision: self.revision, key, before, after });
    }

    /// Whether any object has this UID and the key says where; owners are looked up this way.
    pub(crate) fn is_alive(&self, storage: &str, namespace: &str, name: &str, uid: &str) -> bool {
        let kept = |namespace: &str| {
            let key = Key { storage: storage.into(), namespace: namespace.to_owned(), name: name.to_owned() };
            self.get(&key).is_some_and(|object| object::uid(object) == uid)
        };
        kept(namespace) || kept("")
    }
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/metadata/ownerReferences").iter().map(|owner| text(owner, "/uid"))
}
