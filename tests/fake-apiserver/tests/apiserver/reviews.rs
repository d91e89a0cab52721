//! Who somebody is, and what he may do.

use hyper::StatusCode;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use crate::{Bench, TOKEN, client, config_map};
use fake_apiserver::User;

const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const OWN_ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const WEBHOOK: &str = "system:serviceaccount:divvy-system:divvy-webhook";

impl Bench {
    /// Who reads config maps everywhere, and who writes and lists those named `a` in `default`.
    fn with_roles(&self) {
        let binding = |kind: &str, of: &str, role: &str, subject: Value| {
            let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": role });
            let metadata = json!({ "name": format!("{}s", role["name"].as_str().unwrap()), "namespace": "default" });
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "roleRef": role, "subjects": [subject] })
        };
        let role = |kind: &str, name: &str, rule: Value| {
            let metadata = json!({ "name": name, "namespace": "default" });
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": [rule] })
        };
        let all = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"] });
        let one = json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["update", "list"], "resourceNames": ["a"] });
        let account = json!({ "kind": "ServiceAccount", "namespace": "divvy-system", "name": "divvy-webhook" });
        for object in [
            role("ClusterRole", "reader", all),
            role("Role", "writer", one),
            binding("ClusterRoleBinding", "ClusterRole", "reader", json!({ "kind": "Group", "name": "readers" })),
            binding("RoleBinding", "Role", "writer", account),
        ] {
            self.server.create(&object).unwrap();
        }
    }
}

#[tokio::test]
async fn a_token_tells_whose_it_is() {
    let bench = Bench::new().await;
    bench.server.allow("of-the-webhook", User::from(WEBHOOK).within("lab"));
    let reviews = Api::<TokenReview>::all(bench.client.clone());
    let review = async |token: &str, audiences: Option<Vec<String>>| {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences };
        let review = TokenReview { spec, ..TokenReview::default() };
        reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap()
    };
    let known = review("of-the-webhook", None).await;
    let user = known.user.unwrap();
    assert_eq!((known.authenticated, user.username.as_deref()), (Some(true), Some(WEBHOOK)));
    let groups = ["system:serviceaccounts", "system:serviceaccounts:divvy-system", "lab", "system:authenticated"];
    assert_eq!(user.groups.unwrap(), groups);
    let unknown = review("guessed", None).await;
    assert_eq!(unknown.authenticated, None);
    assert!(unknown.error.unwrap().contains("invalid bearer token"));
    let for_others = review("of-the-webhook", Some(vec!["vault".to_owned()])).await;
    assert_eq!(for_others.authenticated, None);
    assert_eq!(bench.ask("GET", "/apis/authentication.k8s.io/v1/tokenreviews", &[], &Value::Null).await.0, 405);
}

#[tokio::test]
async fn roles_and_bindings_answer_who_may_do_what() {
    let bench = Bench::new().await;
    bench.with_roles();
    let ask = async |user: &str, group: &str, verb: &str, name: &str, namespace: &str| {
        let on = json!({ "verb": verb, "resource": "configmaps", "name": name, "namespace": namespace });
        let (code, answer) =
            bench.post(ACCESS, &json!({ "spec": { "user": user, "groups": [group], "resourceAttributes": on } })).await;
        assert_eq!((code, &answer["kind"]), (StatusCode::CREATED, &json!("SubjectAccessReview")));
        answer["status"].clone()
    };
    let reason = "RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to Group \"readers\"";
    let allowed = json!({ "allowed": true, "reason": reason });
    assert_eq!(ask("ann", "readers", "get", "x", "kube-system").await, allowed);
    let refused = json!({ "allowed": false });
    assert_eq!(ask("ann", "readers", "update", "a", "default").await, refused);
    assert_eq!(ask(WEBHOOK, "g", "update", "a", "default").await["allowed"], true);
    assert_eq!(ask(WEBHOOK, "g", "update", "b", "default").await, refused);
    assert_eq!(ask(WEBHOOK, "g", "update", "a", "kube-system").await, refused);
    assert_eq!(ask("root", "system:masters", "delete", "a", "default").await["allowed"], true);
    let (code, status) = bench.post(ACCESS, &json!({ "spec": { "resourceAttributes": { "verb": "get" } } })).await;
    assert_eq!((code.as_u16(), &status["reason"]), (422, &json!("Invalid")));
}

