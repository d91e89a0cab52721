//! Containers that request no GPU, where they are to see none.

use anyhow::ensure;
use divvy_api::ContainerKind::App;
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::{image, pods, view};
use divvy_systems::CRITICAL;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

const NAMESPACES: &str = "/api/v1/namespaces";
/// The one with the label.
const HIDES: &str = "hides";
const VARIABLE: &str = "NVIDIA_VISIBLE_DEVICES";

/// The API server has pods of labelled namespaces, and ephemeral containers of theirs and of GPU pods, changed so that
/// their images' own variable doesn't count.
pub(crate) async fn from_those_that_request_none(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    let labels = json!({"divvy.dev/hide-gpus": "true"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HIDES, "labels": labels}});
    cluster.api.create(NAMESPACES, &namespace).await?;
    let account = format!("{NAMESPACES}/{HIDES}/serviceaccounts/default");
    cluster.until("the namespace's service account", PATIENCE, async |this| this.api.find(&account).await).await?;

    decided_by_label_and_request(cluster).await?;
    added_to_a_pod(cluster).await?;
    // On the host's network, as all pods are that run here: left alone.
    let plain = pods::plain(&PodShape::new("plain").with(App, "main", &[]));
    for namespace in [HIDES, "default"] {
        cluster.api.create(&format!("{NAMESPACES}/{namespace}/pods"), &plain).await?;
    }
    let part = PodShape::new("part").with(App, "main", &[("gpu", "1"), ("gpumem", "1Gi")]);
    cluster.create_objects(vec![pods::plain(&part)]).await?;
    let cases = [(HIDES, "plain", false, false), ("default", "plain", false, false), ("default", "part", false, true)];
    for (namespace, pod, is_hidden, is_debugger_hidden) in cases {
        until_ready(cluster, namespace, pod).await?;
        let sees = environment(cluster, namespace, pod, "main").await?.contains(&format!("{VARIABLE}=void"));
        ensure!(sees == is_hidden, "{namespace}/{pod}: the variable is set: {sees}");
        let warnings = debug(cluster, namespace, pod).await?;
        println!("  kubectl debug --namespace={namespace} {pod}: {warnings:?}");
        let is_set = environment(cluster, namespace, pod, "debug").await?.contains(&format!("{VARIABLE}=void"));
        let is_told = warnings.contains("sees no GPU");
        ensure!(
            (is_set, is_told) == (is_debugger_hidden, is_debugger_hidden),
            "the debugger of {namespace}/{pod}: the variable is set: {is_set}, kubectl warned: {is_told}"
        );
    }

    cluster.api.delete(&format!("{NAMESPACES}/{HIDES}")).await?;
    let namespace = format!("{NAMESPACES}/{HIDES}");
    cluster
        .until("end of the namespace", PATIENCE, async |this| {
            Ok(this.api.find(&namespace).await?.is_none().then_some(()))
        })
        .await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

/// New pods, by what the API server would store.
async fn decided_by_label_and_request(cluster: &Cluster) -> anyhow::Result<()> {
    let stored_with = async |spec: &Value, namespace: &str, resources: Value, variables: Value| {
        let container = json!({"name": "main", "image": "x", "resources": {"limits": resources}, "env": variables});
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"}, "spec": spec});
        pod["spec"]["containers"] = json!([container]);
        let pod = cluster.api.create(&format!("{NAMESPACES}/{namespace}/pods?dryRun=All"), &pod).await?;
        anyhow::Ok(pod["spec"]["containers"][0]["env"].clone())
    };
    let stored = async |namespace: &str, resources: Value, variables: Value| {
        stored_with(&json!({}), namespace, resources, variables).await
    };
    let all = json!([{"name": VARIABLE, "value": "all"}]);
    let void = json!([{"name": VARIABLE, "value": "void"}]);
    ensure!(stored(HIDES, json!({}), Value::Null).await? == void, "without a request");
    ensure!(stored(HIDES, json!({"nvidia.com/gpu.shared": "0"}), Value::Null).await? == void, "with a request of zero");
    ensure!(stored(HIDES, json!({"nvidia.com/gpu": "1"}), Value::Null).await?.is_null(), "with a request");
    ensure!(stored("default", json!({}), all.clone()).await? == all, "without the label");
    ensure!(stored(HIDES, json!({}), all.clone()).await? == void, "with a variable that selects all GPUs");
    let critical = CRITICAL.map(|class| json!({"priorityClassName": class}));
    for spec in critical.iter().chain([&json!({"hostNetwork": true})]) {
        ensure!(stored_with(spec, HIDES, json!({}), all.clone()).await? == all, "what the webhook may need: {spec}");
    }
    Ok(())
}

/// An ephemeral container of a pod that nobody schedules, as the API server has it.
async fn added_to_a_pod(cluster: &Cluster) -> anyhow::Result<()> {
    let mut pod = pods::plain(&PodShape::new("waits").with(App, "main", &[]));
    (pod["spec"]["hostNetwork"], pod["spec"]["schedulerName"]) = (json!(false), json!("nobody"));
    let pods = format!("{NAMESPACES}/{HIDES}/pods");
    let created = cluster.api.create(&pods, &pod).await?;
    let void = json!([{"name": VARIABLE, "value": "void"}]);
    ensure!(created["spec"]["containers"][0]["env"] == void, "the container that the image's variable is for");
    let debugger = json!({"name": "debug", "image": image::WORK});
    let change = json!({"spec": {"ephemeralContainers": [debugger]}});
    let changed = cluster.api.patch(&format!("{pods}/waits/ephemeralcontainers"), Part::Object, &change).await?;
    ensure!(changed["spec"]["ephemeralContainers"][0]["env"] == void, "its debugger");
    Ok(())
}

async fn until_ready(cluster: &mut Cluster, namespace: &str, pod: &str) -> anyhow::Result<()> {
    let path = format!("{NAMESPACES}/{namespace}/pods/{pod}");
    let ready = async |this: &mut Cluster| Ok(this.api.find(&path).await?.filter(view::is_ready).map(drop));
    cluster.until(&format!("pod {namespace}/{pod} that is ready"), PATIENCE, ready).await
}

/// Adds an ephemeral container, and waits until it runs. Returns what kubectl said.
async fn debug(cluster: &mut Cluster, namespace: &str, pod: &str) -> anyhow::Result<String> {
    let (namespaced, image) = (format!("--namespace={namespace}"), format!("--image={}", image::WORK));
    let args = ["debug", &namespaced, pod, &image, "--container=debug", "--", "/bin/busybox", "sleep", "1000000"];
    let warnings = cluster.kubectl.say(&args).await?.warnings;
    let path = format!("{NAMESPACES}/{namespace}/pods/{pod}");
    cluster
        .until(&format!("debugger of pod {namespace}/{pod}"), PATIENCE, async |this| {
            let pod = this.api.get(&path).await?;
            Ok((!pod["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_null()).then_some(()))
        })
        .await?;
    Ok(warnings)
}

/// What a process has that is started in the container.
pub(crate) async fn environment(
    cluster: &Cluster,
    namespace: &str,
    pod: &str,
    container: &str,
) -> anyhow::Result<String> {
    let (namespaced, container) = (format!("--namespace={namespace}"), format!("--container={container}"));
    cluster.kubectl.run(&["exec", &namespaced, pod, &container, "--", "/bin/busybox", "env"]).await
}
