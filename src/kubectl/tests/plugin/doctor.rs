//! `kubectl divvy doctor`.

use std::path::Path;

use divvy_api::gpunode::GpuNode;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::{Bench, Ended, PROGRAM, ended};

impl Bench {
    /// With all of `deploy/manifests`, and a node whose daemon is well.
    async fn installed() -> Self {
        let bench = Self::new().await;
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/manifests");
        for file in ["00-namespace.yaml", "crd.yaml", "node-daemonset.yaml", "policy.yaml"] {
            let text = std::fs::read_to_string(manifests.join(file)).unwrap();
            for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
                bench.server.create(&object).unwrap();
            }
        }
        bench.node("node-1", &[("nvidia.com/gpu.present", "true")], &json!([]));
        let amounts = json!({ "nvidia.com/gpu": "32", "nvidia.com/gpumem": "24576" });
        let serve = |node: &mut Value| node["status"] = json!({ "capacity": amounts, "allocatable": amounts });
        bench.server.edit("Node", "", "node-1", serve).unwrap();
        bench.daemons(1);
        bench
    }

    /// Says how many of one daemon are ready.
    fn daemons(&self, ready: u32) {
        let status = json!({
            "currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": ready,
        });
        self.server.edit("DaemonSet", "divvy-system", "divvy-node", |daemons| daemons["status"] = status).unwrap();
    }

    async fn doctor(&self, arguments: &str) -> Ended {
        ended(self.command(PROGRAM, &format!("doctor {arguments}"))).await
    }
}

#[tokio::test]
async fn installed_manifests_pass_every_check() {
    let bench = Bench::installed().await;
    let Ended { code, out, err } = bench.doctor("").await;
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    insta::assert_snapshot!(out);
    let report: Value = serde_json::from_str(&bench.doctor("-o json").await.out).unwrap();
    assert_eq!((&report["version"], &report["checks"][0]["state"]), (&json!("v1"), &json!("ok")));
    let report: Value = serde_saphyr::from_str(&bench.doctor("-o yaml").await.out).unwrap();
    assert_eq!(report["checks"][0]["link"], "API server");
}

#[tokio::test]
async fn failed_check_sets_the_exit_code() {
    let bench = Bench::installed().await;
    bench.daemons(0);
    let Ended { code, out, err } = bench.doctor("").await;
    assert_eq!((code, &*err), (Some(1), ""));
    assert!(out.contains("FAILED        DaemonSet divvy-node"), "{out}");
    let elsewhere = bench.doctor("-n gpu-sharing").await;
    assert_eq!(elsewhere.code, Some(1));
    assert!(elsewhere.out.contains("there is no namespace gpu-sharing"), "{}", elsewhere.out);
}

#[tokio::test]
async fn incomplete_webhook_fails_check_by_check() {
    let bench = Bench::installed().await;
    let of_webhook = |api: &str, kind: &str, namespace: Value, rest: Value| {
        let mut object =
            json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "divvy-webhook", "namespace": namespace } });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        bench.server.create(&object).unwrap();
    };
    let home = || json!("divvy-system");
    of_webhook("apps/v1", "Deployment", home(), json!({ "spec": { "replicas": 2, "selector": {}, "template": {} } }));
    of_webhook("v1", "Service", home(), json!({ "spec": {} }));
    let lease = json!({ "spec": { "holderIdentity": "divvy-webhook-a", "renewTime": "2020-01-01T00:00:00.000000Z" } });
    of_webhook("coordination.k8s.io/v1", "Lease", home(), lease);
    let service = json!({ "service": { "namespace": home(), "name": "divvy-webhook" } });
    let webhooks = ["mutate.divvy.dev", "hide.divvy.dev", "jobs.divvy.dev"].map(|name| {
        json!({ "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": service })
    });
    let webhooks = json!({ "webhooks": webhooks });
    of_webhook("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", Value::Null, webhooks);
    let Ended { code, out, .. } = bench.doctor("").await;
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(out);
}

#[tokio::test]
async fn missing_permissions_are_not_checked() {
    let bench = Bench::installed().await;
    let forbid = |verb, path| bench.server.fail(verb, path, 1, http::StatusCode::FORBIDDEN);
    forbid("get", "/customresourcedefinitions/");
    forbid("list", "/validatingadmissionpolicies");
    forbid("get", "/daemonsets/");
    let Ended { code, out, .. } = bench.doctor("").await;
    assert_eq!(code, Some(0), "{out}");
    assert!(out.ends_with("\n0 failed, 0 warnings, 4 not checked\n"), "{out}");
}

