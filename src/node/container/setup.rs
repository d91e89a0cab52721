//! The preparation of containers, as the core asks for it.

use std::collections::HashSet;
use std::sync::Arc;

use divvy_api::{CardId, Share, Tier};
use divvy_node_core::ledger::{Nonce, Terms};
use divvy_node_core::ports::{AllocatedContainer, ContainerResponse, ContainerSetup, Mount, SetupError};
use divvy_proto::deviceplugin as api;

use super::{Allocation, ContainerError, Containers, Limits, PodRef};

/// The core's port to [`Containers`].
#[derive(Clone, Debug)]
pub struct Setup(pub Arc<Containers>);

// === impl Setup ===

impl ContainerSetup for Setup {
    fn tier(&self) -> Tier {
        self.0.tier()
    }

    fn tier_on(&self, shares: &[(CardId, Share)]) -> Tier {
        self.0.tier_on(shares)
    }

    fn problem(&self) -> Option<String> {
        self.0.problem()
    }

    fn prepare(&self, container: &AllocatedContainer<'_>) -> Result<ContainerResponse, SetupError> {
        with_allocation(container, |allocation| self.0.prepare(allocation)).map(response)
    }

    fn write_limits(&self, container: &AllocatedContainer<'_>) -> Result<(), SetupError> {
        with_allocation(container, |allocation| self.0.write_limits(allocation))
    }

    fn renew_limits(&self, container: &AllocatedContainer<'_>) -> Result<(), SetupError> {
        with_allocation(container, |allocation| self.0.renew(allocation))
    }

    fn find(&self, pod_uid: &str, container: &str) -> Option<(Nonce, Terms)> {
        let (nonce, Limits { tier, compute, priority, .. }) = self.0.find(pod_uid, container)?;
        Some((nonce.parse().ok()?, Terms { tier, compute, priority }))
    }

    fn remove(&self, ended: Vec<Nonce>) {
        let containers = Arc::clone(&self.0);
        // A tenant may have left millions of files, and others wait for their Allocate.
        let remove = move || containers.remove_all(&ended);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_no_runtime) => remove(),
        }
    }

    fn remove_all_but(&self, live: &HashSet<Nonce>) -> Result<(), SetupError> {
        let live = live.iter().map(Nonce::to_string).collect();
        self.0.sweep(&live).map(drop).map_err(setup_error)
    }
}

fn response(answer: api::ContainerAllocateResponse) -> ContainerResponse {
    let mount = |api::Mount { container_path, host_path, read_only }| Mount { container_path, host_path, read_only };
    ContainerResponse {
        envs: answer.envs.into_iter().collect(),
        mounts: answer.mounts.into_iter().map(mount).collect(),
        annotations: answer.annotations.into_iter().collect(),
        cdi_devices: answer.cdi_devices.into_iter().map(|device| device.name).collect(),
    }
}

fn with_allocation<T>(
    container: &AllocatedContainer<'_>,
    work: impl FnOnce(&Allocation<'_>) -> Result<T, ContainerError>,
) -> Result<T, SetupError> {
    let AllocatedContainer { pod, name, nonce, shares, terms } = container;
    let pod = PodRef { uid: &pod.uid, namespace: &pod.namespace, name: &pod.name };
    let allocation = Allocation { pod, container: name, nonce: &nonce.to_string(), shares, terms: *terms };
    work(&allocation).map_err(setup_error)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn setup_error(error: ContainerError) -> SetupError {
    SetupError(error.to_string())
}
