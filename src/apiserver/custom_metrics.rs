//! What pods use of their GPUs, as numbers for autoscalers: the API `custom.metrics.k8s.io/v1beta2`, off by default.
//!
//! ```text
//! pods, scale ◀─list, get─ pods ──▶ store: nodes and GPUs of these pods ──▶ scraper ◀─▶ /metrics of their daemons
//!                                                                                           │
//! value of a pod, of a workload ◀── metric ◀── samples: latest page, rates ◀── page ◀───────┘
//! ```
//!
//! The daemons measure. They are asked when somebody asks here, and only those of the pods in question: an autoscaler that asks
//! every 15 s makes each of these nodes be asked that often, and rates are taken over that time. A daemon that doesn't answer, or
//! answers something else, costs the figures of its own pods.

pub mod daemons;
pub mod metric;
pub mod page;
pub mod pods;
pub mod samples;
pub mod scraper;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use divvy_runtime::api_server::within_deadline;
use kube::Client;

use self::page::Holder;
use self::pods::{Selection, Workload};
use self::samples::Usage;
use self::scraper::Scraper;
use crate::nodes::Nodes;
use crate::objects::{PodKey, PodName};

/// The figures of all pods. Clones share them.
#[derive(Clone)]
pub struct CustomMetrics {
    /// Where pods and workloads are listed.
    pub client: Client,
    /// Which nodes' GPUs each pod holds.
    pub nodes: Nodes,
    /// What the daemons of these nodes say.
    pub scraper: Scraper,
}

/// Use of the GPUs of one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    /// The pod's name.
    pub name: Arc<str>,
    /// What is known of it.
    pub usage: Usage,
}

/// A pod that holds GPUs.
struct Pod {
    name: Arc<str>,
    held: Vec<Held>,
}

/// A container's GPU, and its node.
struct Held {
    node: Arc<str>,
    holder: Holder,
}

// === impl CustomMetrics ===

impl CustomMetrics {
    /// Use of the selected pods that hold GPUs, in the order of their names.
    pub async fn of_pods(&self, namespace: &str, selection: Selection) -> kube::Result<Vec<PodUsage>> {
        let pods = within_deadline(self.holders(namespace, selection)).await?;
        Ok(self.usage(pods).await)
    }

    /// Use of all pods of a workload together.
    pub async fn of_workload(&self, namespace: &str, workload: Workload, name: &str) -> kube::Result<Usage> {
        let pods = async {
            match workload.pods(self.client.clone(), namespace, name).await? {
                Some(selection) => self.holders(namespace, selection).await,
                None => Ok(Vec::new()),
            }
        };
        let pods = self.usage(within_deadline(pods).await?).await;
        Ok(pods.into_iter().map(|pod| pod.usage).fold(Usage::default(), Usage::plus))
    }

    async fn holders(&self, namespace: &str, selection: Selection) -> kube::Result<Vec<Pod>> {
        let mut pods = Vec::new();
        let take = |pod: String, uid: String| {
            let name = PodName { namespace: namespace.into(), pod: pod.into() };
            let key = PodKey { name, uid: uid.into() };
            let held = self.held(&key);
            if !held.is_empty() {
                pods.push(Pod { name: key.name.pod, held });
            }
        };
        selection.each(&self.client, namespace, take).await?;
        Ok(pods)
    }

    async fn usage(&self, pods: Vec<Pod>) -> Vec<PodUsage> {
        let nodes: BTreeSet<_> = pods.iter().flat_map(|pod| &pod.held).map(|held| &held.node).collect();
        self.scraper.ask(nodes).await;
        let now = Instant::now();
        let usage = |Pod { name, held }: Pod| {
            let known = held
                .iter()
                .filter_map(|Held { node, holder }| self.scraper.look(node, |samples| samples.usage(holder, now)));
            PodUsage { usage: known.fold(Usage::default(), Usage::plus), name }
        };
        pods.into_iter().map(usage).collect()
    }

    /// GPUs of a pod's containers. Init containers' aren't among them: they have ended when their pod works.
    fn held(&self, pod: &PodKey) -> Vec<Held> {
        let store = self.nodes.store();
        let containers = store.holders(pod).flat_map(|(node, of)| of.iter().map(move |container| (node, container)));
        let held = containers.filter(|(_, container)| !container.is_init).flat_map(|(node, container)| {
            container.device_info.iter().map(move |device| {
                let (name, card) = (container.container_name.clone(), device.device_id.clone());
                Held { node: Arc::clone(node), holder: Holder { pod: pod.name.clone(), container: name, card } }
            })
        });
        held.collect()
    }
}

impl std::fmt::Debug for CustomMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomMetrics").field("scraper", &self.scraper).finish_non_exhaustive()
    }
}
