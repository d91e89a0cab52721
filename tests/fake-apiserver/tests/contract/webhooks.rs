//! Admission webhooks: when they are called, and what comes of their answers.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use divvy_testkit::json_server::JsonServer;
use serde_json::{Value, json};

use crate::server::{Bench, config_map, refusal};

/// Serves reviews, answered with these fields of a response.
async fn webhook(respond: impl Fn(&Value) -> Value + Send + Sync + 'static) -> JsonServer {
    JsonServer::start(&["127.0.0.1"], move |_, review| {
        let mut response = respond(&review["request"]);
        response["uid"] = review["request"]["uid"].clone();
        (200, json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response }))
    })
    .await
}

/// Has the API server call this webhook about config maps of the test's namespace, with these fields changed.
async fn register(bench: &Bench, kind: &str, server: &JsonServer, fields: Value) {
    let mut entry = json!({
        "name": format!("{}.example.com", bench.namespace), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": bench.namespace } },
        "clientConfig": {
            "url": format!("https://{}/review", server.address), "caBundle": BASE64_STANDARD.encode(&server.authority),
        },
        "rules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"],
        }],
    });
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    entry.as_object_mut().unwrap().extend(fields);
    let path = format!("/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations", kind.to_lowercase());
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": { "name": bench.namespace }, "webhooks": [entry],
    });
    bench.create(&path, &configuration).await;
}

async fn remove(bench: &Bench, kind: &str) {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations", kind.to_lowercase());
    assert_eq!(bench.delete(&format!("{path}/{}", bench.namespace), &Value::Null).await.0, 200);
}

/// Creates a config map until the answer is as it is with the webhook in force: servers learn of webhooks in time.
async fn created_until(bench: &Bench, found: impl Fn(&(u16, Value)) -> bool) -> (u16, Value) {
    let path = format!("{}?dryRun=All", bench.core("configmaps"));
    bench
        .until("answer of the webhook", async |bench| {
            let answer = bench.post(&path, &config_map("a", &json!({ "x": "1" }))).await;
            found(&answer).then_some(answer)
        })
        .await
}

pub(crate) async fn mutating_webhook_patches_the_object(bench: &Bench) {
    let change = json!([{ "op": "add", "path": "/data/y", "value": "2" }]);
    let change = BASE64_STANDARD.encode(change.to_string());
    let server = webhook(move |_| json!({ "allowed": true, "patch": change, "patchType": "JSONPatch" })).await;
    register(bench, "Mutating", &server, json!({})).await;
    created_until(bench, |(_, created)| created["data"]["y"] == "2").await;
    let created = bench.create(&bench.core("configmaps"), &config_map("a", &json!({ "x": "1" }))).await;
    assert_eq!(created["data"], json!({ "x": "1", "y": "2" }));
    let (path, review) = server.requests().pop().unwrap();
    assert_eq!(path, "/review?timeout=5s");
    let request = &review["request"];
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
    assert_eq!(request["kind"], json!({ "group": "", "version": "v1", "kind": "ConfigMap" }));
    assert_eq!(request["resource"], json!({ "group": "", "version": "v1", "resource": "configmaps" }));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("a"), &json!(bench.namespace)));
    assert_eq!((&request["object"]["data"]["x"], &request["oldObject"]), (&json!("1"), &Value::Null));
    let asked = server.requests().iter().any(|(_, review)| review["request"]["dryRun"] == true);
    assert!(asked, "about dry runs too");
    remove(bench, "Mutating").await;
}

pub(crate) async fn denial_has_the_webhooks_status(bench: &Bench) {
    let server =
        webhook(|_| json!({ "allowed": false, "status": { "code": 422, "message": "too much", "reason": "Invalid" } }));
    let server = server.await;
    register(bench, "Validating", &server, json!({})).await;
    let answer = created_until(bench, |(code, _)| *code != 201).await;
    let message = format!("admission webhook \"{}.example.com\" denied the request: too much", bench.namespace);
    assert_eq!(refusal(&answer), (422, "Invalid", &*message));
    remove(bench, "Validating").await;
}

pub(crate) async fn failing_webhook_is_an_error_or_ignored(bench: &Bench) {
    let server = JsonServer::start(&["127.0.0.1"], |_, _| (500, json!("broken"))).await;
    register(bench, "Validating", &server, json!({ "failurePolicy": "Fail" })).await;
    let answer = created_until(bench, |(code, _)| *code != 201).await;
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (500, "InternalError"));
    let begins = format!(
        "Internal error occurred: failed calling webhook \"{}.example.com\": failed to call webhook: ",
        bench.namespace
    );
    assert!(message.starts_with(&begins), "{message}");
    remove(bench, "Validating").await;
    register(bench, "Validating", &server, json!({ "failurePolicy": "Ignore" })).await;
    let seen = server.requests().len();
    created_until(bench, |(code, _)| *code == 201 && server.requests().len() > seen).await;
    remove(bench, "Validating").await;
}

pub(crate) async fn conditions_and_selectors_choose_the_objects(bench: &Bench) {
    let server = webhook(|_| json!({ "allowed": false })).await;
    let condition =
        json!({ "name": "x", "expression": "has(object.data) && 'x' in object.data && object.data['x'] == '1'" });
    let selector = json!({ "matchExpressions": [{ "key": "skip", "operator": "DoesNotExist" }] });
    register(bench, "Validating", &server, json!({ "matchConditions": [condition], "objectSelector": selector })).await;
    let (code, denied) = created_until(bench, |(code, _)| *code != 201).await;
    assert_eq!(code, 400);
    let message =
        format!("admission webhook \"{}.example.com\" denied the request without explanation", bench.namespace);
    assert_eq!(denied["message"], message);
    let other = bench.post(&bench.core("configmaps"), &config_map("b", &json!({ "x": "2" }))).await;
    assert_eq!(other.0, 201, "by its condition");
    let mut labelled = config_map("c", &json!({ "x": "1" }));
    labelled["metadata"]["labels"] = json!({ "skip": "" });
    assert_eq!(bench.post(&bench.core("configmaps"), &labelled).await.0, 201, "by its label");
    remove(bench, "Validating").await;
}
