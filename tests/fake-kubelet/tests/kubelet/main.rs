//! The kubelet stand-in's habits, each seen through real sockets by a device plugin or a client.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use divvy_proto::deviceplugin as dp;
use fake_kubelet::{Admission, Kubelet, KubeletOptions, KubeletView, Phase, Timing, Workload};

use plugin::{GPU, Script, TestPlugin, options};

mod admission;
mod fleet;
mod lifecycle;
mod listing;
#[allow(dead_code, reason = "the contract uses more of it")]
mod plugin;
mod restart;

/// A kubelet in a directory of its own, and a plugin that is registered with it.
struct Bench {
    kubelet: Kubelet,
    plugin: TestPlugin,
    script: Arc<Script>,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn new(options: dp::DevicePluginOptions) -> Self {
        Self::seeded(options, 1).await
    }

    async fn seeded(options: dp::DevicePluginOptions, seed: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory for sockets");
        let mut kubelet = KubeletOptions::new(directory.path(), "node", seed);
        kubelet.timing = Timing { admit_after_boot: Duration::from_millis(50), ..Timing::default() };
        Self::with(kubelet, directory, options).await
    }

    async fn with(kubelet: KubeletOptions, directory: tempfile::TempDir, options: dp::DevicePluginOptions) -> Self {
        let kubelet = Kubelet::start(kubelet).await.expect("the kubelet starts");
        let script = Script::new(options);
        let plugin = TestPlugin::serve(&script, kubelet.plugin_dir(), "gpu.sock");
        plugin.register(GPU).await.expect("the kubelet takes the plugin");
        let bench = Self { kubelet, plugin, script, _directory: directory };
        bench.until("the first list", |view| view.healthy.get(GPU).is_some_and(|ids| !ids.is_empty())).await;
        bench
    }

    async fn until(&self, what: &str, condition: impl FnMut(&KubeletView) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(60), self.kubelet.wait_until(condition)).await;
        assert!(waited.is_ok(), "waiting for {what}: {:#?}", self.kubelet.view().pods);
    }

    /// Adds a pod and waits for its admission; returns its UID.
    async fn admit(&self, workload: Workload) -> String {
        let uid = self.kubelet.add_pod(workload.pod()).expect("a pod");
        assert_eq!(self.kubelet.admitted(&uid).await, Ok(Admission::Admitted));
        uid
    }

    /// Adds a pod that must fail and returns the reason and the message.
    async fn rejected(&self, workload: Workload) -> (String, String) {
        let uid = self.kubelet.add_pod(workload.pod()).expect("a pod");
        match self.kubelet.admitted(&uid).await {
            Ok(Admission::Rejected(refusal)) => (refusal.reason, refusal.message),
            other => panic!("not rejected but {other:?}"),
        }
    }

    async fn running(&self, uid: &str) {
        self.until("the pod to run", |view| view.pods[uid].phase == Phase::Running).await;
    }

    async fn gone(&self, uid: &str) {
        self.until("the pod to be gone", |view| !view.pods.contains_key(uid)).await;
    }

    /// IDs that a container holds by the device manager's books.
    fn held(&self, uid: &str, container: &str) -> BTreeSet<String> {
        let view = self.kubelet.view();
        view.pods[uid].container(container).expect("the container").devices.get(GPU).cloned().unwrap_or_default()
    }
}

fn gpus(count: &str) -> [(&str, &str); 1] {
    [(GPU, count)]
}

fn pod(name: &str, count: &str) -> Workload {
    Workload::new(name).app("main", &gpus(count))
}

#[tokio::test]
async fn a_pod_gets_its_devices_and_runs_with_the_plugins_answer() {
    let bench = Bench::new(options(true, true)).await;
    let uid = bench.admit(pod("a", "2")).await;
    bench.running(&uid).await;
    let held = bench.held(&uid, "main");
    assert_eq!(held.len(), 2);
    let view = bench.kubelet.view();
    let given = view.pods[&uid].containers[0].given.clone().expect("it was started");
    assert_eq!(given.envs["SLOTS"].split(',').map(str::to_owned).collect::<BTreeSet<_>>(), held);
    bench.kubelet.shutdown().await;
}
