//! Whether the simulator's kube-scheduler places pods as the real one does: the same pods for both, in the same order, on
//! nodes that nobody runs.
//!
//! The real scheduler gets one pod at a time, so that each finds the nodes as the last one left them. Of a daemon's part
//! there is what the scheduler counts by, the amounts on the Node. No report confirms a reservation, and none expires while
//! this lasts.

mod figures;
mod workload;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use divvy_api::CardId;
use divvy_api::annotation::{self, Planned, PolicyName};
use divvy_api::names::annotation::{CARD_MODEL, GENERATION, PLANNED};
use divvy_api::names::taint::{EFFECT, SOFT};
use divvy_e2e::api::Part;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::fakes::{self, Fake};
use divvy_e2e::pods::PODS;
use divvy_e2e::view;
use divvy_packing::learning::Learning;
use divvy_packing::setup::Setup;
use divvy_simulate::Rng;
use divvy_simulate::cluster::{Cards, Place};
use divvy_simulate::policy::Policy as _;
use divvy_simulate::target::Target;
use divvy_simulate::workload::{Arrival, Kind, Models, Workload};
use divvy_testkit::outside::SLOTS_PER_CARD;
use rand::SeedableRng as _;
use serde_json::{Value, json};

use self::figures::{Figures, Tally, compare};

/// Simulated runs of the same pods, which differ in ties.
const RUNS: u64 = 20;
/// MiB; the simulator's too.
const CARD_MEMORY: u32 = 80 << 10;
/// Pods that come in a second where the webhook follows them with soft taints, which it writes by the clock.
const PODS_PER_SECOND: u32 = 5;
/// Seconds in which the webhook has tainted all nodes, as nobody is on them: three rounds.
const TAINTED_WITHIN: u32 = 15;
/// Calls of the extender for one pod: by the third the scheduler has come round all nodes, and the fourth shows that it is
/// done with the third.
const CALLS: u32 = 4;
/// In the scheduler's words for a pod that it may try again: the extender has refused nodes.
const BY_EXTENDER: &str = "Insufficient GPUs";
/// Between two looks at a pod.
const SOON: Duration = Duration::from_millis(4);

struct Comparison {
    setup: Setup,
    workload: Arc<Workload>,
    pods: Vec<usize>,
}

/// Without the extender, with it, and with soft taints too. `DIVVY_E2E_ROUNDS` sets the number of real runs, else one.
pub(crate) async fn as_simulated(cluster: &mut Cluster) -> anyhow::Result<()> {
    let all = workload::workload(|_| true);
    // Of cards, all that the scheduler knows by itself is the number of whole ones.
    let whole = workload::workload(|kind| !kind.is_share() && kind.models == Models::ANY);
    cluster.start_webhook().await?;
    // A review has its replica look for nodes. Where that is the leader, what it has found is known when the scheduler asks: until
    // the requests that are expected are known, pods of several GPUs then go elsewhere.
    cluster.unregister_webhook().await?;
    cluster.webhook.configure(&json!({"softTaints": "off"})).await?;
    fakes::instead_of_the_node(cluster).await?;
    fakes::make(cluster, (0..all.machines.len()).map(|at| fake(&all, at)).collect()).await?;
    let rounds = std::env::var("DIVVY_E2E_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut wrong = Vec::new();
    let soft_taints = Setup::SoftTaints { pods_per_second: PODS_PER_SECOND };
    for (setup, workload) in [(Setup::InTree, whole), (Setup::Extender, Arc::clone(&all)), (soft_taints, all)] {
        let comparison = Comparison { setup, pods: workload::pods(&workload), workload };
        println!("  {setup:?}, {} pods:", comparison.pods.len());
        let mut real = Vec::new();
        for _ in 0..rounds {
            real.push(comparison.real(cluster).await.with_context(|| format!("{setup:?}"))?);
        }
        let simulated: Vec<Figures> = (1..=RUNS).map(|seed| comparison.simulated(seed)).collect();
        wrong.extend(compare(&real, &simulated).into_iter().map(|what| format!("{setup:?}: {what}")));
    }
    ensure!(wrong.is_empty(), "the real scheduler does something else: {}", wrong.join("; "));
    Ok(())
}

fn node_name(at: usize) -> String {
    format!("n{at:03}")
}

fn fake(workload: &Workload, at: usize) -> Fake {
    let (name, machine) = (node_name(at), &workload.machines[at]);
    let model = &workload.models[machine.model];
    let card = |card| json!({"uuid": format!("GPU-{name}-{card}"), "model": model, "memoryMi": CARD_MEMORY, "health": "Healthy"});
    let cards = (0..machine.cards).map(card).collect();
    Fake { amounts: amounts(workload, at, SLOTS_PER_CARD, 0), cards, name }
}

/// What a daemon offers: a pod that holds whole GPUs requests none of their memory and compute, which are offered no more.
fn amounts(workload: &Workload, at: usize, slots_per_card: u32, held_whole: u32) -> Value {
    let machine = &workload.machines[at];
    let mut amounts =
        json!({"cpu": format!("{}m", machine.cpu), "memory": format!("{}Mi", machine.memory), "pods": "250"});
    if machine.cards > 0 {
        let left = machine.cards - held_whole;
        let of_cards = [
            ("gpu", machine.cards * slots_per_card),
            ("gpumem", left * CARD_MEMORY),
            ("gpumem-percentage", left * 100),
            ("gpucores", left * 100),
        ];
        for (name, amount) in of_cards {
            amounts[format!("nvidia.com/{name}")] = json!(amount.to_string());
        }
    }
    amounts
}

/// As the webhook would let it through.
fn pod(name: &str, kind: &Kind, models: &[String]) -> Value {
    let requests = json!({"cpu": format!("{}m", kind.cpu), "memory": format!("{}Mi", kind.memory)});
    let mut limits = requests.clone();
    if kind.cards > 0 {
        limits["nvidia.com/gpu"] = json!(kind.cards.to_string());
    }
    if kind.is_share() {
        limits["nvidia.com/gpumem-percentage"] = json!((kind.part.memory / 10).to_string());
        limits["nvidia.com/gpucores"] = json!((kind.part.cores / 10).to_string());
    }
    let named = models.iter().enumerate().filter(|(at, _)| kind.models != Models::ANY && kind.models.contain(*at));
    let named: Vec<&str> = named.map(|(_, model)| &**model).collect();
    let annotations = if named.is_empty() { json!({}) } else { json!({CARD_MODEL: named.join(",")}) };
    let tolerated = |key: &str| json!({"key": key, "operator": "Exists", "effect": EFFECT});
    let tolerations: Vec<Value> = SOFT.into_iter().filter(|_| kind.cards > 0).map(tolerated).collect();
    let container = json!({"name": "main", "image": "x", "resources": {"limits": limits, "requests": requests}});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {"automountServiceAccountToken": false, "tolerations": tolerations, "containers": [container]},
    })
}

