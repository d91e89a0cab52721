//! What is said of manifests, and of a small cluster.

use divvy_api::ResourceNames;
use divvy_index::demand::SchedulingConfig;
use divvy_systems::Dialect;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::dialects;
use super::read::{self, MigrateInput, Template};
use super::report::MigrateReport;
use super::show::text;
use crate::admin::limits::Limit;
use crate::view::inspect::NodeView;

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
    Dialect::defaults().collect()
}

/// Objects of manifests that are all read.
fn manifests(text: &str) -> MigrateInput {
    let mut remarks = Vec::new();
    let objects = read::manifests(text, &mut remarks).expect("valid YAML");
    assert_eq!(remarks, [""; 0], "{text}");
    objects
}

/// Workloads of a manifest, each with what becomes of it.
fn told(manifest: &str) -> Vec<(String, String)> {
    let workloads = report_on(&manifests(manifest), &all_dialects()).workloads;
    workloads.into_iter().map(|of| (of.system, of.refused.unwrap_or(of.becomes))).collect()
}

fn report_on(objects: &MigrateInput, dialects: &[Dialect]) -> MigrateReport {
    MigrateReport::new(objects, dialects, &SchedulingConfig::default())
}

#[test]
fn manifests_are_told_what_they_become() {
    let objects = manifests(MANIFESTS);
    insta::assert_snapshot!(text(&report_on(&objects, &all_dialects())));
}

