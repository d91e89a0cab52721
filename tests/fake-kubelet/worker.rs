//! A pod's worker: starts its containers, ends them, takes the pod off the list. One task a pod.

use std::sync::Arc;

use divvy_api::ContainerSpec;
use divvy_proto::deviceplugin as dp;

use super::allocate;
use super::core::{Core, State};
use super::devices::{Demand, Ids, shuffled};
use super::endpoint::Plugin;
use super::plugin::rpc_error;
use super::pods::{Action, Admission, ContainerState, Pod};
use super::process::Process;
use super::record::Gone;
use super::spec;

/// Exit code of a process that was killed.
const KILLED: i32 = 137;

/// Works on an admitted (or ended) pod until it is gone.
pub(crate) async fn work(process: Process, uid: String) {
    let core = &process.core;
    let Some(poke) = core.read(|state| state.pod(&uid).map(|pod| Arc::clone(&pod.poke))) else { return };
    while let Some(action) = core.read(|state| state.pod(&uid).map(Pod::next_action)) {
        match action {
            Action::Start(index) => {
                if let Err(message) = start(core, &uid, index).await {
                    wait(core, &uid, index, ContainerState::Waiting { reason: "CreateContainerConfigError", message });
                    tokio::select! {
                        () = core.about(core.timing.retry) => {}
                        () = poke.notified() => {}
                    }
                }
            }
            Action::RunToEnd(index) => {
                core.about(core.timing.init_run).await;
                core.update_pod(&uid, |pod| {
                    pod.containers[index].state.is_running().then(|| pod.containers[index].end(0))
                });
            }
            Action::Stop => {
                core.about(core.timing.stop).await;
                // Whoever makes them stubborn lets go of the sender with the kubelet.
                drop(core.faults.subscribe().wait_for(|faults| !faults.stubborn).await);
                core.update_pod(&uid, |pod| pod.stop(KILLED));
            }
            Action::Remove => {
                // One without containers has none.
                std::fs::remove_dir(core.paths.cgroup(&uid)).unwrap_or_default();
                core.update(|state| state.remove(&uid));
            }
            Action::Sleep => poke.notified().await,
        }
    }
}

// === impl State ===

impl State {
    fn remove(&mut self, uid: &str) {
        for pod in self.pods.extract_if(.., |pod| pod.uid == uid) {
            pod.outcome.send_if_modified(|outcome| {
                let never = outcome.is_none();
                outcome.get_or_insert(Admission::Deleted);
                never
            });
            let Pod { uid, namespace, name, .. } = pod;
            self.record.gone.push(Gone { uid, namespace, name });
        }
    }

    /// The plugin to call before a start, and the IDs to name; `None` if it doesn't want to be called.
    fn pre_start(&self, demand: Demand<'_>) -> Result<Option<(Plugin, Ids)>, String> {
        let Demand { pod, container, resource, .. } = demand;
        let endpoint = self.endpoints.get(resource);
        let endpoint =
            endpoint.ok_or_else(|| format!("endpoint not found in cache for a registered resource: {resource}"))?;
        if !endpoint.options.is_some_and(|options| options.pre_start_required) {
            return Ok(None);
        }
        let none = || {
            format!(
                "no devices found allocated in local cache for pod {pod}, container {container}, resource {resource}"
            )
        };
        let grant = self.devices.grant(pod, container, resource).ok_or_else(none)?;
        let plugin = endpoint.plugin.clone().ok_or_else(|| format!("endpoint {resource} has been stopped"))?;
        Ok(Some((plugin, grant.ids.clone())))
    }
}

/// `startContainer` up to the running process.
async fn start(core: &Core, uid: &str, index: usize) -> Result<(), String> {
    let Some(spec) = wait(core, uid, index, ContainerState::waiting("ContainerCreating")) else { return Ok(()) };
    std::fs::create_dir_all(core.paths.cgroup(uid)).map_err(|error| format!("creating the pod's cgroup: {error}"))?;
    let given = run_options(core, uid, &spec).await?;
    core.about(core.timing.start).await;
    core.update_pod(uid, |pod| {
        if pod.next_action() == Action::Start(index) {
            pod.containers[index].start(given);
        }
    });
    Ok(())
}

/// `GetDeviceRunContainerOptions`: PreStartContainer for every resource in random order, then the cached answers.
async fn run_options(
    core: &Core,
    pod: &str,
    container: &ContainerSpec,
) -> Result<dp::ContainerAllocateResponse, String> {
    let limits = core.draw(|rng| shuffled(spec::counts(container), rng));
    let mut lacking = false;
    for (resource, count) in limits {
        let demand = Demand { pod, container: &container.name, resource: &resource, count };
        if count == 0 || !core.read(|state| state.devices.knows(&resource)) {
            continue;
        }
        let wanted = core.update(|state| {
            state.expire_endpoints(core.timing.endpoint_grace);
            state.pre_start(demand)
        })?;
        if let Some((plugin, ids)) = wanted {
            plugin.pre_start(core, demand, ids).await.map_err(|status| rpc_error(&status))?;
        }
        lacking |= core.read(|state| state.devices.grant(pod, &container.name, &resource).is_none());
    }
    if lacking {
        // The one Allocate outside the sync loop: after a restart that lost the checkpoint.
        allocate::allocate(core, pod, container, false).await.map_err(|error| error.to_string())?;
    }
    Ok(core.update(|state| state.devices.run_options(pod, &container.name, &mut state.other_rng)))
}

/// Says why a container hasn't started yet, unless it isn't to start any more: what has ended stays so.
fn wait(core: &Core, uid: &str, index: usize, why: ContainerState) -> Option<ContainerSpec> {
    let set = |pod: &mut Pod| {
        (pod.next_action() == Action::Start(index)).then(|| {
            pod.containers[index].state = why;
            pod.containers[index].spec.clone()
        })
    };
    core.update_pod(uid, set).flatten()
}
