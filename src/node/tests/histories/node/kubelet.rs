//! The kubelet: its restarts, and what it shows to those who ask it.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_api::ContainerKind;
use divvy_node_core::pod::{ConnectionId, DeviceRecord, Phase, Pod, PodList};
use divvy_testkit::pods::GPU;
use fake_kubelet::devices::Devices;
use proptest::prelude::*;

use super::pods::resource;
use super::{Death, Node};
use crate::daemon::Shown;
use crate::seen;
use crate::shapes::INSTANCES;

// === impl Node ===

impl Node {
    pub(crate) fn restart_kubelet(
        &mut self,
        lose_checkpoint: bool,
        mut dies: Option<(usize, Death)>,
    ) -> Result<(), TestCaseError> {
        self.stop_kubelet(lose_checkpoint);
        self.start_kubelet(&mut dies)
    }

    pub(super) fn stop_kubelet(&mut self, lose_checkpoint: bool) {
        let held = std::mem::take(&mut self.devices.held);
        self.devices = if lose_checkpoint {
            Devices::default()
        } else {
            Devices::restored(held, [GPU, INSTANCES].map(str::to_owned))
        };
        self.sources_ready = false;
        self.boots += 1;
        for pod in &mut self.pods {
            pod.listed = false;
            pod.found_running = pod.running().into_iter().collect();
            // What doesn't run, and isn't on record, will be asked for anew.
            let on_record = |name: &str| self.devices.grant(&pod.view.uid, name, resource(&pod.view, name)).is_some();
            pod.given.retain(|name, _| pod.found_running.contains(name) || on_record(name));
        }
    }

    /// Lists its pods one by one, as it admits them again.
    pub(super) fn start_kubelet(&mut self, dies: &mut Option<(usize, Death)>) -> Result<(), TestCaseError> {
        seen("kubelet restart");
        self.daemon().allocator().begin_session();
        self.advertise();
        for at in 0..self.pods.len() {
            self.pods[at].listed = true;
            // What was written of it is lost with the process that rejected it, and the next one has the same reason.
            if self.pods[at].is_rejected() {
                continue;
            }
            if matches!(self.pods[at].view.phase, Phase::Pending | Phase::Running) {
                self.admit(at, dies.take(), false)?;
                self.check()?;
            }
        }
        self.sources_ready = true;
        Ok(())
    }

    pub(super) fn sweep(&mut self) {
        if self.sources_ready {
            let active = self.pods.iter().filter(|pod| pod.listed && !pod.is_rejected() && !pod.view.has_ended());
            let active = active.map(|pod| pod.view.uid.clone()).collect();
            self.devices.sweep(&active);
        }
    }

    pub(super) fn shown(&mut self) -> Shown {
        let listed = self.pods.iter().filter(|pod| pod.listed).map(|pod| pod.view.clone());
        let pods = listed.chain([daemons_own_pod()]).map(Arc::new).collect();
        let list = PodList { pods, connection: Some(ConnectionId(self.boots)) };
        let assigned = self.pods.iter().filter(|pod| pod.listed).flat_map(|pod| self.assigned(&pod.view)).collect();
        let rejected = self.pods.iter().filter(|pod| pod.is_rejected()).map(|pod| pod.view.uid.clone()).collect();
        let bound = self.refuses_list.then(|| self.pods.iter().map(|pod| Arc::new(pod.view.clone())).collect());
        Shown { list, settled: self.sources_ready, assigned, rejected, bound }.shuffle(&mut self.rng)
    }

    fn assigned<'a>(&'a self, view: &'a Pod) -> impl Iterator<Item = DeviceRecord> + 'a {
        let containers = view.containers.iter().filter(|container| container.kind != ContainerKind::Init);
        containers.filter_map(|container| {
            let resource = resource(view, &container.name);
            let grant = self.devices.grant(&view.uid, &container.name, resource)?;
            Some(DeviceRecord {
                namespace: view.namespace.clone(),
                pod: view.name.clone(),
                container: container.name.clone(),
                resource: resource.to_owned(),
                devices: grant.ids.iter().cloned().collect(),
            })
        })
    }
}

/// A kubelet that runs the daemon lists at least this.
fn daemons_own_pod() -> Pod {
    Pod {
        uid: "own".to_owned(),
        namespace: "divvy".to_owned(),
        name: "divvy-node".to_owned(),
        annotations: BTreeMap::new(),
        containers: Vec::new(),
        phase: Phase::Running,
        states: BTreeMap::new(),
    }
}
