//! The node as seen from outside: objects of the API server, processes, and the kubelet's records, in the playground's
//! terms.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use divvy_api::annotation::{self, Document as _, RequestAnnotation};
use divvy_api::limits::pod_requests;
use divvy_api::names::{annotation as key, condition as kind};
use divvy_api::request::{Defaults, Sharing};
use divvy_api::{CardId, ContainerKind, ContainerRequest, ContainerSpec, Memory, ResourceNames};
use divvy_testkit::outside::{CardView, ContainerView, NodeView, PodView};
use fake_nvml::{CardScenario, CardState, Scenario};
use serde_json::Value;

use crate::checkpoint::Record;
use crate::containers::{ContainerKey, Running};

/// Memory in devices of the kubelet's.
pub const MEMORY_UNITS: &str = "nvidia.com/gpumem-256mi";
/// What one of them stands for.
pub const MEMORY_UNIT: Memory = Memory::mib(256);

/// A pod's UID.
pub fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap_or_default()
}

/// A pod's name.
pub fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

/// The minor version in a version of Kubernetes, such as `v1.36.3`.
pub fn minor_version(version: &str) -> anyhow::Result<u32> {
    let minor = version.strip_prefix("v1.").and_then(|rest| rest.split('.').next());
    minor.and_then(|minor| minor.parse().ok()).with_context(|| format!("version {version}: not v1.MINOR.PATCH"))
}

/// `status.phase`.
pub fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// Whether it is Failed or Succeeded.
pub fn is_over(pod: &Value) -> bool {
    matches!(phase(pod), "Failed" | "Succeeded")
}

/// Whether all its containers run.
pub fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition["status"] == "True")
}

/// A condition of a pod or a node.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Why a pod failed, in the kubelet's words.
pub fn failure(pod: &Value) -> String {
    let text = |field: &str| pod["status"][field].as_str().unwrap_or_default();
    format!("{}: {}", text("reason"), text("message"))
}

/// What the scheduler says of a pod that has no place.
pub fn unschedulable(pod: &Value) -> Option<String> {
    let scheduled = condition(pod, "PodScheduled").filter(|scheduled| scheduled["status"] == "False")?;
    scheduled["message"].as_str().map(str::to_owned)
}

/// What the leader says of a pod that it has no place for.
pub fn unplaced(pod: &Value) -> Option<String> {
    let placed = condition(pod, kind::PLACED).filter(|placed| placed["status"] == "False")?;
    placed["message"].as_str().map(str::to_owned)
}

/// The node that these pods, processes and records make, where so many percent of its memory are promised.
pub fn node(
    pods: &BTreeMap<String, Value>,
    running: &BTreeMap<ContainerKey, Running>,
    records: &BTreeMap<ContainerKey, Record>,
    scenario: &Scenario,
    memory_scale: u32,
) -> anyhow::Result<NodeView> {
    let runs = |pod: &Value| running.keys().any(|(owner, _)| owner == uid(pod));
    let live = pods.values().filter(|pod| !is_over(pod) || runs(pod));
    let pods = live.map(|pod| pod_view(pod, running, records, memory_scale)).collect::<anyhow::Result<_>>()?;
    Ok(NodeView { name: crate::node::NODE.to_owned(), cards: cards(scenario)?, pods, ..NodeView::default() })
}

/// Cards by the numbers of their device nodes.
pub fn minors(scenario: &Scenario) -> anyhow::Result<BTreeMap<u32, CardId>> {
    scenario.cards.iter().map(|card| Ok((card.minor, card.uuid.parse()?))).collect()
}

/// Cards, and of those in MIG mode their instances.
fn cards(scenario: &Scenario) -> anyhow::Result<Vec<CardView>> {
    let view = |card: &CardScenario, uuid: &str, memory: u64| {
        let (memory, healthy) = (Memory::from_bytes_floor(memory), card.state == CardState::Present);
        Ok(CardView { id: uuid.parse()?, model: card.model.clone(), memory, numa: card.numa, healthy })
    };
    let views = |card: &CardScenario| match card.mig.as_ref().filter(|mig| mig.enabled) {
        None => vec![view(card, &card.uuid, card.memory_total)],
        Some(mig) => mig.instances.iter().map(|cut| view(card, &cut.uuid_on(card), cut.memory_total)).collect(),
    };
    scenario.cards.iter().flat_map(views).collect()
}

fn pod_view(
    pod: &Value,
    running: &BTreeMap<ContainerKey, Running>,
    records: &BTreeMap<ContainerKey, Record>,
    memory_scale: u32,
) -> anyhow::Result<PodView> {
    let requests = requests(pod).with_context(|| format!("reading pod {}", name(pod)))?;
    let container = |ContainerRequest { name, kind, request, .. }| {
        let key = (uid(pod).to_owned(), name);
        let (running, record) = (running.get(&key), records.get(&key));
        let slots = record.map(|record| record.slots.clone()).unwrap_or_default();
        let given = running.map(|running| &running.given).or(record.map(|record| &record.given)).cloned();
        ContainerView { name: key.1, kind, request, running: running.is_some(), slots, given }
    };
    let containers = requests.into_iter().map(container).collect();
    let is_oversubscribed = memory_scale > 100 && pod["metadata"]["annotations"][key::OVERSUBSCRIBE] == "true";
    let sharing = if is_oversubscribed { Sharing::Oversubscribed(memory_scale) } else { Sharing::Part };
    Ok(PodView { uid: uid(pod).to_owned(), name: format!("default/{}", name(pod)), sharing, containers })
}

/// What its containers ask for.
pub fn requests(pod: &Value) -> anyhow::Result<Vec<ContainerRequest>> {
    let request = pod["metadata"]["annotations"][RequestAnnotation::KEY].as_str();
    let request: Option<RequestAnnotation> = request.map(annotation::decode).transpose()?;
    let (specs, mut names) = (specs(pod), ResourceNames::default());
    if specs.iter().any(|spec| spec.limits.contains_key(MEMORY_UNITS)) {
        names = names.in_units(MEMORY_UNIT)?;
    }
    Ok(pod_requests(&names, Defaults::default(), request.as_ref(), &specs)?)
}

fn specs(pod: &Value) -> Vec<ContainerSpec> {
    let list = |field: &str| pod["spec"][field].as_array().into_iter().flatten().enumerate();
    let spec = |(index, container): (usize, &Value), kind| {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let limits = container["resources"]["limits"].as_object().into_iter().flatten();
        let limits = limits.map(|(name, amount)| (name.clone(), text(amount))).collect();
        ContainerSpec { name: text(&container["name"]), kind, index, limits }
    };
    let init = list("initContainers").map(|(index, container)| {
        let sidecar = container["restartPolicy"] == "Always";
        spec((index, container), if sidecar { ContainerKind::Sidecar } else { ContainerKind::Init })
    });
    init.chain(list("containers").map(|container| spec(container, ContainerKind::App))).collect()
}

/// UIDs of pods.
pub fn uids(pods: &[Value]) -> BTreeSet<&str> {
    pods.iter().map(uid).collect()
}

/// How many pods failed, by the kubelet's words.
pub fn failures(pods: &[Value]) -> BTreeMap<String, u32> {
    let mut failures = BTreeMap::new();
    pods.iter().filter(|pod| phase(pod) == "Failed").for_each(|pod| *failures.entry(failure(pod)).or_default() += 1);
    failures
}

/// Names of the pods that these are.
pub fn names<'a>(pods: impl Iterator<Item = &'a Value>) -> BTreeSet<&'a str> {
    pods.map(name).collect()
}
