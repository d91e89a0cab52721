//! That the accounts of daemon and webhook, with which all else succeeds, may do no more than that.

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_api::names::GATE;
use divvy_e2e::api::{Api, Part};
use divvy_e2e::cluster::Cluster;
use divvy_e2e::node::NODE;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::{audit, view};
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

/// What policy 7 says of the parts of a pod.
const METADATA: &str = "writes of a pod's metadata";
const ANNOTATIONS: &str = "writes of a pod's annotations";
const PARTS: &str = "writes of a pod's spec its schedulingGates alone, and of its status";

/// RBAC and policies refuse what isn't the daemon's to write, and nothing that it wrote until now.
pub(crate) async fn refused(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.create([PodShape::new("one").with(App, "main", &[("gpu", "1"), ("gpumem", "1Gi")])]).await?;
    cluster.all_running(1).await?;
    cluster.agree().await?;
    let writes = audit::writes(&cluster.files)?;
    let forbidden: Vec<_> = writes.iter().filter(|((_, code), _)| *code == 403).collect();
    ensure!(forbidden.is_empty(), "the daemon was refused: {forbidden:?}");
    let foreign = json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "b"}, "spec": {}});
    let foreign = cluster.files.write("foreign.json", foreign.to_string())?.display().to_string();
    let label = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"a": "b"}}});
    let label = cluster.files.write("label.json", label.to_string())?.display().to_string();
    // No webhook runs here that would remove them, as it does from copies.
    let mut copy = pods::object(PodShape::new("copy").with(App, "main", &[("gpu", "1")]))?;
    copy["metadata"]["annotations"]["divvy.dev/planned"] = json!("{}");
    copy["metadata"]["annotations"]["divvy.dev/cards"] = json!("{}");
    let copy = cluster.files.write("copy.json", copy.to_string())?.display().to_string();
    let cards = "divvy.dev/cards={}";
    let (daemon, admin) = (cluster.kubectl.with(&cluster.files.at("divvy-node.kubeconfig")), &cluster.kubectl);
    let planned = r#"{"metadata":{"annotations":{"divvy.dev/planned":"{}"}}}"#;
    let cases: [(_, &[&str], _); 6] = [
        (&daemon, &["label", "node", NODE, "a=b"], "cannot patch resource \"nodes\""),
        (&daemon, &["apply", "--server-side", "--subresource=status", "--filename", &label], "not label a"),
        (&daemon, &["create", "--filename", &foreign], "may write its own GpuNode, not b"),
        (
            admin,
            &["patch", "pod", "one", "--subresource=status", "--patch", planned],
            "only Divvy writes divvy.dev/planned",
        ),
        (admin, &["annotate", "--overwrite", "pod", "one", cards], "only Divvy writes divvy.dev/cards"),
        (admin, &["create", "--filename", &copy], "only Divvy writes divvy.dev/planned and divvy.dev/cards"),
    ];
    for (kubectl, args, words) in cases {
        let said = kubectl.run(args).await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(said.contains(words), "kubectl {}: \"{said}\" doesn't say \"{words}\"", args.join(" "));
    }
    bindings_repeat_annotations(cluster).await?;
    cluster.clear().await
}

