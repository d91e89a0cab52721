//! What `kubectl get` is given to print.

use serde_json::{Value, json};

use crate::{Bench, node, pod};

const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

impl Bench {
    /// Headings and rows as text; ages and times are no two runs the same, so they are left out.
    async fn table(&self, path: &str) -> String {
        let (_, table) = self.ask("GET", path, &[("accept", TABLE)], &Value::Null).await;
        assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")), "{table:#}");
        let columns = table["columnDefinitions"].as_array().unwrap();
        let names = columns.iter().map(|own| {
            let wide = if own["priority"] == 0 { "" } else { "*" };
            format!("{}{wide}", own["name"].as_str().unwrap())
        });
        let rows = table["rows"].as_array().unwrap().iter().map(|row| {
            let cells = row["cells"].as_array().unwrap().iter().zip(columns).map(|(cell, column)| match column["name"]
                .as_str()
                .unwrap()
            {
                "Age" | "Last Seen" | "First Seen" | "Created At" => "-".to_owned(),
                _ => cell.to_string(),
            });
            cells.collect::<Vec<_>>().join(" | ")
        });
        [names.collect::<Vec<_>>().join(" | ")].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    }
}

fn named(api_version: &str, kind: &str, rest: &Value) -> Value {
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "a" } });
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

#[tokio::test]
async fn pods_are_told_by_what_holds_them_up() {
    let bench = Bench::new().await;
    let waiting = |reason: &str| json!({ "waiting": { "reason": reason } });
    let statuses = [
        (
            "crashing",
            json!({ "phase": "Running", "containerStatuses": [{ "restartCount": 3, "state": waiting("CrashLoopBackOff") }] }),
        ),
        (
            "done",
            json!({ "phase": "Succeeded", "containerStatuses": [{ "state": { "terminated": { "reason": "Completed", "exitCode": 0 } } }] }),
        ),
        ("evicted", json!({ "phase": "Failed", "reason": "Evicted" })),
        ("initializing", json!({ "phase": "Pending", "initContainerStatuses": [{ "state": { "running": {} } }] })),
        ("refused", json!({ "phase": "Failed", "reason": "UnexpectedAdmissionError" })),
        (
            "running",
            json!({ "phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{ "ready": true, "state": { "running": {} } }] }),
        ),
    ];
    for (name, status) in statuses {
        let mut object = pod(name);
        if name == "initializing" {
            object["spec"]["initContainers"] = json!([{ "name": "first", "image": "init:1" }]);
        }
        bench.server.create(&object).unwrap();
        let change = |pod: &mut Value| {
            pod["status"] = status;
            pod["spec"]["nodeName"] = "node-1".into();
        };
        bench.server.edit("Pod", "default", name, change).unwrap();
    }
    bench.server.create(&pod("waiting")).unwrap();
    bench.server.delete("Pod", "default", "running", None).unwrap();
    insta::assert_snapshot!(bench.table("/api/v1/pods").await);
}

#[tokio::test]
async fn other_kinds_have_the_columns_that_kubectl_users_know() {
    let bench = Bench::new().await;
    let mut cordoned = node("b");
    cordoned["spec"] = json!({ "unschedulable": true });
    cordoned["metadata"]["labels"] = json!({ "node-role.kubernetes.io/gpu": "" });
    cordoned["status"]["addresses"] = json!([{ "type": "InternalIP", "address": "10.0.0.2" }]);
    let template = json!({ "spec": { "containers": [{ "name": "main", "image": "app:1" }] } });
    let selector = json!({ "matchLabels": { "app": "x" } });
    let about = json!({ "kind": "Pod", "name": "a", "namespace": "default" });
    for object in [
        node("a"),
        cordoned,
        named(
            "v1",
            "Event",
            &json!({ "involvedObject": about, "type": "Warning", "reason": "Refused", "message": "no card" }),
        ),
        named("v1", "ConfigMap", &json!({ "data": { "x": "1", "y": "2" } })),
        named("v1", "Secret", &json!({ "type": "kubernetes.io/tls", "data": {} })),
        named("apps/v1", "DaemonSet", &json!({ "spec": { "selector": selector, "template": template } })),
        named(
            "apps/v1",
            "Deployment",
            &json!({ "spec": { "replicas": 2, "selector": selector, "template": template } }),
        ),
        named("apps/v1", "StatefulSet", &json!({ "spec": { "selector": selector, "template": template } })),
        named("batch/v1", "CronJob", &json!({ "spec": { "schedule": "0 3 * * *" } })),
        named("policy/v1", "PodDisruptionBudget", &json!({ "spec": { "maxUnavailable": 1, "selector": selector } })),
        named("scheduling.k8s.io/v1", "PriorityClass", &json!({ "value": 1000 })),
        named("batch/v1", "Job", &json!({ "spec": { "template": template } })),
        named("coordination.k8s.io/v1", "Lease", &json!({ "spec": { "holderIdentity": "webhook-1" } })),
        named(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            &json!({ "webhooks": [{
                "name": "x.example.com", "clientConfig": { "url": "https://x" }, "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }] }),
        ),
    ] {
        bench.server.create(&object).unwrap();
    }
    let mut tables = Vec::new();
    for path in [
        "/api/v1/nodes",
        "/api/v1/namespaces/default",
        "/api/v1/events",
        "/api/v1/configmaps",
        "/api/v1/secrets",
        "/apis/apps/v1/daemonsets",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/statefulsets",
        "/apis/batch/v1/cronjobs",
        "/apis/batch/v1/jobs",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    ] {
        tables.push(format!("{path}\n{}", bench.table(path).await));
    }
    insta::assert_snapshot!(tables.join("\n\n"));
}

#[tokio::test]
async fn rows_carry_as_much_of_their_objects_as_is_asked_for() {
    let bench = Bench::new().await;
    bench.server.create(&node("a")).unwrap();
    for (query, kind, has_status) in [
        ("", json!("PartialObjectMetadata"), false),
        ("includeObject=Object", json!("Node"), true),
        ("includeObject=None", Value::Null, false),
    ] {
        let (_, table) = bench.ask("GET", &format!("/api/v1/nodes?{query}"), &[("accept", TABLE)], &Value::Null).await;
        let object = &table["rows"][0]["object"];
        assert_eq!((&object["kind"], object["status"].is_object()), (&kind, has_status), "{query}");
    }
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let (_, list) = bench.ask("GET", "/api/v1/nodes", &[("accept", partial)], &Value::Null).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!((&list["items"][0]["metadata"]["name"], &list["items"][0]["status"]), (&json!("a"), &Value::Null));
}
