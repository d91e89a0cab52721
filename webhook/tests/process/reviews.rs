//! Pods and workloads on their way into the API server, over its socket.

use divvy_api::annotation::{self, RequestAnnotation};
use divvy_api::names::annotation::{NODE_FIT, OVERSUBSCRIBE, REQUEST, TIER};
use serde_json::{Value, json};

use crate::bench::{Bench, pod};

fn deployment(name: &str, spec: &Value) -> Value {
    let template = json!({ "metadata": { "labels": { "app": "x" } }, "spec": spec });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": "default" },
        "spec": { "selector": { "matchLabels": { "app": "x" } }, "template": template },
    })
}

#[tokio::test]
async fn gpu_pods_are_completed_and_others_not_reviewed() {
    let bench = Bench::with_nodes(&[("n1", 2)]).await;
    let replica = bench.alone(&json!({})).await;
    let mut two = pod("two", 8, 30);
    two["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "2".into();
    two["spec"]["containers"].as_array_mut().unwrap().push(json!({ "name": "none", "image": "x" }));
    let made = bench.pod(&two).await;
    let text = |key: &str| made["metadata"]["annotations"][key].as_str().unwrap().to_owned();
    let request: RequestAnnotation = annotation::decode(&text(REQUEST)).unwrap();
    assert_eq!(request.containers.len(), 1, "{request:?}");
    let resources = &made["spec"]["containers"][0]["resources"];
    assert_eq!(resources["limits"], resources["requests"]);
    assert_eq!(resources["limits"]["nvidia.com/gpucores"], "60", "a total of two cards");
    assert!(text(NODE_FIT).contains("n1"), "{}", text(NODE_FIT));
    let env = &made["spec"]["containers"][1]["env"];
    assert_eq!(*env, json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "void" }]));

    let reviews = replica.metric("divvy_admission_reviews_total", &[]).await;
    assert!(reviews > 1.5, "mutated and validated: {reviews}");
    let mut plain = pod("plain", 0, 0);
    plain["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1" } });
    bench.pod(&plain).await;
    let template = json!({ "containers": [{ "name": "main", "image": "x" }] });
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let made = bench.create(path, &deployment("plain", &template)).await;
    assert_eq!((made.code, &made.warnings[..]), (201, &[][..]));
    assert!((replica.metric("divvy_admission_reviews_total", &[]).await - reviews).abs() < 0.5);
}

#[tokio::test]
async fn warnings_and_refusals_reach_the_client() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({ "favouredNamespaces": ["default"] })).await;
    let pods = "/api/v1/namespaces/default/pods";
    let large = bench.create(pods, &pod("large", 200, 0)).await;
    assert_eq!((large.code, large.warnings.len()), (201, 1), "{large:?}");
    assert!(large.warnings[0].contains("none could ever run this pod"), "{large:?}");
    for (wish, value, why) in [
        (TIER, "shim", "node(s) had tier accounting (tier shim requested)"),
        (OVERSUBSCRIBE, "true", "node(s) had tier accounting, which can't limit host memory (oversubscribe requested)"),
    ] {
        let mut wishes = pod(value, 8, 0);
        wishes["metadata"]["annotations"] = json!({ wish: value });
        let wishes = bench.create(pods, &wishes).await;
        let warning = format!("0/1 nodes are available, and none could ever run this pod: 1 {why}");
        assert!(wishes.code == 201 && wishes.warnings[0].contains(&warning), "{wishes:?}");
    }
    let mut both = pod("both", 8, 0);
    both["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem-percentage"] = "50".into();
    let both = bench.create(pods, &both).await;
    assert!(both.code >= 400, "{both:?}");
    let why = both.object["message"].as_str().unwrap();
    assert!(why.contains("mutate.divvy.dev") && why.contains("spec.containers[0].resources.limits"), "{why}");
    assert!(bench.server.get("Pod", "default", "both").is_none());
    for verdict in ["warned", "refused", "allowed"] {
        replica.counts("divvy_admission_reviews_total", &[verdict], 1.0).await;
    }
}

#[tokio::test]
async fn workloads_get_warnings_and_are_never_refused() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let fits = bench.create(path, &deployment("fits", &pod("x", 8, 0)["spec"])).await;
    assert_eq!((fits.code, &fits.warnings[..]), (201, &[][..]), "{fits:?}");
    let large = bench.create(path, &deployment("large", &pod("x", 200, 0)["spec"])).await;
    assert_eq!((large.code, large.warnings.len()), (201, 1), "{large:?}");
    assert!(large.warnings[0].contains("its pods"), "{large:?}");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "nightly", "namespace": "default" },
        "spec": { "jobTemplate": { "spec": { "template": { "spec": pod("x", 0, 200)["spec"] } } } },
    });
    let job = bench.create("/apis/batch/v1/namespaces/default/cronjobs", &job).await;
    assert_eq!((job.code, job.warnings.len()), (201, 1), "{job:?}");
    assert!(job.warnings[0].contains("gpucores"), "{job:?}");
    replica.counts("divvy_admission_reviews_total", &["templates"], 3.0).await;
}

#[tokio::test]
async fn copy_of_a_bound_pod_is_a_new_pod() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.alone(&json!({})).await;
    let mut copy = bench.pod(&pod("original", 8, 0)).await;
    copy["metadata"] = json!({
        "name": "copy", "namespace": "default", "annotations": copy["metadata"]["annotations"],
    });
    let wanted = copy["metadata"]["annotations"].clone();
    copy["metadata"]["annotations"]["divvy.dev/planned"] = "{}".into();
    copy["metadata"]["annotations"]["divvy.dev/cards"] = "{}".into();
    let made = bench.create("/api/v1/namespaces/default/pods", &copy).await;
    assert_eq!((made.code, made.warnings.len()), (201, 2), "{made:?}");
    for key in ["planned", "cards"] {
        let told = made.warnings.iter().any(|text| text.contains(&format!("annotation divvy.dev/{key}: removed")));
        assert!(told, "{made:?}");
    }
    assert_eq!(made.object["metadata"]["annotations"], wanted);
}
