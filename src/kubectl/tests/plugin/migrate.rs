//! `kubectl divvy migrate`, and the plugin by the name of gpushare's.

use divvy_api::gpunode::GpuNode;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::{Bench, CARD, Ended, PROGRAM, ended};

fn pod(name: &str, node: &str, limits: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "x", "resources": { "limits": limits } }] },
    })
}

#[tokio::test]
async fn migrate_reads_a_cluster_and_writes_nothing() {
    let bench = Bench::new().await;
    bench.server.create(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } })).unwrap();
    bench.server.create(&pod("a", "n1", &json!({ "aliyun.com/gpu-mem": "3" }))).unwrap();
    bench.server.create(&pod("b", "n1", &json!({ "nano-gpu.io/gpu-core": "150" }))).unwrap();
    let Ended { code, out, err } = ended(bench.command(PROGRAM, "migrate")).await;
    assert_eq!(code, Some(1), "one would be refused: {out}{err}");
    assert!(out.contains("pod default/a") && out.contains("main: 1 GPU with 3Gi memory and 0 cores each"), "{out}");
    assert!(out.contains("REFUSED") && out.contains("150: a GPU has 100"), "{out}");
    let writes =
        bench.server.requests().into_iter().filter(|request| !matches!(&*request.verb, "get" | "list" | "watch"));
    assert_eq!(writes.count(), 0);
    let report: Value = serde_json::from_str(&ended(bench.command(PROGRAM, "migrate -o json")).await.out).unwrap();
    assert_eq!(report["nodes"][0]["pods"], json!({ "gpushare": 1, "nano-gpu": 1 }));
}

#[tokio::test]
async fn migrate_checks_a_file_without_a_cluster() {
    let bench = Bench::new().await;
    let file = bench.home.path().join("pod.yaml");
    std::fs::write(&file, pod("a", "", &json!({ "aliyun.com/gpu-mem": "3" })).to_string()).unwrap();
    let Ended { code, out, .. } = ended(bench.command(PROGRAM, "migrate --check pod.yaml")).await;
    assert_eq!(code, Some(0), "{out}");
    assert!(bench.server.requests().is_empty(), "nobody is asked");
    let odd = "{kind: Pod, metadata: {name: odd, annotations: {a: 50}}}";
    std::fs::write(&file, format!("{odd}\n---\n{}", pod("a", "", &json!({ "aliyun.com/gpu-mem": "3" })))).unwrap();
    let Ended { code, out, err } = ended(bench.command(PROGRAM, "migrate --check pod.yaml")).await;
    assert!(code == Some(1) && out.contains("pod default/a"), "{out}");
    assert!(err.contains("Pod odd at line 1 is left out"), "{err}");
    std::fs::write(&file, "kind: [").unwrap();
    let Ended { code, err, .. } = ended(bench.command(PROGRAM, "migrate --check pod.yaml")).await;
    assert!(code == Some(64) && err.starts_with("error: pod.yaml: "), "{err}");
    let missing = ended(bench.command(PROGRAM, "migrate --check none.yaml")).await;
    assert!(missing.code == Some(64) && missing.err.contains("No such file"), "{}", missing.err);
    let unknown = ended(bench.command(PROGRAM, "migrate --dialects [slurm]")).await;
    assert!(unknown.code == Some(64) && unknown.err.contains("slurm"), "{}", unknown.err);
}

#[tokio::test]
async fn migrate_checks_a_list_on_standard_input() {
    let bench = Bench::new().await;
    let template = json!({ "spec": pod("a", "", &json!({ "aliyun.com/gpu-mem": "3" }))["spec"] });
    let deployment = json!({ "kind": "Deployment", "metadata": { "name": "serve" }, "spec": { "replicas": 0, "template": template } });
    let cron = json!({
        "kind": "CronJob", "metadata": { "name": "nightly" }, "spec": { "jobTemplate": { "spec": { "template": template } } },
    });
    let file = bench.home.path().join("list.yaml");
    std::fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": [deployment, cron] }).to_string())
        .unwrap();
    let mut command = bench.command(PROGRAM, "migrate --check -");
    command.stdin(std::fs::File::open(&file).unwrap());
    let Ended { code, out, err } = ended(command).await;
    assert_eq!((code, &*err), (Some(0), ""));
    assert!(out.contains("deployment serve") && out.contains("cronjob nightly"), "{out}");
}

#[tokio::test]
async fn plugin_answers_to_the_name_of_gpushares() {
    let bench = Bench::new().await;
    bench.server.create(&json!(GpuNode::crd())).unwrap();
    let share = json!({
        "podUid": "u", "namespace": "default", "pod": "serve", "container": "main", "card": CARD, "memoryMi": 3072, "cores": 0,
    });
    bench.node("node-1", &[], &json!([share]));
    let link = bench.home.path().join("kubectl-inspect_gpushare");
    std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    let link = link.to_str().unwrap();
    let Ended { code, out, err } = ended(bench.command(link, "")).await;
    assert_eq!((code, &*err), (Some(0), ""));
    insta::assert_snapshot!(out);
    let details = ended(bench.command(link, "-d node-1")).await.out;
    assert!(details.contains("serve        default    3"), "{details}");
    let missing = ended(bench.command(link, "nope")).await;
    assert!(missing.code == Some(1) && missing.out.starts_with("Failed due to "), "{missing:?}");
}
