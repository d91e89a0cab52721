//! What others lose: the kubelet its checkpoint, everybody the API server.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_api::quantity::parse_count;
use divvy_e2e::cluster::{Cluster, FOLLOWS, Look, PATIENCE};
use divvy_e2e::containers::{self, ContainerKey};
use divvy_e2e::pods::PODS;
use divvy_e2e::{checkpoint, pods, runner, view};
use divvy_node::kubelet::client::PodListClient;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

use crate::bursts::{answered, refused, say, say_pods};
use crate::versions;

const MEMORY: &str = "nvidia.com/gpumem";

/// What running pods request of the nodes' memory, in MiB: with less a kubelet would not admit them again. What was offered
/// before is no measure, because amounts that only shrink may be written 10 s late.
fn held(pods: &[Value]) -> u64 {
    let containers = pods.iter().filter_map(|pod| pod["spec"]["containers"].as_array()).flatten();
    let amounts = containers.filter_map(|container| container["resources"]["limits"][MEMORY].as_str());
    amounts.filter_map(|amount| parse_count(amount).ok()).sum()
}

/// Running pods keep their shares, and slots that are handed out a second time overfill no card.
pub(crate) async fn checkpoint(cluster: &mut Cluster) -> anyhow::Result<()> {
    const OLD: usize = 40;
    cluster.restart_daemon(&json!({})).await?;
    cluster.create((0..OLD).map(pods::mixed)).await?;
    cluster.all_running(OLD).await?;
    let before = cluster.agree().await?;
    let held = held(&cluster.list().await?);
    cluster.kubelet.kill().await?;
    std::fs::remove_file(checkpoint::path()).context("removing the checkpoint")?;
    cluster.forgot = true;
    cluster.kubelet.start()?;
    let started = Instant::now();
    cluster.node_ready().await?;
    cluster.daemon_ready().await?;
    // A kubelet without its checkpoint takes the machine for a new one and offers nothing but what plugins list.
    cluster
        .until("amounts", PATIENCE, async |this| {
            let offered = this.allocatable(MEMORY).await?;
            ensure!(offered >= held, "{offered} of {MEMORY}, and pods hold {held}");
            Ok(Some(()))
        })
        .await?;
    println!("  amounts {:.1?} after the kubelet was started", started.elapsed());
    let look = cluster.agree().await?;
    containers::keep_their_shares(&before.running, &look.running)?;
    say_pods(&cluster.all_settled(OLD).await?);
    cluster.create((100..140).map(pods::mixed)).await?;
    say_pods(&cluster.all_settled(OLD + 40).await?);
    let look = cluster.agree().await?;
    containers::keep_their_shares(&before.running, &look.running)?;
    say(&cluster.calls().await?);
    cluster.clear().await
}

/// Containers restart with what they had, and a restarted daemon rebuilds, both long after the kubelet's last review of
/// our token.
pub(crate) async fn api_server(cluster: &mut Cluster) -> anyhow::Result<()> {
    const POD_COUNT: usize = 20;
    cluster.restart_daemon(&json!({})).await?;
    cluster.create((0..POD_COUNT).map(pods::mixed)).await?;
    cluster.all_running(POD_COUNT).await?;
    let before = cluster.agree().await?;
    let shared = with_a_share(&before);
    let [first, second, ..] = &*shared else { anyhow::bail!("two containers with shares are wanted") };
    // Ends while nobody is told.
    let mut brief = pods::object(PodShape::new("brief").with(App, "main", &[("gpu", "1"), ("gpumem", "1Gi")]))?;
    brief["spec"]["restartPolicy"] = json!("Never");
    cluster.api.create(PODS, &brief).await?;
    cluster.all_running(POD_COUNT + 1).await?;
    let brief = cluster.agree().await?.node.pods.into_iter().find(|pod| pod.name == "default/brief");
    let brief = brief.context("pod brief isn't seen")?.uid;
    let outage = runner::seconds("DIVVY_E2E_OUTAGE", 60);
    cluster.control_plane.api.kill().await?;
    let away = Instant::now();
    cluster.restart_container(first).await?;
    println!("  a container restarted {:.1?} after the API server went", away.elapsed());
    // The outage itself.
    tokio::time::sleep(outage.saturating_sub(away.elapsed())).await;
    cluster.restart_container(second).await?;
    ensure!(answered(&cluster.calls().await?, "PreStartContainer") > 0, "no PreStartContainer");
    cluster.kill_daemon().await?;
    let started = Instant::now();
    cluster.begin_daemon()?;
    // Not ready: it can't tell new pods from one another. Those that it knows start again.
    let pages = async |this: &mut Cluster| this.calls().await.map(Some);
    cluster.until("pages of a daemon started while the API server is away", PATIENCE, pages).await?;
    println!("  a daemon started while the API server is away answers after {:.1?}", started.elapsed());
    let calls = answered(&cluster.calls().await?, "PreStartContainer");
    cluster.restart_container(first).await?;
    ensure!(answered(&cluster.calls().await?, "PreStartContainer") > calls, "no PreStartContainer");
    let look = cluster.agree().await?;
    containers::keep_their_shares(&before.running, &look.running)?;
    containers::kill(look.running.get(&(brief.clone(), "main".to_owned())).context("pod brief doesn't run")?)?;
    let back = Instant::now();
    cluster.control_plane.api.start()?;
    cluster.api_ready().await?;
    let answers = Instant::now();
    cluster
        .until("GpuNode of the daemon that was started meanwhile", FOLLOWS, async |this| {
            let status = this.gpu_node().await?.status.context("GpuNode has no status")?;
            Ok((status.ledger_revision >= this.daemon.revision().await?).then_some(()))
        })
        .await?;
    println!("  GpuNode carries the ledger's revision {:.1?} after the API server was ready", answers.elapsed());
    cluster.node_ready().await?;
    println!("  the node is Ready {:.1?} after the API server was started", back.elapsed());
    // The kubelet lists a pod with the status that the API server has, and has to bring it there first.
    cluster
        .until("GpuNode without the pod that ended", PATIENCE, async |this| {
            let status = this.gpu_node().await?.status.context("GpuNode has no status")?;
            Ok((!status.shares.iter().any(|share| share.pod_uid == brief)).then_some(()))
        })
        .await?;
    println!("  GpuNode is without a pod that had ended {:.1?} after", back.elapsed());
    cluster.api.delete(&format!("{PODS}/brief")).await?;
    cluster.create([pods::mixed(100)]).await?;
    // A minute and more: the kubelet's watch of its pods tries again more and more seldom.
    cluster.all_running(POD_COUNT + 1).await?;
    println!("  a new pod runs {:.1?} after", back.elapsed());
    cluster.agree().await?;
    say(&cluster.calls().await?);
    cluster.clear().await
}

