//! A live cluster as the simulator takes it.
//!
//! In the simulator all GPUs are alike but for their model: a request for memory in MiB is taken as a part of the most
//! frequent GPU that the pod accepts, one of several containers as one for all their GPUs, and a MIG instance as a GPU.

use std::cmp::Reverse;
use std::collections::HashMap;

use divvy_api::Card;
use divvy_api::request::Sharing;
use divvy_index::demand::Demand;
use divvy_index::node_selection::is_tolerated;
use divvy_index::{Index, Node};
use divvy_placement::is_allowed;
use divvy_simulate::trace::MOST_CARDS;
use divvy_simulate::workload::{Kind, Machine, Models, Part, Taints, Workload, WorkloadError};
use k8s_openapi::api::core::v1::Taint;

use super::objects::{LiveNode, LivePod, requested_of_nodes};

/// What machines and pods are told apart by.
struct Facts<'a> {
    /// A GPU of each model, the most frequent first.
    models: Vec<&'a Card>,
    taints: Vec<&'a Taint>,
}

/// The cluster with nobody on it but the pods that belong to its nodes, and the other pods. Nodes that take no pods are left
/// out, and pods that would fit no node if it were empty.
pub(super) fn of_cluster(index: &Index, nodes: &[LiveNode], pods: &[LivePod]) -> Result<Workload, WorkloadError> {
    let nodes: Vec<&LiveNode> = nodes.iter().filter(|node| !node.is_closed).collect();
    let snapshot = index.snapshot();
    let healthy = |node: &Node| node.cards().iter().filter(|card| card.is_healthy()).cloned().collect();
    let cards: HashMap<&str, Vec<Card>> = snapshot.nodes().map(|node| (&*node.name, healthy(node))).collect();
    let cards = |node: &LiveNode| cards.get(&*node.name).map_or(&[][..], Vec::as_slice);
    let facts = Facts::new(&nodes, nodes.iter().flat_map(|node| cards(node)));
    let of_nodes = requested_of_nodes(pods.iter().filter(|pod| pod.is_of_node));
    let machine = |node: &&LiveNode| facts.machine(node, cards(node), node.without(&of_nodes));
    let models = facts.models.iter().map(|gpu| gpu.model.to_string()).collect();
    let free = pods.iter().filter(|pod| !pod.is_of_node);
    let machines: Vec<Machine> = nodes.iter().map(machine).collect();
    let kinds = free.filter_map(|pod| facts.kind(index, pod));
    let fitting = kinds.filter(|kind| machines.iter().any(|machine| machine.fits(kind)));
    Workload::from_machines(machines.clone(), models, fitting)
}

// === impl Facts ===

impl<'a> Facts<'a> {
    fn new(nodes: &[&'a LiveNode], gpus: impl Iterator<Item = &'a Card>) -> Self {
        let mut models: Vec<(&Card, usize)> = Vec::new();
        for gpu in gpus {
            match models.iter_mut().find(|(known, _)| known.model == gpu.model) {
                Some((_, count)) => *count += 1,
                None => models.push((gpu, 1)),
            }
        }
        models.sort_by_key(|(_, count)| Reverse(*count));
        let mut taints: Vec<&Taint> = Vec::new();
        for taint in nodes.iter().flat_map(|node| &node.taints) {
            if taints.len() < Taints::MOST && !taints.contains(&taint) {
                taints.push(taint);
            }
        }
        Self { models: models.into_iter().map(|(gpu, _)| gpu).collect(), taints }
    }

    /// An empty node with these cards, and so much CPU and memory.
    fn machine(&self, node: &LiveNode, cards: &[Card], (cpu, memory): (u32, u32)) -> Machine {
        let model = cards.first().and_then(|card| self.models.iter().position(|gpu| gpu.model == card.model));
        let taints = self.taints.iter().enumerate().filter(|(_, taint)| node.taints.contains(taint));
        Machine {
            cpu,
            memory,
            cards: u32::try_from(cards.len()).unwrap_or(MOST_CARDS).min(MOST_CARDS),
            model: model.unwrap_or_default(),
            taints: taints.map(|(at, _)| at).collect(),
        }
    }

    /// The pod's kind; `None` if no GPU will do, or if its request can't be read.
    fn kind(&self, index: &Index, pod: &LivePod) -> Option<Kind> {
        let tolerated = |(_, taint): &(usize, &&Taint)| is_tolerated(taint, &pod.tolerations);
        let without_gpus = Kind {
            cpu: pod.view.requests.cpu_milli,
            memory: pod.memory,
            cards: 0,
            part: Part::default(),
            models: Models::ANY,
            tolerates: self.taints.iter().enumerate().filter(tolerated).map(|(at, _)| at).collect(),
        };
        let Some(demand) = Demand::read(&pod.view, index.config()).ok()? else { return Some(without_gpus) };
        let wishes = &demand.preferences;
        let requests: Vec<_> = demand.containers.iter().filter_map(|container| container.request).collect();
        let will_do = |(_, gpu): &(usize, &&Card)| {
            is_allowed(&gpu.model, &wishes.models, &wishes.avoid_models)
                && requests.iter().all(|request| request.is_within(gpu.memory))
        };
        let of_these: Vec<usize> = self.models.iter().enumerate().filter(will_do).map(|(at, _)| at).collect();
        let frequent = self.models[*of_these.first()?];
        let cards = requests.iter().map(|request| request.cards).fold(0, u32::saturating_add);
        let shares = || requests.iter().map(|request| request.share_of(frequent.memory, Sharing::Part));
        let cores = shares().map(|share| share.cores.units() * 10).max()?;
        let memory = shares().map(|share| share.memory.as_mib() * 1000 / frequent.memory.as_mib().max(1)).max()?;
        let memory = u32::try_from(memory).unwrap_or(u32::MAX);
        let is_whole = cards > 1 || shares().any(|share| share.exclusive);
        let part = Part { cores: cores.min(1000), memory: memory.clamp(1, 1000) };
        let is_picky = of_these.len() < self.models.len();
        Some(Kind {
            cards,
            part: if is_whole { Part::WHOLE } else { part },
            models: if is_picky { of_these.into_iter().collect() } else { Models::ANY },
            ..without_gpus
        })
    }
}