#[tokio::test]
async fn a_guarded_server_lets_nobody_beyond_his_roles() {
    let bench = Bench::new().await;
    bench.with_roles();
    bench.server.create(&config_map("a", &json!({}))).unwrap();
    bench.server.allow("of-ann", User::from("ann").within("readers"));
    bench.server.allow(TOKEN, User::from("admin").within("system:masters"));
    bench.server.guard();
    let admin = bench;
    let bench = Bench { client: client(&admin.server, "of-ann").await, server: admin.server };
    let map = "/api/v1/namespaces/default/configmaps/a";
    assert_eq!(bench.ask("GET", map, &[], &Value::Null).await.0, StatusCode::OK);
    let (code, status) = bench.ask("DELETE", map, &[], &Value::Null).await;
    let message = "configmaps \"a\" is forbidden: User \"ann\" cannot delete resource \"configmaps\" in API group \"\" \
                   in the namespace \"default\"";
    assert_eq!((code.as_u16(), status["message"].as_str()), (403, Some(message)));
    let (_, status) = bench.ask("GET", "/api/v1/pods", &[], &Value::Null).await;
    let message =
        "pods is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
    assert_eq!(status["message"], message);
    bench.server.allow("of-the-webhook", WEBHOOK);
    let webhook = Api::<ConfigMap>::namespaced(client(&bench.server, "of-the-webhook").await, "default");
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    assert_eq!(webhook.list(&named("a")).await.unwrap().items.len(), 1, "a list of one name is asked for by it");
    for other in [named("b"), ListParams::default()] {
        assert!(webhook.list(&other).await.unwrap_err().to_string().contains("cannot list resource"));
    }
    let own = json!({ "spec": { "resourceAttributes": { "verb": "list", "resource": "configmaps" } } });
    assert_eq!(bench.post(OWN_ACCESS, &own).await.1["status"]["allowed"], true);
    assert_eq!(client(&bench.server, TOKEN).await.list_core_api_versions().await.unwrap().versions, ["v1"]);
}

#[tokio::test]
async fn a_list_of_one_name_takes_a_right_for_that_name_alone() {
    let bench = Bench::new().await;
    let rbac = "rbac.authorization.k8s.io/v1";
    let rule =
        json!({ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["list", "watch"] });
    let name = json!({ "name": "one" });
    bench
        .server
        .create(&json!({ "apiVersion": rbac, "kind": "ClusterRole", "metadata": name, "rules": [rule] }))
        .unwrap();
    let bound = json!({ "kind": "ClusterRole", "name": "one" });
    let subjects = json!([{ "kind": "User", "name": "ann" }]);
    let binding = json!({
        "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": name, "roleRef": bound, "subjects": subjects,
    });
    bench.server.create(&binding).unwrap();
    bench.server.allow("of-ann", User::from("ann"));
    bench.server.guard();
    let bench = Bench { client: client(&bench.server, "of-ann").await, server: bench.server };
    let of_default = "/api/v1/namespaces/default/configmaps";
    for (query, code) in [
        ("?fieldSelector=metadata.name%3Da", 200),
        ("?fieldSelector=metadata.name%3Da&watch=true&timeoutSeconds=1", 200),
        ("?fieldSelector=metadata.name%3Db", 403),
        ("?fieldSelector=metadata.name!%3Da", 403),
        ("", 403),
    ] {
        let (found, body) = bench.text("GET", &format!("{of_default}{query}"), &[], &Value::Null).await;
        assert_eq!(found.as_u16(), code, "{query}: {body}");
    }
}
