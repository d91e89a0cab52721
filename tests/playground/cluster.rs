//! The nodes: each a kubelet stand-in, a scenario of the fake NVML, and a daemon.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use divvy_api::Memory;
use divvy_api::{Link, Links};
use divvy_simulate::trace::TraceNode;
use fake_nvml::{PciLevel, Scenario};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use crate::control_plane::ControlPlane;
use divvy_testkit::binaries::Binaries;
use divvy_testkit::daemon::{self, NodeFiles};
use divvy_testkit::outside::{CardView, NodeView, Requests};
use divvy_testkit::pods::GPU;
use divvy_testkit::process::{Process, own_address};
use fake_kubelet::{Kubelet, KubeletOptions, KubeletView, Membership, Workload};

/// Longest wait for a daemon to register, and for a card to change its health.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where the daemon's own pod is, as on a real node; without any pod a kubelet's list says nothing.
pub const SYSTEM: &str = "divvy-system";

/// Port of the daemons' pages.
const METRICS: u16 = 9402;

/// `deviceListStrategy`, in turn.
const STRATEGIES: [&str; 5] = ["volume-mounts", "cdi-cri", "envvar", "cdi-annotations", "auto"];

/// A machine before it is started.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name of its node.
    pub name: String,
    /// Cards of the node.
    pub scenario: Scenario,
}

/// A node.
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// What can be seen of it, as of the last look.
    pub view: NodeView,
    /// How its cards are linked.
    pub links: Links,
    /// Kubelet of the node.
    pub kubelet: Arc<Kubelet>,
    /// Daemon of the node.
    pub daemon: Process,
    /// What its NVML answers.
    pub scenario: Scenario,
    files: NodeFiles,
    _membership: Option<Membership>,
}

/// The playground's own machines: `count` of three kinds.
pub fn own_machines(count: u32, seed: u64) -> Vec<Machine> {
    let kinds = [Scenario::hgx_h100, Scenario::hgx_h100, Scenario::pcie_l40s, Scenario::cube_mesh_v100];
    let scenarios = kinds.iter().cycle().zip(0..count);
    let machines = scenarios.map(|(kind, n)| Machine { name: format!("node-{n}"), scenario: kind() });
    with_own_uuids(machines.collect(), seed)
}

/// Machines of a trace, at most `limit`: a sample with the same mix of models.
pub fn trace_machines(nodes: &[TraceNode], limit: Option<u32>, seed: u64) -> Vec<Machine> {
    let limit = limit.map_or(nodes.len(), |limit| limit as usize);
    let machine = |node: &TraceNode| Machine {
        name: node.name.clone(),
        scenario: Scenario::uniform(node.cards, &node.model, memory_of(&node.model)),
    };
    with_own_uuids(sample(nodes, limit, seed).into_iter().map(machine).collect(), seed)
}

/// `limit` nodes, of each model its part (largest remainders), in the file's order.
fn sample(nodes: &[TraceNode], limit: usize, seed: u64) -> Vec<&TraceNode> {
    let mut models: Vec<&str> = nodes.iter().map(|node| &*node.model).collect();
    models.sort_unstable();
    models.dedup();
    let limit = limit.min(nodes.len());
    let positions = |model: &str| (0..nodes.len()).filter(move |at| nodes[*at].model == model).collect::<Vec<_>>();
    let mut parts: Vec<(usize, usize, Vec<usize>)> = models
        .into_iter()
        .map(|model| {
            let of_model = positions(model);
            let share = of_model.len() * limit;
            (share / nodes.len(), share % nodes.len(), of_model)
        })
        .collect();
    parts.sort_by_key(|(_, remainder, of_model)| (std::cmp::Reverse(*remainder), of_model.first().copied()));
    let missing = limit - parts.iter().map(|(whole, ..)| whole).sum::<usize>();
    let rng = &mut StdRng::seed_from_u64(seed);
    let drawn = parts
        .into_iter()
        .enumerate()
        .flat_map(|(rank, (whole, _, of_model))| of_model.into_iter().sample(rng, whole + usize::from(rank < missing)));
    let mut drawn: Vec<usize> = drawn.collect();
    drawn.sort_unstable();
    drawn.into_iter().map(|at| &nodes[at]).collect()
}

