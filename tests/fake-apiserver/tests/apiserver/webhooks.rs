//! Admission webhooks, called over TLS as a real API server calls them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fake_apiserver::ApiServer;
use hyper::StatusCode;
use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::{Bench, client, config_map, pod};
use divvy_testkit::json_server::JsonServer;

mod conditions;
mod failures;
mod selection;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The service that all webhooks here are reached by.
const HOST: &str = "hooks.default.svc";

/// A review that answers with these fields of a response.
async fn webhook(respond: impl Fn(&Value) -> Value + Send + Sync + 'static) -> JsonServer {
    JsonServer::start(&[HOST, "127.0.0.1"], move |_, review| {
        let mut response = respond(&review["request"]);
        response["uid"] = review["request"]["uid"].clone();
        (200, json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response }))
    })
    .await
}

fn allowed() -> Value {
    json!({ "allowed": true })
}

/// A response that patches the object.
fn patched(patch: &Value) -> Value {
    json!({ "allowed": true, "patch": BASE64_STANDARD.encode(patch.to_string()), "patchType": "JSONPatch" })
}

/// A webhook's entry, for config maps; other fields are changed by the test.
fn entry(name: &str, server: &JsonServer) -> Value {
    json!({
        "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": { "name": "hooks", "namespace": "default", "path": format!("/{name}") },
            "caBundle": BASE64_STANDARD.encode(&server.authority),
        },
        "rules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"],
        }],
    })
}

/// Has the API server call these webhooks, of kind `Mutating` or `Validating`.
fn register(bench: &Bench, kind: &str, name: &str, server: &JsonServer, webhooks: &[Value]) {
    bench.server.resolve("default", "hooks", &[server.address]);
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": { "name": name }, "webhooks": webhooks,
    });
    bench.server.create(&configuration).unwrap();
}

#[tokio::test]
async fn a_webhook_sees_the_object_with_its_defaults_and_changes_it() {
    let bench = Bench::new().await;
    let server =
        webhook(|_| patched(&json!([{ "op": "add", "path": "/metadata/labels", "value": { "x": "y" } }]))).await;
    let mut hook = entry("mutate", &server);
    hook["rules"][0]["resources"] = json!(["pods"]);
    register(&bench, "Mutating", "a", &server, &[hook]);
    let (code, made) = bench.post(&format!("{PODS}?fieldManager=tester"), &pod("a")).await;
    assert_eq!((code, &made["metadata"]["labels"]), (StatusCode::CREATED, &json!({ "x": "y" })));
    assert_eq!(bench.server.get("Pod", "default", "a").unwrap()["metadata"]["labels"], json!({ "x": "y" }));
    let [(path, review)] = server.requests().try_into().unwrap();
    assert_eq!(path, "/mutate?timeout=10s");
    let mut request = review["request"].clone();
    let object = request["object"].take();
    assert_eq!((&object["kind"], &object["spec"]["restartPolicy"]), (&json!("Pod"), &json!("Always")));
    assert_eq!(object["spec"]["containers"][0]["resources"]["requests"], json!({ "nvidia.com/gpumem": "80k" }));
    assert_eq!((&object["metadata"]["uid"], &object["status"]), (&Value::Null, &Value::Null), "not yet");
    assert_eq!(request["uid"].take().as_str().unwrap().len(), 36);
    let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
    let resource = json!({ "group": "", "version": "v1", "resource": "pods" });
    let expected = json!({
        "uid": null, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource, "name": "a",
        "namespace": "default", "operation": "CREATE", "object": null, "oldObject": null, "dryRun": false,
        "userInfo": { "username": "admin", "groups": ["system:authenticated"] },
        "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "tester" },
    });
    assert_eq!(request, expected);
}

#[tokio::test]
async fn webhooks_are_called_by_name_and_reinvoked_after_changes() {
    let bench = Bench::new().await;
    // Each appends its own name to the trail.
    let server = JsonServer::start(&[HOST], |path, review| {
        let (name, request) = (path[1..].split('?').next().unwrap(), &review["request"]);
        let trail = request["object"]["data"]["trail"].as_str().unwrap();
        let once = name == "c" && trail.contains('c');
        let patch = json!([{ "op": "replace", "path": "/data/trail", "value": format!("{trail}{name}") }]);
        let mut response = if once { allowed() } else { patched(&patch) };
        response["uid"] = request["uid"].clone();
        (200, json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response }))
    })
    .await;
    let reinvoked = |name: &str| {
        let mut hook = entry(name, &server);
        hook["reinvocationPolicy"] = "IfNeeded".into();
        hook
    };
    register(&bench, "Mutating", "second", &server, &[reinvoked("c")]);
    register(&bench, "Mutating", "first", &server, &[reinvoked("a"), entry("b", &server)]);
    let (_, made) = bench.post(MAPS, &config_map("m", &json!({ "trail": "" }))).await;
    // Of those that changed something after it, c comes last and is content, and b isn't asked twice.
    assert_eq!(made["data"]["trail"], "abca");
    assert_eq!(server.connections(), 1, "connections are kept");
}

