//! What people and their tools ask.

use fake_apiserver::User;
use http::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, pod};
use crate::https::{Answer, Https};
use crate::replica::Replica;
use crate::until;

struct Scene {
    replica: Replica,
    bench: Bench,
    https: Https,
}

impl Scene {
    /// Ann may read pods of `default` and all `GpuNode`s, Bob `GpuNode`s alone, Eve nothing.
    async fn new() -> Self {
        let bench = Bench::with_nodes(&[("n1", 1)]).await;
        let replica = bench.alone(&json!({})).await;
        let rbac = "rbac.authorization.k8s.io/v1";
        let role = |kind: &str, name: &str, group: &str, resource: &str, verb: &str| {
            let rule = json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] });
            let metadata = json!({ "name": name, "namespace": "default" });
            json!({ "apiVersion": rbac, "kind": kind, "metadata": metadata, "rules": [rule] })
        };
        let binding = |kind: &str, of: &str, role: &str, users: &[&str]| {
            let subjects: Value = users.iter().map(|user| json!({ "kind": "User", "name": user })).collect();
            json!({
                "apiVersion": rbac, "kind": kind, "metadata": { "name": role, "namespace": "default" },
                "roleRef": { "kind": of, "name": role }, "subjects": subjects,
            })
        };
        for object in [
            role("ClusterRole", "cards", "divvy.dev", "gpunodes", "list"),
            role("Role", "pods", "", "pods", "get"),
            binding("ClusterRoleBinding", "ClusterRole", "cards", &["ann", "bob"]),
            binding("RoleBinding", "Role", "pods", &["ann"]),
        ] {
            bench.server.create(&object).unwrap();
        }
        for user in ["ann", "bob", "eve"] {
            bench.server.allow(user, User::from(user));
        }
        Self { replica, https: bench.https(), bench }
    }

    async fn ask(&self, who: &str, path: &str, body: &str) -> Answer {
        let token = format!("Bearer {who}");
        let headers = [("authorization", &*token), ("content-type", "application/json")];
        let headers = if who.is_empty() { &headers[1..] } else { &headers[..] };
        let method = if body.is_empty() { Method::GET } else { Method::POST };
        self.https.ask(method, (self.replica.queries, path), headers, body.to_owned()).await
    }
}

#[tokio::test]
async fn queries_need_the_rights_of_the_caller() {
    let scene = Scene::new().await;
    scene.bench.pod(&pod("large", 80, 0)).await;
    let of_pod = "/explain?pod=default/large";
    for (who, path, code) in [
        ("", of_pod, 401),
        ("mallory", of_pod, 401),
        ("eve", of_pod, 403),
        ("bob", of_pod, 403),
        ("ann", of_pod, 200),
        ("ann", "/explain?pod=default/nobody", 404),
        ("ann", "/explain?pod=kube-system/large", 403),
        ("ann", "/explain", 400),
        ("ann", "/explain?pod=large", 400),
        ("", "/inspect", 401),
        ("eve", "/inspect", 403),
        ("bob", "/inspect", 200),
    ] {
        let answer = scene.ask(who, path, "").await;
        assert_eq!(answer.code.as_u16(), code, "{who:?} {path}: {}", answer.text());
    }
    let explained = scene.ask("ann", of_pod, "").await.json();
    assert!(explained.to_string().contains("n1"), "{explained}");
    let inspected = scene.ask("bob", "/inspect", "").await.json();
    assert_eq!(inspected.as_array().unwrap().len(), 1, "{inspected}");
}

#[tokio::test]
async fn explain_accepts_a_pod_in_the_body() {
    let scene = Scene::new().await;
    let explained = scene.ask("bob", "/explain", &pod("fits", 8, 0).to_string()).await.json();
    let large = scene.ask("bob", "/explain", &pod("large", 80, 0).to_string()).await.json();
    assert_ne!(explained, large);
    for body in ["{", "[]", "null", "\"pod\"", "{\"spec\":{\"containers\":7}}"] {
        let refused = scene.ask("bob", "/explain", body).await;
        assert_eq!(refused.code.as_u16(), 400, "{body}: {}", refused.text());
    }
    let refused = scene.ask("bob", "/explain", &" ".repeat((3 << 20) + 1)).await;
    assert_eq!(refused.code.as_u16(), 413);
}

