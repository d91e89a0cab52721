//! Which pods a question is about, from the API server: those of a selector, of a name, or of a workload.

use divvy_runtime::api_server::pages::Pages;
use divvy_runtime::list::Each;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Deserialize;

/// A kind whose pods are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// `deployments.apps`.
    Deployment,
    /// `replicasets.apps`.
    ReplicaSet,
    /// `statefulsets.apps`.
    StatefulSet,
    /// `jobs.batch`.
    Job,
}

/// Pods of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The one of this name.
    Name(String),
    /// Those with labels that this selector accepts; all, if it is empty.
    Labels(String),
}

/// A pod as far as it is read.
#[derive(Debug, Deserialize)]
struct Listed {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    uid: String,
}

// === impl Workload ===

impl Workload {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::Job];

    /// Resource with its group, as paths name it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployments.apps",
            Self::ReplicaSet => "replicasets.apps",
            Self::StatefulSet => "statefulsets.apps",
            Self::Job => "jobs.batch",
        }
    }

    /// `kind` and `apiVersion` of an object.
    pub fn identity(self) -> [&'static str; 2] {
        match self {
            Self::Deployment => ["Deployment", "apps/v1"],
            Self::ReplicaSet => ["ReplicaSet", "apps/v1"],
            Self::StatefulSet => ["StatefulSet", "apps/v1"],
            Self::Job => ["Job", "batch/v1"],
        }
    }

    /// The pods of the workload of this name; none if its selector isn't known yet. A Job's have a label that its controller
    /// gives them, so no Job has to be read; of the others the subresource `scale` is, without their pod templates.
    pub async fn pods(self, client: Client, namespace: &str, name: &str) -> kube::Result<Option<Selection>> {
        let scale = match self {
            Self::Deployment => Api::<Deployment>::namespaced(client, namespace).get_scale(name).await,
            Self::ReplicaSet => Api::<ReplicaSet>::namespaced(client, namespace).get_scale(name).await,
            Self::StatefulSet => Api::<StatefulSet>::namespaced(client, namespace).get_scale(name).await,
            Self::Job => return Ok(Some(Selection::Labels(format!("batch.kubernetes.io/job-name={name}")))),
        };
        // An empty selector would be that of all pods.
        let selector = scale?.status.and_then(|status| status.selector).filter(|selector| !selector.is_empty());
        Ok(selector.map(Selection::Labels))
    }
}

// === impl Selection ===

impl Selection {
    /// Passes name and UID of each pod to `take`. Of the list, however long, one pod's metadata is in memory.
    pub async fn each(
        self,
        client: &Client,
        namespace: &str,
        mut take: impl FnMut(String, String),
    ) -> kube::Result<()> {
        let selected = match self {
            Self::Name(name) => ListParams::default().fields(&format!("metadata.name={name}")),
            Self::Labels(labels) => ListParams::default().labels(&labels),
        };
        let mut pages = Pages::of_metadata(&format!("/api/v1/namespaces/{namespace}/pods"), selected);
        loop {
            let each = Each::new(|Listed { metadata: Metadata { name, uid } }: Listed| take(name, uid));
            pages.read(client, each).await?;
            if pages.is_at_start() {
                return Ok(());
            }
        }
    }
}