/// Bytes. The trace doesn't say; G2 and G3 are undisclosed and taken for cards of 24 and 80 GiB.
fn memory_of(model: &str) -> u64 {
    let gib = match model {
        "T4" | "P100" | "V100M16" => 16,
        "V100M32" => 32,
        "G3" => 80,
        _ => 24,
    };
    gib << 30
}

/// The presets name the cards of every machine alike; in a cluster no two cards have one UUID.
fn with_own_uuids(mut machines: Vec<Machine>, seed: u64) -> Vec<Machine> {
    let rng = &mut StdRng::seed_from_u64(seed);
    for Machine { scenario, .. } in &mut machines {
        for card in &mut scenario.cards {
            let own = format!("GPU-{}", uuid::Builder::from_random_bytes(rng.random()).into_uuid());
            for link in &mut scenario.links {
                let (one, other) = &mut link.cards;
                [one, other].into_iter().filter(|end| **end == card.uuid).for_each(|end| end.clone_from(&own));
            }
            card.uuid = own;
        }
    }
    machines
}

// === impl Machine ===

impl Machine {
    fn cards(&self) -> anyhow::Result<Vec<CardView>> {
        let cards = self.scenario.cards.iter().map(|card| {
            let memory = Memory::from_bytes_floor(card.memory_total);
            Ok(CardView { id: card.uuid.parse()?, model: card.model.clone(), memory, numa: card.numa, healthy: true })
        });
        cards.collect()
    }

    fn links(&self) -> Links {
        let Scenario { cards, links, nvswitch_links, .. } = &self.scenario;
        let between = |a: usize, b: usize| {
            let (a, b) = (&cards[a].uuid, &cards[b].uuid);
            links.iter().find(|link| link.cards == (a.clone(), b.clone()) || link.cards == (b.clone(), a.clone()))
        };
        Links::new(cards.len(), |a, b| match between(a, b) {
            _ if *nvswitch_links > 0 => Link::NvLink(*nvswitch_links),
            Some(link) if link.nvlinks > 0 => Link::NvLink(link.nvlinks),
            Some(link) => match link.pci {
                PciLevel::System => Link::System,
                PciLevel::Node => Link::Node,
                PciLevel::HostBridge => Link::HostBridge,
                PciLevel::Multiple => Link::MultiSwitch,
                PciLevel::Single | PciLevel::Internal => Link::SingleSwitch,
            },
            None => Link::System,
        })
    }
}

// === impl Node ===

impl Node {
    /// Starts the kubelet and the daemon, the `number`th of the cluster, with files under `directory`. Without a control
    /// plane it belongs to no cluster.
    pub async fn start(
        machine: Machine,
        number: usize,
        directory: &Path,
        binaries: &Binaries,
        seed: u64,
        control_plane: Option<&ControlPlane>,
    ) -> anyhow::Result<Self> {
        // Short, because the kubelet's sockets are below.
        let mut files = NodeFiles::new(directory.join(number.to_string()));
        files.kubeconfig = control_plane.map(|control_plane| control_plane.daemon_kubeconfig.clone());
        std::fs::create_dir_all(&files.root).with_context(|| format!("creating {}", files.root.display()))?;
        machine.scenario.write(&files.scenario).context("writing the scenario")?;
        machine.scenario.write_sysfs(&files.root.join("host/sys")).context("writing sysfs")?;
        let mut own = Workload::new(format!("divvy-node-{number}")).namespace(SYSTEM).app("divvy-node", &[]).pod();
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let options = KubeletOptions::new(files.root.join("k"), &machine.name, seed.wrapping_add(number));
        let kubelet = Arc::new(Kubelet::start(options).await?);
        let membership = if let Some(ControlPlane { server, .. }) = control_plane {
            own.spec.get_or_insert_default().node_name = Some(machine.name.clone());
            let membership = kubelet.join(server).context("joining the cluster")?;
            server.create(&json!(own)).context("creating the daemon's own pod")?;
            Some(membership)
        } else {
            kubelet.add_pod(own).context("binding the daemon's own pod")?;
            None
        };
        let strategy = STRATEGIES[usize::try_from(number).unwrap_or(0) % STRATEGIES.len()];
        let daemon = daemon::start(binaries, &files, &kubelet, (own_address(), METRICS).into(), strategy)?;
        let (cards, links) = (machine.cards()?, machine.links());
        let Machine { name, scenario } = machine;
        let view = NodeView { name: name.clone(), cards, ..NodeView::default() };
        Ok(Self { name, view, links, kubelet, daemon, scenario, files, _membership: membership })
    }

