//! `--uninstall=cluster`, with no more than the rights of `deploy/uninstall`.

use std::collections::HashMap;
use std::process::Stdio;

use fake_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::bench::{PATIENCE, binaries};

const TOKEN: &str = "of-the-job";
const USER: &str = "system:serviceaccount:divvy-system:divvy-uninstall";
const NAMESPACE: &str = "divvy-system";

/// A cluster that Divvy is installed in, and the Job's process.
struct Uninstallation {
    server: ApiServer,
    _kubeconfig: tempfile::NamedTempFile,
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

fn workload(kind: &str, name: &str) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "namespace": NAMESPACE } })
}

fn pod(name: &str, program: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "app.kubernetes.io/name": program } },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "x" }] },
    })
}

/// With amounts by everybody's names for them, and taints of others.
fn node(name: &str, annotations: &Value, taints: &Value, ready: &str) -> Value {
    let amounts = json!({ "cpu": "8", "nvidia.com/gpumem": "81920", "nvidia.com/gpucores": "100" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "annotations": annotations, "labels": { "nvidia.com/gpu.count": "1", "zone": "a" } },
        "spec": { "taints": taints },
        "status": {
            "capacity": amounts, "allocatable": amounts, "conditions": [{ "type": "Ready", "status": ready }],
        },
    })
}

fn soft(key: &str) -> Value {
    json!({ "key": key, "effect": "PreferNoSchedule" })
}

// === impl Uninstallation ===

impl Uninstallation {
    /// Starts with these objects in the cluster, and what `before` does to it.
    async fn start(objects: &[Value], before: impl FnOnce(&ApiServer)) -> Self {
        let server = ApiServer::start(&[(TOKEN, USER)]).await.unwrap();
        let manifest = include_str!("../../../../deploy/uninstall/uninstall.yaml");
        let rights = serde_saphyr::from_multiple::<Value>(manifest).unwrap();
        let rights = rights.iter().filter(|object| object["kind"].as_str().unwrap().contains("Role"));
        server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })).unwrap();
        for object in rights.chain(objects) {
            server.create(object).unwrap();
        }
        server.guard();
        before(&server);
        let mut config: Value = serde_json::from_str(&server.kubeconfig(TOKEN)).unwrap();
        config["contexts"][0]["context"]["namespace"] = NAMESPACE.into();
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(kubeconfig.path(), config.to_string()).unwrap();
        let mut command = Command::new(&binaries().await.daemon);
        command.args(["--uninstall=cluster", "--node-name=a", "--kubeconfig"]).arg(kubeconfig.path()).env_clear();
        let mut process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { server, _kubeconfig: kubeconfig, process, lines }
    }

    async fn next(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time").unwrap().expect("a line")
    }

    async fn ends(&mut self) -> bool {
        tokio::time::timeout(PATIENCE, self.process.wait()).await.expect("its end in time").unwrap().success()
    }

    /// A Node's amounts, labels, annotations and taints.
    fn left(&self, name: &str) -> [Value; 4] {
        let node = self.server.get("Node", "", name).unwrap();
        let [metadata, status] = [&node["metadata"], &node["status"]];
        assert_eq!(status["capacity"], status["allocatable"]);
        let spec = &node["spec"]["taints"];
        [&status["capacity"], &metadata["labels"], &metadata["annotations"], spec].map(Clone::clone)
    }
}

