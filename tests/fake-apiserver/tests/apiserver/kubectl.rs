//! A real kubectl, where there is one.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use divvy_api::gpunode::GpuNode;
use kube::CustomResourceExt as _;
use serde_json::json;
use tokio::io::AsyncBufReadExt as _;
use tokio::io::BufReader;
use tokio::process::Command;

use crate::{Bench, TOKEN, config_map, node, pod};

/// A kubectl with a configuration and a cache of its own.
pub(crate) struct Kubectl {
    program: PathBuf,
    home: tempfile::TempDir,
}

impl Kubectl {
    /// The one in the directory that `KUBE_BIN_DIR` names; without it the test is skipped, and says so.
    pub(crate) fn of(bench: &Bench) -> Option<Self> {
        let program = std::env::var_os("KUBE_BIN_DIR").map(|directory| Path::new(&directory).join("kubectl"));
        let Some(program) = program.filter(|program| program.exists()) else {
            println!("skipped: KUBE_BIN_DIR names no directory with a kubectl");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config"), bench.server.kubeconfig(TOKEN)).unwrap();
        Some(Self { program, home })
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments.split_whitespace()).current_dir(self.home.path()).env_clear();
        command.env("HOME", self.home.path()).env("KUBECONFIG", self.home.path().join("config"));
        command.kill_on_drop(true).stdin(Stdio::null());
        command
    }

    pub(crate) async fn output(&self, arguments: &str) -> Output {
        let output = tokio::time::timeout(Duration::from_secs(60), self.command(arguments).output()).await;
        output.unwrap_or_else(|_| panic!("kubectl {arguments} doesn't end")).expect("kubectl starts")
    }

    /// What it prints; it must succeed and warn of nothing.
    async fn run(&self, arguments: &str) -> String {
        let Output { status, stdout, stderr } = self.output(arguments).await;
        let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert!(status.success() && stderr.is_empty(), "kubectl {arguments}: {status}\n{stdout}{stderr}");
        stdout
    }

