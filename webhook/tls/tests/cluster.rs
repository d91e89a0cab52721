use axum::Json;
use axum::routing::post;
use divvy_runtime::api_server;
use fake_apiserver::{ApiServer, View};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;

const SECRET: &str = "divvy-webhook-tls";
const CONFIGURATION: &str = "divvy-webhook";
const KINDS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
const ACCOUNT: &str = "system:serviceaccount:divvy-system:divvy-webhook";

struct Bench {
    server: ApiServer,
    stop: CancellationToken,
}

// === impl Bench ===

impl Bench {
    async fn new() -> Self {
        let server = ApiServer::start(&[("webhook", ACCOUNT)]).await.unwrap();
        let bench = Self { server, stop: CancellationToken::new() };
        bench.create("v1", "Namespace", "", "divvy-system", &json!({}));
        bench
    }

    fn create(&self, version: &str, kind: &str, namespace: &str, name: &str, rest: &Value) {
        let mut object = rest.clone();
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"] = json!({ "name": name, "namespace": namespace });
        self.server.create(&object).unwrap();
    }

    async fn api_server(&self) -> api_server::ApiServer {
        let kubeconfig = Kubeconfig::from_yaml(&self.server.kubeconfig("webhook")).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        api_server::ApiServer::new(config).unwrap()
    }

    /// A replica that keeps the Secret.
    async fn replica(&self) -> Identity {
        let identity = Identity::unknown();
        let keeper =
            keep_secret(self.api_server().await, SECRET.to_owned(), service(), identity.clone(), self.stop.clone());
        tokio::spawn(keeper);
        identity
    }

    async fn keeps_bundle(&self, identity: &Identity) {
        let keeper = keep_bundle(
            self.api_server().await,
            Bundles::Webhooks(CONFIGURATION.to_owned()),
            identity.clone(),
            self.stop.clone(),
        );
        tokio::spawn(keeper);
    }

    fn configure(&self, kind: &str, names: &[&str]) {
        let service = json!({ "name": "divvy-webhook", "namespace": "divvy-system" });
        let hook = |name: &&str| json!({ "name": name, "clientConfig": { "service": service }, "sideEffects": "None", "admissionReviewVersions": ["v1"] });
        let webhooks: Vec<Value> = names.iter().map(hook).collect();
        self.create("admissionregistration.k8s.io/v1", kind, "", CONFIGURATION, &json!({ "webhooks": webhooks }));
    }

    fn certificate(&self) -> Option<CertificateDer<'static>> {
        let secret: Secret = serde_json::from_value(self.server.get("Secret", "divvy-system", SECRET)?).unwrap();
        CertificateDer::from_pem_slice(&secret.data?.get("tls.crt")?.0).ok()
    }

    /// Waits until all bundles of a configuration are `bundle`.
    async fn filled_in(&self, kind: &str, bundle: &str) {
        let look = |view: &View<'_>| {
            let object = view.get(kind, "", CONFIGURATION)?;
            let webhooks = object["webhooks"].as_array()?;
            webhooks.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == bundle).then_some(())
        };
        timeout(LONG, self.server.wait_for(look)).await.unwrap_or_else(|_| panic!("{kind} isn't filled in"));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits for an identity to show another certificate than this one.
async fn shows_another(identity: &Identity, than: Option<&CertificateDer<'static>>) -> Arc<Credentials> {
    let mut credentials = identity.subscribe();
    let another = credentials.wait_for(|now| now.as_ref().is_some_and(|now| Some(&leaf(now)) != than));
    timeout(LONG, another).await.expect("another certificate").unwrap().clone().unwrap()
}

#[tokio::test]
async fn replicas_that_start_at_once_agree_on_one_authority() {
    let bench = Bench::new().await;
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(bench.replica().await);
    }
    for identity in &replicas {
        let credentials = shows_another(identity, None).await;
        assert_eq!(Some(leaf(&credentials)), bench.certificate());
    }
    let secret = bench.server.get("Secret", "divvy-system", SECRET).unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");
    let written = |verb: &str| {
        bench.server.requests().iter().filter(|request| request.verb == verb && request.code < 300).count()
    };
    assert_eq!((written("create"), written("update")), (1, 0));
}