#[tokio::test]
async fn daemon_and_webhook_end_before_nodes_are_cleared() {
    let ours = json!({ "divvy.dev/generation": "7", "divvy.dev/labels": "nvidia.com/gpu.count", "team": "ml" });
    let foreign = json!({ "key": "nvidia.com/gpu", "effect": "NoSchedule" });
    let objects = [
        node("a", &ours, &json!([foreign, soft("divvy.dev/free-gpus"), soft("divvy.dev/cpu-for-gpus")]), "True"),
        // Down, and of another system.
        node("b", &ours, &json!([soft("divvy.dev/free-gpus")]), "Unknown"),
        node("c", &json!({ "hami.io/node-handshake": "Requesting" }), &json!([foreign]), "True"),
        workload("DaemonSet", "divvy-node"),
        workload("Deployment", "divvy-webhook"),
        workload("DaemonSet", "divvy-uninstall"),
        pod("divvy-node-x", "divvy-node", "a"),
        pod("divvy-webhook-x", "divvy-webhook", "a"),
        pod("divvy-uninstall-a", "divvy-uninstall", "a"),
        pod("divvy-uninstall-b", "divvy-uninstall", "b"),
    ];
    // Somebody else writes the Node at the same moment once.
    let conflict = hyper::StatusCode::CONFLICT;
    let mut job = Uninstallation::start(&objects, |server| server.fail("patch", "/nodes/a", 1, conflict)).await;
    assert_eq!(job.next().await, "waiting for the end of pods divvy-node-x, divvy-webhook-x");
    assert_eq!(job.server.list("Deployment"), Vec::<Value>::new());
    assert_eq!(job.server.list("DaemonSet").len(), 1, "its own stays");
    assert_eq!(job.left("a")[0]["nvidia.com/gpumem"], "81920", "the daemon would write them again");
    for name in ["divvy-node-x", "divvy-webhook-x"] {
        job.server.delete("Pod", NAMESPACE, name, Some(0)).unwrap();
    }
    assert_eq!(job.next().await, "waiting for DaemonSet divvy-uninstall to create its pods");
    let scheduled = json!({ "observedGeneration": 9, "desiredNumberScheduled": 2 });
    job.server.edit("DaemonSet", NAMESPACE, "divvy-uninstall", |set| set["status"] = scheduled).unwrap();
    assert_eq!(job.next().await, "waiting for pods of DaemonSet divvy-uninstall on a");
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    job.server.edit("Pod", NAMESPACE, "divvy-uninstall-a", |pod| pod["status"]["conditions"] = ready).unwrap();
    let mut said = HashMap::<String, usize>::new();
    while let Ok(Ok(Some(line))) = tokio::time::timeout(PATIENCE, job.lines.next_line()).await {
        *said.entry(line).or_default() += 1;
    }
    assert!(job.ends().await, "{said:#?}");
    assert!(said.keys().any(|line| line.starts_with("trying again: Node a: ")), "{said:#?}");
    for line in ["removed: taint divvy.dev/cpu-for-gpus of Node a", "removed: amount nvidia.com/gpumem of Node b"] {
        assert_eq!(said.get(line), Some(&1), "{said:#?}");
    }
    let cpu = json!({ "cpu": "8" });
    assert_eq!(job.left("a"), [cpu.clone(), json!({ "zone": "a" }), json!({ "team": "ml" }), json!([foreign])]);
    assert_eq!(job.left("b")[..3], [cpu, json!({ "zone": "a" }), json!({ "team": "ml" })]);
    assert_eq!(job.left("b")[3].as_array().map_or(0, Vec::len), 0);
    assert_eq!(job.left("c")[0]["nvidia.com/gpumem"], "81920", "it isn't ours");
}

#[tokio::test]
async fn pods_are_freed_of_the_gate_once_no_webhook_adds_it() {
    let waiting = |name: &str, gates: &[&str]| {
        let gates: Vec<_> = gates.iter().map(|gate| json!({ "name": gate })).collect();
        let mut pod = pod(name, "train", "");
        pod["metadata"]["namespace"] = "default".into();
        (pod["spec"]["nodeName"], pod["spec"]["schedulingGates"]) = (Value::Null, gates.into());
        pod
    };
    let mut objects: Vec<Value> = (0..50).map(|at| waiting(&format!("many-{at}"), &["divvy.dev/placement"])).collect();
    objects.push(waiting("queued", &["kueue.x-k8s.io/admission", "divvy.dev/placement"]));
    objects.push(waiting("foreign", &["kueue.x-k8s.io/admission"]));
    objects.push(pod("divvy-webhook-x", "divvy-webhook", "a"));
    let conflict = hyper::StatusCode::CONFLICT;
    let mut job = Uninstallation::start(&objects, |server| server.fail("patch", "/pods/many-7", 1, conflict)).await;
    let gates = |job: &Uninstallation, name: &str| {
        let pod = job.server.get("Pod", "default", name).unwrap();
        let gates = pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
        gates.iter().map(|gate| gate["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(job.next().await, "waiting for the end of pods divvy-webhook-x");
    assert_eq!(gates(&job, "many-0"), ["divvy.dev/placement"], "a replica would gate the next pod");
    job.server.delete("Pod", NAMESPACE, "divvy-webhook-x", Some(0)).unwrap();
    assert_eq!(job.next().await, "removed: scheduling gate divvy.dev/placement of 50 pods");
    let line = job.next().await;
    assert!(line.starts_with("trying again: pod default/many-7: "), "{line}");
    assert_eq!(job.next().await, "removed: scheduling gate divvy.dev/placement of 1 pod");
    assert!(job.ends().await);
    assert!((0..50).all(|at| gates(&job, &format!("many-{at}")).is_empty()));
    assert_eq!([gates(&job, "queued"), gates(&job, "foreign")], [["kueue.x-k8s.io/admission"]; 2]);
}

#[tokio::test]
async fn outage_ends_nothing_and_sigterm_does() {
    let mut job =
        Uninstallation::start(&[], |server| server.fail("", "/", 1, hyper::StatusCode::INTERNAL_SERVER_ERROR)).await;
    let line = job.next().await;
    assert!(line.starts_with("trying again: "), "{line}");
    assert!(job.ends().await, "there is nothing to remove");
    let held = [pod("divvy-node-x", "divvy-node", "a")];
    let mut job = Uninstallation::start(&held, |_| {}).await;
    assert_eq!(job.next().await, "waiting for the end of pods divvy-node-x");
    let pid = job.process.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert!(!job.ends().await, "it isn't done");
}
