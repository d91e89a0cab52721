//! docs/install.md, followed from nothing by somebody who types what it says.

use std::path::Path;

use anyhow::{Context as _, ensure};
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::installation::Installation;
use divvy_e2e::node::NODE;
use divvy_e2e::pages;
use divvy_e2e::view;

use crate::gates;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Where containerd looks for images that name no registry.
const REGISTRY: &str = "docker.io/library";

/// All commands of the page but those that take a registry, or build what is built.
pub(crate) async fn as_the_page_says(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.uninstall().await?;
    cluster.kubectl.run(&["delete", "namespace", "divvy-system", "--ignore-not-found"]).await?;
    cluster.kubectl.run(&["label", "node", NODE, "nvidia.com/gpu.present-"]).await?;
    // The page changes files.
    let home = cluster.files.directory("first-hour")?;
    cluster.shell(&format!("cp -rL {ROOT}/deploy {ROOT}/docs ."), &home).await?;
    let page = Path::new(ROOT).join("docs/install.md");
    let images = pages::commands(&page, "1. Images")?;
    ensure!(
        images.len() == 1 && images[0].starts_with("hack/image "),
        "more than the images that were made: {images:?}"
    );
    let text = std::fs::read_to_string(&page)?;
    let label =
        text.split('`').find(|code| code.starts_with("kubectl label node NODE ")).context("the node's label")?;
    cluster.shell(&label.replace("NODE", NODE), &home).await?;
    let blocks = pages::commands(&page, "3. Helm or manifests")?;
    let [helm, manifests] = &blocks[..] else { anyhow::bail!("two ways to install: {blocks:?}") };
    let chosen = if matches!(cluster.installation, Installation::Chart(..)) { helm } else { manifests };
    println!("  {}", cluster.shell(&chosen.replace("REGISTRY", REGISTRY), &home).await?.replace('\n', "\n  "));
    cluster.rolled_out().await?;
    for block in pages::commands(&page, "4. Verify")? {
        let lines = block.lines().filter(|line| !line.starts_with("cargo install "));
        let commands = lines.collect::<Vec<_>>().join("\n");
        // doctor fails until the node has reported its GPUs, a moment after the daemon is ready.
        let said = cluster
            .until("installation that doctor finds nothing wrong with", PATIENCE, async |this| {
                this.shell(&commands, &home).await.map(Some)
            })
            .await?;
        println!("  {}", said.replace('\n', "\n  "));
    }
    // A bare Pod isn't applied twice.
    cluster.shell("kubectl delete -f deploy/examples/cores.yaml", &home).await?;
    cluster.clear().await?;
    gates::in_a_default_installation(cluster).await?;
    cluster.shell("kubectl apply -f deploy/examples/", &home).await?;
    // Their images come from a registry. The webhook has seen them, and the scheduler has found places for those that fit.
    cluster
        .until("pods of the examples that are placed", PATIENCE, async |this| {
            let pods = this.list().await?;
            let placed = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
            ensure!(pods.len() > 8 && placed * 2 > pods.len(), "{placed} of {:?}", view::names(pods.iter()));
            Ok(Some(()))
        })
        .await?;
    cluster.shell("kubectl delete -f deploy/examples/", &home).await?;
    cluster.clear().await?;
    cluster.uninstall().await?;
    cluster.install_pods().await?;
    cluster.amounts_ready().await
}
