//! DaemonSets whose pods allocate GPUs, and objects of other systems that belong to no namespace.

use std::collections::BTreeSet;

use divvy_api::installation::{DAEMON, WEBHOOK};
use divvy_index::pod::PodView;
use divvy_systems::Program;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::core::Selector;
use kube::{Api, ResourceExt as _};
use serde_json::Value;

use super::{Fact, Reader};
use crate::cluster::Refusal;

/// A DaemonSet in any namespace whose pods allocate GPUs: divvy-node, or another system's.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// How many nodes should have a pod of it.
    pub(crate) wanted: usize,
    /// Nodes that have one.
    pub(crate) nodes: BTreeSet<String>,
    /// Whether NVIDIA's GPU operator keeps it, by a ClusterPolicy.
    pub(crate) is_operators: bool,
}

/// An object of another system.
#[derive(Clone, Debug)]
pub(crate) struct ForeignObject {
    /// Name of the program that it belongs to.
    pub(crate) program: &'static str,
    /// Resource and name, as kubectl takes them: `apiservices/v1.example`.
    pub(crate) name: String,
    /// Service that the API server calls for it, with its namespace, and whether that exists.
    pub(crate) service: Option<(String, bool)>,
    /// Whether requests are refused if the call fails (`failurePolicy: Fail`).
    pub(crate) refuses: bool,
    /// Why the API server has no answer for it, of an APIService.
    pub(crate) unavailable: Option<String>,
}

/// Program of an APIService that leads to divvy-webhook.
pub(crate) const AGGREGATED: &str = "Divvy's aggregated API";

// === impl Reader ===

impl Reader<'_> {
    pub(super) async fn agents(&self) -> Fact<Vec<Agent>> {
        let mut agents = Vec::new();
        for daemons in self.all::<DaemonSet>().await? {
            let name = daemons.name_any();
            let namespace = daemons.namespace().unwrap_or_default();
            let is_operators = daemons.owner_references().iter().any(|owner| owner.kind == "ClusterPolicy");
            if name != DAEMON && Program::with_daemon_set(&name).is_none() {
                continue;
            }
            let selector = Selector::try_from(daemons.spec.map(|spec| spec.selector).unwrap_or_default());
            let selector = selector.map_err(|error| Refusal::Other {
                reason: "Invalid".to_owned(),
                message: format!("selector of DaemonSet {namespace}/{name}: {error}"),
            })?;
            let selected = ListParams::default().labels_from(&selector);
            let pods: Vec<PodView> = self.cluster.pods(Some(&namespace), selected).await?;
            let nodes = pods.into_iter().filter(|pod| !pod.ended).filter_map(|pod| pod.node).collect();
            let wanted = daemons.status.map_or(0, |status| status.desired_number_scheduled);
            agents.push(Agent { namespace, name, wanted: wanted.try_into().unwrap_or(0), nodes, is_operators });
        }
        Ok(agents)
    }

    pub(super) async fn foreign_objects(&self) -> Fact<Vec<ForeignObject>> {
        let mut objects = Vec::new();
        for (program, path) in
            Program::all().flat_map(|program| program.objects.iter().map(|path| (program.name, *path)))
        {
            let Some(found) = self.cluster.find_at::<Value>(path).await? else { continue };
            let of_webhook = &found["webhooks"][0];
            let services = [&found["spec"]["service"], &of_webhook["clientConfig"]["service"]];
            let service = services.into_iter().find_map(|it| Some((it["namespace"].as_str()?, it["name"].as_str()?)));
            let service = match service {
                Some((namespace, name)) => {
                    Some((format!("{namespace}/{name}"), self.has_service(namespace, name).await?))
                }
                None => None,
            };
            let name = path.splitn(5, '/').last().unwrap_or(path).to_owned();
            let unavailable = unavailable(&found);
            let is_ours = found["spec"]["service"]["name"] == WEBHOOK;
            if is_ours && unavailable.is_none() {
                continue;
            }
            let program = if is_ours { AGGREGATED } else { program };
            let refuses = of_webhook["failurePolicy"] == "Fail";
            objects.push(ForeignObject { program, name, service, refuses, unavailable });
        }
        Ok(objects)
    }

    async fn has_service(&self, namespace: &str, name: &str) -> Fact<bool> {
        let services = Api::<Service>::namespaced(self.cluster.client(), namespace);
        Ok(self.cluster.find(&services, name).await?.is_some())
    }
}

/// Why an APIService isn't available, as its condition says.
fn unavailable(object: &Value) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array()?;
    let available = conditions.iter().find(|condition| condition["type"] == "Available")?;
    let text = |field: &str| available[field].as_str().unwrap_or_default().to_owned();
    (available["status"] != "True").then(|| format!("{}: {}", text("reason"), text("message")))
}