/// The GPUs of the pod's plan, by the ends of their names.
fn planned(pod: &Value) -> anyhow::Result<Cards> {
    let planned = pod["metadata"]["annotations"][PLANNED].as_str().context("the pod wasn't bound by the webhook")?;
    let planned: Planned = annotation::decode(planned)?;
    let cards = planned.containers.get("main").context("the plan has no GPUs")?;
    let position = |card: &CardId| card.as_str().rsplit('-').next().and_then(|end| end.parse().ok());
    cards.chosen.iter().map(|card| position(card).with_context(|| format!("GPU {card} isn't ours"))).collect()
}

// === impl Comparison ===

impl Comparison {
    /// What the real scheduler leaves.
    async fn real(&self, cluster: &mut Cluster) -> anyhow::Result<Figures> {
        self.prepare(cluster).await?;
        let (mut tally, mut held_whole) = (Tally::new(&self.workload), vec![0; self.workload.machines.len()]);
        let mut clock = tokio::time::interval(Duration::from_secs(1) / PODS_PER_SECOND);
        for (serial, number) in self.pods.iter().enumerate() {
            if self.has_soft_taints() {
                clock.tick().await;
            }
            let kind = &self.workload.kinds[*number];
            let place = self.offer(cluster, serial, kind, &tally).await?;
            if let Some(Place { host, .. }) = place
                && self.asks_extender(kind)
                && !kind.is_share()
            {
                held_whole[host] += kind.cards;
                let amounts = amounts(&self.workload, host, SLOTS_PER_CARD, held_whole[host]);
                fakes::offer(cluster, &node_name(host), &amounts).await?;
            }
            tally.note(*number, place);
        }
        cluster.api.delete(PODS).await?;
        cluster
            .until("end of the pods", PATIENCE, async |this| Ok(this.list().await?.is_empty().then_some(())))
            .await?;
        Ok(tally.figures())
    }

    fn has_soft_taints(&self) -> bool {
        matches!(self.setup, Setup::SoftTaints { .. })
    }

    fn asks_extender(&self, kind: &Kind) -> bool {
        self.setup != Setup::InTree && kind.cards > 0
    }