#[test]
fn pods_of_hami_in_our_words_need_its_dialect() {
    let steps = |pod: &str| {
        let manifest = format!("{{kind: Pod, metadata: {{name: a}}, spec: {pod}}}");
        text(&report_on(&manifests(&manifest), &all_dialects()))
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
    let objects = manifests("{kind: Pod, metadata: {name: a}, spec: {containers: [{name: a}]}}");
    assert_eq!(
        text(&report_on(&objects, &all_dialects())),
        "No pod requests GPUs, and no node has another system's resources.\n"
    );
}

#[test]
fn object_that_cannot_be_read_does_not_hide_the_others() {
    let good = "{kind: Pod, metadata: {name: a}, spec: {containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}}";
    let bad = "{kind: Pod, metadata: {name: b, annotations: {x: 50}}}";
    let worse = "{kind: Pod, metadata: {name: c}, spec: {containers: 3}}";
    let mut remarks = Vec::new();
    let objects = read::manifests(&format!("---\n{good}\n---\n{bad}\n---\n{worse}\n---\n{good}"), &mut remarks);
    assert_eq!(objects.expect("valid YAML").pods.len(), 2);
    insta::assert_snapshot!(remarks.join("\n"));
    assert!(read::manifests("a: [", &mut remarks).is_err());
}

#[test]
fn null_is_absent() {
    let pod = |metadata: &str, spec: &str, container: &str| {
        told(&format!("{{kind: Pod, metadata: {metadata}, spec: {{{spec} containers: [{{{container}}}]}}}}"))
    };
    let whole = vec![("nvidia.com/gpu".to_owned(), "a: 1 whole GPU".to_owned())];
    let gpu = "name: a, resources: {requests: , limits: {nvidia.com/gpu: 1}}, env: ";
    assert_eq!(pod("", "initContainers: ,", gpu), whole);
    assert_eq!(pod("{annotations: , labels: , ownerReferences: , name: }", "schedulerName: ,", gpu), whole);
    for nothing in ["name: a, resources: ", "name: a, resources: {limits: }", "name: "] {
        assert_eq!(pod("{name: a}", "", nothing), [], "{nothing}");
    }
    assert_eq!(pod("", "", "name: a, resources: {limits: {nvidia.com/gpu: }}")[0].1, "no GPU");
    assert!(pod("{annotations: {gpu-fraction: }}", "", "env: ")[0].1.contains("gpu-fraction"));
    assert_eq!(told("{kind: Pod, spec: }"), []);
}

#[test]
fn workload_with_several_templates_has_a_row_for_each() {
    let task = |amount: u32| {
        format!(
            "{{template: {{spec: {{containers: [{{name: a, resources: {{limits: {{nano-gpu.io/gpu-core: {amount}}}}}}}]}}}}}}"
        )
    };
    let job =
        |tasks: &str| format!("{{kind: Job, metadata: {{name: train, namespace: ml}}, spec: {{tasks: [{tasks}]}}}}");
    let several = job(&format!("{}, {{template: {{spec: {{containers: [{{name: a}}]}}}}}}, {}", task(50), task(150)));
    insta::assert_snapshot!(text(&report_on(&manifests(&several), &all_dialects())));
    let one = text(&report_on(&manifests(&job(&task(50))), &all_dialects()));
    assert!(one.contains("job ml/train   0"), "{one}");
}

#[test]
fn instance_is_no_whole_gpu() {
    let pod = |limits: &str| {
        told(&format!("{{kind: Pod, spec: {{containers: [{{name: a, resources: {{limits: {{{limits}}}}}}}]}}}}"))
    };
    let [(system, becomes)] = &*pod("nvidia.com/mig-1g.5gb: 1") else { panic!("one") };
    assert_eq!((&**system, &**becomes), ("nvidia.com/gpu", "a: 1 whole MIG instance 1g.5gb"));
    assert_eq!(pod("nvidia.com/mig-1g.5gb: 2")[0].1, "a: 2 whole MIG instances 1g.5gb");
    let (system, becomes) = &pod("nvidia.com/mig-1g.5gb: 1, nvidia.com/gpumem: 100")[0];
    assert_eq!((&**system, &**becomes), ("hami", "a: 1 GPU with 100Mi memory and 0 cores each, MIG profile 1g.5gb"));
}

#[test]
fn pod_that_the_webhook_never_sees_is_not_told() {
    let pod = |annotations: &str, resources: &str| {
        told(&format!(
            "{{kind: Pod, metadata: {{annotations: {{{annotations}}}}}, \
             spec: {{containers: [{{name: a, resources: {{{resources}}}}}]}}}}"
        ))
    };
    let metax = "limits: {metax-tech.com/gpu: 1}";
    assert_eq!(pod("hami.io/node-scheduler-policy: binpack", metax), []);
    assert_eq!(pod("nvidia.com/gpu.model: A100", ""), []);
    assert_eq!(pod("nvidia.com/gpu.model: A100", "limits: {nvidia.com/gpu: 1}")[0].0, "gpu-model");
    assert_eq!(pod("gpu-fraction: '0.5'", "")[0].0, "kai");
    assert_eq!(pod("nvidia.cdi.k8s.io/container.a: management.nvidia.com/gpu=all", ""), []);
}

#[test]
fn annotation_of_a_container_is_told() {
    let key = "nvidia.com/container.a.gpu-memory.request";
    let pod = format!("{{kind: Pod, metadata: {{annotations: {{{key}: 1Gi}}}}, spec: {{containers: [{{name: a}}]}}}}");
    let [workload] = &*report_on(&manifests(&pod), &all_dialects()).workloads else { panic!("one") };
    assert_eq!((&*workload.system, &workload.written), ("kai", &format!("{key}: 1Gi")));
    assert_eq!(workload.becomes, "a: 1 GPU with 1Gi memory and 0 cores each");
}

#[test]
fn request_without_a_limit_is_refused() {
    let objects = manifests("{kind: Pod, spec: {containers: [{name: a, resources: {requests: {nvidia.com/gpu: 1}}}]}}");
    for dialects in [all_dialects(), Vec::new()] {
        let [workload] = &*report_on(&objects, &dialects).workloads else { panic!("one") };
        let why = workload.refused.as_deref().expect("it is refused");
        assert!(why.starts_with("spec.containers[0].resources.requests[nvidia.com/gpu]: 1"), "{why}");
        assert!(why.ends_with("without a limit: set the limit"), "{why}");
        assert_eq!(workload.written, "a: nvidia.com/gpu 1");
    }
}

#[test]
fn shared_annotation_is_of_the_system_with_the_resource() {
    let pod = |annotation: &str, resource: &str| {
        let system = &told(&format!(
            "{{kind: Pod, metadata: {{annotations: {{{annotation}}}}}, \
             spec: {{containers: [{{name: a, resources: {{limits: {{{resource}: 1}}}}}}]}}}}"
        ))[0];
        system.0.clone()
    };
    assert_eq!(pod("nvidia.com/use-gputype: A100", "volcano.sh/vgpu-number"), "volcano");
    assert_eq!(pod("nvidia.com/use-gputype: A100", "nvidia.com/gpu"), "hami");
}

fn pod(name: &str, owner: &Value, node: &str, limits: &Value) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "ml", "labels": { "pod-template-hash": "5d9c" }, "ownerReferences": [owner] },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "resources": { "limits": limits } }] },
    })
}

