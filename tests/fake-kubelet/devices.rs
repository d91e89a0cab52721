//! The device manager's books: which IDs exist, which are taken, who holds them. Plain and synchronous.
//!
//! It keeps the real one's habits (`pkg/kubelet/cm/devicemanager/manager.go`): IDs are drawn at random, an init
//! container's IDs are drawn first by the containers after it, and IDs are freed by a sweep that runs only now and then
//! and forgets what is being allocated meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use divvy_proto::deviceplugin as dp;
use rand::Rng;
use rand::seq::IteratorRandom;

/// IDs of one resource.
pub type Ids = BTreeSet<String>;

/// What the kubelet's device manager holds in memory.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// Resources that a plugin registered or the checkpoint names.
    pub known: BTreeMap<String, Health>,
    /// IDs that may not be handed out, by resource. Drifts from `held` while an Allocate is in flight.
    allocated: BTreeMap<String, Ids>,
    /// Who holds what; survives in the checkpoint.
    pub held: Held,
    /// What the pod under admission got for its init containers and may get again; one pod at a time.
    reusable: (String, BTreeMap<String, Ids>),
}

/// Pod UID → container → resource → what was allocated.
pub type Held = BTreeMap<String, BTreeMap<String, BTreeMap<String, Grant>>>;

/// The last list that a plugin sent.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// May be handed out.
    pub healthy: Ids,
    /// May not.
    pub unhealthy: Ids,
}

/// The outcome of one Allocate, kept for every later start of the container.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// What was handed out.
    pub ids: Ids,
    /// What the plugin answered.
    pub answer: dp::ContainerAllocateResponse,
}

/// One resource of one container.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// UID of its pod.
    pub pod: &'a str,
    /// Name.
    pub container: &'a str,
    /// Limit's name.
    pub resource: &'a str,
    /// Number of devices.
    pub count: usize,
}

/// What the device manager does about a demand.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing to allocate: already held, already running, or zero.
    Nothing,
    /// These, without asking.
    Chosen(Ids),
    /// The plugin may say which, if it wants to be asked.
    Ask(Question),
}

/// What `GetPreferredAllocation` is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Free healthy IDs, without those already taken from reuse.
    pub free: Ids,
    /// Taken from reuse.
    pub taken: Ids,
    /// All that the container asks for, `taken` counted.
    pub size: usize,
}

/// A demand that can't be met, in the kubelet's words; the pod fails with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum DeviceError {
    #[error("pod {pod:?} container {container:?} changed request for resource {resource:?} from {from} to {to}")]
    Changed { pod: String, container: String, resource: String, from: usize, to: usize },
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    HeldUnhealthy(String),
    #[error("requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}")]
    Unavailable { resource: String, requested: usize, available: usize },
}

// === impl Health ===

impl Health {
    /// Whether no device was ever listed: between the kubelet's start and the plugin's first list.
    pub fn is_empty(&self) -> bool {
        self.healthy.is_empty() && self.unhealthy.is_empty()
    }
}

// === impl Devices ===

impl Devices {
    /// The state after a kubelet's start: the checkpoint's holders, its resources without any device.
    pub fn restored(held: Held, resources: impl IntoIterator<Item = String>) -> Self {
        let known = resources.into_iter().map(|resource| (resource, Health::default())).collect();
        let mut devices = Self { known, held, ..Self::default() };
        devices.recount();
        devices
    }

    /// Whether limits of this name are the device manager's business; all others are ignored.
    pub fn knows(&self, resource: &str) -> bool {
        self.known.contains_key(resource) || self.allocated.contains_key(resource)
    }

    /// IDs that may not be handed out, by resource.
    pub fn allocated(&self) -> &BTreeMap<String, Ids> {
        &self.allocated
    }

