//! `kubectl divvy dashboard` of a real API server, in a real browser.

use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::{Args as _, Command, FromArgMatches as _};
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::node::NODE;
use divvy_kubectl::view::dashboard::{self, DashboardArgs};
use divvy_testkit::browser::{self, Page};
use divvy_testkit::pods::PodShape;
use tokio::sync::oneshot;

/// Pods come, wait and go while the page is open.
pub(crate) async fn is_live(cluster: &mut Cluster) -> anyhow::Result<()> {
    let Some(browser) = browser::installed() else {
        println!("  skipped: no chromium in PATH");
        return Ok(());
    };
    let kubeconfig = cluster.kubectl.kubeconfig().display().to_string();
    let line = ["dashboard", "--kubeconfig", &kubeconfig];
    let matches = DashboardArgs::augment_args(Command::new("dashboard")).try_get_matches_from(line)?;
    let (announce, announced) = oneshot::channel();
    let announce = move |_: &str, url: &str| announce.send(url.to_owned()).ok().context("nobody waits for the page");
    let serving = dashboard::serve(DashboardArgs::from_arg_matches(&matches)?, announce);
    tokio::select! {
        ended = serving => Err(ended.err().unwrap_or_else(|| anyhow::anyhow!("the dashboard ended"))),
        looked = async { look(cluster, &browser, &announced.await?).await } => looked,
    }?;
    cluster.clear().await
}

async fn look(cluster: &mut Cluster, browser: &Path, url: &str) -> anyhow::Result<()> {
    let mut page = Page::open(browser, url).await?;
    page.until_shown(NODE).await?;
    cluster.create([PodShape::new("holder").with(App, "main", &[("gpu", "1"), ("gpumem", "1Gi")])]).await?;
    cluster.all_running(1).await?;
    page.value(&format!("location.hash = '#/node/{NODE}'")).await?;
    page.until_shown("holder").await?;

    cluster.create([PodShape::new("too-large").with(App, "main", &[("gpu", "1"), ("gpumem", "4000Gi")])]).await?;
    page.value("location.hash = '#/pod/default/too-large'").await?;
    page.until_shown("Answers of the nodes").await?;
    page.until_shown("gpumem").await?;

    cluster.api.delete("/api/v1/namespaces/default/pods/holder").await?;
    page.value(&format!("location.hash = '#/node/{NODE}'")).await?;
    let gone = "!document.querySelector('main').innerText.includes('holder')";
    page.until(gone).await.context("a pod that is gone")?;
    let errors: Vec<&str> = page.errors().filter(|error| !error.contains("/usage?node=")).collect();
    ensure!(errors.is_empty(), "the page logs errors: {errors:?}");
    println!("  {url} followed a pod that came and went, and one that waits");
    Ok(())
}
