//! Looks at the cluster, and whether all in it agree.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use divvy_api::ResourceNames;
use divvy_api::gpunode::GpuNode;
use divvy_node::kubelet::pod_resources::PodResources;
use divvy_testkit::books;
use divvy_testkit::outside::NodeView;

use super::{Cluster, FOLLOWS, LAG};
use crate::containers::{self, ContainerKey, Running};
use crate::daemon::POD_RESOURCES;
use crate::{checkpoint, checks, view};

/// What the daemon reports of its node.
const GPU_NODE_PATH: &str = "/apis/divvy.dev/v1alpha1/gpunodes/node-a";

/// What one look at the cluster shows.
#[derive(Debug)]
pub struct Look {
    /// Pods and their shares.
    pub node: NodeView,
    /// The processes.
    pub running: BTreeMap<ContainerKey, Running>,
}

// === impl Cluster ===

impl Cluster {
    /// Looks at processes, the kubelet's records and the pods that the API server showed last.
    pub fn look(&self) -> anyhow::Result<Look> {
        let running = containers::running(&view::minors(&self.scenario)?);
        let memory_scale = self.daemon.memory_scale();
        let mut node = view::node(&self.pods, &running, &checkpoint::read()?, &self.scenario, memory_scale)?;
        node.forgot = self.forgot;
        Ok(Look { node, running })
    }

    /// Lists the pods, and forgets those that are neither listed nor running.
    async fn refresh(&mut self) -> anyhow::Result<()> {
        let pods = self.list().await?;
        let (listed, runs) = (view::uids(&pods), self.look()?.running);
        self.pods.retain(|uid, _| listed.contains(&**uid) || runs.keys().any(|(owner, _)| owner == uid));
        Ok(())
    }

    /// Looks until nothing is wrong with any container, or something stays wrong. Pods may come and go meanwhile.
    pub async fn sound(&mut self) -> anyhow::Result<()> {
        self.until("sound node", FOLLOWS, async |this| {
            this.refresh().await?;
            let problems = checks::node(&this.look()?.node);
            if problems.is_empty() { Ok(Some(())) } else { bail!("{}", problems.join("\n    ")) }
        })
        .await
    }

    /// Looks until containers, kubelet and daemon agree, and the API server's objects with them, and says what they don't
    /// agree on if they never do. An API server that is away isn't asked.
    pub async fn agree(&mut self) -> anyhow::Result<Look> {
        let look = self.until("agreement", LAG, async |this| this.compare().await.map(Some)).await?;
        if !self.api.is_ready().await {
            return Ok(look);
        }
        self.until("agreement with GpuNode and annotations", FOLLOWS, async |this| {
            let (look, revision, gpu_node) =
                (this.compare().await?, this.daemon.revision().await?, this.gpu_node().await?);
            let status = gpu_node.status.context("GpuNode has no status yet")?;
            ensure!(status.ledger_revision >= revision, "GpuNode is at {}, not {revision}", status.ledger_revision);
            let reported = checks::books(&look.node, checks::reported(&status));
            let mut problems: Vec<_> = reported.into_iter().map(|problem| format!("GpuNode: {problem}")).collect();
            problems.extend(checks::annotations(&look.node, &this.pods));
            if problems.is_empty() { Ok(Some(look)) } else { bail!("{}", problems.join("\n    ")) }
        })
        .await
    }

    /// What the daemon reports.
    pub async fn gpu_node(&self) -> anyhow::Result<GpuNode> {
        serde_json::from_value(self.api.get(GPU_NODE_PATH).await?).context("decoding the GpuNode")
    }

    /// Looks once at containers, kubelet and daemon; an error where they don't agree.
    async fn compare(&mut self) -> anyhow::Result<Look> {
        if self.api.is_ready().await {
            self.refresh().await?;
        }
        let (look, booked) = (self.look()?, books::read(self.daemon.address).await?);
        let resources = PodResources { socket: POD_RESOURCES.into(), names: ResourceNames::default() };
        let mut problems = checks::node(&look.node);
        problems.extend(checks::books(&look.node, booked));
        problems.extend(checks::pod_resources(&look.node, &resources.list().await?));
        problems.extend(checks::regions(&look.running));
        if problems.is_empty() { Ok(look) } else { bail!("{}", problems.join("\n    ")) }
    }
}