    /// Registrations so far.
    pub fn registrations(&self) -> usize {
        self.kubelet.view().registrations.len()
    }

    /// Waits until the daemon has registered more than `before` times and has listed its slots.
    pub async fn registered(&mut self, before: usize) -> anyhow::Result<()> {
        let listed = |view: &KubeletView| view.listed.get(GPU).is_some_and(|ids| !ids.is_empty());
        self.until("registration", |view| view.registrations.len() > before && listed(view)).await
    }

    /// Waits until all cards have healthy slots: of a full one those that pods hold.
    pub async fn healthy(&mut self) -> anyhow::Result<()> {
        let count = self.scenario.cards.len();
        let cards = |ids: &BTreeSet<String>| {
            ids.iter().filter_map(|id| id.split_once("::")).map(|(card, _)| card.to_owned()).collect::<BTreeSet<_>>()
        };
        let all = |view: &KubeletView| view.healthy.get(GPU).is_some_and(|ids| cards(ids).len() == count);
        self.until("list with healthy slots of every card", all).await
    }

    /// Waits for something to be seen, at most [`PATIENCE`].
    async fn until(&mut self, what: &str, condition: impl FnMut(&KubeletView) -> bool) -> anyhow::Result<()> {
        if tokio::time::timeout(PATIENCE, self.kubelet.wait_until(condition)).await.is_ok() {
            return Ok(());
        }
        if let Err(ended) = self.daemon.ended() {
            bail!("{}: no {what}: {ended}", self.name);
        }
        bail!("{}: no {what} within {}s: see {}", self.name, PATIENCE.as_secs(), self.daemon.log.display())
    }

    /// Looks at it.
    pub fn look(&mut self, requests: &Requests) -> &NodeView {
        self.view.look(&self.kubelet.view(), requests);
        &self.view
    }

    /// Changes what its NVML answers.
    pub fn change_scenario(&mut self, change: impl FnOnce(&mut Scenario)) -> anyhow::Result<()> {
        change(&mut self.scenario);
        self.scenario.write(&self.files.scenario).context("writing the scenario")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn nodes(models: &[(&str, usize)]) -> Vec<TraceNode> {
        let all = models.iter().flat_map(|(model, count)| std::iter::repeat_n(*model, *count)).enumerate();
        all.map(|(at, model)| TraceNode {
            name: format!("n-{at}"),
            cards: 2,
            model: model.to_owned(),
            ..TraceNode::default()
        })
        .collect()
    }

    #[test]
    fn a_sample_keeps_the_mix_of_models() {
        let nodes =
            nodes(&[("G2", 549), ("T4", 404), ("P100", 134), ("G3", 39), ("V100M16", 56), ("V100M32", 30), ("A10", 1)]);
        let drawn = sample(&nodes, 24, 1);
        let mut models = BTreeMap::new();
        for node in &drawn {
            *models.entry(&*node.model).or_insert(0) += 1;
        }
        let expected = [("G2", 11), ("G3", 1), ("P100", 3), ("T4", 8), ("V100M16", 1)];
        assert_eq!(models, expected.into());
        assert_eq!(drawn, sample(&nodes, 24, 1), "equal seeds draw alike");
        assert_ne!(drawn, sample(&nodes, 24, 2));
        assert_eq!(sample(&nodes, 5000, 1).len(), nodes.len());
    }

    #[test]
    fn no_two_cards_of_a_cluster_have_one_uuid() {
        let machines = own_machines(4, 1);
        let cards: Vec<_> = machines.iter().flat_map(|machine| &machine.scenario.cards).collect();
        let uuids: BTreeSet<_> = cards.iter().map(|card| &card.uuid).collect();
        assert_eq!((cards.len(), uuids.len()), (32, 32));
        let ends = machines.iter().flat_map(|machine| &machine.scenario.links).map(|link| &link.cards.0);
        assert!(ends.clone().count() > 0 && ends.into_iter().all(|end| uuids.contains(end)));
        assert_eq!(machines[0].links().get(0, 7), Link::NvLink(18));
        assert_eq!(machines[3].links().get(0, 7), Link::System);
    }
}