#[tokio::test]
async fn doctor_reports_a_missing_divvy_or_cluster() {
    let bench = Bench::new().await;
    let Ended { code, out, .. } = bench.doctor("").await;
    assert_eq!(code, Some(1));
    assert!(out.contains(&format!("CRD {}", GpuNode::crd_name())), "{out}");
    bench.server.go_away().await;
    let Ended { code, out, .. } = bench.doctor("").await;
    assert_eq!((code, out.lines().count()), (Some(1), 4), "{out}");
    assert!(out.starts_with("FAILED        API server   Unable to connect to the server"), "{out}");
}

#[tokio::test]
async fn extender_service_is_ok_once_the_leader_wrote_its_slice() {
    let bench = Bench::installed().await;
    bench.configure("version: v1\nscheduling: extender");
    let create = |api: &str, kind: &str, labels: Value, rest: Value| {
        let metadata = json!({ "name": "divvy-extender", "namespace": "divvy-system", "labels": labels });
        let mut object = json!({ "apiVersion": api, "kind": kind, "metadata": metadata });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        bench.server.create(&object).unwrap();
    };
    let replicas = json!({ "replicas": 1, "selector": {}, "template": {} });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "divvy-webhook", "namespace": "divvy-system" }, "spec": replicas,
    });
    bench.server.create(&deployment).unwrap();
    let line = async || {
        let out = bench.doctor("").await.out;
        let line = out.lines().find(|line| line.contains("Service divvy-extender")).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line().await, "FAILED Service divvy-extender there is none in divvy-system");
    create("v1", "Service", json!({}), json!({ "spec": {} }));
    assert_eq!(line().await, "FAILED Service divvy-extender no ready endpoint: the scheduler reaches no extender");
    let endpoint = json!({ "addresses": ["10.0.0.1"], "conditions": { "ready": true } });
    let of_service = json!({ "kubernetes.io/service-name": "divvy-extender" });
    let slice = json!({ "addressType": "IPv4", "endpoints": [endpoint] });
    create("discovery.k8s.io/v1", "EndpointSlice", of_service, slice);
    assert_eq!(line().await, "ok Service divvy-extender 1 ready endpoint");
}

#[tokio::test]
async fn other_systems_are_found_by_their_objects_and_marks() {
    let bench = Bench::installed().await;
    let daemons = |name: &str, namespace: &str| {
        let labels = json!({ "app": name });
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name, "namespace": namespace },
            "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels } } },
        })
    };
    let pod = |name: &str, namespace: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace, "labels": labels },
            "spec": { "nodeName": "node-1", "containers": [{ "name": "main", "image": "x" }] },
        })
    };
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "hami-webhook" },
        "webhooks": [{
            "name": "vgpu.hami.io", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "clientConfig": { "service": { "namespace": "kube-system", "name": "hami-scheduler" } },
        }],
    });
    let mut of_operator = daemons("nvidia-device-plugin-daemonset", "kube-system");
    of_operator["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy", "uid": "u" }]);
    let objects = [
        daemons("nano-gpu-agent", "kube-system"),
        of_operator,
        pod("nano-gpu-agent-x", "kube-system", json!({ "app": "nano-gpu-agent" })),
        pod("nvidia-device-plugin-x", "kube-system", json!({ "app": "nvidia-device-plugin-daemonset" })),
        pod("divvy-node-x", "divvy-system", json!({ "app.kubernetes.io/name": "divvy-node" })),
        webhook,
    ];
    for object in &objects {
        bench.server.create(object).unwrap();
    }
    let handshake =
        |node: &mut Value| node["metadata"]["annotations"] = json!({ "hami.io/node-handshake": "Deleted_" });
    bench.server.edit("Node", "", "node-1", handshake).unwrap();
    let Ended { code, out, .. } = bench.doctor("").await;
    assert_eq!(code, Some(0), "{out}");
    let found = &out[out.find("warning ").unwrap()..];
    insta::assert_snapshot!(found.lines().take(6).collect::<Vec<_>>().join("\n"));
}
