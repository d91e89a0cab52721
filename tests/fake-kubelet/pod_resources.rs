//! The PodResources service, with its sweep and its rate limit.

use std::sync::Mutex;
use std::time::Instant;

use divvy_api::ContainerKind;
use divvy_proto::podresources as pr;
use divvy_proto::podresources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::core::State;
use super::devices::Ids;
use super::pods::Pod;
use super::process::Process;

/// Calls a second, of all clients together.
const RATE: f64 = 100.0;
/// Calls that may come at once after a pause.
const BURST: f64 = 10.0;

/// The service on the PodResources directory's kubelet.sock.
struct Service {
    process: Process,
    tokens: Mutex<Tokens>,
}

/// A token bucket.
struct Tokens {
    left: f64,
    since: Instant,
}

pub(crate) fn routes(process: &Process) -> Routes {
    let tokens = Mutex::new(Tokens { left: BURST, since: Instant::now() });
    Routes::new(PodResourcesListerServer::new(Service { process: process.clone(), tokens }))
}

// === impl Service ===

impl Service {
    fn limit(&self) -> Result<(), Status> {
        let mut tokens = self.tokens.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let taken = tokens.take(Instant::now());
        taken.then_some(()).ok_or_else(|| Status::resource_exhausted("rejected by rate limit"))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(
        &self,
        _request: Request<pr::ListPodResourcesRequest>,
    ) -> Result<Response<pr::ListPodResourcesResponse>, Status> {
        self.limit()?;
        let pod_resources = self.process.core.update(|state| {
            state.sweep();
            state.pods.iter().filter(|pod| pod.listed && pod.is_active()).map(|pod| state.resources_of(pod)).collect()
        });
        Ok(Response::new(pr::ListPodResourcesResponse { pod_resources }))
    }

    async fn get(
        &self,
        request: Request<pr::GetPodResourcesRequest>,
    ) -> Result<Response<pr::GetPodResourcesResponse>, Status> {
        self.limit()?;
        let pr::GetPodResourcesRequest { pod_name: name, pod_namespace: namespace } = request.into_inner();
        if self.process.core.faults.borrow().no_get {
            return Err(Status::unknown("PodResources API Get method disabled"));
        }
        let pod_resources = self.process.core.read(|state| {
            // Of namesakes the pod manager finds the one that came last, whatever has become of it.
            let is_it = |pod: &&Pod| pod.listed && pod.name == name && pod.namespace == namespace;
            let pod = state.pods.iter().rfind(is_it).filter(|pod| pod.is_active());
            pod.map(|pod| state.resources_of(pod))
        });
        let unknown = || Status::unknown(format!("pod {name} in namespace {namespace} not found"));
        pod_resources
            .ok_or_else(unknown)
            .map(|pod| Response::new(pr::GetPodResourcesResponse { pod_resources: Some(pod) }))
    }

    async fn get_allocatable_resources(
        &self,
        _request: Request<pr::AllocatableResourcesRequest>,
    ) -> Result<Response<pr::AllocatableResourcesResponse>, Status> {
        self.limit()?;
        let devices = self.process.core.read(|state| {
            let known = state.devices.known.iter();
            known.flat_map(|(resource, health)| one_entry_each(resource, &health.healthy)).collect()
        });
        Ok(Response::new(pr::AllocatableResourcesResponse { devices, ..pr::AllocatableResourcesResponse::default() }))
    }
}

// === impl State ===

impl State {
    fn resources_of(&self, pod: &Pod) -> pr::PodResources {
        let shown = pod.containers.iter().filter(|container| container.spec.kind != ContainerKind::Init);
        let containers = shown.map(|container| {
            let held = self.devices.held.get(&pod.uid).and_then(|held| held.get(&container.spec.name));
            let devices = held.into_iter().flatten().flat_map(|(name, grant)| one_entry_each(name, &grant.ids));
            pr::ContainerResources {
                name: container.spec.name.clone(),
                devices: devices.collect(),
                ..pr::ContainerResources::default()
            }
        });
        pr::PodResources { name: pod.name.clone(), namespace: pod.namespace.clone(), containers: containers.collect() }
    }
}

fn one_entry_each(resource: &str, ids: &Ids) -> Vec<pr::ContainerDevices> {
    let entry = |id: &String| pr::ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.clone()],
        topology: None,
    };
    ids.iter().map(entry).collect()
}

// === impl Tokens ===

impl Tokens {
    fn take(&mut self, now: Instant) -> bool {
        self.left = (self.left + (now - self.since).as_secs_f64() * RATE).min(BURST);
        self.since = now;
        let taken = self.left >= 1.0;
        if taken {
            self.left -= 1.0;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_of_ten_then_one_every_ten_milliseconds() {
        let start = Instant::now();
        let mut tokens = Tokens { left: BURST, since: start };
        assert_eq!((0..20).filter(|_| tokens.take(start)).count(), 10);
        let later = start + Duration::from_millis(35);
        assert_eq!((0..20).filter(|_| tokens.take(later)).count(), 3);
        assert_eq!((0..20).filter(|_| tokens.take(later + Duration::from_secs(9))).count(), 10);
    }
}
