//! Pods that kubectl makes from running ones.

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_api::names::annotation::{CARDS, PLANNED, REQUEST};
use divvy_e2e::cluster::Cluster;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::{image, view};
use divvy_testkit::pods::PodShape;
use serde_json::Value;

/// What every debugger runs.
const SLEEP: [&str; 4] = ["--", "/bin/busybox", "sleep", "1000000"];

/// Copies are admitted without what Divvy wrote on the original, request the same, and get GPUs of their own.
pub(crate) async fn are_new_pods(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    cluster.restart_scheduler(true).await?;
    let pair = [("gpu", "2"), ("gpumem", "4Gi"), ("gpucores", "10")];
    let one = [("gpu", "1"), ("gpumem", "2Gi")];
    let shapes = [PodShape::new("pair").with(App, "main", &pair), PodShape::new("one").with(App, "main", &one)];
    cluster.create_objects(shapes.iter().map(pods::plain).collect()).await?;
    cluster.all_running(2).await?;
    cluster.agree().await?;
    let original = cluster.api.get(&format!("{PODS}/pair")).await?;
    for key in [PLANNED, CARDS] {
        ensure!(original["metadata"]["annotations"][key].is_string(), "the original has no {key} to be copied");
    }

    replaced(cluster, &original).await?;
    // With annotations, as amounts of several GPUs are totals.
    debugged(cluster, "pair", "pair-beside", &["--keep-annotations", "--container=debug", "--same-node"]).await?;
    debugged(cluster, "pair", "pair-instead", &["--keep-annotations", "--container=main"]).await?;
    debugged(cluster, "one", "one-beside", &["--container=debug"]).await?;
    cluster.all_running(5).await?;
    cluster.agree().await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

/// `kubectl replace --force` deletes first: a pod that isn't admitted then is lost.
async fn replaced(cluster: &mut Cluster, original: &Value) -> anyhow::Result<()> {
    let mut written = original.clone();
    // Its status may have changed since.
    written["metadata"].as_object_mut().context("no metadata")?.remove("resourceVersion");
    let file = cluster.files.write("pair.json", written.to_string())?.display().to_string();
    let applied = cluster.kubectl.say(&["apply", "--filename", &file]).await?;
    ensure!(!applied.warnings.contains("divvy.dev"), "the original, applied again: {}", applied.warnings);
    let told = cluster.kubectl.say(&["replace", "--force", "--filename", &file]).await?.warnings;
    println!("  kubectl replace --force:\n    {}", told.replace('\n', "\n    "));
    for key in [PLANNED, CARDS] {
        ensure!(told.contains(&format!("annotation {key}: removed")), "no warning of {key}: {told}");
    }
    let is_new = |pod: &Value| (view::uid(pod) != view::uid(original) && view::is_ready(pod)).then(|| pod.clone());
    let copy = cluster.until_pod("pair", is_new).await?;
    asks_for_the_same(&copy, original)
}

/// A copy by `kubectl debug`, once it runs.
async fn debugged(cluster: &mut Cluster, name: &str, copy: &str, more: &[&str]) -> anyhow::Result<()> {
    let (copy_to, image) = (format!("--copy-to={copy}"), format!("--image={}", image::WORK));
    let args = [&["debug", name, &copy_to, &image], more, &SLEEP].concat();
    let told = cluster.kubectl.say(&args).await?.warnings;
    println!("  kubectl debug --copy-to={copy} {}:\n    {}", more.join(" "), told.replace('\n', "\n    "));
    let original = cluster.api.get(&format!("{PODS}/{name}")).await?;
    let copy = cluster.until_pod(copy, |pod| view::is_ready(pod).then(|| pod.clone())).await?;
    asks_for_the_same(&copy, &original)
}

fn asks_for_the_same(copy: &Value, original: &Value) -> anyhow::Result<()> {
    let said = |pod: &Value| {
        let containers = pod["spec"]["containers"].as_array().context("no containers")?;
        let main = containers.iter().find(|container| container["name"] == "main").context("no container main")?;
        anyhow::Ok((main["resources"].clone(), pod["metadata"]["annotations"][REQUEST].clone()))
    };
    let (copied, asked) = (said(copy)?, said(original)?);
    ensure!(copied == asked, "pod {} asks for {copied:?}, not {asked:?}", view::name(copy));
    let [new, old] = [copy, original].map(|pod| &pod["metadata"]["annotations"][CARDS]);
    ensure!(new != old, "pod {} has {CARDS} of its original: {new}", view::name(copy));
    Ok(())
}
