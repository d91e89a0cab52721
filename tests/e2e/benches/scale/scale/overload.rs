//! Pods of the openb trace that ask for 130 % of all GPUs at once: how many are refused by their node, and how full the GPUs
//! become, each way to schedule. What one memory that sees every pod and all nodes makes of the same pods is the ideal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use divvy_api::ContainerKind::App;
use divvy_api::annotation::PolicyName;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::view;
use divvy_packing::setup::Setup;
use divvy_simulate::Rng;
use divvy_simulate::cluster::Cluster as Simulated;
use divvy_simulate::fill;
use divvy_simulate::run::Run;
use divvy_simulate::target::Target;
use divvy_simulate::workload::{Kind, Machine, Models, Taints, Workload};
use divvy_testkit::pods::PodShape;
use rand::SeedableRng as _;

use crate::fleet::{self, Fleet};
use crate::play::CARDS;
use crate::rounds::{self, WAYS, count};

const PODS: &str = "openb_pod_list_default.csv";
/// What pods ask for in the end, in percent of all GPUs.
const UNTIL: u32 = 130;
/// Of the order of the pods.
const SEED: u64 = 40;
/// Nothing has happened for so long: whoever has no place has none.
const SETTLED: Duration = Duration::from_secs(30);

/// Each way once a round, the same pods each time.
pub(super) async fn compare(
    cluster: &mut Cluster,
    fleet: &mut Fleet,
    nodes: usize,
    rounds: usize,
) -> anyhow::Result<()> {
    let Some(traces) = traces() else {
        println!("  skipped: no shared/traces beside the workspace");
        return Ok(());
    };
    let workload = workload(&traces.join(PODS), nodes)?;
    let pods = fill::arrivals(&workload, UNTIL, &mut Rng::seed_from_u64(SEED));
    println!("  {} pods on {nodes} nodes; ideal: {:.1} % of all GPUs allocated", pods.len(), ideal(&workload, &pods));
    for round in 0..rounds {
        for variant in &WAYS {
            rounds::prepare(cluster, variant).await?;
            rounds::probe(cluster, fleet).await?;
            let first = fleet.counted().await?;
            let shapes = pods.iter().enumerate().map(|(number, kind)| shape(number, &workload.kinds[*kind]));
            fleet::create(cluster, shapes).await?;
            let (mut last, mut since) = (0, Instant::now());
            while since.elapsed() < SETTLED {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let counted = fleet.counted().await?;
                let now = counted.annotated + counted.refused;
                if now != last {
                    (last, since) = (now, Instant::now());
                }
            }
            let counted = fleet.counted().await?;
            let runs = cluster.list().await?;
            let number = |pod| view::name(pod).strip_prefix("over-").and_then(|number| number.parse::<usize>().ok());
            let running = runs.iter().filter(|pod| pod["status"]["phase"] == "Running").filter_map(number);
            let demand: f64 = running.map(|number| workload.kinds[pods[number]].demand()).sum();
            println!(
                "  round {round}, {}: {} refused, {} run, {:.1} % of all GPUs allocated; {:?}",
                variant.name(),
                counted.refused - first.refused,
                counted.annotated - first.annotated,
                demand / 10.0 / count(nodes * CARDS),
                cluster.webhook.metric("divvy_reservation_outcomes_total").await,
            );
            let there = runs.len();
            fleet::delete(cluster, runs.iter().map(|pod| view::name(pod).to_owned())).await?;
            cluster
                .until("end of the pods", fleet::LONG, async |this| Ok(this.list().await?.is_empty().then_some(())))
                .await
                .with_context(|| format!("{there} pods"))?;
            rounds::quiet(cluster, fleet).await?;
        }
    }
    Ok(())
}

fn traces() -> Option<PathBuf> {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find_map(|folder| Some(folder.join("shared/traces")).filter(|traces| traces.is_dir()))
}

/// The fleet's nodes, and the trace's pods with GPUs, which take any model.
fn workload(pods: &Path, nodes: usize) -> anyhow::Result<Arc<Workload>> {
    let traced = Workload::read(&pods.with_file_name("openb_node_list_gpu_node.csv"), pods).context("the trace")?;
    let machine = Machine {
        cpu: 64_000,
        memory: 512 << 10,
        cards: u32::try_from(CARDS).unwrap_or_default(),
        model: 0,
        taints: Taints::default(),
    };
    // Nodes of the trace have more CPU for each GPU than these.
    let kinds = traced.pods.iter().map(|kind| traced.kinds[*kind]).filter(|kind| kind.cards > 0);
    let kinds = kinds.map(|kind| Kind { cpu: 0, memory: 0, models: Models::ANY, tolerates: Taints::default(), ..kind });
    Ok(Arc::new(Workload::from_machines(vec![machine; nodes], vec!["H100".to_owned()], kinds)?))
}

fn shape(number: usize, kind: &Kind) -> PodShape {
    let (cards, part) = (kind.cards.to_string(), |thousandths: u32| thousandths.div_ceil(10).to_string());
    let (memory, cores) = (part(kind.part.memory), part(kind.part.cores));
    let whole = [("gpu", &*cards)];
    let share = [("gpu", &*cards), ("gpumem-percentage", &*memory), ("gpucores", &*cores)];
    let amounts = if kind.is_share() { &share[..] } else { &whole[..] };
    PodShape::new(format!("over-{number}")).with(App, "main", amounts)
}

/// Percent of all GPUs that are allocated where one memory sees every pod and all nodes.
fn ideal(workload: &Arc<Workload>, pods: &[usize]) -> f64 {
    let mut rng = Rng::seed_from_u64(SEED);
    let (target, cluster) = (Target::from_workload(workload), Simulated::new(workload, &mut rng));
    let policy = Setup::ALL_ASKED.policy(PolicyName::LeastFragmentation, workload, &cluster, &target, &Arc::default());
    let mut run = Run::new(workload, cluster, policy, &target, rng);
    for (serial, kind) in (0..).zip(pods) {
        run.offer(serial, *kind);
    }
    run.cluster().allocated()
}