#[tokio::test]
async fn damaged_secret_is_reissued_and_keeps_other_data() {
    let bench = Bench::new().await;
    let replicas = [bench.replica().await, bench.replica().await];
    let mut last = None;
    for damage in ["none", "delete", "empty", "garble"] {
        match damage {
            "delete" => drop(bench.server.delete("Secret", "divvy-system", SECRET, None).unwrap()),
            "empty" => drop(
                bench
                    .server
                    .edit("Secret", "divvy-system", SECRET, |secret| secret["data"] = json!({ "own": "YQ==" }))
                    .unwrap(),
            ),
            "garble" => drop(
                bench
                    .server
                    .edit("Secret", "divvy-system", SECRET, |secret| secret["data"]["tls.crt"] = "YQ==".into())
                    .unwrap(),
            ),
            _ => {}
        }
        let mut seen = Vec::new();
        for identity in &replicas {
            seen.push(leaf(&*shows_another(identity, last.as_ref()).await));
        }
        assert_eq!(seen[0], seen[1], "{damage}");
        assert_eq!(Some(&seen[0]), bench.certificate().as_ref(), "{damage}");
        last = seen.pop();
    }
    assert_eq!(bench.server.get("Secret", "divvy-system", SECRET).unwrap()["data"]["own"], "YQ==");
}

#[tokio::test]
async fn certificate_stays_while_the_api_server_is_away() {
    let bench = Bench::new().await;
    bench.server.fail("create", "/secrets", 1, hyper::StatusCode::FORBIDDEN);
    let identity = bench.replica().await;
    let first = leaf(&*shows_another(&identity, None).await);
    bench.server.go_away().await;
    bench.server.edit("Secret", "divvy-system", SECRET, |secret| secret["data"] = json!({})).unwrap();
    assert_eq!(leaf(&identity.now().unwrap()), first);
    bench.server.come_back().await;
    shows_another(&identity, Some(&first)).await;
}

