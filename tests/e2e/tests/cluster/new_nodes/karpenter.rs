//! Karpenter with its provider `kwok`, which `KUBE_BIN_DIR` has as `karpenter-kwok`, and the kinds of its release as
//! `karpenter-crds.yaml`; without these the scenario is skipped.

use std::path::PathBuf;

use anyhow::ensure;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::fakes::NODES;
use divvy_e2e::files::free_address;
use divvy_e2e::program::Program;
use divvy_e2e::view;

use super::{Autoscaler, come_and_go, new_ones, prepare, request, restore};

const POOL: &str = include_str!("../../../../../deploy/recipes/karpenter/nodepool.yaml");
const TYPES: &str = include_str!("../../../../../deploy/recipes/karpenter/instance-types.json");
const OVERLAY: &str = include_str!("../../../../../deploy/recipes/karpenter/overlay.yaml");
const PROGRAM: &str = "karpenter-kwok";
const KINDS: &str = "karpenter-crds.yaml";
const NODE_CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
const LOOKS: &str = r#"karpenter_scheduler_scheduling_duration_seconds_count{controller="provisioner"}"#;
/// What it says of a pod while no provider knows Divvy's resources.
const REFUSAL: &str = "no instance type has enough resources";

/// A pod gets a node once an overlay says what nodes have.
pub(crate) async fn by_overlay(cluster: &mut Cluster) -> anyhow::Result<()> {
    let [program, kinds] = [PROGRAM, KINDS].map(|name| cluster.given(name));
    let Some((program, kinds)) = program.zip(kinds) else {
        println!("  skipped: KUBE_BIN_DIR has no {PROGRAM} with {KINDS}");
        return Ok(());
    };
    let kinds = cluster.define_kinds(&kinds).await?;
    apply(cluster, "nodepool.yaml", POOL).await?;
    prepare(cluster).await?;
    let mut karpenter = start(cluster, program)?;
    request(cluster).await?;
    let shown = by_overlay_alone(cluster, &mut karpenter).await;
    karpenter.program.kill().await?;
    let restored = restore(cluster).await;
    let removed = cluster.remove_kinds(&kinds).await;
    shown.and(restored).and(removed)?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

async fn by_overlay_alone(cluster: &mut Cluster, karpenter: &mut Autoscaler) -> anyhow::Result<()> {
    let why = cluster
        .until("refusal by Karpenter", PATIENCE, async |this| {
            karpenter.program.check()?;
            let events = this.api.get("/api/v1/namespaces/default/events").await?;
            let mut messages = events["items"].as_array().into_iter().flatten().filter_map(|it| it["message"].as_str());
            Ok(messages.find(|message| message.contains(REFUSAL)).map(str::to_owned))
        })
        .await?;
    println!("  without an overlay: {why}");
    let nodes = new_ones(cluster, NODES).await?;
    ensure!(nodes.is_empty(), "without an overlay there are new nodes: {nodes:?}");
    apply(cluster, "overlay.yaml", OVERLAY).await?;
    cluster
        .until("NodeClaim that is registered", PATIENCE, async |this| {
            karpenter.program.check()?;
            let claims = this.api.get(NODE_CLAIMS).await?;
            let registered = view::condition(&claims["items"][0], "Registered");
            Ok(registered.filter(|condition| condition["status"] == "True").map(drop))
        })
        .await?;
    come_and_go(cluster, karpenter).await?;
    cluster
        .until("end of the NodeClaim", PATIENCE, async |this| {
            Ok(this.api.get(NODE_CLAIMS).await?["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
        })
        .await
}

async fn apply(cluster: &Cluster, name: &str, text: &str) -> anyhow::Result<()> {
    let file = cluster.files.write(name, text)?.display().to_string();
    cluster.kubectl.run(&["apply", "-f", &file]).await.map(drop)
}

fn start(cluster: &Cluster, path: PathBuf) -> anyhow::Result<Autoscaler> {
    let (metrics, health) = (free_address()?, free_address()?);
    let types = cluster.files.write("instance-types.json", TYPES)?;
    let args = vec![
        "--feature-gates=NodeOverlay=true".to_owned(),
        format!("--instance-types-file-path={}", types.display()),
        format!("--metrics-port={}", metrics.port()),
        format!("--health-probe-port={}", health.port()),
    ];
    let mut program = Program::new(PROGRAM, path, args, &cluster.files.logs())
        .env("KUBECONFIG", cluster.kubectl.kubeconfig().display().to_string())
        .env("SYSTEM_NAMESPACE", "default")
        // Without it no version that isn't a release's is accepted.
        .env("KUBERNETES_MIN_VERSION", "1.19.0-0")
        .env("DISABLE_LEADER_ELECTION", "true");
    program.start()?;
    Ok(Autoscaler { program, metrics, looks: LOOKS })
}
