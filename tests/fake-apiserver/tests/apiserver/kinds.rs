//! What the server fills in for single kinds, and the guards that leaders and certificate keepers rely on.

use hyper::StatusCode;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Error};
use serde_json::{Value, json};

use crate::{Bench, pod};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[tokio::test]
async fn a_secrets_plain_texts_are_kept_encoded() {
    let bench = Bench::new().await;
    let secret =
        json!({ "metadata": { "name": "a" }, "stringData": { "x": "new" }, "data": { "x": "b2xk", "y": "eQ==" } });
    let (code, made) = bench.post(SECRETS, &secret).await;
    assert_eq!((code, &made["type"]), (StatusCode::CREATED, &json!("Opaque")));
    assert_eq!((&made["data"], &made["stringData"]), (&json!({ "x": "bmV3", "y": "eQ==" }), &Value::Null));
    let secrets = Api::<Secret>::namespaced(bench.client.clone(), "default");
    assert_eq!(secrets.get("a").await.unwrap().data.unwrap()["x"].0, b"new");
    let patch = json!({ "stringData": { "y": "later" } });
    let (_, patched) = bench.patch("merge-patch+json", &format!("{SECRETS}/a"), &patch).await;
    assert_eq!(patched["data"], json!({ "x": "bmV3", "y": "bGF0ZXI=" }));
    let (code, status) =
        bench.post(SECRETS, &json!({ "metadata": { "name": "b" }, "data": { "x": "not base64" } })).await;
    assert_eq!((code, &status["reason"]), (StatusCode::BAD_REQUEST, &json!("BadRequest")));
}

#[tokio::test]
async fn of_two_who_take_a_lease_one_is_refused() {
    let bench = Bench::new().await;
    let leases = Api::<Lease>::namespaced(bench.client.clone(), "default");
    let lease = json!({ "metadata": { "name": "leader" }, "spec": { "holderIdentity": "old" } });
    let made = leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let take = async |holder: &str, version: Option<String>| {
        let mut lease = made.clone();
        lease.metadata.resource_version = version;
        lease.spec.get_or_insert_default().holder_identity = Some(holder.to_owned());
        leases.replace("leader", &PostParams::default(), &lease).await
    };
    let version = || made.metadata.resource_version.clone();
    take("one", version()).await.unwrap();
    let Err(Error::Api(late)) = take("two", version()).await else { panic!("taken twice") };
    assert_eq!((late.code, late.reason.as_str()), (409, "Conflict"));
    let Err(Error::Api(blind)) = take("two", None).await else { panic!("taken without a look") };
    assert_eq!((blind.code, blind.reason.as_str()), (422, "Invalid"));
}

#[tokio::test]
async fn a_webhooks_authority_can_be_applied_alone() {
    let bench = Bench::new().await;
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "a" },
        "webhooks": [{
            "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": { "service": { "name": "a", "namespace": "default", "path": "/mutate" } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
        }],
    });
    let made = bench.server.create(&configuration).unwrap();
    let webhook = &made["webhooks"][0];
    assert_eq!((&webhook["failurePolicy"], &webhook["timeoutSeconds"]), (&json!("Fail"), &json!(10)));
    assert_eq!((&webhook["reinvocationPolicy"], &webhook["rules"][0]["scope"]), (&json!("Never"), &json!("*")));
    assert_eq!(webhook["clientConfig"]["service"]["port"], 443);
    let configurations = Api::<MutatingWebhookConfiguration>::all(bench.client.clone());
    let apply = Patch::Apply(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "webhooks": [{ "name": "a.example.com", "clientConfig": { "caBundle": "Y2E=" } }],
    }));
    let applied = configurations.patch("a", &PatchParams::apply("divvy-webhook"), &apply).await.unwrap();
    let [webhook] = applied.webhooks.unwrap().try_into().unwrap();
    assert_eq!(webhook.client_config.ca_bundle.unwrap().0, b"ca");
    assert_eq!(webhook.client_config.service.unwrap().path.as_deref(), Some("/mutate"));
    // With a test in front, a patch that came late changes nothing.
    let place = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/a";
    let patch = json!([
        { "op": "test", "path": "/webhooks/0/name", "value": "b.example.com" },
        { "op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "Yg==" },
    ]);
    assert_eq!(bench.patch("json-patch+json", place, &patch).await.0, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn containers_for_debugging_are_added_in_a_way_of_their_own() {
    let bench = Bench::new().await;
    bench.server.create(&pod("a")).unwrap();
    let place = "/api/v1/namespaces/default/pods/a";
    let patch = json!({ "metadata": { "labels": { "x": "y" } }, "spec": {
        "ephemeralContainers": [{ "name": "debug", "image": "sh:1" }], "nodeName": "node-1",
    } });
    assert_eq!(
        bench.patch("strategic-merge-patch+json", place, &patch).await.0,
        StatusCode::UNPROCESSABLE_ENTITY,
        "not the way"
    );
    let (code, patched) =
        bench.patch("strategic-merge-patch+json", &format!("{place}/ephemeralcontainers"), &patch).await;
    assert_eq!((code, &patched["spec"]["ephemeralContainers"][0]["name"]), (StatusCode::OK, &json!("debug")));
    assert_eq!((&patched["metadata"]["labels"], &patched["spec"]["nodeName"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_workloads_scale_has_its_selector_as_text() {
    let bench = Bench::new().await;
    let selector = json!({
        "matchLabels": { "app": "a" },
        "matchExpressions": [
            { "key": "tier", "operator": "In", "values": ["y", "x"] }, { "key": "old", "operator": "DoesNotExist" },
        ],
    });
    let template = json!({ "metadata": { "labels": { "app": "a", "tier": "x" } }, "spec": { "containers": [] } });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" },
        "spec": { "replicas": 3, "selector": selector, "template": template },
    });
    bench.server.create(&deployment).unwrap();
    let scale = Api::<Deployment>::namespaced(bench.client.clone(), "default").get_scale("a").await.unwrap();
    assert_eq!((scale.metadata.name.as_deref(), scale.spec.unwrap().replicas), (Some("a"), Some(3)));
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("app=a,!old,tier in (x,y)"));
}
