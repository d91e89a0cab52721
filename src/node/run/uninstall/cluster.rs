//! `--uninstall=cluster`: ends daemon and webhook, waits until the DaemonSet `divvy-uninstall` is through with the nodes, and
//! then removes what is left on the Nodes, and the scheduling gate from pods that nobody plans any more. No new pod gets one: while
//! the webhook configurations are there and no replica is, such pods are refused. All of it can be done again.

use std::collections::HashSet;
use std::time::Duration;

use divvy_api::ResourceNames;
use divvy_api::installation::{DAEMON, UNINSTALL, WEBHOOK, pods_of};
use divvy_api::names::GATE;
use divvy_runtime::api_server::errors::describe;
use divvy_runtime::api_server::{ApiServer, within_deadline};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Incomplete, say_news};
use crate::apiserver::{OpenedGates, Removed, open_gates, remove_from_all};
use crate::config::Config;
use crate::run::settings;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(2);
/// Most names in a line.
const NAMED: usize = 5;

/// The cluster, seen from the namespace that Divvy is installed in.
struct Uninstallation<'a> {
    client: Client,
    names: &'a ResourceNames,
}

/// Why it isn't over yet.
enum Waiting {
    /// For what is said here.
    For(String),
    /// For another look at Nodes of which these were cleaned, or were not, and at pods.
    Look(Vec<Removed>, OpenedGates),
}

/// A workload's part that is read here.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = Deployment)]
struct DeploymentView {
    metadata: ObjectMeta,
}

#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = DaemonSet)]
struct DaemonSetView {
    metadata: ObjectMeta,
    #[serde(default)]
    status: DaemonSetStatusView,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DaemonSetStatusView {
    #[serde(default)]
    observed_generation: i64,
    #[serde(default)]
    desired_number_scheduled: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = Pod)]
struct PodView {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpecView,
    #[serde(default)]
    status: StatusView,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpecView {
    #[serde(default)]
    node_name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = Node)]
struct NodeView {
    metadata: ObjectMeta,
    #[serde(default)]
    status: StatusView,
}

/// A status with conditions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StatusView {
    #[serde(default)]
    conditions: Vec<ConditionView>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ConditionView {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

/// Goes on until nothing is left.
pub(super) async fn uninstall(config: &Config, mut say: impl FnMut(String)) -> Result<(), Incomplete> {
    let client = match settings::api_server(config).await {
        Ok(Some(ApiServer { client, .. })) => client,
        Ok(None) => {
            say("left: all Nodes, as there is neither a cluster nor a kubeconfig".to_owned());
            return Err(Incomplete);
        }
        Err(error) => {
            say(format!("left: all Nodes: {error:#}"));
            return Err(Incomplete);
        }
    };
    let names = config.cluster().amount_names();
    let uninstallation = Uninstallation { client, names: &names };
    let mut said = Vec::new();
    loop {
        let lines = match uninstallation.advance().await {
            Ok(None) => return Ok(()),
            Ok(Some(Waiting::For(what))) => vec![format!("waiting for {what}")],
            Ok(Some(Waiting::Look(nodes, gates))) => {
                nodes.into_iter().flat_map(said_of).chain(said_of_gates(&gates)).collect()
            }
            Err(error) => vec![format!("trying again: {}", describe(&error))],
        };
        say_news(&mut said, lines, &mut say);
        tokio::time::sleep(PAUSE).await;
    }
}

fn said_of(Removed { node, what }: Removed) -> Vec<String> {
    match what {
        Ok(what) => what.into_iter().map(|what| format!("removed: {what} of Node {node}")).collect(),
        Err(error) => vec![format!("trying again: Node {node}: {}", describe(&error))],
    }
}

fn said_of_gates(OpenedGates { pods, failed }: &OpenedGates) -> Vec<String> {
    let s = if *pods == 1 { "" } else { "s" };
    let opened = (*pods > 0).then(|| format!("removed: scheduling gate {GATE} of {pods} pod{s}"));
    let failed = failed.iter().take(NAMED);
    let failed = failed.map(|(pod, error)| format!("trying again: pod {pod}: {}", describe(error)));
    opened.into_iter().chain(failed).collect()
}

/// A few of these names, and how many others there are.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        others => format!("{shown} and {others} others"),
    }
}

// === impl Uninstallation ===

impl Uninstallation<'_> {
    /// Does what can be done now; `None` once there is nothing left to do.
    async fn advance(&self) -> kube::Result<Option<Waiting>> {
        self.delete::<DaemonSetView>(DAEMON).await?;
        self.delete::<DeploymentView>(WEBHOOK).await?;
        let serving = [self.pods(DAEMON).await?, self.pods(WEBHOOK).await?].concat();
        if !serving.is_empty() {
            let names: Vec<String> = serving.iter().map(ResourceExt::name_any).collect();
            return Ok(Some(Waiting::For(format!("the end of pods {}", some(&names)))));
        }
        if let Some(what) = self.awaits_cleaners().await? {
            return Ok(Some(Waiting::For(what)));
        }
        let nodes = remove_from_all(&self.client, self.names).await?;
        let gates = open_gates(&self.client).await?;
        let is_clean = nodes.is_empty() && gates.pods == 0 && gates.failed.is_empty();
        Ok((!is_clean).then_some(Waiting::Look(nodes, gates)))
    }

    /// What is still to come of the DaemonSet that removes files; nothing where there is no such DaemonSet.
    async fn awaits_cleaners(&self) -> kube::Result<Option<String>> {
        let sets: Api<DaemonSetView> = Api::default_namespaced(self.client.clone());
        let Some(set) = within_deadline(sets.get_opt(UNINSTALL)).await? else { return Ok(None) };
        let pods = self.pods(UNINSTALL).await?;
        let DaemonSetStatusView { observed_generation, desired_number_scheduled: wanted } = set.status;
        if observed_generation < set.metadata.generation.unwrap_or(0) || pods.len() < wanted {
            return Ok(Some(format!("DaemonSet {UNINSTALL} to create its pods")));
        }
        let mut unready: Vec<String> =
            pods.into_iter().filter(|pod| !pod.status.is_ready()).map(|pod| pod.spec.node_name).collect();
        if !unready.is_empty() {
            // A node that is down has nobody who could remove files.
            let ready = self.ready_nodes().await?;
            unready.retain(|node| ready.contains(node));
        }
        unready.sort_unstable();
        Ok((!unready.is_empty()).then(|| format!("pods of DaemonSet {UNINSTALL} on {}", some(&unready))))
    }

    async fn ready_nodes(&self) -> kube::Result<HashSet<String>> {
        let nodes: Api<NodeView> = Api::all(self.client.clone());
        let nodes = within_deadline(nodes.list(&ListParams::default())).await?;
        Ok(nodes.items.into_iter().filter(|node| node.status.is_ready()).map(|node| node.name_any()).collect())
    }

    async fn pods(&self, program: &str) -> kube::Result<Vec<PodView>> {
        let pods: Api<PodView> = Api::default_namespaced(self.client.clone());
        let only = ListParams::default().labels(&pods_of(program));
        Ok(within_deadline(pods.list(&only)).await?.items)
    }

    async fn delete<K>(&self, name: &str) -> kube::Result<()>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let workloads: Api<K> = Api::default_namespaced(self.client.clone());
        match within_deadline(workloads.delete(name, &DeleteParams::default())).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop),
        }
    }
}

// === impl StatusView ===

impl StatusView {
    fn is_ready(&self) -> bool {
        self.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }
}
