//! How containers are given their cards.

use std::collections::BTreeSet;

use anyhow::ensure;
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::daemon::HOST;
use divvy_e2e::program::execute;
use divvy_testkit::pods::PodShape;
use serde_json::json;

/// Strategy, and where a container then finds its cards.
const STRATEGIES: [(&str, &str); 5] = [
    ("cdi-cri", "device nodes"),
    ("cdi-annotations", "device nodes"),
    ("auto", "device nodes"),
    ("volume-mounts", "mounts"),
    ("envvar", "environment"),
];
/// Of NVIDIA's cards.
const MAJOR: u32 = 195;
const CUDA: &str = "/usr/lib/x86_64-linux-gnu/libcuda.so.1";

/// Every strategy gives each container its own cards and no other, and its limits with them.
pub(crate) async fn every_strategy(cluster: &mut Cluster) -> anyhow::Result<()> {
    install_driver(cluster)?;
    let roots = json!({"hostRoot": "/", "driverRoot": cluster.files.at("driver")});
    cluster.restart_daemon(&roots).await?;
    for (strategy, place) in STRATEGIES {
        cluster.restart_daemon(&json!({"deviceListStrategy": strategy})).await?;
        let pod = |name: &str| PodShape::new(name);
        let part: &[(&str, &str)] = &[("gpu", "1"), ("gpumem", "4Gi"), ("gpucores", "5")];
        let pods = [
            pod("one").with(App, "main", part).with(App, "log", &[]),
            pod("two").with(App, "main", &[("gpu", "2"), ("gpumem", "4Gi")]),
            pod("whole").with(App, "main", &[("gpu", "2")]),
        ];
        cluster.create(pods).await?;
        cluster.all_running(3).await?;
        let look = cluster.agree().await?;
        let with_cards = look.running.values().filter(|running| running.given.limits.is_some());
        let places: Vec<BTreeSet<&str>> =
            with_cards.clone().map(|running| running.given.named.keys().copied().collect()).collect();
        ensure!(places == vec![BTreeSet::from([place]); 3], "{strategy}: cards are named in {places:?}");
        let cuda = look.running.values().filter(|running| running.mounts.contains(CUDA)).count();
        let wanted = if place == "device nodes" { 3 } else { 0 };
        ensure!(cuda == wanted, "{strategy}: {cuda} containers have {CUDA}, {wanted} should");
        println!("  {strategy}: {place}");
        cluster.clear().await?;
    }
    cluster.restart_daemon(&json!({"deviceListStrategy": "volume-mounts"})).await
}

/// What of a driver CDI wants to see: its main library, and device nodes.
fn install_driver(cluster: &Cluster) -> anyhow::Result<()> {
    let library = format!("driver{CUDA}");
    cluster.files.directory("driver/usr/lib/x86_64-linux-gnu")?;
    cluster.files.write(library, "a library")?;
    let nvml = "usr/lib64/libnvidia-ml.so.1";
    fake_nvml::install_driver(&cluster.files.at(HOST).join(nvml), &cluster.files.at("driver"))?;
    let nodes = cluster.files.directory("driver/dev")?;
    let cards = cluster.scenario.cards.iter().map(|card| (format!("nvidia{}", card.minor), card.minor));
    for (name, minor) in cards.chain([("nvidiactl".to_owned(), 255)]) {
        let node = nodes.join(name).display().to_string();
        execute("mknod", &["-m", "666", &node, "c", &MAJOR.to_string(), &minor.to_string()])?;
    }
    Ok(())
}
