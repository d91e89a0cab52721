use std::path::Path;

use divvy_api::{Cores, Memory, Share, Terms};
use divvy_node_core::ledger::Ledger;

use super::*;
use crate::config::{KeySet as _, Keys};
use crate::pod_list;
use divvy_node_core::pod::PodRef;
use divvy_node_core::ports::AllocatedContainer;

/// Nonces of the container `main` of pod `ns/train`, and of one that is in no pod.
const RUNNING: &str = "a1000000000000000000000000000000";
const ENDED: &str = "b2000000000000000000000000000000";

/// A node whose daemon has ended, without a cluster. The container `main` of pod `ns/train` was given a card.
struct Left {
    directory: tempfile::TempDir,
    config: Config,
}

impl Left {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).into_os_string();
        let env = |name: &str| match name {
            "NODE_NAME" => Some("n1".into()),
            "STATE_DIR" => Some(path("state")),
            "RUN_DIR" => Some(path("run")),
            "CDI_DIR" => Some(path("cdi")),
            "KUBELET_ROOT_DIR" => Some(path("kubelet")),
            _ => None,
        };
        let config = Keys::from_env(env).and_then(Keys::into_config).expect("valid");
        let files = [
            "kubelet/device-plugins/divvy-gpu.sock",
            "kubelet/device-plugins/other.sock",
            "cdi/divvy.dev-gpu.json",
            "cdi/other.json",
        ];
        let own = [
            "state/lib/ld.so.preload",
            "run/clocks/GPU-a",
            "state/journal",
            "state/journal.damaged.1",
            "state/journals",
        ];
        for file in files.into_iter().chain(own) {
            write(&directory.path().join(file));
        }
        let share = Share { memory: Memory::mib(1024), cores: Cores::new(10), ..Share::default() };
        let container = AllocatedContainer {
            pod: &PodRef { uid: "u".to_owned(), namespace: "ns".to_owned(), name: "train".to_owned() },
            name: "main",
            nonce: RUNNING.parse().expect("a nonce"),
            shares: vec![("GPU-a".parse().expect("a UUID"), share)],
            terms: Terms::default(),
        };
        Containers::new((&config).into(), Box::new(Accounting)).write_limits(&container).expect("written");
        write(&directory.path().join(format!("run/containers/{ENDED}/limits/limits")));
        Self { directory, config }
    }

    async fn remove(&self, pods: anyhow::Result<Vec<Arc<Pod>>>) -> (bool, String) {
        let mut lines = Vec::new();
        let result = remove(&self.config, pods, |line| lines.push(line)).await;
        (result.is_ok(), self.said(&lines))
    }

    fn said(&self, lines: &[String]) -> String {
        lines.join("\n").replace(&self.directory.path().display().to_string(), "DIR")
    }

    fn there(&self, file: &str) -> bool {
        self.directory.path().join(file).exists()
    }
}

fn write(path: &Path) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, "").expect("written");
}

fn running() -> Vec<Arc<Pod>> {
    let list = r#"{"kind":"PodList","items":[{"metadata":{"uid":"u","namespace":"ns","name":"train"},
        "spec":{"containers":[{"name":"main"}]},"status":{"phase":"Running"}}]}"#;
    pod_list::decode(list.as_bytes()).expect("a list")
}

#[tokio::test]
async fn uninstall_removes_divvys_files_and_is_idempotent() {
    let left = Left::new();
    let (complete, said) = left.remove(Ok(Vec::new())).await;
    assert!(complete);
    insta::assert_snapshot!(said, @r"
    left: the Node, as there is neither a cluster nor a kubeconfig
    removed: DIR/kubelet/device-plugins/divvy-gpu.sock
    removed: limits and region a1000000000000000000000000000000
    removed: limits and region b2000000000000000000000000000000
    removed: CDI specification in DIR/cdi
    removed: DIR/state/lib
    removed: DIR/run/clocks
    removed: DIR/state/journal
    removed: DIR/state/journal.damaged.1
    removed: DIR/run/containers
    removed: DIR/run/dead
    removed: DIR/run
    ");
    for file in ["kubelet/device-plugins/other.sock", "cdi/other.json", "state/journals"] {
        assert!(left.there(file), "{file} isn't ours");
    }
    let directories = [RUNNING, ENDED].map(|nonce| format!("run/containers/{nonce}"));
    for file in ["kubelet/device-plugins/divvy-gpu.sock", "cdi/divvy.dev-gpu.json"]
        .into_iter()
        .chain(directories.iter().map(|it| &**it))
    {
        assert!(!left.there(file), "{file}");
    }
    let (complete, said) = left.remove(Ok(Vec::new())).await;
    assert!(complete);
    assert_eq!(said.lines().filter(|line| line.starts_with("removed")).count(), 0, "{said}");
}

#[tokio::test]
async fn uninstall_keeps_files_of_running_pods() {
    let left = Left::new();
    let (complete, said) = left.remove(Ok(running())).await;
    assert!(complete);
    insta::assert_snapshot!(said, @r"
    left: the Node, as there is neither a cluster nor a kubeconfig
    removed: DIR/kubelet/device-plugins/divvy-gpu.sock
    removed: limits and region b2000000000000000000000000000000
    left: CDI specification, limits and regions, which these pods use: ns/train
    ");
    assert!(left.there("cdi/divvy.dev-gpu.json") && left.there(&format!("run/containers/{RUNNING}/limits/limits")));
    assert!(["state/lib/ld.so.preload", "run/clocks/GPU-a", "state/journal"].iter().all(|file| left.there(file)));
    assert!(!left.there(&format!("run/containers/{ENDED}")));
}

#[tokio::test]
async fn without_the_kubelet_every_pod_may_be_running() {
    let left = Left::new();
    let (complete, said) = left.remove(Err(anyhow::anyhow!("no answer"))).await;
    assert!(!complete);
    insta::assert_snapshot!(said, @r"
    left: the Node, as there is neither a cluster nor a kubeconfig
    removed: DIR/kubelet/device-plugins/divvy-gpu.sock
    left: files: listing running pods: no answer
    ");
    assert!(left.there("cdi/divvy.dev-gpu.json") && left.there(&format!("run/containers/{ENDED}")));
}

#[tokio::test]
async fn nothing_is_removed_beside_a_running_daemon() {
    let left = Left::new();
    let _daemon = Ledger::open(&left.config.state_dir).expect("books");
    let mut lines = Vec::new();
    assert!(uninstall_from_node(&left.config, |line| lines.push(line)).await.is_err());
    insta::assert_snapshot!(left.said(&lines), @"nothing is removed: DIR/state: another process keeps its ledger here: stop it first");
    assert!(left.there("kubelet/device-plugins/divvy-gpu.sock"));
}
