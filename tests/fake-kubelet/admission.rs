//! The sync loop: one pod after another, with no deadline on what a plugin is asked.

use divvy_api::{ContainerKind, ContainerSpec};
use divvy_proto::deviceplugin as dp;
use rand::RngExt as _;

use super::checkpoint;
use super::core::{Core, State};
use super::devices::{Demand, DeviceError, Grant, Ids, Question, Step, shuffled};
use super::plugin::{Plugin, rpc_error, unsorted};
use super::pods::{Admission, Refusal};
use super::run::Run;
use super::{spec, worker};

/// A container that gets no devices; the text becomes the pod's message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AllocateError {
    #[error(transparent)]
    Devices(#[from] DeviceError),
    #[error("unknown Device Plugin {0}")]
    NoEndpoint(String),
    #[error("endpoint {0} has been stopped")]
    Stopped(String),
    #[error("device plugin GetPreferredAllocation rpc failed with err: {0}")]
    Preferred(String),
    #[error("{0}")]
    Rpc(String),
    #[error("no containers return in allocation response {0:?}")]
    NoContainers(dp::AllocateResponse),
    #[error("failed to write checkpoint file: {0}")]
    Checkpoint(anyhow::Error),
}

/// Admits pods for ever, in order of creation.
pub(crate) async fn sync_loop(run: Run) {
    tokio::time::sleep(run.core.timing.admit_after_boot).await;
    loop {
        let next = run.core.update(State::list_next);
        match next {
            Some(Next { uid, admit: false }) => run.spawn(worker::work(run.clone(), uid)),
            Some(Next { uid, admit: true }) => {
                let outcome = admit(&run.core, &uid).await;
                run.core.update_pod(&uid, |pod| {
                    if let Err(refusal) = &outcome {
                        pod.failure = Some(refusal.clone());
                    }
                    pod.outcome.send_replace(Some(outcome.map_or_else(Admission::Rejected, |()| Admission::Admitted)));
                });
                run.spawn(worker::work(run.clone(), uid));
            }
            None => run.core.arrivals.notified().await,
        }
    }
}

/// A pod that has just become visible.
struct Next {
    uid: String,
    admit: bool,
}

// === impl State ===

impl State {
    /// Makes the next pod visible. Once there is none left, all sources have been heard.
    fn list_next(&mut self) -> Option<Next> {
        let Some(pod) = self.pods.iter_mut().find(|pod| !pod.listed && !pod.forgotten) else {
            self.sources_ready = true;
            return None;
        };
        pod.listed = true;
        Some(Next { uid: pod.uid.clone(), admit: !pod.is_terminal() && pod.deleted.is_none() })
    }

    fn may_prefer(&self, resource: &str) -> bool {
        let options = self.endpoints.get(resource).and_then(|endpoint| endpoint.options);
        options.is_some_and(|options| options.get_preferred_allocation_available)
    }

    fn plugin(&self, resource: &str) -> Result<Plugin, AllocateError> {
        let unknown = || AllocateError::NoEndpoint(resource.to_owned());
        let endpoint = self.endpoints.get(resource).ok_or_else(unknown)?;
        endpoint.plugin.clone().ok_or_else(|| AllocateError::Stopped(resource.to_owned()))
    }
}

async fn admit(core: &Core, uid: &str) -> Result<(), Refusal> {
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

/// `ManagerImpl.Allocate`: all resources of one container in random order, then the checkpoint.
pub(crate) async fn allocate(
    core: &Core,
    pod: &str,
    container: &ContainerSpec,
    found_running: bool,
) -> Result<(), AllocateError> {
    let limits = core.update(|state| {
        state.devices.enter(pod);
        shuffled(spec::counts(container), &mut state.rng)
    });
    let (mut swept, mut changed) = (false, false);
    for (resource, count) in &limits {
        let demand = Demand { pod, container: &container.name, resource, count: *count };
        let step = core.update(|state| {
            state.expire_endpoints(core.timing.endpoint_grace);
            if !state.devices.knows(resource) {
                return Ok(Step::Nothing);
            }
            if !std::mem::replace(&mut swept, true) {
                state.sweep();
            }
            let running = found_running && !state.sources_ready;
            state.devices.begin(demand, running, &mut state.rng)
        })?;
        let ids = match step {
            Step::Nothing => continue,
            Step::Chosen(ids) => ids,
            Step::Ask(question) => ask(core, demand, question).await?,
        };
        call(core, demand, ids).await?;
        changed = true;
    }
    let devices = core.update(|state| {
        state.devices.leave(pod, &container.name, container.kind == ContainerKind::Init);
        changed.then(|| state.devices.clone())
    });
    devices
        .map_or(Ok(()), |devices| checkpoint::write(&core.paths.plugins, &devices).map_err(AllocateError::Checkpoint))
}

/// Lets the plugin choose, if it wants to.
async fn ask(core: &Core, demand: Demand<'_>, question: Question) -> Result<Ids, AllocateError> {
    let twice = core.faults.borrow().hand_out_twice;
    let forced = core.update(|state| {
        let hit = state.rng.random_bool(twice);
        hit.then(|| state.devices.settle_twice(demand, &question, &mut state.rng))
    });
    if let Some(ids) = forced {
        return Ok(ids);
    }
    let preferred = if core.read(|state| state.may_prefer(demand.resource)) {
        let plugin = core.read(|state| state.plugin(demand.resource))?;
        let request = core.update(|state| preference_request(state, &question));
        let answer = plugin.preferred(core, demand, request).await;
        answer.map_err(|status| AllocateError::Preferred(rpc_error(&status)))?
    } else {
        Ids::new()
    };
    Ok(core.update(|state| state.devices.settle(demand.resource, &question, &preferred, &mut state.rng)))
}

fn preference_request(state: &mut State, question: &Question) -> dp::ContainerPreferredAllocationRequest {
    dp::ContainerPreferredAllocationRequest {
        available_device_ids: unsorted(&(&question.free | &question.taken), &mut state.rng),
        must_include_device_ids: unsorted(&question.taken, &mut state.rng),
        allocation_size: i32::try_from(question.size).unwrap_or(i32::MAX),
    }
}

/// Calls Allocate and books its answer.
async fn call(core: &Core, demand: Demand<'_>, ids: Ids) -> Result<(), AllocateError> {
    let answer = match core.read(|state| state.plugin(demand.resource)) {
        Ok(plugin) => {
            let answer = plugin.allocate(core, demand, ids.clone()).await;
            answer.map_err(|status| AllocateError::Rpc(rpc_error(&status)))
        }
        Err(error) => Err(error),
    };
    core.update(|state| {
        let mut answer = answer.inspect_err(|_failed| state.devices.recount())?;
        if answer.container_responses.is_empty() {
            return Err(AllocateError::NoContainers(answer));
        }
        let answer = answer.container_responses.swap_remove(0);
        state.devices.insert(demand, Grant { ids, answer });
        Ok(())
    })
}
