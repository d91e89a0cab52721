//! Interleaved runs of the same pods, each with one thing changed.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::control_plane::configure_scheduler;
use serde_json::{Value, json};

use crate::figures::{Reading, spread};
use crate::fleet::{self, Fleet, LONG};

/// Longest time for which the daemons have nothing to write before they count as done: their rounds are a second apart, and a
/// release takes two.
const QUIET: Duration = Duration::from_secs(3);

/// What kube-scheduler and API server ask of us in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    name: &'static str,
    /// `scheduling` of the webhook: `node`, `gates` or `extender`.
    scheduling: &'static str,
    /// `None`: no extender.
    shortlist: Option<u32>,
    /// Whether the extender has `bindVerb`.
    binds: bool,
    /// Whether the ValidatingAdmissionPolicies are there.
    policies: bool,
    /// Whether the webhook configurations are there.
    reviews: bool,
}

/// What one run cost, from the creation of the pods to their annotations, and from their deletion to the daemons' last write.
struct Measured {
    seconds: f64,
    /// Pods that their nodes refused.
    refused: usize,
    started: Reading,
    ended: Reading,
}

const ALONE: Variant =
    Variant { name: "no extender", scheduling: "node", shortlist: None, binds: false, policies: true, reviews: true };
const GATES: Variant = Variant { name: "gates", scheduling: "gates", ..ALONE };
const ONE: Variant = Variant { name: "shortlist 1", scheduling: "extender", shortlist: Some(1), binds: true, ..ALONE };
const SIXTEEN: Variant = Variant { name: "shortlist 16", shortlist: Some(16), ..ONE };

/// Each way to schedule.
pub(crate) const WAYS: [Variant; 3] = [ALONE, GATES, SIXTEEN];
/// One thing changed at a time.
pub(crate) const CAUSES: [Variant; 8] = [
    ALONE,
    GATES,
    Variant { name: "gates, no policies", policies: false, ..GATES },
    ONE,
    SIXTEEN,
    Variant { name: "shortlist 16, the scheduler binds", binds: false, ..SIXTEEN },
    Variant { name: "shortlist 16, no policies", policies: false, ..SIXTEEN },
    Variant { name: "shortlist 16, no webhook configurations", reviews: false, ..SIXTEEN },
];

/// Runs each variant in each round with so many pods, and prints medians with the least and the most.
pub(crate) async fn compare(
    cluster: &mut Cluster,
    fleet: &mut Fleet,
    variants: &[Variant],
    rounds: usize,
    pods: usize,
) -> anyhow::Result<()> {
    let mut runs: Vec<Vec<Measured>> = variants.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (variant, runs) in variants.iter().zip(&mut runs) {
            let run = run(cluster, fleet, variant, pods).await;
            let run = run.with_context(|| format!("round {round}, {}", variant.name))?;
            println!(
                "  round {round}, {}: {pods} pods in {:.1} s, {} of them refused, cycle {:.3} ms, {:.2} ms of processors a pod",
                variant.name,
                run.seconds,
                run.refused,
                run.started.cycle(),
                run.started.all() * 1e3 / count(pods),
            );
            runs.push(run);
        }
    }
    for (variant, runs) in variants.iter().zip(&runs) {
        println!("  {}, {} runs of {pods} pods:", variant.name, runs.len());
        let values = |of: &dyn Fn(&Measured) -> f64| runs.iter().map(of).collect::<Vec<_>>();
        println!("    seconds: {}", spread(&values(&|run| run.seconds), 1));
        println!("    scheduling cycle, ms: {}", spread(&values(&|run| run.started.cycle()), 3));
        let a_pod = |spent: f64| spent * 1e3 / count(pods);
        println!("    start, ms of processors a pod: {}", spread(&values(&|run| a_pod(run.started.all())), 2));
        println!("    end, ms of processors a pod: {}", spread(&values(&|run| a_pod(run.ended.all())), 2));
        for program in runs[0].started.spent.keys() {
            println!("      {program}: {}", spread(&values(&|run| a_pod(run.started.spent[program])), 2));
        }
        println!("    the last run, start:");
        runs[runs.len() - 1].started.print(count(pods));
        println!("    the last run, end:");
        runs[runs.len() - 1].ended.print(count(pods));
    }
    for (variant, with) in variants.iter().zip(&runs).skip(1) {
        let pairs = || with.iter().zip(&runs[0]);
        let cycles: Vec<f64> = pairs().map(|(with, without)| with.started.cycle() / without.started.cycle()).collect();
        let spent: Vec<f64> = pairs().map(|(with, without)| with.started.all() / without.started.all()).collect();
        let scheduler = |run: &Measured| run.started.spent.get("kube-scheduler").copied().unwrap_or(f64::NAN);
        let of_scheduler: Vec<f64> = pairs().map(|(with, without)| scheduler(with) / scheduler(without)).collect();
        let faster: Vec<f64> = pairs().map(|(with, without)| without.seconds / with.seconds).collect();
        println!(
            "  {} ÷ {}, pairs: cycle {}, processors {}, the scheduler's {}, pods a second {}",
            variant.name,
            variants[0].name,
            spread(&cycles, 2),
            spread(&spent, 2),
            spread(&of_scheduler, 2),
            spread(&faster, 2)
        );
    }
    Ok(())
}

