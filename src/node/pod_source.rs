//! The node's source of pods: the kubelet's list, its PodResources and cgroups, and the API server.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use divvy_node_core::pod::{CgroupState, DeviceRecord, Pod, PodList, PodRef};
use divvy_node_core::ports::{NodeRecords, PodSource, PodSourceError};
use divvy_runtime::logging::WarnOnce;
use tracing::{info, warn};

use crate::apiserver::BoundPods;
use crate::cgroups::PodCgroups;
use crate::kubelet::age::KubeletAge;
use crate::kubelet::client::PodListClient;
use crate::kubelet::metrics::Metrics;
use crate::kubelet::pod_resources::PodResources;

/// Pods from the kubelet and the API server.
#[derive(Debug)]
pub struct NodePods {
    /// Client for the kubelet's pods.
    pub kubelet: PodListClient,
    /// Client for the kubelet's records of devices.
    pub pod_resources: PodResources,
    /// Client for the pods bound to this node; `None` without an API server.
    pub bound: Option<BoundPods>,
    /// Cgroups, which show whether a pod that isn't listed any more may still run.
    pub cgroups: Arc<PodCgroups>,
    /// Age of the kubelet.
    pub kubelet_age: KubeletAge,
    /// Reason why the kubelet doesn't list its pods, if it doesn't.
    pub unlisted: Arc<Mutex<WarnOnce>>,
    /// Metrics of the pod list.
    pub metrics: Arc<Metrics>,
}

// === impl NodePods ===

impl NodePods {
    /// Counts a list that was requested at `started`, and logs what it is.
    fn recorded(&self, started: Instant, list: Result<PodList, PodSourceError>) -> Result<PodList, PodSourceError> {
        self.metrics.pod_list(started, list.is_ok());
        self.log(list.as_ref().err());
        list
    }

    /// Logs once that the kubelet doesn't list its pods, and once that it does so again.
    fn log(&self, problem: Option<&PodSourceError>) {
        let mut warning = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = problem.filter(|_| self.bound.is_some()) {
            warning.warn(format!(
                "identifying pods by the API server and PodResources instead of the kubelet's list: {problem}"
            ));
        } else if problem.is_none() && warning.current().is_some() {
            warning.clear();
            info!("the kubelet lists its pods again");
        }
    }
}

impl PodSource for NodePods {
    async fn kubelet_pods(&self) -> Result<PodList, PodSourceError> {
        let started = Instant::now();
        self.recorded(started, self.kubelet.list().await)
    }

    async fn kubelet_pods_late(&self) -> Result<PodList, PodSourceError> {
        let started = Instant::now();
        self.recorded(started, self.kubelet.list_patiently().await)
    }

    async fn bound_pods(&self) -> Result<Option<Vec<Arc<Pod>>>, PodSourceError> {
        let Some(bound) = &self.bound else { return Ok(None) };
        bound.list().await.map(Some)
    }

    async fn device_records(
        &self,
        pods: &[PodRef],
        limit: Duration,
    ) -> Result<Vec<Option<Vec<DeviceRecord>>>, PodSourceError> {
        let records = tokio::time::timeout(limit, self.pod_resources.get(pods)).await;
        records.unwrap_or(Err(PodSourceError::Timeout(limit)))
    }

    async fn all_device_records(&self) -> Result<NodeRecords, PodSourceError> {
        Ok(NodeRecords { slots: self.pod_resources.list().await?, units: self.pod_resources.list_units().await? })
    }

    async fn cgroups(&self, uids: Vec<String>) -> HashMap<String, CgroupState> {
        if uids.is_empty() {
            return HashMap::new();
        }
        let cgroups = Arc::clone(&self.cgroups);
        let asked = uids.clone();
        let states = tokio::task::spawn_blocking(move || cgroups.states(asked)).await;
        // What can't be looked at may still run.
        states.unwrap_or_else(|_| uids.into_iter().map(|uid| (uid, CgroupState::Exists)).collect())
    }

    async fn watch_cgroups(&self, uids: HashSet<String>) {
        let cgroups = Arc::clone(&self.cgroups);
        let followed = tokio::task::spawn_blocking(move || cgroups.follow(&uids)).await;
        followed.unwrap_or_else(|error| warn!(%error, "looking for the pods' cgroups failed"));
    }

    fn kubelet_age(&self) -> Duration {
        self.kubelet_age.get()
    }
}
