//! The served objects, with versions of their own and the latest changes. Plain and synchronous.
//!
//! Each replica counts versions by itself, and knows its own: a version that another one gave, or that was given before a
//! restart, is answered with 410 as an old one is, and clients list again. Watchers have no buffers: each has a version, and
//! reads the changes after it. One that is so slow that these are forgotten is told so.

mod clock;
mod collection;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::objects::{
    GpuInfoStatus, NodePods, NodeView, PodKey, PodName, PodResourceSpec, PodResourceStatus, ServedKind,
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
    /// GPUs of each pod's containers, by node.
    nodes: BTreeMap<Arc<str>, NodePods>,
    /// Nodes that report each pod. A pod is on one; a report may be wrong.
    holders: BTreeSet<(PodKey, Arc<str>)>,
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
        let pods = collection(ServedKind::PodResource);
        let infos = collection(ServedKind::GpuInfo);
        Self { clock, pods, infos, nodes: BTreeMap::new(), holders: BTreeSet::new(), is_listed: false }
    }

    /// Takes a node's report, at so many milliseconds since 1970.
    pub fn apply(&mut self, node: NodeView, millis: u64) {
        let NodeView { name, uid, reported, info, pods } = node;
        let draft = Draft { uid, spec: text(&info.spec), status: Status::GpuInfo(info.status) };
        self.infos.put(&name, draft, &mut self.clock, millis);
        self.replace(&name, pods, reported.as_ref(), millis);
    }

    /// Forgets a node.
    pub fn remove(&mut self, name: &str, millis: u64) {
        let Some((name, _)) = self.nodes.get_key_value(name) else { return };
        let name = Arc::clone(name);
        self.infos.delete(&name, &mut self.clock, millis);
        self.replace(&name, NodePods::new(), None, millis);
        self.nodes.remove(&name);
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
    fn replace(&mut self, node: &Arc<str>, pods: NodePods, reported: Option<&String>, millis: u64) {
        let before = self.nodes.insert(Arc::clone(node), pods).unwrap_or_default();
        let after = &self.nodes[node];
        // By name, the UIDs that the node no longer reports as before.
        let mut changed: BTreeMap<PodName, Vec<Arc<str>>> = BTreeMap::new();
        for (key, _) in before.iter().filter(|(key, containers)| after.get(key) != Some(containers)) {
            changed.entry(key.name.clone()).or_default().push(Arc::clone(&key.uid));
            self.holders.remove(&(key.clone(), Arc::clone(node)));
        }
        for (key, _) in after.iter().filter(|(key, containers)| before.get(key) != Some(containers)) {
            changed.entry(key.name.clone()).or_default();
            self.holders.insert((key.clone(), Arc::clone(node)));
        }
        for (name, gone) in changed {
            self.show(&name, reported, &gone, millis);
        }
    }

    /// Serves what all nodes say of the pods of one name.
    fn show(&mut self, name: &PodName, reported: Option<&String>, gone: &[Arc<str>], millis: u64) {
        let mut uids: Vec<Arc<str>> = self.holders_of(name).map(|(key, _)| Arc::clone(&key.uid)).collect();
        uids.dedup();
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
        let of_nodes = self.holders_of(&key.name).filter(|(holder, _)| *holder == key);
        let containers = of_nodes.filter_map(|(_, node)| self.nodes.get(node)?.get(&key)).flatten().cloned();
        let containers_device = containers.collect();
        let PodName { namespace, pod } = key.name;
        let spec =
            PodResourceSpec { pod_name: pod.to_string(), pod_namespace: namespace.to_string(), containers_device };
        let status = Status::PodResource(PodResourceStatus { last_changed_time: reported.cloned() });
        Draft { uid: Some(key.uid.to_string()), spec: text(&spec), status }
    }

    /// Pods of one name, each with a node that reports it; in the order of their UIDs.
    fn holders_of(&self, name: &PodName) -> impl Iterator<Item = &(PodKey, Arc<str>)> {
        let first = PodKey { name: name.clone(), uid: "".into() };
        self.holders.range((first, "".into())..).take_while(move |(key, _)| key.name == *name)
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
