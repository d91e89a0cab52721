//! Pods that take over a name.

use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::pods::PODS;
use divvy_testkit::pods::PodShape;

/// A pod with the name of one that was deleted a moment ago gets an annotation of its own.
pub(crate) async fn annotated_anew(cluster: &mut Cluster) -> anyhow::Result<()> {
    const TIMES: usize = 6;
    for number in 0..TIMES {
        let cards = if number % 2 == 0 { "1" } else { "2" };
        let pod = PodShape::new("twin").with(App, "main", &[("gpu", cards), ("gpumem", "2Gi"), ("gpucores", "5")]);
        cluster.api.delete(&format!("{PODS}/twin")).await?;
        cluster.create([pod]).await?;
        cluster.all_running(1).await?;
        cluster.agree().await?;
    }
    cluster.clear().await
}
