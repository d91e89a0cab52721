//! The node's source of pods: the kubelet's list, its PodResources and cgroups, and the API server.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use divvy_node_core::pod::{CgroupState, DeviceRecord, Pod, PodList, PodRef};
use divvy_node_core::ports::{NodeRecords, PodOrigin, PodSource, PodSourceError};
use divvy_runtime::logging::WarnOnce;
use tracing::info;

use crate::apiserver::BoundPods;
use crate::cgroups::PodCgroups;
use crate::kubelet::client::PodListClient;
use crate::kubelet::metrics::Metrics;
use crate::kubelet::pod_resources::PodResources;
use crate::kubelet::socket::SocketFile;

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
    pub cgroups: Mutex<PodCgroups>,
    /// The kubelet's socket, which is recreated when the kubelet starts, so its age is the kubelet's.
    pub kubelet_socket: PathBuf,
    /// Reason why the kubelet doesn't list its pods, if it doesn't.
    pub unlisted: Arc<Mutex<WarnOnce>>,
    /// Metrics of the pod list.
    pub metrics: Arc<Metrics>,
}

// === impl NodePods ===

impl NodePods {
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
        let list = self.kubelet.list().await;
        self.metrics.pod_list(started, list.is_ok());
        self.log(list.as_ref().err());
        list
    }

    async fn bound_pods(&self) -> Result<Option<Vec<Arc<Pod>>>, PodSourceError> {
        let Some(bound) = &self.bound else { return Ok(None) };
        bound.list().await.map(Some)
    }

    async fn device_records(&self, pods: &[PodRef]) -> Result<Vec<Option<Vec<DeviceRecord>>>, PodSourceError> {
        self.pod_resources.get(pods).await
    }

    async fn all_device_records(&self) -> Result<NodeRecords, PodSourceError> {
        Ok(NodeRecords { slots: self.pod_resources.list().await?, units: self.pod_resources.list_units().await? })
    }

    fn cgroups(&self, uids: Vec<String>) -> HashMap<String, CgroupState> {
        self.cgroups.lock().unwrap_or_else(PoisonError::into_inner).states(uids)
    }

    fn watch_cgroups(&self, uids: &HashSet<String>) {
        self.cgroups.lock().unwrap_or_else(PoisonError::into_inner).follow(uids);
    }

    fn kubelet_age(&self) -> Duration {
        SocketFile::age(&self.kubelet_socket).unwrap_or_default()
    }

    async fn within<T: Send>(&self, limit: Duration, work: impl Future<Output = T> + Send) -> Option<T> {
        tokio::time::timeout(limit, work).await.ok()
    }

    fn identified(&self, by: PodOrigin) {
        self.metrics.identified(match by {
            PodOrigin::Kubelet => "kubelet",
            PodOrigin::ApiServer => "api-server",
        });
    }
}
