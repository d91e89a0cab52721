//! Match conditions, among them those of this project's own webhooks.

use super::*;

/// What `divvy-webhook` asks of pods, word for word.
const ASKS_FOR_CARDS: &str = "[object].exists(pod,
  pod.?metadata.?annotations.orValue({}).exists(key, key.startsWith('divvy.dev/')) ||
  (pod.?spec.?containers.orValue([]) + pod.?spec.?initContainers.orValue([])
    + pod.?spec.?ephemeralContainers.orValue([])).exists(container,
    [container.?resources.?limits.orValue({}), container.?resources.?requests.orValue({})].exists(amounts,
      amounts.exists(name, name.startsWith('nvidia.com/mig-') ||
        name in ['nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores']))))";

/// Of workloads; the first is as above, of their template.
const BY_PEOPLE: &str = "!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))";
const CHANGED: &str = "oldObject == null || object.spec != oldObject.spec";

fn conditions(expressions: &[&str]) -> Value {
    let own = expressions.iter().enumerate();
    own.map(|(at, expression)| json!({ "name": format!("c{at}"), "expression": expression })).collect()
}

#[tokio::test]
async fn pods_that_ask_for_cards_are_told_from_all_others() {
    let bench = Bench::new().await;
    let server = webhook(|_| allowed()).await;
    let mut hook = entry("v", &server);
    hook["rules"][0]["resources"] = json!(["pods"]);
    hook["matchConditions"] = conditions(&[ASKS_FOR_CARDS]);
    register(&bench, "Mutating", "a", &server, &[hook]);
    let with = |name: &str, list: &str, limits: Value| {
        let mut pod = pod(name);
        pod["spec"]["containers"][0]["resources"] = Value::Null;
        let own = json!({ "name": "own", "image": "own:1", "resources": { "limits": limits } });
        match pod["spec"][list].as_array_mut() {
            Some(containers) => containers.push(own),
            None => pod["spec"][list] = json!([own]),
        }
        pod
    };
    let mut annotated = with("annotated", "containers", Value::Null);
    annotated["metadata"]["annotations"] = json!({ "divvy.dev/numa": "strict" });
    for pod in [
        with("card", "containers", json!({ "nvidia.com/gpu": "1" })),
        with("none", "containers", json!({ "cpu": "1", "nvidia.com/gpu.shared": "1" })),
        with("slice", "initContainers", json!({ "nvidia.com/mig-1g.10gb": "1" })),
        annotated,
        with("bare", "containers", Value::Null),
    ] {
        let (code, status) = bench.post(PODS, &pod).await;
        assert_eq!(code, StatusCode::CREATED, "{status}");
    }
    let heard: Vec<_> = server.requests().into_iter().map(|(_, review)| review["request"]["name"].clone()).collect();
    assert_eq!(heard, ["card", "slice", "annotated"]);
}

#[tokio::test]
async fn workloads_are_heard_of_when_people_change_what_they_want() {
    let bench = Bench::new().await;
    let server = webhook(|_| allowed()).await;
    let mut hook = entry("v", &server);
    hook["rules"][0]["apiGroups"] = json!(["apps", "batch"]);
    hook["rules"][0]["resources"] = json!(["deployments", "cronjobs", "replicasets"]);
    let template = "[object.spec.?jobTemplate.?spec.orValue(object.spec).template]";
    let asks = ASKS_FOR_CARDS.replacen("[object]", template, 1);
    hook["matchConditions"] = conditions(&[&asks, BY_PEOPLE, CHANGED]);
    hook["failurePolicy"] = "Fail".into();
    register(&bench, "Validating", "a", &server, &[hook]);
    let template =
        |limits: Value| json!({ "spec": { "containers": [{ "name": "main", "resources": { "limits": limits } }] } });
    let (cards, none) = (template(json!({ "nvidia.com/gpu": "1" })), template(json!({})));
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    for (path, name, spec, owned) in [
        (deployments, "cards", json!({ "template": cards }), false),
        (deployments, "none", json!({ "template": none }), false),
        ("/apis/apps/v1/namespaces/default/replicasets", "owned", json!({ "template": cards }), true),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            "nightly",
            json!({ "jobTemplate": { "spec": { "template": cards } } }),
            false,
        ),
    ] {
        let owner =
            json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "u", "controller": true }]);
        let owners = if owned { owner } else { json!([]) };
        let (code, made) =
            bench.post(path, &json!({ "metadata": { "name": name, "ownerReferences": owners }, "spec": spec })).await;
        assert_eq!(code, StatusCode::CREATED, "{made}");
    }
    let path = format!("{deployments}/cards");
    bench.patch("merge-patch+json", &path, &json!({ "metadata": { "annotations": { "x": "y" } } })).await;
    bench.patch("merge-patch+json", &path, &json!({ "spec": { "replicas": 2 } })).await;
    let heard = server.requests().into_iter().map(|(_, review)| {
        let request = &review["request"];
        format!("{} {}", request["operation"].as_str().unwrap(), request["name"].as_str().unwrap())
    });
    assert_eq!(heard.collect::<Vec<_>>(), ["CREATE cards", "CREATE nightly", "UPDATE cards"]);
}

#[tokio::test]
async fn failing_match_condition_follows_the_failure_policy() {
    let bench = Bench::new().await;
    let server = webhook(|_| json!({ "allowed": false })).await;
    let mut hook = entry("v", &server);
    hook["matchConditions"] = conditions(&["object.nothing.here == 1"]);
    register(&bench, "Validating", "a", &server, std::slice::from_ref(&hook));
    let (code, status) = bench.post(MAPS, &config_map("a", &json!({}))).await;
    assert_eq!((code.as_u16(), &status["reason"]), (403, &json!("Forbidden")));
    assert!(status["message"].as_str().unwrap().starts_with("configmaps \"a\" is forbidden: expression"), "{status}");
    // One that doesn't hold settles it.
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/a";
    let both = conditions(&["object.nothing.here == 1", "request.userInfo.username == 'nobody'"]);
    let change = json!([{ "op": "replace", "path": "/webhooks/0/matchConditions", "value": both }]);
    bench.patch("json-patch+json", path, &change).await;
    assert_eq!(bench.post(MAPS, &config_map("a", &json!({}))).await.0, StatusCode::CREATED);
    let ignore = json!([
        { "op": "remove", "path": "/webhooks/0/matchConditions/1" },
        { "op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore" },
    ]);
    bench.patch("json-patch+json", path, &ignore).await;
    assert_eq!(bench.post(MAPS, &config_map("b", &json!({}))).await.0, StatusCode::CREATED);
    assert!(server.requests().is_empty());
}
