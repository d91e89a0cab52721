//! The sync loop: one pod after another, with no deadline on what a plugin is asked.

use rand::RngExt as _;

use super::allocate::allocate;
use super::core::{Core, State};
use super::pods::{Admission, Pod, Refusal};
use super::process::Process;
use super::{spec, worker};

/// Admits pods for ever, in order of creation.
pub(crate) async fn sync_loop(process: Process) {
    tokio::time::sleep(process.core.timing.admit_after_boot).await;
    loop {
        if process.core.read(State::has_next) {
            let lag = process.core.faults.borrow().lag;
            tokio::time::sleep(lag).await;
        }
        let next = process.core.update(State::list_next);
        match next {
            Some(Next { uid, admit: false }) => process.spawn(worker::work(process.clone(), uid)),
            Some(Next { uid, admit: true }) => {
                let outcome = admit(&process.core, &uid).await;
                if outcome.is_err() {
                    process.spawn(report(process.clone(), uid.clone()));
                }
                process.core.update_pod(&uid, |pod| {
                    if let Err(refusal) = &outcome {
                        pod.failure = Some(refusal.clone());
                        pod.unheard = true;
                    }
                    pod.outcome.send_replace(Some(outcome.map_or_else(Admission::Rejected, |()| Admission::Admitted)));
                });
                process.spawn(worker::work(process.clone(), uid));
            }
            None => {
                process.core.update(State::hear);
                process.core.arrivals.notified().await;
            }
        }
    }
}

/// The status manager: writes the status of a rejected pod, which then comes back as news.
async fn report(process: Process, uid: String) {
    let core = &process.core;
    core.about(core.timing.status).await;
    core.update(|state| state.heard.push(uid));
    core.arrivals.notify_one();
}

/// A pod that has just become visible.
struct Next {
    uid: String,
    admit: bool,
}

// === impl State ===

impl State {
    fn has_next(&self) -> bool {
        self.pods.iter().any(Pod::is_unseen)
    }

    /// Makes the next pod visible. Once there is none left, all sources have been heard.
    fn list_next(&mut self) -> Option<Next> {
        let Some(pod) = self.pods.iter_mut().find(|pod| pod.is_unseen()) else {
            self.sources_ready = true;
            return None;
        };
        pod.listed = true;
        Some(Next { uid: pod.uid.clone(), admit: !pod.is_terminal() && pod.deleted.is_none() })
    }

    /// Takes over what the API server says of rejected pods.
    fn hear(&mut self) {
        for uid in std::mem::take(&mut self.heard) {
            if let Some(pod) = self.pod_mut(&uid) {
                pod.unheard = false;
            }
        }
    }
}

/// Handlers that come before the device manager, and the topology manager, which asks it for hints alone.
fn before_devices(core: &Core, uid: &str) -> Result<(), Refusal> {
    let forbidden = core.read(|state| state.pod(uid).and_then(|pod| spec::forbidden_sysctl(&pod.object)));
    if let Some(name) = forbidden {
        let message = format!("forbidden sysctl: \"{name}\" not allowlisted");
        return Err(Refusal { reason: "SysctlForbidden".to_owned(), message });
    }
    let probability = core.faults.borrow().reject_before_allocate;
    if core.update(|state| state.rng.random_bool(probability)) {
        let message = "Resources cannot be allocated with Topology locality".to_owned();
        return Err(Refusal { reason: "TopologyAffinityError".to_owned(), message });
    }
    Ok(())
}

async fn admit(core: &Core, uid: &str) -> Result<(), Refusal> {
    before_devices(core, uid)?;
    let containers = core.read(|state| state.pod(uid).map(|pod| pod.containers.clone())).unwrap_or_default();
    for container in &containers {
        allocate(core, uid, &container.spec, container.found_running).await.map_err(|error| Refusal {
            reason: "UnexpectedAdmissionError".to_owned(),
            message: format!("Allocate failed due to {error}, which is unexpected"),
        })?;
    }
    let probability = core.faults.borrow().reject_after_allocate;
    if core.update(|state| state.rng.random_bool(probability)) {
        let message = "Node didn't have enough resource: cpu, requested: 1000, used: 31500, capacity: 32000".to_owned();
        return Err(Refusal { reason: "OutOfcpu".to_owned(), message });
    }
    core.read(|state| state.fit(uid))
}