#[tokio::test]
async fn ca_bundles_follow_the_authority() {
    let bench = Bench::new().await;
    let (first, second) = (issue(), issue());
    let bundles = [first.bundle(), second.bundle()];
    let identity = known(first);
    bench.configure(KINDS[0], &["mutate.divvy.dev"]);
    bench.keeps_bundle(&identity).await;
    bench.filled_in(KINDS[0], &bundles[0]).await;
    // It is applied after us.
    bench.configure(KINDS[1], &["validate.divvy.dev", "templates.divvy.dev"]);
    bench.filled_in(KINDS[1], &bundles[0]).await;
    for kind in KINDS {
        let emptied = |object: &mut Value| {
            let mut hook = object["webhooks"][0].clone();
            hook["name"] = "new.divvy.dev".into();
            hook["clientConfig"]["caBundle"] = Value::Null;
            object["webhooks"].as_array_mut().unwrap().insert(0, hook);
        };
        bench.server.edit(kind, "", CONFIGURATION, emptied).unwrap();
        bench.filled_in(kind, &bundles[0]).await;
    }
    bench.server.fail("patch", "webhookconfigurations", 2, hyper::StatusCode::CONFLICT);
    identity.set(second);
    for kind in KINDS {
        bench.filled_in(kind, &bundles[1]).await;
    }
    let hooks = bench.server.get(KINDS[1], "", CONFIGURATION).unwrap()["webhooks"].clone();
    let names: Vec<_> = hooks.as_array().unwrap().iter().map(|hook| hook["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["new.divvy.dev", "validate.divvy.dev", "templates.divvy.dev"]);
    assert_eq!(hooks[1]["clientConfig"]["service"]["name"], "divvy-webhook", "the rest stays");
}

#[tokio::test]
async fn manifest_rights_suffice_for_certificates() {
    let bench = Bench::new().await;
    let may = |group: &str, resources: &[&str], name: Option<&str>, verbs: &[&str]| {
        let names: Vec<_> = name.into_iter().collect();
        json!({ "apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs })
    };
    let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let own = [
        may("", &["secrets"], None, &["create"]),
        // The stand-in doesn't take the name of a list from its field selector; a real API server does.
        may("", &["secrets"], None, &["list", "watch"]),
        may("", &["secrets"], Some(SECRET), &["update"]),
    ];
    let everywhere = [
        may("admissionregistration.k8s.io", &configurations, None, &["list", "watch"]),
        may("admissionregistration.k8s.io", &configurations, Some(CONFIGURATION), &["patch"]),
    ];
    let version = "rbac.authorization.k8s.io/v1";
    let subject = json!({ "kind": "ServiceAccount", "namespace": "divvy-system", "name": "divvy-webhook" });
    for (kind, binding, namespace, rules) in
        [("Role", "RoleBinding", "divvy-system", &own[..]), ("ClusterRole", "ClusterRoleBinding", "", &everywhere[..])]
    {
        bench.create(version, kind, namespace, "webhook", &json!({ "rules": rules }));
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "webhook" });
        bench.create(version, binding, namespace, "webhook", &json!({ "roleRef": role, "subjects": [subject] }));
    }
    for kind in KINDS {
        bench.configure(kind, &["mutate.divvy.dev"]);
    }
    bench.server.guard();

    let identity = bench.replica().await;
    bench.keeps_bundle(&identity).await;
    let bundle = shows_another(&identity, None).await.bundle();
    for kind in KINDS {
        bench.filled_in(kind, &bundle).await;
    }
    let first = identity.now().map(|credentials| leaf(&credentials));
    bench.server.edit("Secret", "divvy-system", SECRET, |secret| secret["data"] = json!({})).unwrap();
    shows_another(&identity, first.as_ref()).await;
    let refused = bench.server.requests().into_iter().filter(|request| request.code == 403);
    let refused: Vec<_> = refused.map(|request| format!("{} {}", request.verb, request.path)).collect();
    assert_eq!(refused, [""; 0]);
}

#[tokio::test]
async fn api_server_trusts_webhook_across_authority_rotation() {
    let bench = Bench::new().await;
    let identity = bench.replica().await;
    let review = async |Json(review): Json<Value>| {
        let response = json!({ "uid": review["request"]["uid"], "allowed": true });
        Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
    };
    let (address, _stop) = serve(Router::new().route("/mutate", post(review)), for_everybody(identity.clone())).await;
    bench.server.resolve("divvy-system", "divvy-webhook", &[address]);
    let service = json!({ "name": "divvy-webhook", "namespace": "divvy-system", "path": "/mutate" });
    let rule =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] });
    let hook = json!({
        "name": "mutate.divvy.dev", "clientConfig": { "service": service }, "rules": [rule], "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
    });
    bench.create("admissionregistration.k8s.io/v1", KINDS[0], "", CONFIGURATION, &json!({ "webhooks": [hook] }));
    let maps: Api<ConfigMap> = Api::namespaced(bench.api_server().await.client, "default");
    let named = |name: &str| {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        ConfigMap { metadata, ..ConfigMap::default() }
    };
    maps.create(&PostParams::default(), &named("a")).await.expect_err("nobody is believed yet");
    bench.keeps_bundle(&identity).await;
    let first = shows_another(&identity, None).await;
    bench.filled_in(KINDS[0], &first.bundle()).await;
    maps.create(&PostParams::default(), &named("b")).await.unwrap();
    bench.server.delete("Secret", "divvy-system", SECRET, None).unwrap();
    let second = shows_another(&identity, Some(&leaf(&first))).await;
    bench.filled_in(KINDS[0], &second.bundle()).await;
    maps.create(&PostParams::default(), &named("c")).await.unwrap();
}
