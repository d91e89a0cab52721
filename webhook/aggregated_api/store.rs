//! The served objects, with versions of their own and the latest changes. Plain and synchronous.
//!
//! Each replica counts versions by itself, and knows its own: a version that another one gave, or that was given before a
//! restart, is answered with 410 as an old one is, and clients list again. Watchers have no buffers: each has a version, and
//! reads the changes after it. One that is so slow that these are forgotten is told so.

mod clock;
mod collection;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::objects::{
    ContainerDevices, GpuInfoStatus, NodeView, PodKey, PodName, PodResourceSpec, PodResourceStatus, ServedKind,
};

pub use self::clock::{Clock, Version};
use self::collection::Collection;
pub use self::collection::{Change, Event, Expired, Object};

/// The objects of both kinds.
#[derive(Debug)]
pub struct Store {
    clock: Clock,
    pods: Collection,
    infos: Collection,
    /// Reports, by node.
    nodes: BTreeMap<Arc<str>, NodeView>,
    /// Nodes that report each pod. A pod is on one; a report may be wrong.
    holders: BTreeMap<PodKey, BTreeMap<Arc<str>, Vec<ContainerDevices>>>,
    /// Whether all nodes have been listed once.
    is_listed: bool,
}

/// What a kind's objects are at one version.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The version.
    pub version: Version,
    /// The objects, by name.
    pub objects: Vec<Arc<Object>>,
}

/// Changes after a version, as many as were asked for.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Changes, the oldest first.
    pub events: Vec<Event>,
    /// The version from which to go on.
    pub version: Version,
}

/// An object that is to be served.
#[derive(Clone, Debug, PartialEq)]
struct Draft {
    uid: Option<String>,
    /// JSON.
    spec: Arc<str>,
    status: Status,
}

/// `status` of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Status {
    PodResource(PodResourceStatus),
    GpuInfo(GpuInfoStatus),
}

// === impl Store ===

impl Store {
    /// Without objects. Keeps so many changes of each kind.
    pub fn new(clock: Clock, history: usize) -> Self {
        let since = clock.now();
        let collection = |kind| Collection::new(kind, since, history);
        let (pods, infos) = (collection(ServedKind::PodResource), collection(ServedKind::GpuInfo));
        Self { clock, pods, infos, nodes: BTreeMap::new(), holders: BTreeMap::new(), is_listed: false }
    }

    /// Takes a node's report, at so many milliseconds since 1970.
    pub fn apply(&mut self, node: NodeView, millis: u64) {
        let status = Status::GpuInfo(node.info.status.clone());
        let draft = Draft { uid: node.uid.clone(), spec: text(&node.info.spec), status };
        let name = Arc::clone(&node.name);
        let before = self.nodes.insert(Arc::clone(&name), node);
        self.infos.put(&name, draft, &mut self.clock, millis);
        let after = self.nodes.get(&name).map(|node| node.pods.clone()).unwrap_or_default();
        let before = before.map(|node| node.pods).unwrap_or_default();
        self.replace(&name, &before, after, millis);
    }

    /// Forgets a node.
    pub fn remove(&mut self, name: &str, millis: u64) {
        let Some(node) = self.nodes.remove(name) else { return };
        self.infos.delete(name, &mut self.clock, millis);
        self.replace(&node.name, &node.pods, BTreeMap::new(), millis);
    }

    /// Forgets the nodes that aren't among these, which are all.
    pub fn keep(&mut self, listed: &HashSet<String>, millis: u64) {
        let gone: Vec<_> = self.nodes.keys().filter(|name| !listed.contains(&***name)).cloned().collect();
        for name in gone {
            self.remove(&name, millis);
        }
        self.is_listed = true;
    }

    /// Whether all nodes have been listed once.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// All objects of a kind.
    pub fn list(&self, kind: ServedKind) -> Listing {
        Listing { version: self.clock.now(), objects: self.collection(kind).objects().cloned().collect() }
    }

    /// An object.
    pub fn get(&self, kind: ServedKind, name: &str) -> Option<&Arc<Object>> {
        self.collection(kind).get(name)
    }

    /// How many objects of a kind there are.
    pub fn count(&self, kind: ServedKind) -> usize {
        self.collection(kind).objects().len()
    }

    /// Whether a list now is of this version or a newer one.
    pub fn check(&self, version: Version) -> Result<(), Expired> {
        if self.clock.gave(version) { Ok(()) } else { Err(Expired { asked: version, oldest: self.clock.now() }) }
    }

