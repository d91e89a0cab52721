//! `kubectl divvy explain`.

use std::process::Stdio;

use divvy_api::annotation::{CardShare, Cards, Planned, PlannedCards, encode};
use divvy_api::gpunode::GpuNode;
use divvy_api::{Cores, Memory, Share, Tier};
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::{Bench, CARD, Ended, PROGRAM, ended};

const DEPLOYMENT: &str = "
apiVersion: v1
kind: Service
metadata: {name: serve}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve, namespace: team-a}
spec:
  template:
    spec:
      priorityClassName: important
      containers:
      - name: main
        resources: {limits: {nvidia.com/gpumem: 20Gi}}
";

impl Bench {
    /// Two nodes with one card of 24Gi each: of that of node-1 a pod of low priority holds 8Gi, of the other one 8Gi were
    /// promised to a pod on its way.
    pub(crate) async fn with_pods() -> Self {
        let bench = Self::new().await;
        bench.server.create(&json!(GpuNode::crd())).unwrap();
        bench
            .server
            .create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team-a" } }))
            .unwrap();
        bench.node("node-1", &[], &json!([]));
        bench.node("node-2", &[], &json!([]));
        let uid = bench.pod("team-a", "batch-0", -10, "8Gi", Some(("node-1", &json!({}))));
        bench.server.edit("Pod", "team-a", "batch-0", |pod| pod["status"]["phase"] = "Running".into()).unwrap();
        let share = json!({
            "podUid": uid, "namespace": "team-a", "pod": "batch-0", "container": "main", "card": CARD,
            "memoryMi": 8192, "cores": 0,
        });
        bench.server.edit("GpuNode", "", "node-1", |node| node["status"]["shares"] = json!([share])).unwrap();
        let plan = PlannedCards { chosen: vec![CARD.parse().unwrap()], reused: Vec::new() };
        let planned =
            Planned { node: "node-2".to_owned(), containers: [("main".to_owned(), plan)].into(), ..Planned::default() };
        let planned = json!({ "divvy.dev/planned": encode(&planned) });
        bench.pod("team-a", "on-its-way", 0, "8Gi", Some(("node-2", &planned)));
        bench.pod("team-a", "small", 0, "10Gi", None);
        bench.pod("team-a", "large", 0, "20Gi", None);
        bench
    }

    fn pod(&self, namespace: &str, name: &str, priority: i32, memory: &str, bound: Option<(&str, &Value)>) -> Value {
        let container = json!({ "name": "main", "resources": { "limits": { "nvidia.com/gpumem": memory } } });
        let made = self.server.create(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": namespace, "name": name },
            "spec": { "priority": priority, "containers": [container] },
        }));
        let uid = made.unwrap()["metadata"]["uid"].clone();
        if let Some((node, annotations)) = bound {
            self.server.bind(namespace, name, node, annotations).unwrap();
        }
        uid
    }

    async fn explain(&self, arguments: &str) -> Ended {
        ended(self.command(PROGRAM, &format!("explain {arguments}"))).await
    }

    async fn explained(&self, arguments: &str) -> String {
        let Ended { code, out, err } = self.explain(arguments).await;
        assert_eq!((code, &*err), (Some(0), ""), "{out}");
        out
    }

    async fn unexplained(&self, arguments: &str) -> String {
        let Ended { code, out, err } = self.explain(arguments).await;
        assert_eq!((code, &*out), (Some(1), ""), "{err}");
        err
    }
}

#[tokio::test]
async fn pod_is_explained_by_shares_and_reservations() {
    let bench = Bench::with_pods().await;
    insta::assert_snapshot!("small", bench.explained("small -n team-a").await);
    insta::assert_snapshot!("large", bench.explained("large -n team-a -o wide").await);
    insta::assert_snapshot!("bound", bench.explained("on-its-way -n team-a").await);
    let share = Share { memory: Memory::mib(8192), cores: Cores::ZERO, ..Share::default() };
    let shares = vec![CardShare { uuid: CARD.parse().unwrap(), share }];
    let containers = [("main".to_owned(), shares)].into();
    let cards = encode(&Cards { ledger_revision: 1, tier: Tier::Accounting, containers });
    let write = |pod: &mut Value| pod["metadata"]["annotations"] = json!({ "divvy.dev/cards": cards });
    bench.server.edit("Pod", "team-a", "batch-0", write).unwrap();
    insta::assert_snapshot!("given", bench.explained("batch-0 -n team-a").await);
    let report: Value = serde_json::from_str(&bench.explained("large -n team-a -o json").await).unwrap();
    assert_eq!((&report["fitting"], &report["nodes"][0]["fits"]), (&json!(0), &json!("byEviction")));
    let report: Value = serde_saphyr::from_str(&bench.explained("small -n team-a -o yaml").await).unwrap();
    assert_eq!((&report["fitting"], &report["version"]), (&json!(2), &json!("v1")));
}