// === impl Variant ===

impl Variant {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }
}

/// As a number of pods to divide by.
pub(crate) fn count(pods: usize) -> f64 {
    f64::from(u32::try_from(pods).unwrap_or(u32::MAX))
}

async fn run(cluster: &mut Cluster, fleet: &mut Fleet, variant: &Variant, pods: usize) -> anyhow::Result<Measured> {
    prepare(cluster, variant).await?;
    probe(cluster, fleet).await?;
    let (first, before, begun) = (fleet.counted().await?, Reading::now(cluster, fleet).await?, Instant::now());
    fleet::create(cluster, (0..pods).map(|number| fleet::pod("run", number))).await?;
    // Where the scheduler binds, nobody reserves, and two pods may be bound to what is left for one.
    let settled = |counted: &fleet::Counted| counted.annotated + counted.refused - first.annotated - first.refused;
    let all = |counted: &fleet::Counted| settled(counted) >= pods;
    let counted = fleet.until(cluster, "pods that are all annotated or refused", all).await?;
    let (seconds, refused) = (begun.elapsed().as_secs_f64(), counted.refused - first.refused);
    let between = Reading::now(cluster, fleet).await?;
    fleet::delete(cluster, (0..pods).map(|number| format!("run-{number}"))).await?;
    fleet.until(cluster, "pods that have all ended", |counted| counted.ended >= first.ended + pods).await?;
    let after = quiet(cluster, fleet).await?;
    Ok(Measured { seconds, refused, started: between.clone().since(&before), ended: after.since(&between) })
}

/// Waits until the daemons write nothing any more.
pub(crate) async fn quiet(cluster: &Cluster, fleet: &Fleet) -> anyhow::Result<Reading> {
    let mut last = Reading::now(cluster, fleet).await?;
    let deadline = Instant::now() + LONG;
    loop {
        tokio::time::sleep(QUIET).await;
        let now = Reading::now(cluster, fleet).await?;
        if now.daemons_wrote() - last.daemons_wrote() < 1.0 {
            return Ok(now);
        }
        anyhow::ensure!(Instant::now() < deadline, "the daemons still write after {}s", LONG.as_secs());
        last = now;
    }
}

/// Starts programs as the variant wants them.
pub(crate) async fn prepare(cluster: &mut Cluster, variant: &Variant) -> anyhow::Result<()> {
    cluster.control_plane.scheduler.kill().await?;
    let keys = json!({"scheduling": variant.scheduling, "shortlist": variant.shortlist.unwrap_or(16)});
    cluster.webhook.configure(&keys).await?;
    cluster.webhook_ready().await?;
    cluster.until("leader", PATIENCE, async |this| Ok(this.webhook.leader().await)).await?;
    if variant.policies {
        cluster.apply(&["policy"]).await?;
    } else {
        cluster.delete(&["policy"]).await?;
    }
    enforced(cluster, variant.policies).await?;
    if variant.reviews {
        cluster.apply(&["webhook-configurations"]).await?;
        cluster.webhook_called().await?;
    } else {
        cluster.unregister_webhook().await?;
    }
    let extender = match variant.shortlist {
        Some(_) => Some(cluster.extender().await?),
        None => None,
    };
    let extender = extender.map(|mut extender| {
        if let (false, Some(keys)) = (variant.binds, extender.as_object_mut()) {
            keys.remove("bindVerb");
        }
        extender
    });
    configure_scheduler(&cluster.files, extender)?;
    cluster.control_plane.scheduler.start()
}

/// Waits until the API server has the policies in force, or has forgotten them.
pub(crate) async fn enforced(cluster: &mut Cluster, wanted: bool) -> anyhow::Result<()> {
    let foreign: Value =
        json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "b"}, "spec": {}});
    cluster
        .until("policies as wanted", PATIENCE, async |this| {
            let made = this.api.create("/apis/divvy.dev/v1alpha1/gpunodes?dryRun=All", &foreign).await;
            Ok((made.is_err() == wanted).then_some(()))
        })
        .await
}

/// Waits until the scheduler places a pod, so that its start is no part of what is measured.
pub(crate) async fn probe(cluster: &mut Cluster, fleet: &mut Fleet) -> anyhow::Result<()> {
    let first = fleet.counted().await?;
    fleet::create(cluster, [fleet::pod("probe", 0)].into_iter()).await?;
    fleet.until(cluster, "probe that is annotated", |counted| counted.annotated > first.annotated).await?;
    fleet::delete(cluster, ["probe-0".to_owned()].into_iter()).await?;
    fleet.until(cluster, "probe that has ended", |counted| counted.ended > first.ended).await?;
    quiet(cluster, fleet).await.map(drop)
}
