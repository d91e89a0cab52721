//! Gauges of GPUs and shares, read from the ledger when scraped, and of the tier and the device list strategies.

use std::fmt;
use std::sync::Arc;

use divvy_api::{Card, Cores, Memory};
use divvy_node_core::allocator::{Allocator, SharedAllocator, lock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::config::Strategy;
use crate::container::{Containers, Strategies};
use crate::kubelet::registration::RegistrationStatus;
use crate::states::States;
use divvy_node_core::inventory::DeviceInfo;
use divvy_node_core::ledger::Holding;
use divvy_node_core::pod::PodRef;

/// Collector of the ledger's gauges.
pub(super) struct LedgerCollector {
    pub(super) allocator: SharedAllocator,
    pub(super) containers: Arc<Containers>,
    pub(super) states: States,
}

type Labels = Vec<(&'static str, String)>;

/// One metric: name, help, and its values by label.
struct Gauges {
    name: &'static str,
    help: &'static str,
    values: Vec<(Labels, f64)>,
}

impl fmt::Debug for LedgerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LedgerCollector")
    }
}

impl Collector for LedgerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for Gauges { name, help, values } in self.read() {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in values {
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl LedgerCollector {
    fn read(&self) -> Vec<Gauges> {
        let allocator = lock(&self.allocator);
        let journal = allocator.ledger().journal_health();
        let registration = self.states.registration.borrow().clone();
        let is = |held: bool| f64::from(u8::from(held));
        let mut gauges = vec![
            one(
                "registered",
                "1 if the device plugin is registered with the kubelet",
                vec![],
                is(registration == RegistrationStatus::Registered),
            ),
            one(
                "serving",
                "1 if new pods can be served; 0 if pods can't be identified, shares recorded or containers prepared",
                vec![],
                is(self.states.serving.borrow().is_none()),
            ),
            one(
                "device_plugin_conflict",
                "1 if another device plugin serves the same resources",
                vec![],
                is(matches!(registration, RegistrationStatus::Conflict(_))),
            ),
            one(
                "configuration_invalid",
                "1 if the configuration file is invalid and an earlier one is in effect",
                vec![],
                is(self.states.config.borrow().problem.is_some()),
            ),
            one(
                "ledger_revision",
                "Revision of the ledger; increases with every change of a share",
                vec![],
                count(allocator.ledger().revision()),
            ),
            one(
                "journal_writable",
                "1 if the last change of the ledger was written to its journal; 0 if changes fail",
                vec![],
                is(journal.is_writable),
            ),
            one(
                "journal_rewritten",
                "1 if the journal's last rewrite succeeded; 0 if it grows with every change",
                vec![],
                is(journal.is_rewritten),
            ),
            one(
                "tier_served",
                "1 if the node can serve its isolation tier; 0 if containers are refused",
                vec![],
                is(allocator.containers().problem().is_none()),
            ),
            one(
                "regions_bounded",
                "1 if the directory that a container writes to is a file system with a size of its own",
                vec![],
                is(self.containers.are_regions_bounded()),
            ),
            one("tier_info", "Isolation tier of the node", vec![("tier", allocator.tier().to_string())], 1.0),
            strategy_gauge(&self.containers.strategies()),
        ];
        gauges.extend(card_gauges(&allocator));
        gauges.extend(share_gauges(&allocator));
        gauges.extend(host_memory_gauges(&allocator));
        gauges
    }
}

fn one(name: &'static str, help: &'static str, labels: Labels, value: f64) -> Gauges {
    Gauges { name, help, values: vec![(labels, value)] }
}

/// One value for each strategy in effect. `bypassable` is true of all if it is of one.
fn strategy_gauge(strategies: &Strategies) -> Gauges {
    let Strategies { active, reason, bypassable } = strategies;
    let labels = |strategy: &Strategy| {
        let strategy = strategy.as_str().to_owned();
        vec![("strategy", strategy), ("bypassable", bypassable.to_string()), ("reason", reason.clone())]
    };
    let help = "Device list strategies in effect, why, and whether a pod can bypass them by naming GPUs itself";
    let values = active.iter().map(|strategy| (labels(strategy), 1.0)).collect();
    Gauges { name: "device_list_strategy_info", help, values }
}

fn card_gauges(allocator: &Allocator) -> Vec<Gauges> {
    let allocations = allocator.ledger().allocations();
    let per_card = |name, help, value: &dyn Fn(&Card, &DeviceInfo) -> Option<f64>| {
        let value = |(card, device): (&Card, &DeviceInfo)| Some((card_labels(card), value(card, device)?));
        Gauges { name, help, values: allocator.inventory().each().filter_map(value).collect() }
    };
    let held = |card: &Card| allocations.held(&card.id, None);
    vec![
        gpu_info(allocator),
        per_card("gpu_healthy", "1 if the GPU is healthy and accepts new pods", &|card, _| {
            Some(f64::from(u8::from(card.is_healthy())))
        }),
        per_card("gpu_memory_bytes", "Memory of the GPU", &|card, _| Some(bytes(card.memory))),
        per_card("gpu_memory_used_bytes", "Memory in use on the GPU as reported by NVML", &|_, device| {
            device.memory_used.map(bytes)
        }),
        per_card("gpu_memory_allocated_bytes", "GPU memory allocated to pods", &|card, _| {
            Some(bytes(held(card).memory))
        }),
        per_card("gpu_compute_allocated_ratio", "Part of the GPU's compute that is allocated to pods", &|card, _| {
            Some(ratio(held(card).cores))
        }),
        per_card("gpu_pods", "Pods with a share of the GPU", &|card, _| Some(f64::from(held(card).pods))),
    ]
}

fn card_labels(card: &Card) -> Vec<(&'static str, String)> {
    vec![("uuid", card.id.to_string()), ("model", card.model.to_string())]
}

fn gpu_info(allocator: &Allocator) -> Gauges {
    let labels = |(card, device): (&Card, &DeviceInfo)| {
        let parent = device.place.as_ref().map(|place| place.gpu.to_string()).unwrap_or_default();
        let more = [("pci_bus_id", device.pci_bus_id.clone()), ("parent_uuid", parent)];
        card_labels(card).into_iter().chain(more).collect()
    };
    let help = "PCI bus ID of a GPU, and of a MIG instance the UUID of its GPU";
    let values = allocator.inventory().each().map(|each| (labels(each), 1.0)).collect();
    Gauges { name: "gpu_info", help, values }
}

fn share_gauges(allocator: &Allocator) -> Vec<Gauges> {
    let mut memory = Gauges { name: "share_memory_bytes", help: "GPU memory allocated to a container", values: vec![] };
    let help = "Part of the GPU's compute that is allocated to a container";
    let mut compute = Gauges { name: "share_compute_ratio", help, values: vec![] };
    let help = "Isolation tier of a container";
    let mut tiers = Gauges { name: "share_tier_info", help, values: vec![] };
    for entry in allocator.ledger().allocations().pods() {
        for (container, holding) in entry.holdings() {
            let tier = holding.terms_under(allocator.tier()).tier;
            tiers.values.push((labels(&entry.pod, container, ("tier", tier.to_string())), 1.0));
            for (labels, share) in parts(&entry.pod, container, holding) {
                memory.values.push((labels.clone(), bytes(share.memory)));
                compute.values.push((labels, ratio(share.cores)));
            }
        }
    }
    vec![memory, compute, tiers]
}

/// Host memory behind oversubscribed shares; none where there is neither that nor such a share left.
fn host_memory_gauges(allocator: &Allocator) -> Vec<Gauges> {
    let allocations = allocator.ledger().allocations();
    let oversubscription = allocator.oversubscription();
    if oversubscription.is_none() && allocations.host_memory(|_| true).is_zero() {
        return Vec::new();
    }
    let capacity = oversubscription.map_or(Memory::ZERO, |oversubscription| oversubscription.host_memory);
    let help = "Host memory allocated to pods in place of the GPU's";
    let mut cards = Gauges { name: "gpu_host_memory_allocated_bytes", help, values: vec![] };
    for card in allocator.inventory().cards() {
        cards.values.push((card_labels(card), bytes(allocations.held(&card.id, None).host)));
    }
    let help = "Part of divvy_share_memory_bytes for which host memory is booked";
    let mut shares = Gauges { name: "share_host_memory_bytes", help, values: vec![] };
    for entry in allocations.pods() {
        let parts = entry.holdings().flat_map(|(container, holding)| parts(&entry.pod, container, holding));
        let with_host = parts.filter(|(_, share)| !share.host.is_zero());
        shares.values.extend(with_host.map(|(labels, share)| (labels, bytes(share.host))));
    }
    let help = "Host memory that can be allocated to pods in place of the GPUs'";
    vec![one("host_memory_allocatable_bytes", help, vec![], bytes(capacity)), cards, shares]
}

fn parts<'a>(
    pod: &'a PodRef,
    container: &'a str,
    holding: &'a Holding,
) -> impl Iterator<Item = (Labels, divvy_api::Share)> + 'a {
    holding.parts.iter().map(move |part| (labels(pod, container, ("uuid", part.card.to_string())), part.share))
}

fn labels(pod: &PodRef, container: &str, last: (&'static str, String)) -> Labels {
    let namespace = pod.namespace.clone();
    let name = pod.name.clone();
    vec![("namespace", namespace), ("pod", name), ("container", container.to_owned()), last]
}

fn ratio(cores: Cores) -> f64 {
    f64::from(cores.units()) / 100.0
}

fn bytes(memory: Memory) -> f64 {
    count(memory.as_mib()) * f64::from(1u32 << 20)
}

/// Prometheus knows floats only; 2^53 is beyond any count here.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows floats only, and 2^53 MiB is beyond any card")]
fn count(value: u64) -> f64 {
    value as f64
}
