//! What is special about pods: status, binding, an end with grace.

use hyper::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::{Bench, node, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn binding(node: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "a", "annotations": annotations },
        "target": { "kind": "Node", "name": node },
    })
}

#[tokio::test]
async fn status_and_the_rest_are_written_apart_but_for_metadata() {
    let bench = Bench::new().await;
    bench.server.create(&pod("a")).unwrap();
    let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
    let everything = Patch::Merge(json!({
        "metadata": { "annotations": { "divvy.dev/cards": "x" } },
        "spec": { "containers": [{ "name": "main", "image": "app:2" }] },
        "status": { "phase": "Running" },
    }));
    let through_status = pods.patch_status("a", &PatchParams::default(), &everything).await.unwrap();
    assert_eq!(through_status.metadata.annotations.unwrap()["divvy.dev/cards"], "x");
    assert_eq!(through_status.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(through_status.spec.unwrap().containers[0].image.as_deref(), Some("app:1"));
    let other =
        Patch::Merge(json!({ "spec": { "terminationGracePeriodSeconds": 5 }, "status": { "phase": "Failed" } }));
    let through_main = pods.patch("a", &PatchParams::default(), &other).await.unwrap();
    assert_eq!(through_main.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(through_main.metadata.generation, Some(2));
    // A node's annotations can be written the same way; the kubelet creates it with its status.
    bench.server.create(&node("node-1")).unwrap();
    let patch = json!({ "metadata": { "annotations": { "divvy.dev/generation": "7" } } });
    let (_, written) = bench.patch("merge-patch+json", "/api/v1/nodes/node-1/status", &patch).await;
    assert_eq!(written["metadata"]["annotations"]["divvy.dev/generation"], "7");
    assert_eq!(written["status"]["capacity"]["cpu"], "8");
}

#[tokio::test]
async fn a_binding_carries_its_annotations_into_the_pod_in_one_write() {
    let bench = Bench::new().await;
    let made = bench.server.create(&pod("a")).unwrap();
    let version = &made["metadata"]["resourceVersion"];
    let path = format!("{PODS}/a/binding");
    let (code, status) = bench.post(&path, &binding("node-1", &json!({ "divvy.dev/planned": "x" }))).await;
    assert_eq!((code, &status["status"]), (StatusCode::CREATED, &json!("Success")));
    let events = bench.watched(&format!("{PODS}?resourceVersion={}", version.as_str().unwrap())).await;
    let [event] = events.as_slice() else { panic!("not one write: {events:#?}") };
    let bound = &event["object"];
    assert_eq!(bound["spec"]["nodeName"], "node-1");
    assert_eq!(bound["metadata"]["annotations"]["divvy.dev/planned"], "x");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(bound["status"]["conditions"][0]["status"], "True");
    let (code, status) = bench.post(&path, &binding("node-2", &Value::Null)).await;
    assert_eq!(code, StatusCode::CONFLICT);
    let message = "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"node-1\"";
    assert_eq!(status["message"], message);
}

#[tokio::test]
async fn a_bound_pod_ends_when_the_kubelets_side_says_so() {
    let bench = Bench::new().await;
    let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
    for name in ["free", "a", "done"] {
        bench.server.create(&pod(name)).unwrap();
    }
    for (name, phase) in [("a", "Running"), ("done", "Succeeded")] {
        let change = |pod: &mut Value| {
            pod["spec"]["nodeName"] = "node-1".into();
            pod["status"]["phase"] = phase.into();
        };
        bench.server.edit("Pod", "default", name, change).unwrap();
    }
    for name in ["free", "done", "a"] {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let left = pods.list(&ListParams::default()).await.unwrap().items;
    let [leaving] = left.as_slice() else { panic!("{left:#?}") };
    assert_eq!(leaving.metadata.deletion_grace_period_seconds, Some(30));
    assert!(leaving.metadata.deletion_timestamp.is_some());
    // The same again changes nothing; the kubelet deletes with grace 0 once the containers are gone.
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(pods.get("a").await.unwrap().metadata.resource_version, leaving.metadata.resource_version);
    pods.delete("a", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await.unwrap();
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn an_eviction_deletes_and_a_uid_protects_a_namesake() {
    let bench = Bench::new().await;
    let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
    bench.server.create(&pod("a")).unwrap();
    pods.evict("a", &EvictParams::default()).await.unwrap();
    let made = bench.server.create(&pod("a")).unwrap();
    let delete = json!({ "preconditions": { "uid": "of-another" } });
    let json = [("content-type", "application/json")];
    let (code, status) = bench.ask("DELETE", &format!("{PODS}/a"), &json, &delete).await;
    assert_eq!(code, StatusCode::CONFLICT);
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let message = format!(
        "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (of-another) does not match the UID \
         in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!(status["message"], message);
}

#[tokio::test]
async fn ports_of_a_pod_are_forwarded_to_its_address() {
    let bench = Bench::new().await;
    let (one, other) = (echo().await, echo().await);
    let mut bound = pod("a");
    bound["spec"]["nodeName"] = json!("node-1");
    bench.server.create(&bound).unwrap();
    bench.server.edit("Pod", "default", "a", |pod| pod["status"]["podIP"] = json!("127.0.0.1")).unwrap();
    let pods = Api::<Pod>::namespaced(bench.client.clone(), "default");
    let mut forwarded = pods.portforward("a", &[one, 1, other]).await.unwrap();
    let mut streams = [one, other].map(|port| (port, forwarded.take_stream(port).unwrap()));
    for (port, stream) in &mut streams {
        stream.write_all(format!("to {port}").as_bytes()).await.unwrap();
    }
    // A stream ends with the last of them: this protocol can't close one alone.
    for (port, mut stream) in streams {
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, format!("heard to {port}"));
    }
    let refused = forwarded.take_error(1).unwrap().await.unwrap();
    assert!(
        refused.starts_with("error forwarding port 1 to pod ") && refused.ends_with("connection refused"),
        "{refused}"
    );
}

#[tokio::test]
async fn port_forward_without_websocket_is_refused() {
    let bench = Bench::new().await;
    let mut bound = pod("a");
    bound["spec"]["nodeName"] = json!("node-1");
    bench.server.create(&bound).unwrap();
    bench.server.edit("Pod", "default", "a", |pod| pod["status"]["podIP"] = json!("127.0.0.1")).unwrap();
    let path = format!("{PODS}/a/portforward");
    let ask = async |query: &str, headers: &[(&str, &str)]| {
        let (code, text) = bench.text("GET", &format!("{path}{query}"), headers, &Value::Null).await;
        (code.as_u16(), text)
    };
    let (code, said) = ask("?ports=1", &[]).await;
    assert!(code == 400 && said.contains("Upgrade request required"), "{code} {said}");
    let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    assert_eq!(
        ask("?ports=1", &[&upgrade[..], &[("sec-websocket-protocol", "chat")]].concat()).await,
        (403, String::new())
    );
    for query in ["", "?ports=", "?ports=0", "?ports=1,x", "?ports=65536"] {
        assert_eq!(
            ask(query, &[&upgrade[..], &[("sec-websocket-protocol", "v4.channel.k8s.io")]].concat()).await.0,
            400,
            "{query}"
        );
    }
}

#[tokio::test]
async fn log_is_that_of_a_container_and_of_one_start() {
    let bench = Bench::new().await;
    let mut two = pod("a");
    two["spec"]["initContainers"] = json!([{ "name": "first", "image": "i" }]);
    bench.server.create(&two).unwrap();
    bench.server.write_log(["default", "a", "main"], false, "one\ntwo\nthree\n");
    bench.server.write_log(["default", "a", "main"], true, "before\n");
    let ask = async |query: &str| bench.text("GET", &format!("{PODS}/a/log{query}"), &[], &Value::Null).await;
    for (query, expected) in [
        ("?container=main", "one\ntwo\nthree\n"),
        ("?container=main&tailLines=2", "two\nthree\n"),
        ("?container=main&tailLines=9", "one\ntwo\nthree\n"),
        ("?container=main&previous=true", "before\n"),
        ("?container=first", ""),
    ] {
        assert_eq!(ask(query).await, (StatusCode::OK, expected.to_owned()), "{query}");
    }
    for (query, why) in [
        ("", "a container name must be specified for pod a, choose one of"),
        ("?container=x", "container x is not valid for pod a"),
        ("?container=first&previous=true", r#"previous terminated container \"first\" in pod \"a\" not found"#),
    ] {
        let (code, said) = ask(query).await;
        assert!(code == StatusCode::BAD_REQUEST && said.contains(why), "{query}: {code} {said}");
    }
}

/// A port that answers what it hears first, and closes.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = [0; 64];
        let length = stream.read(&mut heard).await.unwrap();
        stream.write_all(&[b"heard ", &heard[..length]].concat()).await.unwrap();
    });
    port
}