#[tokio::test]
async fn pod_in_a_file_is_explained_before_creation() {
    let bench = Bench::with_pods().await;
    std::fs::write(bench.home.path().join("serve.yaml"), DEPLOYMENT).unwrap();
    let Ended { code, out, err } = bench.explain("-f serve.yaml").await;
    assert_eq!(
        (code, out.lines().next()),
        (
            Some(0),
            Some("team-a/serve: 0/2 nodes are available: 2 Insufficient GPUs (1 short of memory, largest free 16Gi)")
        )
    );
    assert!(err.starts_with("warning: the value of priority class important isn't known, 0 is assumed: "), "{err}");
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "important" }, "value": 7,
    });
    bench.server.create(&class).unwrap();
    let mut command = bench.command(PROGRAM, "explain -f - -o json");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(DEPLOYMENT.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["priority"], &report["nodes"][0]["fits"]), (&json!(7), &json!("byEviction")));
}

impl Bench {
    /// Writes the ConfigMap that daemon and webhook share.
    pub(crate) fn configure(&self, text: &str) {
        let metadata = json!({ "name": "divvy-config", "namespace": "divvy-system" });
        let data = json!({ "config.yaml": text });
        let _absent = self.server.delete("ConfigMap", "divvy-system", "divvy-config", None);
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
        self.server.create(&map).unwrap();
    }
}

#[tokio::test]
async fn configuration_comes_from_the_config_map_or_a_file() {
    let bench = Bench::with_pods().await;
    let home = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "divvy-system" } });
    bench.server.create(&home).unwrap();
    bench.configure("version: v1\nresourceMemory: example.com/gpumem");
    assert_eq!(bench.explained("small -n team-a").await, "team-a/small: the pod requests no GPUs\n");
    bench.configure("version: v1\nresourceMemory: nvidia.com/gpu");
    let Ended { code, out, err } = bench.explain("small -n team-a").await;
    assert!(code == Some(0) && out.starts_with("team-a/small: best now: "), "{out}");
    let why = "ConfigMap divvy-system/divvy-config: resource nvidia.com/gpu stands for two amounts";
    assert!(err.starts_with(&format!("warning: the configuration isn't known, defaults are assumed: {why}")), "{err}");
    std::fs::write(bench.home.path().join("config.yaml"), "version: v1\ndefaultCores: 20").unwrap();
    let report: Value =
        serde_json::from_str(&bench.explained("small -n team-a --config config.yaml -o json").await).unwrap();
    assert_eq!(report["asks"]["containers"][0]["cores"], 20);
    assert!(
        bench.unexplained("small -n team-a --config nope.yaml").await.starts_with("error: nope.yaml: No such file")
    );
    bench.node("node-3", &[], &json!([]));
    let best = async |policies: &str| {
        bench.configure(&format!("version: v1\n{policies}"));
        let text = bench.explained("small -n team-a -o json").await;
        serde_json::from_str::<Value>(&text).unwrap()["nodes"][0]["name"].clone()
    };
    assert_eq!(best("nodePolicy: spread").await, "node-3");
    assert_eq!(best("cardPolicy: spread").await, "node-3", "nodes as cards");
    assert_eq!(best("cardPolicy: spread\nnodePolicy: binpack").await, "node-1");
}

/// Of node-1 and node-2 16Gi are free, of node-3 24Gi.
#[tokio::test]
async fn nodes_rank_by_requests_of_the_listed_pods() {
    let bench = Bench::with_pods().await;
    bench.node("node-3", &[], &json!([]));
    let best = async || {
        let text = bench.explained("small -n team-a -o json").await;
        serde_json::from_str::<Value>(&text).unwrap()["nodes"][0]["name"].clone()
    };
    for number in 0..60 {
        let memory = if number % 10 == 0 { "20Gi" } else { "14Gi" };
        bench.pod("team-a", &format!("before-{number}"), 0, memory, None);
    }
    assert_eq!(best().await, "node-3", "another 14Gi still fit there");
    insta::assert_snapshot!("expected", bench.explained("small -n team-a -o wide").await);
    assert!(!bench.explained("small -n team-a").await.contains("EXPECTED"));
    let home = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "divvy-system" } });
    bench.server.create(&home).unwrap();
    bench.configure("version: v1\nnodePolicy: binpack");
    assert_eq!(best().await, "node-1", "nothing is expected: it fits best");
    assert!(!bench.explained("small -n team-a -o wide").await.contains("EXPECTED"));
}