    /// Takes a plugin's list, which replaces the one before.
    pub fn replace_list(&mut self, resource: &str, devices: Vec<dp::Device>) {
        let mut health = Health::default();
        for device in devices {
            let list = if device.health == dp::HEALTHY { &mut health.healthy } else { &mut health.unhealthy };
            list.insert(device.id);
        }
        self.known.insert(resource.to_owned(), health);
    }

    /// What the end of a plugin's stream does.
    pub fn mark_unhealthy(&mut self, resource: &str) {
        if let Some(health) = self.known.get_mut(resource) {
            health.unhealthy.append(&mut health.healthy);
        }
    }

    /// Drops a resource whose plugin stayed away.
    pub fn forget(&mut self, resource: &str) {
        self.known.remove(resource);
    }

    /// `UpdateAllocatedDevices`: frees what pods outside `active` hold. IDs of an Allocate in flight drop out of the
    /// count too, if anything was freed.
    pub fn sweep(&mut self, active: &BTreeSet<String>) {
        let before = self.held.len();
        self.held.retain(|pod, _| active.contains(pod));
        if self.held.len() < before {
            self.recount();
        }
    }

    /// Makes `allocated` what `held` says, as after a failed Allocate.
    pub fn recount(&mut self) {
        self.allocated.clear();
        for (resource, grant) in self.held.values().flat_map(BTreeMap::values).flatten() {
            self.allocated.entry(resource.clone()).or_default().extend(grant.ids.iter().cloned());
        }
    }

    /// Begins the admission of a container: another pod's leftovers can't be reused any more.
    pub fn enter(&mut self, pod: &str) {
        if self.reusable.0 != pod {
            self.reusable = (pod.to_owned(), BTreeMap::new());
        }
    }

    /// Ends the admission of a container: an ordinary init container lends its IDs, any other keeps them.
    pub fn leave(&mut self, pod: &str, container: &str, lends: bool) {
        for (resource, grant) in self.held.get(pod).and_then(|held| held.get(container)).into_iter().flatten() {
            let reusable = self.reusable.1.entry(resource.clone()).or_default();
            if lends {
                reusable.extend(grant.ids.iter().cloned());
            } else {
                reusable.retain(|id| !grant.ids.contains(id));
            }
        }
    }

    /// `devicesToAllocate` up to the question. `running`: the container was found running by a kubelet that has just
    /// started and hasn't heard of all its pods.
    pub fn begin(&mut self, demand: Demand<'_>, running: bool, rng: &mut impl Rng) -> Result<Step, DeviceError> {
        let Demand { pod, container, resource, count } = demand;
        let held = self.grant(pod, container, resource).map(|grant| grant.ids.clone());
        if let Some(held) = held.as_ref().filter(|held| held.len() != count) {
            let (pod, container, resource) = (pod.to_owned(), container.to_owned(), resource.to_owned());
            return Err(DeviceError::Changed { pod, container, resource, from: held.len(), to: count });
        }
        if running {
            return Ok(Step::Nothing);
        }
        let health = self.known.get(resource).ok_or_else(|| DeviceError::Unregistered(resource.to_owned()))?;
        if health.healthy.is_empty() {
            return Err(DeviceError::NoneHealthy(resource.to_owned()));
        }
        if held.as_ref().is_some_and(|held| !held.is_subset(&health.healthy)) {
            return Err(DeviceError::HeldUnhealthy(resource.to_owned()));
        }
        if held.is_some() || count == 0 {
            return Ok(Step::Nothing);
        }
        let healthy = health.healthy.clone();
        let taken = draw(self.reusable.1.get(resource).unwrap_or(&Ids::new()), count, rng);
        let allocated = self.allocated.entry(resource.to_owned()).or_default();
        allocated.extend(taken.iter().cloned());
        if taken.len() == count {
            return Ok(Step::Chosen(taken));
        }
        let free = &healthy - allocated;
        if free.len() < count - taken.len() {
            let (resource, requested) = (resource.to_owned(), count - taken.len());
            return Err(DeviceError::Unavailable { resource, requested, available: free.len() });
        }
        Ok(Step::Ask(Question { free, taken, size: count }))
    }

