//! What is said of manifests, and of a small cluster.

use divvy_dialects::Dialect;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::read::{Objects, Template, manifests};
use super::report::Report;
use super::show::text;
use super::{all, dialects};
use crate::limits::Limit;

const MANIFESTS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve, namespace: ml}
spec:
  template:
    spec:
      schedulerName: hami-scheduler
      containers:
      - name: main
        resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 0, nvidia.com/priority: 1}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - name: train
            resources: {limits: {aliyun.com/gpu-mem: 4}}
---
apiVersion: v1
kind: Pod
metadata: {name: odd}
spec:
  containers:
  - name: main
    resources: {limits: {nano-gpu.io/gpu-core: 150}}
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  containers:
  - {name: main, resources: {limits: {cpu: 1}}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: gpus, namespace: ml}
spec: {hard: {requests.aliyun.com/gpu-mem: 20, requests.nvidia.com/gpu: 4, pods: 10}}
";

fn all_dialects() -> Vec<Dialect> {
    all().0
}

#[test]
fn manifests_are_told_what_they_become() {
    let objects = manifests(MANIFESTS).expect("valid YAML");
    insta::assert_snapshot!(text(&Report::of(&objects, &all_dialects())));
}

#[test]
fn pods_of_hami_in_our_words_need_its_dialect() {
    let steps = |pod: &str| {
        let manifest = format!("{{kind: Pod, metadata: {{name: a}}, spec: {pod}}}");
        text(&Report::of(&manifests(&manifest).expect("valid"), &all_dialects()))
    };
    let part = "{containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}}}]}";
    assert!(steps(part).contains("dialects: [hami]"), "{}", steps(part));
    let whole = "{schedulerName: hami-scheduler, containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}";
    assert!(steps(whole).contains("dialects: [hami]"), "{}", steps(whole));
    let nvidias = "{containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}";
    assert!(steps(nvidias).contains("dialects: []"), "{}", steps(nvidias));
}

#[test]
fn manifest_without_gpus_is_nobodys_concern() {
    let objects = manifests("{kind: Pod, metadata: {name: a}, spec: {containers: [{name: a}]}}").expect("valid");
    assert_eq!(
        text(&Report::of(&objects, &all_dialects())),
        "No pod requests GPUs, and no node has another system's resources.\n"
    );
    assert!(manifests("a: [").is_err());
    assert!(manifests("{kind: Pod, metadata: {name: a}, spec: {containers: 3}}").is_err());
}

fn pod(name: &str, owner: &Value, node: &str, limits: &Value) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "ml", "labels": { "pod-template-hash": "5d9c" }, "ownerReferences": [owner] },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "resources": { "limits": limits } }] },
    })
}

fn cluster() -> Objects {
    let set = |name: &str| json!({ "kind": "ReplicaSet", "name": name, "controller": true });
    let job = json!({ "kind": "Job", "name": "train", "controller": true });
    let pods = [
        pod("serve-5d9c-a", &set("serve-5d9c"), "n1", &json!({ "aliyun.com/gpu-mem": "3" })),
        pod("serve-5d9c-b", &set("serve-5d9c"), "n2", &json!({ "aliyun.com/gpu-mem": "3" })),
        pod("train-x", &job, "n1", &json!({ "nvidia.com/gpu": "1" })),
        pod(
            "other",
            &json!({ "kind": "ReplicaSet", "name": "other", "controller": true }),
            "n3",
            &json!({ "cpu": "1" }),
        ),
    ];
    let quota = json!({ "metadata": { "name": "gpus", "namespace": "ml" }, "spec": { "limits": [{ "type": "Container", "max": { "aliyun.com/gpu-mem": "8" } }] } });
    Objects {
        nodes: [
            ("n1".to_owned(), vec!["cpu".to_owned(), "aliyun.com/gpu-mem".to_owned()]),
            ("n3".to_owned(), vec!["cpu".to_owned()]),
            ("n4".to_owned(), vec!["nano-gpu/gpu-percent".to_owned()]),
        ]
        .into(),
        pods: pods.iter().map(|pod| Template::deserialize(pod).expect("a pod").found()).collect(),
        limits: Limit::read("LimitRange", &quota).into_iter().collect(),
    }
}

#[test]
fn cluster_is_shown_node_by_node() {
    insta::assert_snapshot!(text(&Report::of(&cluster(), &all_dialects())));
}

#[test]
fn report_for_programs_has_every_field() {
    let report = serde_json::to_value(Report::of(&cluster(), &all_dialects())).expect("plain values");
    let serve = &report["workloads"][0];
    assert_eq!((&serve["kind"], &serve["name"], &serve["pods"]), (&json!("Deployment"), &json!("serve"), &json!(2)));
    assert_eq!(
        (&report["version"], &report["nodes"][0]["pods"]),
        (&json!("v1"), &json!({ "gpushare": 1, "nvidia.com/gpu": 1 }))
    );
}

#[test]
fn dialects_are_given_as_in_the_configuration() {
    let given = dialects("[{name: gpushare, unit: Mi}]").expect("a list");
    let objects = manifests(MANIFESTS).expect("valid YAML");
    let report = Report::of(&objects, &given.0);
    let nightly = report.workloads.iter().find(|workload| workload.name == "nightly").expect("it is one of gpushare");
    assert_eq!(nightly.becomes, "train: 1 GPU with 4Mi memory and 0 cores each; divvy.dev/card-policy: binpack");
    assert!(dialects("[slurm]").is_err());
}