#[tokio::test]
async fn a_denial_is_shown_in_the_webhooks_own_words_and_code() {
    let bench = Bench::new().await;
    let server = webhook(|request| match request["object"]["metadata"]["name"].as_str().unwrap() {
        "worded" => json!({ "allowed": false, "status": { "code": 422, "reason": "Invalid", "message": "no \"x\"" } }),
        "reasoned" => json!({ "allowed": false, "status": { "code": 200, "reason": "Forbidden" } }),
        "silent" => json!({ "allowed": false }),
        _ => allowed(),
    })
    .await;
    register(&bench, "Validating", "a", &server, &[entry("v", &server)]);
    for (name, code, reason, rest) in [
        ("worded", 422, json!("Invalid"), ": no \"x\""),
        ("reasoned", 400, json!("Forbidden"), ": Forbidden"),
        ("silent", 400, Value::Null, " without explanation"),
    ] {
        let (status, refusal) = bench.post(MAPS, &config_map(name, &json!({}))).await;
        let message = format!("admission webhook \"v.example.com\" denied the request{rest}");
        assert_eq!(
            (status.as_u16(), &refusal["reason"], refusal["message"].as_str()),
            (code, &reason, Some(&*message))
        );
        assert_eq!(bench.server.get("ConfigMap", "default", name), None);
    }
    assert_eq!(bench.post(MAPS, &config_map("good", &json!({}))).await.0, StatusCode::CREATED);
    let refused = bench.server.requests().into_iter().map(|asked| asked.code).collect::<Vec<_>>();
    assert_eq!(refused, [422, 400, 400, 201], "each request is in the log once");
}

#[tokio::test]
async fn a_validating_webhook_sees_what_is_going_to_be_kept() {
    let bench = Bench::new().await;
    let server = webhook(|_| allowed()).await;
    register(&bench, "Validating", "a", &server, &[entry("v", &server)]);
    let (_, made) = bench.post(MAPS, &json!({ "metadata": { "generateName": "m-" } })).await;
    let path = format!("{MAPS}/{}", made["metadata"]["name"].as_str().unwrap());
    bench.patch("merge-patch+json", &path, &json!({ "data": { "x": "1" } })).await;
    let [(_, created), (_, updated)] = server.requests().try_into().unwrap();
    let (created, updated) = (&created["request"], &updated["request"]);
    assert_eq!((&created["operation"], &created["name"]), (&json!("CREATE"), &made["metadata"]["name"]));
    assert_eq!(created["object"]["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!((&updated["operation"], &updated["options"]["kind"]), (&json!("UPDATE"), &json!("UpdateOptions")));
    assert_eq!((&updated["oldObject"], &updated["object"]["data"]), (&made, &json!({ "x": "1" })));
}

#[tokio::test]
async fn warnings_reach_the_client_once_each() {
    let bench = Bench::new().await;
    let server = webhook(|request| {
        let denied = request["object"]["metadata"]["name"] == "bad";
        json!({ "allowed": !denied, "warnings": ["no node has \"room\"", "é"] })
    })
    .await;
    register(&bench, "Validating", "a", &server, &[entry("one", &server), entry("two", &server)]);
    for name in ["good", "bad"] {
        let request = hyper::Request::post(MAPS).header("content-type", "application/json");
        let body = config_map(name, &json!({})).to_string().into_bytes();
        let response = bench.client.send(request.body(kube::client::Body::from(body)).unwrap()).await.unwrap();
        let warnings: Vec<_> =
            response.headers().get_all("warning").iter().map(|own| own.as_bytes().to_vec()).collect();
        assert_eq!(warnings, [b"299 - \"no node has \\\"room\\\"\"".to_vec(), "299 - \"é\"".as_bytes().to_vec()]);
    }
}

#[tokio::test]
async fn kubectl_shows_what_a_webhook_says() {
    let bench = Bench::new().await;
    let Some(kubectl) = Kubectl::of(&bench) else { return };
    let server = webhook(|request| {
        let denied = request["object"]["data"]["x"] == "bad";
        json!({ "allowed": !denied, "status": { "code": 422, "message": "x is bad" }, "warnings": ["no node has room"] })
    })
    .await;
    register(&bench, "Validating", "a", &server, &[entry("v", &server)]);
    for (value, said) in [
        ("good", "Warning: no node has room\n"),
        ("bad", "admission webhook \"v.example.com\" denied the request: x is bad"),
    ] {
        kubectl.file("map.json", &config_map("a", &json!({ "x": value })));
        let output = kubectl.output("apply -f map.json").await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() == (value == "good") && stderr.contains(said), "{stderr}");
    }
}

#[tokio::test]
async fn a_write_that_was_overtaken_is_worked_out_anew() {
    let bench = Bench::new().await;
    let api: Arc<OnceLock<ApiServer>> = Arc::default();
    let (behind, calls) = (Arc::clone(&api), AtomicUsize::new(0));
    let server = webhook(move |_| {
        if calls.fetch_add(1, Ordering::Relaxed) % 2 == 0 {
            behind.get().unwrap().edit("ConfigMap", "default", "a", |map| map["data"]["theirs"] = "1".into()).unwrap();
        }
        allowed()
    })
    .await;
    bench.server.create(&config_map("a", &json!({ "mine": "0" }))).unwrap();
    register(&bench, "Validating", "a", &server, &[entry("v", &server)]);
    let client = client(&bench.server, crate::TOKEN).await;
    let server_of = |bench: Bench| api.set(bench.server).unwrap_or_else(|_| panic!("set twice"));
    let old = bench.server.get("ConfigMap", "default", "a").unwrap();
    server_of(bench);
    let ask = async |method: &str, format: &str, body: &Value| {
        let request = hyper::Request::builder().method(method).uri(format!("{MAPS}/a")).header("content-type", format);
        let body = kube::client::Body::from(body.to_string().into_bytes());
        client.send(request.body(body).unwrap()).await.unwrap().status().as_u16()
    };
    let patch = json!({ "data": { "mine": "1" } });
    assert_eq!(ask("PATCH", "application/merge-patch+json", &patch).await, 200);
    let kept = api.get().unwrap().get("ConfigMap", "default", "a").unwrap();
    assert_eq!(kept["data"], json!({ "mine": "1", "theirs": "1" }));
    assert_eq!(server.requests().len(), 2);
    assert_eq!(ask("PUT", "application/json", &old).await, 409);
}
