//! That the daemon's account, with which all else succeeds, may do no more than that.

use anyhow::ensure;
use divvy_api::ContainerKind::App;
use divvy_e2e::api::Api;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::node::NODE;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::{audit, view};
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

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