    /// `devicesToAllocate` after the question: the preferred free IDs as far as needed, the rest at random.
    pub fn settle(&mut self, resource: &str, question: &Question, preferred: &Ids, rng: &mut impl Rng) -> Ids {
        let missing = question.size - question.taken.len();
        let mut chosen = draw(&(preferred & &question.free), missing, rng);
        let rest = draw(&(&question.free - &chosen), missing - chosen.len(), rng);
        chosen.extend(rest.into_iter().chain(question.taken.iter().cloned()));
        self.allocated.entry(resource.to_owned()).or_default().extend(chosen.iter().cloned());
        chosen
    }

    /// The fault "same ID handed out twice": IDs that other pods hold come first.
    pub fn settle_twice(&mut self, demand: Demand<'_>, question: &Question, rng: &mut impl Rng) -> Ids {
        let others = self.held.iter().filter(|(pod, _)| *pod != demand.pod).flat_map(|(_, held)| held.values());
        let held: Ids = others.filter_map(|grants| grants.get(demand.resource)).flat_map(|g| g.ids.clone()).collect();
        let healthy = self.known.get(demand.resource).map(|health| health.healthy.clone()).unwrap_or_default();
        let twice = &(&held & &healthy) - &question.taken;
        let question = Question { free: &question.free | &twice, ..question.clone() };
        self.settle(demand.resource, &question, &twice, rng)
    }

    /// Books what an Allocate answered.
    pub fn insert(&mut self, demand: Demand<'_>, grant: Grant) {
        let pod = self.held.entry(demand.pod.to_owned()).or_default();
        pod.entry(demand.container.to_owned()).or_default().insert(demand.resource.to_owned(), grant);
    }

    /// What a container got of a resource.
    pub fn grant(&self, pod: &str, container: &str, resource: &str) -> Option<&Grant> {
        self.held.get(pod)?.get(container)?.get(resource)
    }

    /// What a container is started with: the answers of all its resources in random order, the first one to name a
    /// thing wins.
    pub fn run_options(&self, pod: &str, container: &str, rng: &mut impl Rng) -> dp::ContainerAllocateResponse {
        let grants = self.held.get(pod).and_then(|held| held.get(container)).into_iter().flatten();
        let grants: Vec<_> = grants.collect();
        let mut merged = dp::ContainerAllocateResponse::default();
        for (_, grant) in shuffled(grants, rng) {
            merge(&mut merged, &grant.answer);
        }
        merged
    }
}

/// A random subset of at most `count`.
fn draw(from: &Ids, count: usize, rng: &mut impl Rng) -> Ids {
    from.iter().cloned().sample(rng, count).into_iter().collect()
}

/// Go's map order.
pub fn shuffled<T>(mut items: Vec<T>, rng: &mut impl Rng) -> Vec<T> {
    use rand::seq::SliceRandom;
    items.shuffle(rng);
    items
}

fn merge(into: &mut dp::ContainerAllocateResponse, answer: &dp::ContainerAllocateResponse) {
    for (name, value) in &answer.envs {
        into.envs.entry(name.clone()).or_insert_with(|| value.clone());
    }
    for (name, value) in &answer.annotations {
        into.annotations.entry(name.clone()).or_insert_with(|| value.clone());
    }
    append_new(&mut into.mounts, &answer.mounts, |mount| &mount.container_path);
    append_new(&mut into.devices, &answer.devices, |device| &device.container_path);
    append_new(&mut into.cdi_devices, &answer.cdi_devices, |device| &device.name);
}

fn append_new<T: Clone>(into: &mut Vec<T>, from: &[T], key: impl Fn(&T) -> &String) {
    for item in from {
        if into.iter().all(|other| key(other) != key(item)) {
            into.push(item.clone());
        }
    }
}

#[cfg(test)]
mod tests;