#[tokio::test]
async fn explain_suggests_what_the_caller_may_see() {
    let scene = Scene::new().await;
    let server = &scene.bench.server;
    let mut batch = pod("batch", 30, 0);
    batch["spec"]["restartPolicy"] = "Never".into();
    let batch = scene.bench.pod(&batch).await;
    server.bind("default", "batch", "n1", &json!({})).unwrap();
    let uid = batch["metadata"]["uid"].clone();
    let share = json!({
        "podUid": uid, "namespace": "default", "pod": "batch", "container": "main", "card": "GPU-n1-0", "memoryMi": 30720,
        "cores": 0,
    });
    scene.bench.report("n1", |status| status["shares"] = json!([share]));
    let large = pod("large", 35, 0).to_string();
    let suggestions = async || scene.ask("bob", "/explain", &large).await.json()["suggestions"].clone();
    until("the share in an explanation", async || {
        let found = suggestions().await;
        (found[1]["kind"] == "endOfPods").then_some(())
    })
    .await;
    // Bob may list GpuNodes alone.
    let text = suggestions().await[1]["text"].clone();
    assert_eq!(text, format!("n1 has GPUs for it once {} ends", uid.as_str().unwrap()));

    let rbac = "rbac.authorization.k8s.io/v1";
    let rules = json!([{ "apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"] }]);
    let role = json!({ "apiVersion": rbac, "kind": "ClusterRole", "metadata": { "name": "look" }, "rules": rules });
    let subjects = json!([{ "kind": "User", "name": "bob" }]);
    let binding = json!({
        "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": { "name": "look" },
        "roleRef": { "kind": "ClusterRole", "name": "look" }, "subjects": subjects,
    });
    server.create(&role).unwrap();
    server.create(&binding).unwrap();
    assert_eq!(suggestions().await[1]["text"], "n1 has GPUs for it once default/batch (ends by itself) ends");
    assert_eq!(
        suggestions().await[0]["text"],
        "n1 has GPUs for it now if main asks for nvidia.com/gpumem 10Gi instead of 35Gi"
    );
    let taint = json!([{ "key": "team", "value": "ml", "effect": "NoSchedule" }]);
    server.edit("Node", "", "n1", |node| node["spec"]["taints"] = taint).unwrap();
    assert_eq!(suggestions().await, Value::Null, "there is no other node");
    let small = scene.ask("bob", "/explain", &pod("small", 8, 0).to_string()).await.json();
    let text = "n1 has GPUs for it, but the pod doesn't tolerate the node's taint team=ml:NoSchedule";
    assert_eq!(small["suggestions"][0]["text"], text, "{small}");
}

/// What is asked of the API server in our name is what the caller may ask himself.
#[tokio::test]
async fn pod_name_cannot_escape_its_api_path() {
    let scene = Scene::new().await;
    scene.bench.pod(&pod("a", 8, 0)).await;
    let before = scene.bench.server.requests().len();
    for name in [
        "default/../../kube-system/pods/a",
        "default/",
        "default/a/status",
        "default/a%3Fwatch%3Dtrue",
        "default/a%23",
        "/a",
        "default/%2e%2e",
        "default/a%20b",
        "default/A",
    ] {
        let answer = scene.ask("ann", &format!("/explain?pod={name}"), "").await;
        assert_eq!(answer.code.as_u16(), 400, "{name}: {}", answer.text());
    }
    let asked = scene.bench.server.requests().split_off(before);
    let read: Vec<_> =
        asked.iter().filter(|request| request.verb == "get" && request.path.contains("/pods/")).collect();
    assert!(read.is_empty(), "{read:?}");
}
