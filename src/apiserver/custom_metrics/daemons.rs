//! Where the daemons serve `/metrics`: a watch of their pods.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use divvy_runtime::api_server::{ApiServer, watch_all};
use k8s_openapi::api::core::v1::Pod;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource as _};

use crate::watch_state::WatchState;

/// Label of the daemons' pods, as the DaemonSet has it.
const LABEL: &str = "app.kubernetes.io/name=divvy-node";
/// Name of the port of `/metrics` in the pod's containers.
const PORT: &str = "http";

/// The daemons. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Daemons {
    /// Addresses by node and pod.
    addresses: Arc<Mutex<BTreeMap<Place, SocketAddr>>>,
    state: WatchState,
}

/// Names of a node and of a pod there.
type Place = (Arc<str>, String);

// === impl Daemons ===

impl Daemons {
    /// Follows the daemons' pods in this namespace, for ever.
    pub async fn follow(self, api_server: ApiServer, namespace: String) {
        let api: Api<DeserializeGuard<Pod>> = Api::namespaced(api_server.client, &namespace);
        let config = watcher::Config::default().labels(LABEL);
        let events = watch_all(api, "pods of divvy-node", config, api_server.requests);
        let mut listed = HashSet::new();
        self.state.follow(events, |event| self.take(event, &mut listed)).await;
    }

    /// State of the watch.
    pub fn state(&self) -> &WatchState {
        &self.state
    }

    /// Where a node's daemon serves `/metrics`.
    pub fn address(&self, node: &Arc<str>) -> Option<SocketAddr> {
        let addresses = self.addresses();
        let first = addresses.range((Arc::clone(node), String::new())..).next();
        first.filter(|((of, _), _)| of == node).map(|(_, address)| *address)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.addresses().len()
    }

    fn take(&self, event: &Event<DeserializeGuard<Pod>>, listed: &mut HashSet<Place>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => listed.extend(self.apply(pod)),
            Event::InitDone => self.addresses().retain(|place, _| listed.contains(place)),
            Event::Apply(pod) => drop(self.apply(pod)),
            Event::Delete(pod) => {
                if let Some(place) = place(pod) {
                    self.addresses().remove(&place);
                }
            }
        }
    }

    fn apply(&self, pod: &DeserializeGuard<Pod>) -> Option<Place> {
        let place = place(pod)?;
        let mut addresses = self.addresses();
        match address(pod) {
            Some(address) => addresses.insert(place.clone(), address),
            None => addresses.remove(&place),
        };
        Some(place)
    }

    fn addresses(&self) -> MutexGuard<'_, BTreeMap<Place, SocketAddr>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(pod: &DeserializeGuard<Pod>) -> Option<Place> {
    let node = pod.0.as_ref().ok()?.spec.as_ref()?.node_name.as_deref()?;
    Some((node.into(), pod.meta().name.clone()?))
}

/// None of a pod that has ended or is ending, or has no address yet.
fn address(pod: &DeserializeGuard<Pod>) -> Option<SocketAddr> {
    let pod = pod.0.as_ref().ok().filter(|pod| pod.metadata.deletion_timestamp.is_none())?;
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Running"))?;
    let ports =
        pod.spec.iter().flat_map(|spec| &spec.containers).flat_map(|container| container.ports.iter().flatten());
    let port = ports.into_iter().find(|port| port.name.as_deref() == Some(PORT))?.container_port;
    Some(SocketAddr::new(status.pod_ip.as_deref()?.parse::<IpAddr>().ok()?, u16::try_from(port).ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, node: &str, ip: &str, phase: &str) -> DeserializeGuard<Pod> {
        let port = json!({ "name": "http", "containerPort": 9402 });
        let pod: Value = json!({
            "metadata": { "name": name }, "spec": { "nodeName": node, "containers": [{ "name": "a", "ports": [port] }] },
            "status": { "phase": phase, "podIP": ip },
        });
        DeserializeGuard(Ok(serde_json::from_value(pod).unwrap()))
    }

    #[test]
    fn running_pod_of_a_node_is_its_daemon() {
        let (daemons, mut listed) = (Daemons::default(), HashSet::new());
        let mut take = |event| daemons.take(&event, &mut listed);
        take(Event::InitApply(pod("old", "n1", "192.0.2.1", "Running")));
        take(Event::InitApply(pod("other", "n2", "2001:db8::2", "Running")));
        take(Event::InitDone);
        let at = |node: &str| daemons.address(&node.into()).map(|address| address.to_string());
        assert_eq!(at("n1").as_deref(), Some("192.0.2.1:9402"));
        assert_eq!(at("n2").as_deref(), Some("[2001:db8::2]:9402"));
        assert_eq!((at("n"), at("n10"), daemons.count()), (None, None, 2));
        take(Event::Apply(pod("old", "n1", "192.0.2.1", "Failed")));
        assert_eq!(at("n1"), None);
        take(Event::Apply(pod("new", "n1", "192.0.2.3", "Running")));
        take(Event::Delete(pod("old", "n1", "192.0.2.1", "Failed")));
        assert_eq!(at("n1").as_deref(), Some("192.0.2.3:9402"));
        take(Event::Init);
        take(Event::InitApply(pod("other", "n2", "not an address", "Running")));
        take(Event::InitDone);
        assert_eq!(daemons.count(), 0);
    }
}