/// Without the right to the kubelet's list each container is told from all others by the API server and PodResources.
pub(crate) async fn pod_list(cluster: &mut Cluster) -> anyhow::Result<()> {
    const POD_COUNT: usize = 30;
    let client = PodListClient::new(cluster.daemon.kubelet.clone())?;
    let has_get = versions::has_get(cluster).await?;
    if !has_get {
        no_list_and_no_get(cluster, &client).await?;
        versions::open_get(cluster).await?;
    }
    cluster.restart_daemon(&json!({})).await?;
    cluster.create((0..POD_COUNT / 3).map(pods::mixed)).await?;
    cluster.all_running(POD_COUNT / 3).await?;
    let listed = cluster.daemon.identified().await?;
    refuse_list(cluster, &client).await?;
    let started = Instant::now();
    cluster.create((POD_COUNT / 3..POD_COUNT).map(pods::mixed)).await?;
    cluster.all_running(POD_COUNT).await?;
    println!("  {} pods run {:.1?} after they were created", POD_COUNT - POD_COUNT / 3, started.elapsed());
    cluster.agree().await?;
    let identified = cluster.daemon.identified().await?;
    println!("  containers identified: {identified:?}");
    ensure!(identified.get("kubelet") == listed.get("kubelet"), "by a list that is refused: {identified:?}");
    ensure!(refused(&cluster.calls().await?) == 0, "calls were refused: {:?}", cluster.calls().await?);
    let again = with_a_share(&cluster.look()?);
    cluster.restart_container(again.first().context("a container with a share")?).await?;
    allow_list(cluster, &client).await?;
    cluster.agree().await?;
    say(&cluster.calls().await?);
    cluster.clear().await?;
    if has_get { Ok(()) } else { cluster.renew().await }
}

/// Without PodResources `Get` as well a pod fails with both reasons, and the next one is served once there is a list.
async fn no_list_and_no_get(cluster: &mut Cluster, client: &PodListClient) -> anyhow::Result<()> {
    cluster.restart_daemon(&json!({})).await?;
    refuse_list(cluster, client).await?;
    cluster.create([pods::mixed(0)]).await?;
    let [failed] = &cluster.all_settled(1).await?[..] else { anyhow::bail!("one pod was created") };
    let failure = view::failure(failed);
    for reason in ["403 Forbidden", "needs Kubernetes 1.34"] {
        ensure!(view::is_over(failed) && failure.contains(reason), "{failure}");
    }
    println!("  without Get: {failure}");
    cluster.clear().await?;
    allow_list(cluster, client).await?;
    cluster.create([pods::mixed(0)]).await?;
    cluster.all_running(1).await?;
    cluster.clear().await
}

/// Takes the right to the kubelet's list from the daemon.
async fn refuse_list(cluster: &mut Cluster, client: &PodListClient) -> anyhow::Result<()> {
    const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/divvy-node";
    let mut rules = cluster.api.get(ROLE).await?["rules"].take();
    let rules = rules.as_array_mut().context("a role has rules")?;
    rules.retain(|rule| rule["resources"] != json!(["nodes/pods"]));
    let patch = json!({ "rules": rules }).to_string();
    cluster.kubectl.run(&["patch", "clusterrole", "divvy-node", "--type=merge", "--patch", &patch]).await?;
    cluster
        .until("refusal of the pod list", PATIENCE, async |_| {
            Ok(client.list().await.err().filter(|error| error.to_string().contains("403 Forbidden")).map(drop))
        })
        .await
}

/// Gives it back.
async fn allow_list(cluster: &mut Cluster, client: &PodListClient) -> anyhow::Result<()> {
    cluster.apply(&["node-rbac"]).await?;
    cluster.until("pod list", PATIENCE, async |_| Ok(client.list().await.ok().map(drop))).await
}

fn with_a_share(look: &Look) -> Vec<ContainerKey> {
    let shared = look.running.iter().filter(|(_, running)| running.given.limits.is_some());
    shared.map(|(key, _)| key.clone()).collect()
}
