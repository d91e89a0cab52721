//! `kubectl divvy simulate`, on files and on a cluster.

use std::fs;
use std::path::Path;

use divvy_api::gpunode::GpuNode;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{Bench, CARD, Ended, PROGRAM, ended};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../simulate/tests/trace");

async fn simulate(directory: &Path, arguments: &str) -> Ended {
    let mut command = Command::new(PROGRAM);
    command.arg("simulate").args(arguments.split_whitespace()).env_clear().current_dir(directory).kill_on_drop(true);
    ended(command).await
}

/// A directory with a node and a pod that go together, but for these rows.
fn files(node: &str, pod: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| fs::write(directory.path().join(name), text).unwrap();
    write("nodes.csv", format!("sn,cpu_milli,memory_mib,gpu,model\n{node}\n"));
    write(
        "pods.csv",
        format!(
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n{pod}\n"
        ),
    );
    directory
}

const NODE: &str = "n-0,8000,8192,2,T4";
const POD: &str = "p-0,1000,1024,1,500,,LS,Running,0,1,0";

#[tokio::test]
async fn simulate_writes_json() {
    let home = tempfile::tempdir().unwrap();
    let files = format!("--nodes {TRACE}/nodes.csv --pods {TRACE}/pods.csv");
    let arguments = "--policy binpack --policy best-fit --runs 2 --until 60 -o json";
    let Ended { code, out, err } = simulate(home.path(), &format!("{files} {arguments}")).await;
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["settings"]["seeds"], json!([42, 43]));
    let policies: Vec<&str> =
        report["policies"].as_array().unwrap().iter().map(|policy| policy["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["binpack", "best-fit"]);
    let binpack = &report["policies"][0];
    assert_eq!(binpack["at"].as_array().unwrap().last().unwrap()["arrived_pct"], 60);
    assert!(binpack["decision_us"]["p99"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn unreadable_trace_is_named_with_line_and_column() {
    let refused = async |node: &str, pod: &str| {
        let files = files(node, pod);
        let Ended { code, out, err } = simulate(files.path(), "--nodes nodes.csv --pods pods.csv").await;
        assert_eq!((code, &*out), (Some(64), ""), "{err}");
        err
    };
    for (node, pod, expected) in [
        ("n-0,8000,8192,2,", POD, "nodes.csv:2:17: model is empty, but the node has 2 GPUs"),
        ("n-0,-8000,8192,2,T4", POD, "nodes.csv:2:5: \"-8000\" is not a whole number from 1 to 100000000"),
        ("n-0,8000,8192,2", POD, "nodes.csv:2:17: 4 fields: expected 5"),
        (NODE, "p-0,1000,1024,1,99999999999,,LS,Running,0,1,0", "pods.csv:2:17: \"99999999999\" is not a whole number"),
        (NODE, "p-0,1000,,1,500,,LS,Running,0,1,0", "pods.csv:2:10: \"\" is not a whole number from 0 to 1073741824"),
        (
            NODE,
            "p-0,1000,1024,1,500,H100,LS,Running,0,1,0",
            "pods.csv:2:21: no node has model \"H100\": expected some of T4",
        ),
        (
            NODE,
            "p-0,1000,1024,0,0,,LS,Running,0,1,0",
            "no pod asks for a GPU: expected at least one with num_gpu above 0",
        ),
    ] {
        let said = refused(node, pod).await;
        assert!(said.starts_with("error: ") && said.contains(expected), "{said}");
    }
    let files = files(NODE, POD);
    let memory = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_memory_milli\np,1,1,1,500,2000\n";
    fs::write(files.path().join("memory.csv"), memory).unwrap();
    let memory = simulate(files.path(), "--nodes nodes.csv --pods memory.csv").await;
    assert_eq!(memory.err, "error: memory.csv:2:13: \"2000\" is not a whole number from 1 to 1000\n");
    fs::write(files.path().join("other.csv"), "name,memory_mib,cpu_milli,num_gpu,gpu_milli\np,1,1,1,1000\n").unwrap();
    let other = simulate(files.path(), "--nodes nodes.csv --pods other.csv").await;
    assert_eq!(other.err, "error: other.csv:1:6: column \"memory_mib\": expected \"cpu_milli\"\n");
}

#[tokio::test]
async fn wrong_flags_are_refused() {
    let files = files(NODE, POD);
    for arguments in ["", "--policy best", "--runs 0", "-o xml", "--until -1", "--until 0"] {
        let arguments = format!("--nodes nodes.csv {arguments}");
        let arguments = if arguments.ends_with(' ') { arguments } else { format!("--pods pods.csv {arguments}") };
        let Ended { code, out, err } = simulate(files.path(), &arguments).await;
        assert_eq!((code, &*out), (Some(64), ""), "{arguments}: {err}");
    }
}

#[tokio::test]
async fn live_cluster_is_simulated_under_each_policy() {
    let bench = Bench::new().await;
    bench.server.create(&json!(GpuNode::crd())).unwrap();
    let share = json!({
        "podUid": "a", "namespace": "default", "pod": "a", "container": "main", "card": CARD, "memoryMi": 8192, "cores": 30,
        "exclusive": false,
    });
    bench.node("node-1", &[], &json!([share]));
    let pod = |name: &str, node: Option<&str>, memory: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default", "uid": name },
            "spec": { "nodeName": node, "containers": [
                { "name": "main", "image": "x", "resources": { "limits": { "nvidia.com/gpu": "1", "nvidia.com/gpumem": memory } } },
            ] },
            "status": { "phase": if node.is_some() { "Running" } else { "Pending" } },
        })
    };
    for pod in [pod("a", Some("node-1"), "8Gi"), pod("small", None, "4Gi"), pod("large", None, "20Gi")] {
        bench.server.create(&pod).unwrap();
    }
    let Ended { code, out, err } = ended(bench.command(PROGRAM, "simulate --cluster --runs 4")).await;
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    insta::assert_snapshot!("live", out);
}

#[tokio::test]
async fn what_keeps_pods_from_free_gpus_is_counted() {
    let bench = Bench::new().await;
    bench.server.create(&json!(GpuNode::crd())).unwrap();
    let taint = json!([{ "key": "dedicated", "value": "research", "effect": "NoSchedule" }]);
    for (name, cpu, memory, spec) in [
        ("roomy", "16", "64Gi", json!({})),
        ("short-of-cpu", "16", "64Gi", json!({})),
        ("short-of-memory", "16", "9Gi", json!({})),
        ("tainted", "16", "64Gi", json!({ "taints": taint })),
        ("cordoned", "16", "64Gi", json!({ "unschedulable": true })),
        ("full", "16", "64Gi", json!({})),
    ] {
        let share = json!({
            "podUid": "with-gpu", "namespace": "default", "pod": "with-gpu", "container": "main", "card": CARD,
            "memoryMi": 24576, "cores": 100, "exclusive": true,
        });
        bench.node(name, &[], &if name == "full" { json!([share]) } else { json!([]) });
        bench
            .server
            .edit("Node", "", name, |node| {
                node["spec"] = spec;
                node["status"] = json!({ "allocatable": { "cpu": cpu, "memory": memory } });
            })
            .unwrap();
    }
    let pod = |name: &str, node: &str, owner: &str, (cpu, memory): (&str, &str), gpus: u32| {
        let limits = if gpus == 0 { json!({}) } else { json!({ "nvidia.com/gpu": gpus.to_string() }) };
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default", "uid": name, "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o" },
            ] },
            "spec": { "nodeName": node, "containers": [
                { "name": "main", "image": "x", "resources": { "limits": limits, "requests": { "cpu": cpu, "memory": memory } } },
            ] },
            "status": { "phase": "Running" },
        })
    };
    for pod in [
        pod("with-gpu", "full", "ReplicaSet", ("8", "16Gi"), 1),
        pod("web", "short-of-cpu", "ReplicaSet", ("10", "1Gi"), 0),
        pod("agent", "short-of-cpu", "DaemonSet", ("2", "1Gi"), 0),
    ] {
        bench.server.create(&pod).unwrap();
    }
    let Ended { code, out, err } = ended(bench.command(PROGRAM, "simulate --cluster --runs 2 --policy binpack")).await;
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    insta::assert_snapshot!("free", out);
    let json = ended(bench.command(PROGRAM, "simulate --cluster --runs 2 --policy binpack -o json")).await;
    let outlook: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(outlook["free_gpus"][2], json!({ "reason": "cpu", "gpus": 1.0 }), "{}", json.out);
    assert_eq!(outlook["left"].as_array().map(Vec::len), Some(1), "{}", json.out);
}
