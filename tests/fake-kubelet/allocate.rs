//! `Allocate` of a container: which devices it gets, and what the plugin is asked.

use divvy_api::{ContainerKind, ContainerSpec};
use divvy_proto::deviceplugin as dp;
use rand::RngExt as _;

use super::core::{Core, State};
use super::devices::{Demand, DeviceError, Grant, Ids, Question, Step, shuffled};
use super::endpoint::Plugin;
use super::plugin::{rpc_error, unsorted};
use super::{checkpoint, spec};

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

// === impl State ===

impl State {
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
