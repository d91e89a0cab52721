//! Numbers for autoscalers, as the HPA controller's client asks for them.

use hyper::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, Replica};
use crate::client::Client;
use crate::daemon::{Daemon, figures};
use crate::until;

const GROUP: &str = "/apis/custom.metrics.k8s.io/v1beta2";
const GIB: u64 = 1 << 30;

/// What the client gets of a path below the namespace `default`.
async fn ask(client: &Client, replica: &Replica, path: &str) -> (u16, Value) {
    let path = format!("{GROUP}/namespaces/default/{path}");
    client.ask(replica.address, Method::GET, &path, "application/vnd.kubernetes.protobuf,application/json").await
}

/// Names and values of a list that must be one.
async fn values(client: &Client, replica: &Replica, path: &str) -> Vec<(String, String)> {
    let (code, list) = ask(client, replica, path).await;
    assert_eq!((code, &list["kind"]), (200, &json!("MetricValueList")), "{path}: {list}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| (text(&item["describedObject"]["name"]), text(&item["value"]))).collect()
}

fn pairs(values: &[(&str, &str)]) -> Vec<(String, String)> {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Two pods `web` and one `other` on n1, a `web` on n2, and one of another namespace; the daemons know them.
async fn cluster() -> (Bench, [Daemon; 2]) {
    let bench = Bench::new().await;
    bench.install_custom_metrics();
    bench.node("n2", &["GPU-a"]);
    let team = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team" } });
    bench.server.create(&team).unwrap();
    let shares = [("default", "a", "web"), ("default", "b", "web"), ("default", "x", "other"), ("team", "a", "web")]
        .map(|(namespace, name, app)| bench.pod_with_share(namespace, name, app));
    let mut init = shares[0].clone();
    (init["container"], init["kind"]) = (json!("init"), json!("init"));
    bench.shares("n1", &[&shares[..], &[init]].concat());
    bench.shares("n2", &[bench.pod_with_share("default", "c", "web")]);
    bench.pod_with_share("default", "without", "web");
    let daemons = [Daemon::start(&bench, "n1").await, Daemon::start(&bench, "n2").await];
    let of_n1 = [("default", "a", GIB / 2), ("default", "b", GIB / 4), ("default", "x", GIB), ("team", "a", 7)];
    let of_n1 = of_n1.map(|(namespace, pod, used)| figures(namespace, pod, used, 1.0)).concat();
    // An init container of the first pod, which has ended.
    daemons[0].say(&(of_n1 + &figures("default", "a", 0, 1.0).replace("\"main\"", "\"init\"")));
    // It claims figures of a pod that another node runs.
    daemons[1].say(&[("c", 0), ("a", 9)].map(|(pod, used)| figures("default", pod, used, 1.0)).concat());
    (bench, daemons)
}

#[tokio::test]
async fn selected_pods_have_their_daemons_figures() {
    let (bench, daemons) = cluster().await;
    let replica = bench.ready(&json!({ "customMetrics": "on" })).await;
    let client = bench.client();
    let all = "pods/*/gpu_memory_used_bytes?labelSelector=app%3Dweb";
    let wanted = pairs(&[("a", "536870912"), ("b", "268435456"), ("c", "0")]);
    assert_eq!(values(&client, &replica, all).await, wanted);
    let ratios = values(&client, &replica, "pods/%2A/gpu_memory_used_ratio?labelSelector=app+in+(web,other)").await;
    assert_eq!(ratios, pairs(&[("a", "500m"), ("b", "250m"), ("c", "0"), ("x", "1")]));
    let everything = values(&client, &replica, "pods/*/gpu_memory_used_bytes").await;
    assert_eq!(everything.len(), 4, "{everything:?}");
    let (_, one) = ask(&client, &replica, "pods/b/gpu_memory_used_bytes").await;
    let item = &one["items"][0];
    let of = json!({ "kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "b" });
    assert_eq!((&item["describedObject"], &item["metric"]["name"]), (&of, &json!("gpu_memory_used_bytes")));
    assert!(item["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{item}");
    // Rates need a second page, which isn't asked for before it is worth while.
    assert_eq!(values(&client, &replica, "pods/*/gpu_compute_used?labelSelector=app%3Dweb").await, []);
    assert_eq!(daemons.each_ref().map(Daemon::asked), [1, 1]);
}

#[tokio::test]
async fn compute_is_served_from_the_second_page_on() {
    let (bench, daemons) = cluster().await;
    let replica = bench.ready(&json!({ "customMetrics": "on" })).await;
    let client = bench.client();
    let path = "pods/x/gpu_compute_used_ratio";
    let (code, status) = ask(&client, &replica, path).await;
    assert_eq!((code, &status["reason"]), (404, &json!("NotFound")), "{status}");
    daemons[0].say(&figures("default", "x", GIB, 1e6));
    let list = until("a rate", async || {
        let (code, list) = ask(&client, &replica, path).await;
        (code == 200).then_some(list)
    })
    .await;
    // All of the GPU, twice the share.
    assert_eq!(list["items"][0]["value"], "2");
    assert!(list["items"][0]["windowSeconds"].as_u64().is_some_and(|seconds| seconds >= 10), "{list}");
    assert_eq!(values(&client, &replica, "pods/x/gpu_compute_used").await, pairs(&[("x", "1")]));
    // The other pods of the node aren't on its new page.
    assert_eq!(values(&client, &replica, "pods/*/gpu_memory_used_bytes").await.len(), 2);
}

#[tokio::test]
async fn workload_has_the_sum_of_its_pods() {
    let (bench, _daemons) = cluster().await;
    for kind in ["Deployment", "ReplicaSet", "StatefulSet"] {
        let spec = json!({ "selector": { "matchLabels": { "app": "web" } }, "template": {}, "serviceName": "" });
        let metadata = json!({ "name": "web", "namespace": "default" });
        let workload = json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec });
        bench.server.create(&workload).unwrap();
    }
    let replica = bench.ready(&json!({ "customMetrics": "on" })).await;
    let client = bench.client();
    for resource in ["deployments.apps", "replicasets.apps", "statefulsets.apps", "jobs.batch"] {
        let sum = values(&client, &replica, &format!("{resource}/web/gpu_memory_used_bytes")).await;
        assert_eq!(sum, pairs(&[("web", "805306368")]), "{resource}");
        let ratio = values(&client, &replica, &format!("{resource}/web/gpu_memory_used_ratio")).await;
        assert_eq!(ratio, pairs(&[("web", "250m")]), "{resource}");
        let (code, _) = ask(&client, &replica, &format!("{resource}/gone/gpu_memory_used_bytes")).await;
        assert_eq!(code, 404, "{resource}");
    }
    let (_, list) = ask(&client, &replica, "deployments.apps/web/gpu_memory_used_ratio").await;
    let of = json!({ "kind": "Deployment", "apiVersion": "apps/v1", "namespace": "default", "name": "web" });
    assert_eq!(list["items"][0]["describedObject"], of);
}

#[tokio::test]
async fn daemon_that_does_not_answer_costs_its_own_pods() {
    let (bench, daemons) = cluster().await;
    let replica = bench.ready(&json!({ "customMetrics": "on" })).await;
    let client = bench.client();
    let ok = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    let (endless, mut bad) = ("x".repeat(20 << 10), Vec::new());
    for (number, answer) in
        ["", "garbage\r\n\r\n", "HTTP/1.1 503 Busy\r\nconnection: close\r\n\r\n", &endless].into_iter().enumerate()
    {
        let node = format!("bad-{number}");
        bench.node(&node, &["GPU-a"]);
        bench.shares(&node, &[bench.pod_with_share("default", &node, "web")]);
        let daemon = Daemon::start(&bench, &node).await;
        daemon.answer(if answer == endless { format!("{ok}{endless}") } else { answer.to_owned() });
        bad.push(daemon);
    }
    bench.node("none", &["GPU-a"]);
    bench.shares("none", &[bench.pod_with_share("default", "none", "web")]);
    let wanted = pairs(&[("a", "536870912"), ("b", "268435456"), ("c", "0")]);
    let path = "pods/*/gpu_memory_used_bytes?labelSelector=app%3Dweb";
    until("the nodes", async || {
        let (_, state) = replica.admin_page("debug/state").await?;
        let state: Value = serde_json::from_str(&state).unwrap();
        (state["nodes"].as_array()?.len() == 7 && state["customMetrics"]["daemons"] == 6).then_some(())
    })
    .await;
    assert_eq!(values(&client, &replica, path).await, wanted);
    let (_, state) = replica.admin_page("debug/state").await.unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let problem = |node: &str| state["customMetrics"]["asked"][node]["problem"].as_str().unwrap_or_default().to_owned();
    assert_eq!(problem("n1"), "");
    for (node, why) in [
        ("bad-0", "no answer within 3s"),
        ("bad-2", "answered 503"),
        ("bad-3", "a line of more than 8 KiB"),
        ("none", "no pod of divvy-node runs there"),
    ] {
        assert!(problem(node).contains(why), "{node}: {}", problem(node));
    }
    assert_eq!(daemons[0].asked(), 1);
}

#[tokio::test]
async fn what_is_not_there_or_not_understood_is_refused() {
    let (bench, _daemons) = cluster().await;
    let replica = bench.ready(&json!({ "customMetrics": "on" })).await;
    let client = bench.client();
    for (path, code, reason, said) in [
        ("pods/*/gpu_temperature", 404, "NotFound", "could not find the metric gpu_temperature for pods *"),
        ("nodes/*/gpu_compute_used", 404, "NotFound", "for nodes *"),
        ("pods/gone/gpu_memory_used_bytes", 404, "NotFound", "for pods gone"),
        ("pods/without/gpu_memory_used_bytes", 404, "NotFound", "for pods without"),
        ("pods/*/gpu_memory_used_bytes?labelSelector=app+in+(web", 400, "BadRequest", "app in (web"),
        ("pods/*/gpu_memory_used_bytes?metricLabelSelector=a%3Db", 400, "BadRequest", "metricLabelSelector"),
        ("pods/..%2Fsecrets/gpu_memory_used_bytes", 400, "BadRequest", "not an object's name"),
        ("deployments.apps/*/gpu_memory_used_bytes", 400, "BadRequest", "only pods are listed"),
        ("deployments.apps/gone/gpu_memory_used_bytes", 404, "NotFound", "gone"),
    ] {
        let (answered, status) = ask(&client, &replica, path).await;
        assert_eq!((answered, &status["kind"], &status["reason"]), (code, &json!("Status"), &json!(reason)), "{path}");
        assert!(status["message"].as_str().unwrap().contains(said), "{path}: {status}");
    }
    let other = format!("{GROUP}/namespaces/team%2Fpods/pods/*/gpu_memory_used_bytes");
    assert_eq!(client.ask(replica.address, Method::GET, &other, "*/*").await.0, 400);
    let path = format!("{GROUP}/namespaces/default/pods/a/gpu_memory_used_bytes");
    assert_eq!(client.ask(replica.address, Method::POST, &path, "*/*").await.0, 405);
    bench.server.fail("list", "/namespaces/default/pods", 1, hyper::StatusCode::INTERNAL_SERVER_ERROR);
    let (code, status) = ask(&client, &replica, "pods/*/gpu_memory_used_bytes").await;
    assert_eq!((code, &status["reason"]), (503, &json!("ServiceUnavailable")));
}

#[tokio::test]
async fn api_is_discovered_only_where_it_is_on() {
    let bench = Bench::new().await;
    bench.install_custom_metrics();
    let [on, off] = [bench.ready(&json!({ "customMetrics": "on" })).await, bench.ready(&json!({})).await];
    let client = bench.client();
    let get = async |replica: &Replica, path: &str| client.ask(replica.address, Method::GET, path, "*/*").await;
    let (_, groups) = get(&on, "/apis").await;
    assert_eq!(groups["groups"][1]["preferredVersion"]["groupVersion"], "custom.metrics.k8s.io/v1beta2");
    assert_eq!(get(&off, "/apis").await.1["groups"].as_array().unwrap().len(), 1);
    let (_, list) = get(&on, GROUP).await;
    let names: Vec<_> = list["resources"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 20);
    assert!(
        names.contains(&"pods/gpu_compute_used_ratio") && names.contains(&"deployments.apps/gpu_memory_used_bytes")
    );
    let (_, index) = get(&on, "/openapi/v3").await;
    let url = index["paths"]["apis/custom.metrics.k8s.io/v1beta2"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let (_, document) = get(&on, &url).await;
    assert!(document["components"]["schemas"]["MetricValueList"].is_object(), "{document}");
    for path in [GROUP, "/apis/custom.metrics.k8s.io", &format!("{GROUP}/namespaces/default/pods/*/gpu_compute_used")] {
        assert_eq!(get(&off, path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn replica_without_the_rights_is_not_ready_and_says_why() {
    let bench = Bench::new().await;
    let replica = bench.start(&json!({ "customMetrics": "on" }));
    until("why", async || {
        replica
            .page("readyz")
            .await
            .filter(|(code, text)| *code == 503 && text.contains("divvy-node not listed yet: 403"))
    })
    .await;
    assert!(!replica.log().contains("watch pods of divvy-node succeeds again"));
    bench.install_custom_metrics();
    replica.ready().await;
}