/// Of a pod the webhook's account opens Divvy's gate, plans and nominates, and it evicts pods by their UID. All else is refused,
/// also in the same request.
pub(crate) async fn of_the_webhook(cluster: &mut Cluster) -> anyhow::Result<()> {
    let args = ["create", "token", "divvy-webhook", "--namespace=divvy-system"];
    cluster.files.write("webhook-token", cluster.kubectl.run(&args).await?)?;
    let webhook = Api::of_account(&cluster.files.at("divvy-webhook.kubeconfig"))?;
    let mut pod = pods::object(PodShape::new("waits").with(App, "main", &[("gpu", "1"), ("gpumem", "1Gi")]))?;
    // No webhook runs that would take it away.
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/other"}, {"name": GATE}]);
    cluster.create_objects(vec![pod]).await?;
    let [waits, eviction] = ["", "/eviction"].map(|subresource| format!("{PODS}/waits{subresource}"));
    let made = cluster.api.get(&waits).await?;
    let opened = json!([{"name": "example.com/other"}]);
    let planned = json!({"divvy.dev/planned": "{}"});
    for (subresource, patch, words) in [
        ("", json!({"metadata": {"labels": {"a": "b"}}}), METADATA),
        ("", json!({"metadata": {"finalizers": ["example.com/a"]}}), METADATA),
        ("", json!({"metadata": {"annotations": {"a": "b"}}}), ANNOTATIONS),
        ("", json!({"metadata": {"annotations": {"divvy.dev/cards": "{}"}}}), ANNOTATIONS),
        ("", json!({"metadata": {"annotations": {"divvy.dev/request": null}}}), ANNOTATIONS),
        ("", json!({"spec": {"schedulingGates": []}}), "leaves others as they are"),
        ("", json!({"spec": {"schedulingGates": [{"name": GATE}]}}), "leaves others as they are"),
        ("", json!({"spec": {"activeDeadlineSeconds": 1}}), PARTS),
        ("", json!({"spec": {"nodeSelector": {"a": "b"}, "schedulingGates": opened}}), PARTS),
        ("", json!({"metadata": {"annotations": planned, "labels": {"a": "b"}}}), METADATA),
        // Policy 2 refuses it too, and the API server tells of either.
        ("/status", json!({"metadata": {"annotations": planned}}), "divvy.dev/planned"),
        ("/status", json!({"metadata": {"annotations": {"a": "b"}}}), ANNOTATIONS),
        ("/status", json!({"metadata": {"labels": {"a": "b"}}}), METADATA),
        ("/status", json!({"status": {"phase": "Failed"}}), PARTS),
        ("/status", json!({"status": {"nominatedNodeName": NODE, "message": "x"}}), PARTS),
        ("/status", conditions(&json!([{"type": "Ready", "status": "True"}])), "leaves others as they are"),
        ("/status", conditions(&json!([])), "leaves others as they are"),
        ("/ephemeralcontainers", json!({"spec": {"ephemeralContainers": []}}), "cannot patch resource"),
        ("/resize", json!({"spec": {"containers": []}}), "cannot patch resource"),
    ] {
        let path = format!("{PODS}/waits{subresource}");
        refused_with(words, webhook.patch(&path, Part::Object, &patch).await)
            .with_context(|| format!("{path}: {patch}"))?;
    }
    refused_with("cannot delete resource", webhook.delete(&waits).await)?;
    refused_with("by its UID", webhook.create(&eviction, &evicting(&json!({}))).await)?;
    let uid = json!({"preconditions": {"uid": made["metadata"]["uid"]}});
    let at_once = json!({"preconditions": {"uid": made["metadata"]["uid"]}, "gracePeriodSeconds": 0});
    refused_with("terminationGracePeriodSeconds", webhook.create(&eviction, &evicting(&at_once)).await)?;
    let now = cluster.api.get(&waits).await?;
    ensure!(now["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"], "changed: {now}");

    // Whoever may change a pod can take these away; the API server adds them again with the next change.
    let without = json!({"metadata": {"managedFields": [{}]}});
    cluster.api.patch(&waits, Part::Object, &without).await.context("taking the managers away")?;
    let mut status = made["status"]["conditions"].as_array().cloned().unwrap_or_default();
    status.push(json!({"type": "divvy.dev/Placed", "status": "False", "reason": "Insufficient", "message": "no GPU"}));
    let mut nomination = conditions(&json!(status));
    nomination["status"]["nominatedNodeName"] = json!(NODE);
    webhook.patch(&waits, Part::Status, &nomination).await.context("nominating")?;
    let open = json!({"metadata": {"annotations": planned}, "spec": {"schedulingGates": opened}});
    webhook.patch(&waits, Part::Object, &open).await.context("opening the gate")?;
    let now = cluster.api.get(&waits).await?;
    ensure!(now["spec"]["schedulingGates"] == opened && now["status"]["nominatedNodeName"] == NODE, "{now}");
    ensure!(now["metadata"]["annotations"]["divvy.dev/planned"] == "{}", "{now}");
    webhook.create(&eviction, &evicting(&uid)).await.context("evicting by UID")?;
    cluster.clear().await
}

fn conditions(all: &Value) -> Value {
    json!({"status": {"conditions": all}})
}

fn evicting(options: &Value) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "waits", "namespace": "default"},
        "deleteOptions": options,
    })
}

fn refused_with<T>(words: &str, answer: anyhow::Result<T>) -> anyhow::Result<()> {
    let said = answer.err().with_context(|| format!("isn't refused with \"{words}\""))?.to_string();
    ensure!(said.contains(words), "\"{said}\" doesn't say \"{words}\"");
    Ok(())
}

/// Another scheduler may bind a pod whose annotations it repeats, as Volcano's does. What only Divvy knows it can't add.
async fn bindings_repeat_annotations(cluster: &mut Cluster) -> anyhow::Result<()> {
    let shape = PodShape::new("bound").with(App, "main", &[("gpu", "1"), ("gpumem", "1Gi")]);
    let mut pod = pods::object(shape)?;
    pod["spec"]["schedulerName"] = json!("another-scheduler");
    cluster.create_objects(vec![pod.clone()]).await?;
    let bind = async |api: &Api, annotations: Value| {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound", "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        });
        api.create(&format!("{PODS}/bound/binding"), &binding).await
    };
    let refused = bind(&cluster.api, json!({"divvy.dev/cards": "{}"})).await.err().map(|error| format!("{error:#}"));
    ensure!(refused.as_ref().is_some_and(|why| why.contains("only Divvy writes divvy.dev/cards")), "{refused:?}");
    let own = pod["metadata"]["annotations"].clone();
    ensure!(own["divvy.dev/request"].is_string(), "{own}");
    bind(&cluster.api, own).await?;
    cluster.until_pod("bound", |pod| view::is_ready(pod).then_some(())).await.map(drop)
}
