//! A kubelet and a plugin that is registered with it, and what both implementations show of pods.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::ContainerKind::App;
use divvy_proto::podresources as pr;
use divvy_proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use divvy_testkit::pods::PodShape;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::Value;

use crate::plugin::{GPU, Script, TestPlugin, options, unix};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// What can be done to a kubelet, and where it is.
#[tonic::async_trait]
pub(crate) trait KubeletUnderTest: Send {
    /// The device plugins' directory.
    fn plugin_dir(&self) -> PathBuf;
    /// The PodResources API.
    fn pod_resources_socket(&self) -> PathBuf;
    /// Has a pod come to this node.
    async fn add(&mut self, shape: &PodShape);
    /// Has a pod deleted.
    async fn delete(&mut self, name: &str);
    /// The pods that `/pods` lists, by the names they were added with.
    async fn pods(&self) -> Vec<Pod>;
    /// The name that the kubelet gives to the pod that was added with this one.
    fn own_name(&self, name: &str) -> String {
        name.to_owned()
    }
    /// The minor version of the Kubernetes that it is of.
    fn minor_version(&self) -> u32 {
        36
    }
    /// Kills the kubelet and starts it again.
    async fn restart(&mut self, lose_checkpoint: bool);
    /// Ends it.
    async fn end(self: Box<Self>);
}

/// A kubelet and its plugin.
pub(crate) struct Bench {
    pub(crate) kubelet: Box<dyn KubeletUnderTest>,
    pub(crate) plugin: TestPlugin,
    pub(crate) script: Arc<Script>,
}

pub(crate) fn pod(name: &str, count: &str) -> PodShape {
    PodShape::new(name).with(App, "main", &[("gpu", count)])
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The states of a pod's containers, init containers first.
pub(crate) fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses).flatten())
}

pub(crate) fn is_running(pod: &Pod, container: &str) -> bool {
    let status = statuses(pod).find(|status| status.name == container);
    status.and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some())
}

/// Reason and message of a container that waits.
pub(crate) fn waits(pod: &Pod, container: &str) -> Option<(String, String)> {
    let waiting = statuses(pod).find(|status| status.name == container)?.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.clone().unwrap_or_default(), waiting.message.clone().unwrap_or_default()))
}

// === impl Bench ===

impl Bench {
    pub(crate) async fn new(kubelet: Box<dyn KubeletUnderTest>, [pre_start, preferred]: [bool; 2]) -> Self {
        let script = Script::new(options(pre_start, preferred));
        let plugin = serve(&script, &kubelet.plugin_dir()).await;
        let bench = Self { kubelet, plugin, script };
        bench.until_healthy(|ids| !ids.is_empty()).await;
        bench
    }

    /// Starts the plugin again after a restart of the kubelet, which has removed its socket.
    pub(crate) async fn plugin_returns(&mut self) {
        self.plugin = serve(&self.script, &self.kubelet.plugin_dir()).await;
        self.until_healthy(|ids| !ids.is_empty()).await;
    }

    pub(crate) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self).await {
                return found;
            }
            if Instant::now() > deadline {
                let pods = self.kubelet.pods().await;
                let shown: Vec<_> = pods.iter().map(|pod| (&pod.metadata.name, &pod.status)).collect();
                panic!("no {what}: {shown:#?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a listed pod shows what is looked for.
    pub(crate) async fn until_pod<T>(&self, name: &str, found: impl Fn(&Pod) -> Option<T>) -> T {
        self.until(name, async |this| this.find(name).await.as_ref().and_then(&found)).await
    }

    pub(crate) async fn find(&self, name: &str) -> Option<Pod> {
        self.kubelet.pods().await.into_iter().find(|pod| pod.metadata.name.as_deref() == Some(name))
    }

    pub(crate) async fn add(&mut self, shape: &PodShape) {
        self.kubelet.add(shape).await;
    }

    /// Adds a pod and waits until all that it has runs.
    pub(crate) async fn run(&mut self, shape: &PodShape) {
        self.add(shape).await;
        self.until_pod(&shape.name, |pod| {
            assert_ne!(phase(pod), "Failed", "{:?}", pod.status);
            let apps = pod.spec.as_ref()?.containers.iter();
            apps.into_iter().all(|container| is_running(pod, &container.name)).then_some(())
        })
        .await;
    }

    /// Adds a pod that must fail and returns the reason and the message.
    pub(crate) async fn rejected(&mut self, shape: &PodShape) -> (String, String) {
        self.add(shape).await;
        self.until_pod(&shape.name, |pod| {
            assert_ne!(phase(pod), "Running");
            let status = pod.status.as_ref().filter(|_| phase(pod) == "Failed")?;
            Some((status.reason.clone().unwrap_or_default(), status.message.clone().unwrap_or_default()))
        })
        .await
    }

    /// Deletes a pod and waits until it is listed no more.
    pub(crate) async fn gone(&mut self, name: &str) {
        self.kubelet.delete(name).await;
        self.until(&format!("end of {name}"), async |this| this.find(name).await.is_none().then_some(())).await;
    }

    /// IDs that a container holds by the kubelet's checkpoint.
    pub(crate) async fn held(&self, name: &str, container: &str) -> BTreeSet<String> {
        let pod = self.find(name).await.expect("the pod is listed");
        let uid = pod.metadata.uid.expect("a UID");
        let of_it = |entry: &&Value| entry["PodUID"] == *uid && entry["ContainerName"] == *container;
        let entries = self.entries();
        let ids = entries.iter().filter(of_it).filter(|entry| entry["ResourceName"] == GPU);
        let ids = ids.filter_map(|entry| entry["DeviceIDs"].as_object()).flat_map(|by_numa| by_numa.values());
        ids.filter_map(Value::as_array).flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Pods that the checkpoint has devices of, by UID.
    pub(crate) fn holders(&self) -> BTreeSet<String> {
        self.entries().iter().filter_map(|entry| entry["PodUID"].as_str()).map(str::to_owned).collect()
    }

    fn entries(&self) -> Vec<Value> {
        let file = self.kubelet.plugin_dir().join("kubelet_internal_checkpoint");
        let Ok(text) = std::fs::read(file) else { return Vec::new() };
        let file: Value = serde_json::from_slice(&text).expect("JSON");
        file["Data"]["PodDeviceEntries"].as_array().cloned().unwrap_or_default()
    }

    /// IDs that the kubelet counts as healthy.
    pub(crate) async fn healthy(&self) -> BTreeSet<String> {
        let lister = PodResourcesListerClient::new(unix(self.kubelet.pod_resources_socket()).await);
        let mut lister = lister.max_decoding_message_size(64 << 20);
        let Ok(answer) = lister.get_allocatable_resources(pr::AllocatableResourcesRequest {}).await else {
            return BTreeSet::new();
        };
        answer.into_inner().devices.into_iter().flat_map(|entry| entry.device_ids).collect()
    }

    pub(crate) async fn until_healthy(&self, wanted: impl Fn(&BTreeSet<String>) -> bool) {
        self.until("list of healthy devices", async |this| wanted(&this.healthy().await).then_some(())).await;
    }
}

/// Serves and registers, as often as it takes: a kubelet that starts removes sockets that are there too early.
async fn serve(script: &Arc<Script>, directory: &Path) -> TestPlugin {
    let plugin = TestPlugin::serve(script, directory, "gpu.sock");
    plugin.register(GPU).await.expect("the kubelet takes the plugin");
    plugin
}
