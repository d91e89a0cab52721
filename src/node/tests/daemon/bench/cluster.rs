//! The API server beside a node, and what it shows of it.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use divvy_api::gpunode::{GpuNode, GpuNodeStatus};
use divvy_api::quantity::parse_count;
use fake_apiserver::{ApiServer, View};
use fake_kubelet::{Membership, Workload};
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::{Bench, PATIENCE, Stderr};

/// The daemon's token at its start.
pub(crate) const TOKEN: &str = "of-the-daemon";
const USER: &str = "system:serviceaccount:divvy-system:divvy-node";

pub(crate) struct Cluster {
    pub(crate) server: Arc<ApiServer>,
    _membership: Membership,
}

// === impl Cluster ===

impl Cluster {
    /// Creates a pod, bound to its node; returns its UID.
    pub(crate) fn create(&self, workload: Workload) -> String {
        let made = self.server.create(&json!(workload.pod())).unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }
}

// === impl Bench ===

impl Bench {
    /// A node whose daemon serves and publishes.
    pub(crate) async fn publishing() -> Self {
        let mut bench = Self::joined().await;
        bench.define();
        bench.start(Stderr::Log).await;
        bench.ready().await;
        bench.until_told("its GpuNode", |node| !node.cards.is_empty()).await;
        bench
    }

    /// A node of a cluster that has never heard of a `GpuNode`. Its daemon hasn't been started.
    pub(crate) async fn joined() -> Self {
        let mut bench = Self::stopped(json!({})).await;
        let server = Arc::new(ApiServer::start(&[(TOKEN, USER)]).await.unwrap());
        let mut config: Value = serde_json::from_str(&server.kubeconfig(TOKEN)).unwrap();
        config["users"][0]["user"] = json!({ "tokenFile": bench.path("token") });
        fs::write(bench.path("token"), TOKEN).unwrap();
        fs::write(bench.path("kubeconfig"), config.to_string()).unwrap();
        bench.set_key("kubeconfig", bench.path("kubeconfig").to_str().unwrap().to_owned());
        let membership = bench.kubelet.join(&server).unwrap();
        bench.cluster = Some(Cluster { server, _membership: membership });
        bench
    }

    pub(crate) fn server(&self) -> &ApiServer {
        &self.cluster().server
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("it has joined")
    }

    /// Creates the definition of `GpuNode`.
    pub(crate) fn define(&self) {
        self.server().create(&json!(GpuNode::crd())).unwrap();
    }

    /// Lets in who presents this token, and nobody else of the daemon's; it reads its file once a minute.
    pub(crate) fn rotate_token(&self, token: &str) {
        self.server().refuse(TOKEN);
        fs::write(self.path("token"), token).unwrap();
        self.server().allow(token, USER);
    }

    // --- waiting ---

    /// Waits until the API server shows something.
    pub(crate) async fn until_shown<T>(&self, what: &str, look: impl FnMut(&View<'_>) -> Option<T>) -> T {
        self.until_shown_within(PATIENCE, what, look).await
    }

    pub(crate) async fn until_shown_within<T>(
        &self,
        patience: Duration,
        what: &str,
        look: impl FnMut(&View<'_>) -> Option<T>,
    ) -> T {
        let found = tokio::time::timeout(patience, self.server().wait_for(look)).await;
        found.unwrap_or_else(|_| panic!("waiting for {what}: {:#?}\n{}", self.shown(), self.log()))
    }

    /// Waits until the `GpuNode` says so.
    pub(crate) async fn until_told(&self, what: &str, mut says: impl FnMut(&GpuNodeStatus) -> bool) -> GpuNodeStatus {
        self.until_shown(what, |view| status(view).filter(|status| says(status))).await
    }

    /// Waits until the Node offers these amounts: MiB, percent of memory, cores.
    pub(crate) async fn until_offered(&self, expected: [u64; 3]) {
        self.until_shown(&format!("amounts of {expected:?}"), |view| (amounts(view) == Some(expected)).then_some(()))
            .await;
    }

    /// Waits until the pod is annotated; returns what with.
    pub(crate) async fn until_annotated(&self, uid: &str) -> Value {
        let text = self.until_shown("the annotation", |view| annotation(view, uid)).await;
        serde_json::from_str(&text).unwrap()
    }

    fn shown(&self) -> [Option<Value>; 2] {
        ["Node", "GpuNode"].map(|kind| {
            let mut object = self.server().get(kind, "", "node")?;
            object["metadata"]["managedFields"].take();
            Some(object)
        })
    }

    /// Revision of the ledger, as the daemon's own page says.
    pub(crate) async fn revision(&self) -> u64 {
        let (_, metrics) = self.page("/metrics").await.expect("it answers");
        let line = metrics.lines().find(|line| line.starts_with("divvy_ledger_revision")).expect("a gauge");
        let (_, value) = line.rsplit_once(' ').expect("a value");
        value.trim_end_matches(".0").parse().unwrap()
    }
}

/// The `GpuNode`'s status.
pub(crate) fn status(view: &View<'_>) -> Option<GpuNodeStatus> {
    let object: GpuNode = serde_json::from_value(view.get("GpuNode", "", "node")?).ok()?;
    object.status
}

/// MiB, percent of memory and cores that the Node offers; `None` while one is missing or the kubelet has yet to follow.
pub(crate) fn amounts(view: &View<'_>) -> Option<[u64; 3]> {
    let node = view.get("Node", "", "node")?;
    let amount = |name: &str| {
        let [capacity, allocatable] =
            ["capacity", "allocatable"].map(|of| parse_count(node["status"][of][name].as_str()?).ok());
        capacity.filter(|_| capacity == allocatable)
    };
    let [memory, percent, cores] =
        ["nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"].map(amount);
    Some([memory?, percent?, cores?])
}

/// Text of the `cards` annotation of the pod with this UID.
pub(crate) fn annotation(view: &View<'_>, uid: &str) -> Option<String> {
    let pod = view.list("Pod").into_iter().find(|pod| pod["metadata"]["uid"] == uid)?;
    pod["metadata"]["annotations"]["divvy.dev/cards"].as_str().map(str::to_owned)
}

/// Events with this reason: about whom, and the note.
pub(crate) fn events(view: &View<'_>, reason: &str) -> Vec<(String, String)> {
    let events = view.list("Event").into_iter().filter(|event| event["reason"] == reason);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events.map(|event| (text(&event["involvedObject"]["name"]), text(&event["message"]))).collect()
}