fn node(name: &str, capacity: &Value) -> NodeView {
    let node = json!({ "metadata": { "name": name }, "status": { "capacity": capacity } });
    serde_json::from_value(node).expect("a Node")
}

fn cluster() -> MigrateInput {
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
    MigrateInput {
        nodes: vec![
            node("n1", &json!({ "cpu": "64", "aliyun.com/gpu-mem": "160", "aliyun.com/gpu-count": "2" })),
            node("n3", &json!({ "cpu": "64" })),
            node("n4", &json!({ "nano-gpu/gpu-percent": "100" })),
            node("n5", &json!({ "nvidia.com/gpu": "8" })),
        ],
        pods: pods.iter().map(|pod| Template::deserialize(pod).expect("a pod").found()).collect(),
        limits: Limit::read("LimitRange", &quota).into_iter().collect(),
    }
}

#[test]
fn cluster_is_shown_node_by_node() {
    insta::assert_snapshot!(text(&report_on(&cluster(), &all_dialects())));
}

#[test]
fn idle_gpus_alone_are_no_migration() {
    let nodes = vec![node("n5", &json!({ "nvidia.com/gpu": "8" }))];
    let report = report_on(&MigrateInput { nodes, ..MigrateInput::default() }, &all_dialects());
    assert!(report.nodes.is_empty() && report.steps.is_empty(), "{report:?}");
}

#[test]
fn report_for_programs_has_every_field() {
    let report = serde_json::to_value(report_on(&cluster(), &all_dialects())).expect("plain values");
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
    let objects = manifests(MANIFESTS);
    let report = report_on(&objects, &given.0);
    let nightly = report.workloads.iter().find(|workload| workload.name == "nightly").expect("it is one of gpushare");
    assert_eq!(nightly.becomes, "train: 1 GPU with 4Mi memory and 0 cores each; divvy.dev/card-policy: binpack");
    assert!(dialects("[slurm]").is_err());
}

#[test]
fn amounts_are_told_in_the_resources_of_the_installation() {
    let names = ResourceNames { memory: "example.com/gpu-memory".parse().expect("a name"), ..ResourceNames::default() };
    let config = SchedulingConfig { names, ..SchedulingConfig::default() };
    let report = MigrateReport::new(&manifests(MANIFESTS), &all_dialects(), &config);
    let says = text(&report);
    let four = "nvidia.com/gpu, example.com/gpu-memory, nvidia.com/gpumem-percentage and nvidia.com/gpucores";
    assert!(says.contains(&format!("in requests of {four}")), "{says}");
    // Nobody's resource here.
    let serve = report.workloads.iter().find(|workload| workload.name == "serve").expect("it is one of HAMi");
    assert!(!serve.written.contains("gpumem"), "{}", serve.written);
}

#[test]
fn dialects_of_the_steps_have_their_settings() {
    let step = |given: &str| {
        let given = dialects(given).expect("a list");
        let says = text(&report_on(&manifests(MANIFESTS), &given.0));
        let (_, rest) = says.split_once("dialects: ").expect("a step");
        let list = &rest[..=rest.find(']').expect("a list")];
        assert_eq!(dialects(list).expect(list).0, given.0, "{says}");
        list.to_owned()
    };
    assert_eq!(step("[{name: gpushare, unit: Mi}, hami]"), "[{name: gpushare, unit: Mi}, hami]");
    assert_eq!(step("[gpushare, {name: hami, compute: cap}]"), "[gpushare, {name: hami, compute: cap}]");
    let replicas = "{kind: Pod, spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu.shared: 1}}}]}}";
    let given = dialects("[{name: time-slicing, replicas: 4}]").expect("a list").0;
    let says = text(&report_on(&manifests(replicas), &given));
    assert!(says.contains("dialects: [{name: time-slicing, replicas: 4}]\n"), "{says}");
}

fn limit(kind: &str, spec: &Value) -> Limit {
    Limit::read(kind, &json!({ "metadata": { "name": "gpus", "namespace": "ml" }, "spec": spec })).expect("a limit")
}

/// A workload that writes this, with what limits its namespace.
fn limited(resources: &str, limits: Vec<Limit>) -> MigrateReport {
    let pod = format!(
        "{{kind: Pod, metadata: {{name: a, namespace: ml}}, spec: {{containers: [{{name: a, resources: {{limits: {{{resources}}}}}}}]}}}}"
    );
    report_on(&MigrateInput { limits, ..manifests(&pod) }, &all_dialects())
}

