//! The two webhook configurations: whom they call, and for what.

use divvy_api::ResourceNames;
use divvy_systems::{Dialect, match_conditions};
use serde_json::{Value, json};

use crate::objects;

/// Every webhook of these objects.
pub(crate) fn webhooks(objects: &[Value]) -> Vec<Value> {
    objects.iter().filter_map(|object| object["webhooks"].as_array()).flatten().cloned().collect()
}

/// Checks that the match conditions of all webhooks are those that these names and dialects need.
pub(crate) fn assert_conditions(webhooks: &[Value], names: &ResourceNames, dialects: &[Dialect]) {
    for webhook in webhooks {
        let name = webhook["name"].as_str().unwrap();
        let wanted = match_conditions(name, names, dialects).unwrap_or_else(|| panic!("{name} isn't known"));
        let namespace = webhook["clientConfig"]["service"]["namespace"].as_str().unwrap();
        let wanted = json!(wanted).to_string().replace(":divvy-system:", &format!(":{namespace}:"));
        assert_eq!(webhook["matchConditions"], serde_json::from_str::<Value>(&wanted).unwrap(), "{name}");
    }
}

#[test]
fn pods_without_gpus_are_not_sent_to_the_webhook() {
    let webhooks = webhooks(&objects::all("deploy/manifests"));
    let names: Vec<_> = webhooks.iter().map(|webhook| webhook["name"].as_str().unwrap()).collect();
    let known = ["mutate.divvy.dev", "hide.divvy.dev", "jobs.divvy.dev", "validate.divvy.dev", "templates.divvy.dev"];
    assert_eq!(names, known);
    // Pods without a request are, where their namespace asks for it; and there alone Jobs are changed.
    assert_eq!(webhooks[1]["namespaceSelector"]["matchLabels"], json!({ "divvy.dev/hide-gpus": "true" }));
    assert_eq!(webhooks[2]["namespaceSelector"]["matchLabels"], json!({ "divvy.dev/complete-jobs": "true" }));
    assert_conditions(&webhooks, &ResourceNames::default(), &[]);
}

#[test]
fn pages_have_the_conditions_that_annotations_need() {
    for system in divvy_systems::ALL.into_iter().filter(|system| !system.words.requests.is_empty()) {
        let dialects: Vec<Dialect> = serde_json::from_value(json!([system.name])).unwrap();
        let conditions = match_conditions("mutate.divvy.dev", &ResourceNames::default(), &dialects).unwrap();
        let (_, behind) = conditions[0].expression.split_once("key.startsWith('divvy.dev/')").unwrap();
        let (added, _) = behind.split_once(") ||\n").unwrap();
        let overview = (system.name == "kai").then(|| "docs/dialects/README.md".to_owned());
        for page in overview.into_iter().chain([system.page()]) {
            let text = std::fs::read_to_string(objects::at(&page)).unwrap();
            assert!(text.contains(&format!("`{added}`")), "{page}: {added}");
        }
    }
}

#[test]
fn every_review_of_pods_covers_their_ephemeral_containers() {
    let webhooks = webhooks(&objects::all("deploy/manifests"));
    let of_pods = webhooks.iter().filter(|webhook| webhook["rules"][0]["resources"] == json!(["pods"]));
    assert_eq!(of_pods.clone().count(), 3);
    for webhook in of_pods {
        let ephemeral = |rule: &Value| {
            rule["resources"] == json!(["pods/ephemeralcontainers"]) && rule["operations"] == json!(["UPDATE"])
        };
        assert!(webhook["rules"].as_array().unwrap().iter().any(ephemeral), "{}", webhook["name"]);
    }
}

#[test]
fn unavailable_webhook_refuses_gpu_pods_alone() {
    for webhook in webhooks(&objects::all("deploy/manifests")) {
        let advice = webhook["name"] == "templates.divvy.dev";
        assert_eq!(webhook["failurePolicy"], if advice { "Ignore" } else { "Fail" });
        assert_eq!(webhook["timeoutSeconds"], if advice { 3 } else { 10 });
        assert_eq!((&webhook["sideEffects"], &webhook["admissionReviewVersions"]), (&json!("None"), &json!(["v1"])));
        // What is filled in by the webhook isn't emptied when the manifests are applied again.
        assert_eq!(webhook["clientConfig"].get("caBundle"), None);
    }
}

#[test]
fn the_webhook_is_reached_where_it_listens() {
    let objects = objects::all("deploy/manifests");
    let service = objects::find(&objects, "Service divvy-system/divvy-webhook");
    let deployment = objects::find(&objects, "Deployment divvy-system/divvy-webhook");
    let template = &deployment["spec"]["template"];
    assert_eq!(
        service["spec"]["selector"]["app.kubernetes.io/name"],
        template["metadata"]["labels"]["app.kubernetes.io/name"]
    );
    let container = &template["spec"]["containers"][0];
    let port = |name: &Value| {
        let ports = container["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == *name).expect("a port of that name")["containerPort"].clone()
    };
    let extender = objects::find(&objects, "Service divvy-system/divvy-extender");
    assert_eq!(extender["spec"].get("selector"), None, "the leader writes its EndpointSlice");
    assert_eq!(extender["spec"]["ports"][0]["name"], "https", "as in the EndpointSlice");
    let config = crate::configuration::webhook();
    assert_eq!(
        port(&service["spec"]["ports"][0]["targetPort"]),
        config.listen_address.listener(divvy_webhook::config::Listener::Reviews).port()
    );
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(port(&container[probe]["httpGet"]["port"]), config.metrics_address.port());
    }
    for webhook in webhooks(&objects) {
        let called = &webhook["clientConfig"]["service"];
        assert_eq!(
            (&called["name"], &called["namespace"]),
            (&service["metadata"]["name"], &service["metadata"]["namespace"])
        );
        assert_eq!(format!("{}.divvy.dev", called["path"].as_str().unwrap().trim_start_matches('/')), webhook["name"]);
    }
}