    /// What it says when it fails.
    async fn fail(&self, arguments: &str) -> String {
        let output = self.output(arguments).await;
        assert!(!output.status.success(), "kubectl {arguments} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn file(&self, name: &str, object: &serde_json::Value) {
        std::fs::write(self.home.path().join(name), object.to_string()).unwrap();
    }
}

/// The columns of a line, in which ages are no two runs the same.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[tokio::test]
async fn kubectl_creates_shows_and_deletes() {
    let bench = Bench::new().await;
    let Some(kubectl) = Kubectl::of(&bench) else { return };
    bench.server.create(&node("node-1")).unwrap();
    kubectl.file("pod.json", &pod("a"));
    assert_eq!(kubectl.run("create -f pod.json").await, "pod/a created\n");
    assert_eq!(
        kubectl.fail("create -f pod.json").await,
        "Error from server (AlreadyExists): error when creating \"pod.json\": pods \"a\" already exists\n"
    );
    let listed = kubectl.run("get pods").await;
    assert_eq!(words(listed.lines().next().unwrap()), ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(words(listed.lines().nth(1).unwrap())[..4], ["a", "0/1", "Pending", "0"]);
    let wide = kubectl.run("get po -A -o wide").await;
    assert!(wide.lines().next().unwrap().ends_with("NOMINATED NODE   READINESS GATES"), "{wide}");
    assert!(kubectl.run("get nodes").await.contains("node-1   Ready    <none>"));
    assert!(kubectl.run("get all").await.contains("pod/a"));
    assert!(kubectl.run("get pod a -o yaml").await.contains("nvidia.com/gpumem: 80k"));
    assert_eq!(kubectl.run("get pod a -o jsonpath={.status.qosClass}").await, "BestEffort");
    let described = kubectl.run("describe pod a").await;
    assert!(described.contains("nvidia.com/gpumem:  80k") && described.contains("Events:"), "{described}");
    assert_eq!(kubectl.run("cordon node-1").await, "node/node-1 cordoned\n");
    assert!(kubectl.run("get nodes").await.contains("node-1   Ready,SchedulingDisabled"));
    assert_eq!(
        kubectl.run("wait --for=jsonpath={.status.phase}=Pending pod/a --timeout=60s").await,
        "pod/a condition met\n"
    );
    bench.server.edit("Pod", "default", "a", |pod| pod["spec"]["nodeName"] = "node-1".into()).unwrap();
    assert!(kubectl.run("describe node node-1").await.contains("  default                     a "));
    assert_eq!(kubectl.fail("get pod b").await, "Error from server (NotFound): pods \"b\" not found\n");
    assert!(kubectl.fail("get gadgets").await.contains("the server doesn't have a resource type \"gadgets\""));
    // The pod is bound, so kubectl waits until the kubelet's side confirms its end.
    let (deleted, ()) = tokio::join!(kubectl.run("delete pod a"), async {
        let leaving = |pod: serde_json::Value| pod["metadata"]["deletionTimestamp"].is_string().then_some(());
        bench.until("the pod to be leaving", |view| leaving(view.get("Pod", "default", "a")?)).await;
        bench.server.delete("Pod", "default", "a", Some(0)).unwrap();
    });
    // kubectl 1.33 says no namespace.
    assert_eq!(deleted.replace(" from default namespace", ""), "pod \"a\" deleted\n");
    assert!(bench.server.list("Pod").is_empty());
    assert!(kubectl.run("api-resources").await.contains("validatingadmissionpolicybindings"));
    // `kubectl version` also warns of a kubectl that is older.
    assert!(kubectl.run("get --raw /version").await.contains("v1.36"));
}

#[tokio::test]
async fn kubectl_changes_objects_in_each_of_its_ways() {
    let bench = Bench::new().await;
    let Some(kubectl) = Kubectl::of(&bench) else { return };
    kubectl.file("map.json", &config_map("a", &json!({ "x": "1", "y": "1" })));
    assert_eq!(kubectl.run("apply -f map.json").await, "configmap/a created\n");
    kubectl.file("map.json", &config_map("a", &json!({ "x": "2" })));
    assert_eq!(kubectl.run("apply -f map.json").await, "configmap/a configured\n");
    assert_eq!(kubectl.run("apply -f map.json").await, "configmap/a unchanged\n");
    let data = || bench.server.get("ConfigMap", "default", "a").unwrap()["data"].clone();
    assert_eq!(data(), json!({ "x": "2" }));
    assert_eq!(kubectl.run("label configmap a tier=gold").await, "configmap/a labeled\n");
    assert_eq!(kubectl.run("annotate configmap a divvy.dev/x=y").await, "configmap/a annotated\n");
    assert!(kubectl.run("get configmap -l tier=gold --no-headers").await.starts_with("a "));
    assert_eq!(kubectl.run("patch configmap a -p {\"data\":{\"z\":\"3\"}}").await, "configmap/a patched\n");
    assert_eq!(
        kubectl.run("patch configmap a --type=json -p [{\"op\":\"remove\",\"path\":\"/data/x\"}]").await,
        "configmap/a patched\n"
    );
    assert_eq!(data(), json!({ "z": "3" }));
    kubectl.file("pod.json", &pod("a"));
    kubectl.run("apply -f pod.json").await;
    let mut changed = pod("a");
    changed["spec"]["containers"][0]["image"] = "app:2".into();
    kubectl.file("pod.json", &changed);
    assert_eq!(kubectl.run("apply -f pod.json").await, "pod/a configured\n");
    assert_eq!(kubectl.run("replace -f pod.json").await, "pod/a replaced\n");
    changed["spec"]["containers"][0]["command"] = json!(["sleep"]);
    kubectl.file("pod.json", &changed);
    assert!(kubectl.fail("apply -f pod.json").await.contains("pod updates may not change fields other than"));
    assert_eq!(kubectl.run("delete configmap --all").await.lines().count(), 1);
}

#[tokio::test]
async fn kubectl_applies_on_the_server_and_is_told_of_conflicts() {
    let bench = Bench::new().await;
    let Some(kubectl) = Kubectl::of(&bench) else { return };
    kubectl.file("map.json", &config_map("a", &json!({ "x": "1" })));
    assert_eq!(kubectl.run("apply --server-side -f map.json").await, "configmap/a serverside-applied\n");
    kubectl.file("map.json", &config_map("a", &json!({ "x": "2" })));
    let refused = kubectl.fail("apply --server-side --field-manager=other -f map.json").await;
    assert!(refused.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .data.x"), "{refused}");
    let forced = "apply --server-side --field-manager=other --force-conflicts -f map.json";
    assert_eq!(kubectl.run(forced).await, "configmap/a serverside-applied\n");
    assert!(kubectl.run("get configmap a -o yaml --show-managed-fields").await.contains("manager: other"));
    // From the client's way to the server's: kubectl moves the fields over by itself.
    kubectl.file("map.json", &config_map("b", &json!({ "x": "1" })));
    kubectl.run("apply -f map.json").await;
    kubectl.file("map.json", &config_map("b", &json!({ "x": "2" })));
    assert_eq!(kubectl.run("apply --server-side -f map.json").await, "configmap/b serverside-applied\n");
}

#[tokio::test]
async fn kubectl_watches_a_pod_from_its_creation_to_its_end() {
    let bench = Bench::new().await;
    let Some(kubectl) = Kubectl::of(&bench) else { return };
    bench.server.create(&pod("a")).unwrap();
    let mut watching = kubectl.command("get pods -w --no-headers").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert_eq!(words(&lines.next_line().await.unwrap().unwrap())[..3], ["a", "0/1", "Pending"]);
    bench.until("the watch", |view| view.requests().iter().find(|asked| asked.verb == "watch").map(|_| ())).await;
    bench.server.edit("Pod", "default", "a", |pod| pod["status"]["phase"] = "Running".into()).unwrap();
    assert_eq!(words(&lines.next_line().await.unwrap().unwrap())[..3], ["a", "0/1", "Running"]);
    bench.server.delete("Pod", "default", "a", None).unwrap();
    assert_eq!(words(&lines.next_line().await.unwrap().unwrap())[..3], ["a", "0/1", "Running"]);
    watching.kill().await.unwrap();
}

#[tokio::test]
async fn kubectl_applies_our_manifests_whose_roles_then_count() {
    let bench = Bench::new().await;
    let Some(kubectl) = Kubectl::of(&bench) else { return };
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/manifests");
    kubectl.run(&format!("apply -f {manifests}")).await;
    let may = async |verb: &str, resource: &str, subresource: &str| {
        let on = json!({ "verb": verb, "resource": resource, "subresource": subresource, "name": "x" });
        let question =
            json!({ "spec": { "user": "system:serviceaccount:divvy-system:divvy-node", "resourceAttributes": on } });
        bench.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &question).await.1["status"]["allowed"] == true
    };
    assert!(
        may("patch", "nodes", "status").await && !may("patch", "nodes", "").await && !may("get", "secrets", "").await
    );
}

#[tokio::test]
async fn kubectl_shows_a_custom_resource_by_its_own_columns() {
    let bench = Bench::new().await;
    let Some(kubectl) = Kubectl::of(&bench) else { return };
    kubectl.file("crd.json", &serde_json::to_value(GpuNode::crd()).unwrap());
    assert_eq!(
        kubectl.run("apply -f crd.json").await,
        "customresourcedefinition.apiextensions.k8s.io/gpunodes.divvy.dev created\n"
    );
    kubectl.run("wait --for=condition=Established crd/gpunodes.divvy.dev --timeout=60s").await;
    let summary = json!({ "cards": "8/8", "memory": "0/640Gi", "cores": "0/800", "pods": 3 });
    let object = json!({
        "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": { "name": "node-1" }, "spec": {},
    });
    kubectl.file("node.json", &object);
    assert_eq!(kubectl.run("apply -f node.json").await, "gpunode.divvy.dev/node-1 created\n");
    let status = json!({ "status": { "summary": summary, "conditions": [{ "type": "Ready", "status": "True" }] } });
    kubectl.run(&format!("patch gpunode node-1 --subresource=status --type=merge -p {status}")).await;
    let shown = kubectl.run("get gpunodes").await;
    let mut lines = shown.lines();
    assert_eq!(words(lines.next().unwrap()), ["NAME", "READY", "GPUS", "MEMORY", "CORES", "PODS", "TIER", "AGE"]);
    assert_eq!(words(lines.next().unwrap())[..6], ["node-1", "True", "8/8", "0/640Gi", "0/800", "3"]);
    assert!(kubectl.run("get gn -o yaml").await.contains("cards: 8/8"));
    kubectl.run("delete crd gpunodes.divvy.dev").await;
    assert!(kubectl.fail("get gpunodes").await.contains("could not find the requested resource"));
}