#[tokio::test]
async fn missing_permissions_leave_the_rest_of_explain() {
    let bench = Bench::with_pods().await;
    let forbid = |path| bench.server.fail("list", path, 1, http::StatusCode::FORBIDDEN);
    forbid("/api/v1/pods");
    forbid("/api/v1/nodes");
    let Ended { code, out, err } = bench.explain("small -n team-a").await;
    assert_eq!(code, Some(0));
    assert!(out.starts_with("team-a/small: best now: "), "{out}");
    let warnings: Vec<&str> = err.lines().map(|line| line.split_once(": Error").unwrap().0).collect();
    let expected = [
        "warning: whether the Nodes are cordoned or ready isn't known",
        "warning: GPUs reserved for pods that haven't started yet count as free, evictions aren't considered, and nodes \
         are scored by best fit",
    ];
    assert_eq!(warnings, expected);
    forbid("/gpunodes");
    assert!(bench.unexplained("small -n team-a").await.contains("get and list on gpunodes"));
}

#[tokio::test]
async fn explain_errors_are_one_line() {
    let bench = Bench::with_pods().await;
    assert_eq!(bench.unexplained("nope").await, "Error from server (NotFound): pods \"nope\" not found\n");
    assert!(bench.unexplained("-f nope.yaml").await.starts_with("error: nope.yaml: No such file or directory"));
    bench.server.delete("CustomResourceDefinition", "", "gpunodes.divvy.dev", None).unwrap();
    let said = bench.unexplained("small -n team-a").await;
    assert!(said.starts_with("error: Divvy isn't installed in this cluster"), "{said}");
}

#[tokio::test]
async fn cordoned_and_dead_nodes_do_not_fit() {
    let bench = Bench::with_pods().await;
    bench.server.edit("Node", "", "node-1", |node| node["spec"]["unschedulable"] = true.into()).unwrap();
    let unknown = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "m" });
    bench.server.edit("Node", "", "node-2", |node| node["status"]["conditions"] = json!([unknown])).unwrap();
    insta::assert_snapshot!(bench.explained("small -n team-a").await);
}

#[tokio::test]
async fn group_starts_where_gpus_are_free_for_all_of_it() {
    let bench = Bench::with_pods().await;
    let group = |name: &str| {
        json!({
            "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
            "metadata": { "namespace": "team-a", "name": name }, "spec": { "minMember": 2 },
        })
    };
    let pod = |group: &str, number: u32, memory: &str| {
        let labels = json!({ "scheduling.x-k8s.io/pod-group": group });
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": "team-a", "name": format!("{group}-{number}"), "labels": labels },
            "spec": { "containers": [{ "name": "main", "resources": { "limits": { "nvidia.com/gpumem": memory } } }] },
        })
    };
    bench.server.create(&pod("fits", 0, "10Gi")).unwrap();
    let alone = bench.explained("fits-0 --namespace team-a").await;
    assert!(!alone.contains("pod group"), "the API server has no such kind: {alone}");

    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "podgroups.scheduling.x-k8s.io" },
        "spec": {
            "group": "scheduling.x-k8s.io", "scope": "Namespaced", "versions": [version],
            "names": { "kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList" },
        },
    });
    for object in [definition, group("fits"), group("large"), pod("fits", 1, "10Gi")] {
        bench.server.create(&object).unwrap();
    }
    for number in 0..2 {
        bench.server.create(&pod("large", number, "12Gi")).unwrap();
    }
    let told = async |pod: &str| {
        let told = bench.explained(&format!("{pod} --namespace team-a")).await;
        told.lines().find(|line| line.contains("pod group")).map(str::trim).unwrap_or_default().to_owned()
    };
    assert_eq!(told("fits-0").await, "pod group fits: free GPUs for all pods that start together");
    assert_eq!(told("large-1").await, "pod group large: free GPUs for all pods that start together");
    // A Node as the API server has it, for pods that select it.
    for node in ["node-1", "node-2"] {
        let edited = bench.server.edit("Node", "", node, |node| {
            node["metadata"]["labels"] = json!({ "pool": "a" });
            node["status"]["allocatable"] =
                json!({ "cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpumem": "320Gi" });
        });
        edited.unwrap();
    }
    for number in 0..2 {
        let edited = bench.server.edit("Pod", "team-a", &format!("fits-{number}"), |pod| {
            pod["spec"]["nodeSelector"] = json!({ "pool": "a" });
        });
        edited.unwrap();
    }
    assert_eq!(told("fits-0").await, "pod group fits: free GPUs for all pods that start together");
    bench.server.edit("PodGroup", "team-a", "large", |group| group["spec"]["minMember"] = json!(3)).unwrap();
    assert_eq!(told("large-1").await, "pod group large needs 3 pods at once, and there are 2");
    bench.server.create(&pod("large", 2, "12Gi")).unwrap();
    assert_eq!(told("large-1").await, "pod group large: free GPUs for 2 of 3 pods that start together");
    let json: Value = serde_json::from_str(&bench.explained("large-1 --namespace team-a -o json").await).unwrap();
    assert_eq!(json["group"]["name"], "large");
}
