//! Which writes a webhook hears of.

use super::*;

impl Bench {
    /// A bench with a webhook that hears of what `change` makes of its entry.
    async fn heard(change: impl FnOnce(&mut Value)) -> (Self, JsonServer) {
        let bench = Self::new().await;
        let server = webhook(|_| allowed()).await;
        let mut hook = entry("v", &server);
        change(&mut hook);
        register(&bench, "Validating", "a", &server, &[hook]);
        (bench, server)
    }
}

fn names(server: &JsonServer) -> Vec<String> {
    let reviews = server.requests().into_iter().map(|(_, review)| review["request"].clone());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    reviews
        .map(|own| format!("{} {} {}", text(&own["operation"]), text(&own["name"]), text(&own["subResource"])))
        .collect()
}

#[tokio::test]
async fn rules_name_operations_resources_and_subresources() {
    let resources = json!(["pods", "pods/ephemeralcontainers"]);
    let (bench, server) = Bench::heard(|hook| hook["rules"][0]["resources"] = resources).await;
    bench.post(MAPS, &config_map("a", &json!({}))).await;
    bench.post(PODS, &pod("a")).await;
    let path = format!("{PODS}/a");
    bench.patch("merge-patch+json", &path, &json!({ "metadata": { "labels": { "x": "y" } } })).await;
    bench.patch("merge-patch+json", &format!("{path}/status"), &json!({ "status": { "phase": "Running" } })).await;
    let debug = json!({ "spec": { "ephemeralContainers": [{ "name": "debug", "image": "sh:1" }] } });
    bench.patch("strategic-merge-patch+json", &format!("{path}/ephemeralcontainers"), &debug).await;
    bench.ask("DELETE", &path, &[], &Value::Null).await;
    assert_eq!(names(&server), ["CREATE a ", "UPDATE a ", "UPDATE a ephemeralcontainers"]);
    let request = &server.requests()[2].1["request"];
    assert_eq!(request["object"]["spec"]["ephemeralContainers"][0]["name"], "debug");
    assert_eq!(request["oldObject"]["spec"]["ephemeralContainers"], Value::Null);
}

#[tokio::test]
async fn namespaces_and_objects_are_selected_by_their_labels() {
    let (bench, server) = Bench::heard(|hook| {
        hook["namespaceSelector"] = json!({ "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"] },
        ] });
        hook["objectSelector"] = json!({ "matchLabels": { "tier": "gold" } });
    })
    .await;
    let map = |name: &str, namespace: &str, tier: &str| {
        let mut map = config_map(name, &json!({}));
        map["metadata"]["namespace"] = namespace.into();
        map["metadata"]["labels"] = json!({ "tier": tier });
        map
    };
    bench.post("/api/v1/namespaces/kube-system/configmaps", &map("a", "kube-system", "gold")).await;
    bench.post(MAPS, &map("b", "default", "gold")).await;
    bench.post(MAPS, &map("c", "default", "lead")).await;
    // It was gold before, and that is enough.
    bench.patch("merge-patch+json", &format!("{MAPS}/b"), &json!({ "metadata": { "labels": null } })).await;
    bench.patch("merge-patch+json", &format!("{MAPS}/b"), &json!({ "data": { "x": "1" } })).await;
    assert_eq!(names(&server), ["CREATE b ", "UPDATE b "]);
}

#[tokio::test]
async fn no_webhook_guards_the_configuration_of_webhooks() {
    let everything = json!([{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": "Cluster",
    }]);
    let (bench, server) = Bench::heard(|hook| hook["rules"] = everything).await;
    let configuration = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/a";
    let labels = json!({ "metadata": { "labels": { "x": "y" } } });
    assert_eq!(bench.patch("merge-patch+json", configuration, &labels).await.0, StatusCode::OK);
    bench.post("/api/v1/nodes", &crate::node("node-1")).await;
    bench.post(MAPS, &config_map("a", &json!({}))).await;
    assert_eq!(names(&server), ["CREATE node-1 "]);
}