    /// At most so many changes of a kind after a version.
    pub fn after(&self, kind: ServedKind, version: Version, most: usize) -> Result<Batch, Expired> {
        self.check(version)?;
        let events = self.collection(kind).after(version, most)?;
        let version = match events.last() {
            Some(last) if events.len() == most => last.object.version,
            _ => self.clock.now(),
        };
        Ok(Batch { events, version })
    }

    /// The version of a kind's last change.
    pub fn latest(&self, kind: ServedKind) -> Version {
        self.collection(kind).latest()
    }

    /// The latest version of all.
    pub fn now(&self) -> Version {
        self.clock.now()
    }

    fn collection(&self, kind: ServedKind) -> &Collection {
        match kind {
            ServedKind::PodResource => &self.pods,
            ServedKind::GpuInfo => &self.infos,
        }
    }

    /// Replaces what a node says of pods.
    fn replace(
        &mut self,
        node: &Arc<str>,
        before: &BTreeMap<PodKey, Vec<ContainerDevices>>,
        after: BTreeMap<PodKey, Vec<ContainerDevices>>,
        millis: u64,
    ) {
        // By name, the UIDs that the node no longer reports.
        let mut changed: BTreeMap<PodName, Vec<Arc<str>>> = BTreeMap::new();
        for (key, containers) in before {
            if after.get(key) != Some(containers) {
                changed.entry(key.name.clone()).or_default().push(Arc::clone(&key.uid));
            }
            if let Some(nodes) = self.holders.get_mut(key) {
                nodes.remove(node);
                if nodes.is_empty() {
                    self.holders.remove(key);
                }
            }
        }
        for (key, containers) in after {
            if before.get(&key) != Some(&containers) {
                changed.entry(key.name.clone()).or_default();
            }
            self.holders.entry(key).or_default().insert(Arc::clone(node), containers);
        }
        let reported = self.nodes.get(node).and_then(|node| node.reported.clone());
        for (name, gone) in changed {
            self.show(&name, reported.as_ref(), &gone, millis);
        }
    }

    /// Serves what all nodes say of the pods of one name.
    fn show(&mut self, name: &PodName, reported: Option<&String>, gone: &[Arc<str>], millis: u64) {
        let uids: Vec<Arc<str>> = self.uids(name).collect();
        // Names that one of these pods has, or may have had.
        let of_uids = uids.iter().chain(gone).map(|uid| (name.object_name(Some(uid)), None));
        let mut wanted: BTreeMap<_, _> = of_uids.chain([(name.object_name(None), None)]).collect();
        for (rank, uid) in uids.into_iter().enumerate() {
            let object = name.object_name((rank > 0).then_some(&*uid));
            wanted.insert(object, Some(self.draft(PodKey { name: name.clone(), uid }, reported)));
        }
        for (object, draft) in wanted {
            match draft {
                Some(draft) => self.pods.put(&object, draft, &mut self.clock, millis),
                None => self.pods.delete(&object, &mut self.clock, millis),
            }
        }
    }

    fn draft(&self, key: PodKey, reported: Option<&String>) -> Draft {
        let containers = self.holders.get(&key).into_iter().flat_map(BTreeMap::values).flatten().cloned();
        let PodName { namespace, pod } = key.name;
        let spec = PodResourceSpec {
            pod_name: pod.to_string(),
            pod_namespace: namespace.to_string(),
            containers_device: containers.collect(),
        };
        let status = Status::PodResource(PodResourceStatus { last_changed_time: reported.cloned() });
        Draft { uid: Some(key.uid.to_string()), spec: text(&spec), status }
    }

    /// UIDs of the pods of one name, in order.
    fn uids(&self, name: &PodName) -> impl Iterator<Item = Arc<str>> {
        let first = PodKey { name: name.clone(), uid: "".into() };
        let keys = self.holders.range(first..).map(|(key, _)| key);
        keys.take_while(move |key| key.name == *name).map(|key| Arc::clone(&key.uid))
    }
}

// === impl Draft ===

impl Draft {
    /// Whether nobody has to hear of the difference: that a pod's GPUs were reported again is none.
    fn is_same_as(&self, other: &Self) -> bool {
        let has_same_status = self.status == other.status || matches!(self.status, Status::PodResource(_));
        (&self.uid, &self.spec) == (&other.uid, &other.spec) && has_same_status
    }
}

/// JSON of plain data, which has keys of text alone.
fn text(of: &impl Serialize) -> Arc<str> {
    serde_json::to_string(of).unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