    /// Nodes with nobody on them, a webhook that has seen no pod, and a scheduler that starts at the first node: it has listed them
    /// by name.
    async fn prepare(&self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let with_extender = self.setup != Setup::InTree;
        let slots_per_card = if with_extender { SLOTS_PER_CARD } else { 1 };
        cluster.control_plane.scheduler.kill().await?;
        for at in 0..self.workload.machines.len() {
            fakes::offer(cluster, &node_name(at), &amounts(&self.workload, at, slots_per_card, 0)).await?;
        }
        let with_taints = self.has_soft_taints();
        cluster.webhook.configure(&json!({"softTaints": if with_taints { "on" } else { "off" }})).await?;
        cluster.webhook_ready().await?;
        cluster.until("leader", PATIENCE, async |this| Ok(this.webhook.leader().await)).await?;
        let with_cards = self.workload.machines.iter().filter(|machine| machine.cards > 0).count();
        let wanted = if with_taints { with_cards } else { 0 };
        cluster
            .until(&format!("soft taints on {wanted} nodes"), PATIENCE, async |this| {
                let nodes = this.api.get("/api/v1/nodes").await?;
                let nodes = nodes["items"].as_array().into_iter().flatten();
                let tainted = nodes.filter(|node| node["spec"]["taints"].is_array()).count();
                Ok((tainted == wanted).then_some(()))
            })
            .await?;
        cluster.restart_scheduler(with_extender).await
    }

    /// Offers a pod to the scheduler. `None`: there is no place for it, and it was deleted.
    ///
    /// The scheduler asks the extender about a sample of the nodes, and tries a pod again that has found none there, with other
    /// nodes, at the next event of any sort. It gets such events until it has tried all.
    async fn offer(
        &self,
        cluster: &Cluster,
        serial: usize,
        kind: &Kind,
        tally: &Tally<'_>,
    ) -> anyhow::Result<Option<Place>> {
        let (name, deadline) = (format!("p{serial}"), Instant::now() + PATIENCE);
        let (mut before, mut calls) = (self.filter_calls(cluster, kind).await, 0);
        cluster.api.create(PODS, &pod(&name, kind, &self.workload.models)).await?;
        let path = format!("{PODS}/{name}");
        loop {
            let found = cluster.api.get(&path).await?;
            if let Some(node) = found["spec"]["nodeName"].as_str() {
                return self.place(node, &found, kind, tally).map(Some);
            }
            let refused = view::condition(&found, "PodScheduled").filter(|said| said["reason"] == "Unschedulable");
            if let Some(said) = refused.and_then(|refused| refused["message"].as_str()) {
                let now = self.filter_calls(cluster, kind).await;
                if now > before {
                    (before, calls) = (now, calls + 1);
                    let event = json!({"metadata": {"annotations": {GENERATION: now.to_string()}}});
                    cluster.api.patch(&format!("/api/v1/nodes/{}", node_name(0)), Part::Object, &event).await?;
                }
                if calls == CALLS || !said.contains(BY_EXTENDER) {
                    cluster.api.delete(&path).await?;
                    return Ok(None);
                }
            }
            ensure!(Instant::now() < deadline, "pod {name} waits: {}", found["status"]);
            tokio::time::sleep(SOON).await;
        }
    }

    /// How often the scheduler has asked the extender for nodes, if it is asked about such a pod.
    async fn filter_calls(&self, cluster: &Cluster, kind: &Kind) -> u64 {
        if !self.asks_extender(kind) {
            return 0;
        }
        let calls = cluster.webhook.metric("divvy_extender_calls_total").await;
        calls.iter().filter(|(labels, _)| labels.contains("filter")).map(|(_, count)| count).sum()
    }

    fn place(&self, node: &str, pod: &Value, kind: &Kind, tally: &Tally<'_>) -> anyhow::Result<Place> {
        let host = node.strip_prefix('n').and_then(|number| number.parse().ok());
        let host: usize = host.with_context(|| format!("node {node} isn't ours"))?;
        let cards = if self.asks_extender(kind) { planned(pod)? } else { tally.cluster().hosts()[host].tightest(kind) };
        Ok(Place { host, cards })
    }

    /// What a simulated scheduler leaves that breaks ties by this seed.
    fn simulated(&self, seed: u64) -> Figures {
        let (workload, nothing, mut rng) = (&self.workload, Target::default(), Rng::seed_from_u64(seed));
        let mut tally = Tally::new(workload);
        let policy =
            self.setup.policy(PolicyName::LeastFragmentation, workload, tally.cluster(), &nothing, &Arc::default());
        let mut policy = Learning::new(workload, policy, None);
        // The first pod comes at any time after a round.
        for _ in 0..u64::from(TAINTED_WITHIN * PODS_PER_SECOND) + seed {
            policy.tick(tally.cluster());
        }
        for (serial, kind) in (0..).zip(&self.pods) {
            policy.tick(tally.cluster());
            let place = policy.choose(tally.cluster(), Arrival { serial, kind: *kind }, &mut rng);
            tally.note(*kind, place);
        }
        tally.figures()
    }
}
