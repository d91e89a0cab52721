//! The machine under the kubelet: everything that outlives one kubelet process, and the one lock around the state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{Notify, watch};

use super::devices::Devices;
use super::endpoint::{Client, Endpoint};
use super::faults::Faults;
use super::pods::Pod;
use super::record::Record;
use super::spec::SpecError;
use super::timing::Timing;

/// What all tasks of one kubelet share.
pub(crate) struct Core {
    pub(crate) node_name: String,
    pub(crate) paths: Paths,
    pub(crate) timing: Timing,
    pub(crate) faults: watch::Sender<Faults>,
    /// Wakes the sync loop.
    pub(crate) arrivals: Notify,
    state: Mutex<State>,
    /// Counts changes, for those who wait for a condition.
    revision: watch::Sender<u64>,
}

/// Where the kubelet's files are.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) root: PathBuf,
    pub(crate) plugins: PathBuf,
    pub(crate) pod_resources: PathBuf,
    pub(crate) pki: PathBuf,
    /// Where pods have theirs.
    pub(crate) cgroups: PathBuf,
}

/// Everything that changes.
pub(crate) struct State {
    /// In order of creation.
    pub(crate) pods: Vec<Pod>,
    pub(crate) devices: Devices,
    /// By resource.
    pub(crate) endpoints: BTreeMap<String, Endpoint>,
    /// The registration server's own table, by resource.
    pub(crate) clients: BTreeMap<String, Arc<Client>>,
    /// Rejected pods whose statuses have come back from the API server, by UID: news for the sync loop.
    pub(crate) heard: Vec<String>,
    /// All pods of the API server were seen since the kubelet's start.
    pub(crate) sources_ready: bool,
    /// Amounts of extended resources in `node.status`, which pods are checked against after their devices.
    pub(crate) allocatable: BTreeMap<String, u64>,
    /// Random draws of the sync loop alone, so that the same pods and the same answers make the same draws again.
    pub(crate) rng: StdRng,
    /// Random draws of everything that runs at the same time.
    pub(crate) other_rng: StdRng,
    pub(crate) record: Record,
}

// === impl Paths ===

impl Paths {
    /// A pod's own, of the class BestEffort.
    pub(crate) fn cgroup(&self, uid: &str) -> PathBuf {
        self.cgroups.join(format!("kubepods/besteffort/pod{uid}"))
    }
}

// === impl Core ===

impl Core {
    pub(crate) fn new(node_name: String, paths: Paths, timing: Timing, faults: Faults, seed: u64) -> Self {
        let state = State {
            pods: Vec::new(),
            devices: Devices::default(),
            endpoints: BTreeMap::new(),
            clients: BTreeMap::new(),
            heard: Vec::new(),
            sources_ready: false,
            allocatable: BTreeMap::new(),
            rng: StdRng::seed_from_u64(seed),
            other_rng: StdRng::seed_from_u64(!seed),
            record: Record::default(),
        };
        let (faults, revision) = (watch::Sender::new(faults), watch::Sender::new(0));
        Self { node_name, paths, timing, faults, arrivals: Notify::new(), state: Mutex::new(state), revision }
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let answer = change(&mut self.lock());
        self.revision.send_modify(|revision| *revision += 1);
        answer
    }

    /// Changes one pod; `None` if there is no such pod.
    pub(crate) fn update_pod<T>(&self, uid: &str, change: impl FnOnce(&mut Pod) -> T) -> Option<T> {
        self.update(|state| state.pod_mut(uid).map(change))
    }

    /// Takes a pod in; returns its UID.
    pub(crate) fn add(&self, pod: Pod) -> Result<String, SpecError> {
        let uid = pod.uid.clone();
        self.update(|state| {
            if state.pod(&uid).is_some() {
                return Err(SpecError::Twice(uid.clone()));
            }
            state.pods.push(pod);
            Ok(())
        })?;
        self.arrivals.notify_one();
        Ok(uid)
    }

    /// Changes one pod from outside and wakes whoever works on it.
    pub(crate) fn tell(&self, uid: &str, change: impl FnOnce(&mut Pod)) -> Result<(), SpecError> {
        let poke = self.update_pod(uid, |pod| {
            change(pod);
            Arc::clone(&pod.poke)
        });
        poke.ok_or_else(|| SpecError::Unknown(uid.to_owned()))?.notify_one();
        self.arrivals.notify_one();
        Ok(())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Waits until `look` finds something.
    pub(crate) async fn wait<T>(&self, mut look: impl FnMut(&State) -> Option<T>) -> T {
        let mut revisions = self.changes();
        loop {
            revisions.borrow_and_update();
            if let Some(found) = self.read(&mut look) {
                return found;
            }
            if revisions.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Draws something that no admission depends on.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.lock().other_rng)
    }

    /// Sleeps for about this long.
    pub(crate) async fn about(&self, mean: Duration) {
        let factor = self.draw(|rng| rng.random_range(0.5..1.5));
        tokio::time::sleep(mean.mul_f64(factor)).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    pub(crate) fn pod(&self, uid: &str) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.uid == uid)
    }

    pub(crate) fn pod_mut(&mut self, uid: &str) -> Option<&mut Pod> {
        self.pods.iter_mut().find(|pod| pod.uid == uid)
    }

    /// `UpdateAllocatedDevices`; does nothing while pods of the API server may be missing.
    pub(crate) fn sweep(&mut self) {
        if self.sources_ready {
            let active = self.pods.iter().filter(|pod| pod.listed && pod.is_active());
            let active: BTreeSet<String> = active.map(|pod| pod.uid.clone()).collect();
            self.devices.sweep(&active);
        }
    }

    /// Drops resources whose plugins stayed away for longer than `grace`; the node keeps them with an amount of 0.
    pub(crate) fn expire_endpoints(&mut self, grace: Duration) {
        let now = Instant::now();
        self.endpoints.retain(|resource, endpoint| {
            let over = endpoint.stopped.is_some_and(|since| now - since > grace);
            if over {
                self.devices.forget(resource);
                self.allocatable.insert(resource.clone(), 0);
            }
            !over
        });
    }
}