#[test]
fn quota_that_hami_counts_by_itself_stops_matching() {
    let quota =
        || limit("ResourceQuota", &json!({ "hard": { "limits.nvidia.com/gpumem": 1, "limits.memory": "1Gi" } }));
    let report = limited("nvidia.com/gpu: 1, nvidia.com/gpumem: 3000", vec![quota()]);
    let [lost] = &*report.limits else { panic!("one: {report:?}") };
    assert_eq!(lost.resources, ["limits.nvidia.com/gpumem"]);
    assert!(report.new_limits.is_empty(), "{report:?}");
    for other in ["nvidia.com/gpu: 1", "aliyun.com/gpu-mem: 3"] {
        let report = limited(other, vec![quota()]);
        assert!(report.limits.is_empty() && report.new_limits.is_empty(), "{other}: {report:?}");
    }
}

#[test]
fn quota_of_our_resources_starts_counting() {
    let limits = || {
        let quota = json!({ "hard": { "requests.nvidia.com/gpu": 0, "requests.nvidia.com/gpumem-percentage": 0 } });
        let range = json!({ "limits": [{ "type": "Container", "max": { "nvidia.com/gpumem": 2048 } }] });
        vec![limit("ResourceQuota", &quota), limit("LimitRange", &range)]
    };
    let report = limited("aliyun.com/gpu-mem: 3", limits());
    insta::assert_snapshot!(text(&report));
    let report = serde_json::to_value(report).expect("plain values");
    let quota = json!({ "kind": "ResourceQuota", "namespace": "ml", "name": "gpus", "resources": ["nvidia.com/gpu"] });
    assert_eq!(report["newLimits"][0], quota);
    let counted = |resources: &str| limited(resources, limits()).new_limits.len();
    assert_eq!(counted("nvidia.com/gpu: 1, nvidia.com/gpumem: 3000"), 0, "as it does already");
    let elsewhere =
        MigrateInput { limits: limits(), ..manifests(&MANIFESTS.replace("nightly", "nightly, namespace: b")) };
    assert!(report_on(&elsewhere, &all_dialects()).new_limits.is_empty(), "in another namespace");
}

#[test]
fn replicas_without_their_number_are_warned_of() {
    let replica = json!({ "nvidia.com/gpu.shared": "4" });
    let owner = json!({ "kind": "Job", "name": "train", "controller": true });
    let pod = Template::deserialize(pod("train-x", &owner, "n1", &replica)).expect("a pod").found();
    let objects = MigrateInput { nodes: vec![node("n1", &replica)], pods: vec![pod], limits: Vec::new() };
    insta::assert_snapshot!(text(&report_on(&objects, &all_dialects())));
    let given = dialects("[{name: time-slicing, replicas: 4}]").expect("a list").0;
    assert_eq!(report_on(&objects, &given).warnings, [""; 0]);
    let pod =
        "{kind: Pod, metadata: {name: a}, spec: {containers: [{resources: {limits: {nvidia.com/gpu.shared: 1}}}]}}";
    assert!(text(&report_on(&manifests(pod), &all_dialects())).contains("(workloads pod a) is left out"));
    let nodes = vec![node("n1", &json!({ "nvidia.com/gpu.shared": "0" }))];
    assert_eq!(
        report_on(&MigrateInput { nodes, ..MigrateInput::default() }, &all_dialects()).warnings,
        [""; 0],
        "of a removed plugin"
    );
}

#[test]
fn unit_that_nodes_contradict_is_warned_of() {
    assert_eq!(report_on(&cluster(), &all_dialects()).warnings, [""; 0]);
    let given = dialects("[{name: gpushare, unit: Mi}]").expect("a list").0;
    let says = text(&report_on(&cluster(), &given));
    let warning = "warning: a unit of aliyun.com/gpu-mem is 1Gi on n1 (80 on a GPU), and 1Mi in the dialect gpushare: \
                   pass {name: gpushare, unit: Gi} in --dialects\n";
    assert!(says.contains(warning), "{says}");
}

#[test]
fn containers_are_counted_list_by_list() {
    let written = "{kind: Pod, metadata: {generateName: train-}, spec: {initContainers: [{name: i}], containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/mig-1g.5gb: 1}}}]}}";
    let report = report_on(&manifests(written), &all_dialects());
    let refused = report.workloads[0].refused.as_deref().unwrap_or_default();
    assert!(refused.contains("spec.containers[0]"), "{refused}");
    assert_eq!(report.workloads[0].name, "train-");
}
