//! What a migration would change.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::annotation::{Document as _, RequestAnnotation};
use divvy_api::limits::{normalise, profile};
use divvy_api::quantity::parse_count;
use divvy_api::{ContainerKind, ContainerSpec, GpuRequest, MigProfile, ResourceNames};
use divvy_dialects::{Amounts, Container, Context, Dialect, Pod, SCHEDULERS, Translation, spoken};
use divvy_index::demand::SchedulingConfig;
use serde::Serialize;

use super::read::{Found, Objects};

/// Everything that concerns GPUs. Fields are added without notice; one that changes its meaning, or goes, comes with another
/// `version`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// `v1`: of this structure.
    version: &'static str,
    pub(super) nodes: Vec<Node>,
    pub(super) workloads: Vec<Workload>,
    pub(super) limits: Vec<Lost>,
    pub(super) steps: Vec<String>,
}

/// A node with GPU pods of other systems, or their resources.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Node {
    pub(super) name: String,
    /// Pods, by system.
    pub(super) pods: BTreeMap<String, usize>,
    /// Resources of other systems that it advertises.
    pub(super) resources: Vec<String>,
}

/// A workload whose pods request GPUs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Workload {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Path of the pods' template in its manifest, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) template: Option<String>,
    /// Pods that haven't ended; 0 for one that was read from a file.
    pub(super) pods: usize,
    /// In whose words it is written.
    pub(super) system: String,
    /// Amounts as written, container by container.
    pub(super) written: String,
    /// Requests that it would have.
    pub(super) becomes: String,
    /// What wouldn't be kept, or would mean something else.
    pub(super) warnings: Vec<String>,
    /// Why its pods would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    #[serde(skip)]
    scheduler: Option<String>,
}

/// A `ResourceQuota` or `LimitRange` that would count nothing any more.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Lost {
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) resources: Vec<String>,
}

/// System of pods that request whole GPUs or MIG instances by NVIDIA's names, which are Divvy's and HAMi's too.
const PLAIN: &str = "nvidia.com/gpu";
/// HAMi, whose pods may be in Divvy's words throughout.
const HAMI: &str = "hami";
const HAMI_SCHEDULERS: [&str; 2] = ["hami-scheduler", "4pd-scheduler"];

// === impl Report ===

impl Report {
    pub(super) fn of(objects: &Objects, dialects: &[Dialect], config: &SchedulingConfig) -> Self {
        let names = &config.names;
        let foreign: BTreeSet<String> = dialects.iter().flat_map(|dialect| dialect.resources(names)).collect();
        let mut workloads = BTreeMap::new();
        let mut pods_of: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for found in &objects.pods {
            let Some(workload) = Workload::of(found, dialects, config, &foreign) else { continue };
            if let Some(node) = &found.node {
                *pods_of.entry(node.clone()).or_default().entry(workload.system.clone()).or_default() += 1;
            }
            let Found { kind, namespace, name, template, .. } = found;
            workloads.entry((namespace, kind, name, template)).or_insert(workload).pods +=
                usize::from(found.node.is_some());
        }
        let resources = |node: &String| -> Vec<String> {
            objects.nodes.get(node).into_iter().flatten().filter(|name| foreign.contains(*name)).cloned().collect()
        };
        let listed: BTreeSet<&String> = objects.nodes.keys().chain(pods_of.keys()).collect();
        let nodes = listed.into_iter().map(|name| Node {
            name: name.clone(),
            pods: pods_of.get(name).cloned().unwrap_or_default(),
            resources: resources(name),
        });
        let nodes: Vec<Node> = nodes.filter(|node| !node.pods.is_empty() || !node.resources.is_empty()).collect();
        let lost = objects.limits.iter().filter_map(|limit| {
            let resources = limit.of(&foreign);
            let (kind, namespace, name) = (limit.kind, limit.namespace.clone(), limit.name.clone());
            (!resources.is_empty()).then_some(Lost { kind, namespace, name, resources })
        });
        let (workloads, limits): (Vec<Workload>, Vec<Lost>) = (workloads.into_values().collect(), lost.collect());
        let steps = steps(&nodes, &workloads, &limits, names);
        Self { version: "v1", nodes, workloads, limits, steps }
    }
}

/// What an administrator does, in this order.
fn steps(nodes: &[Node], workloads: &[Workload], limits: &[Lost], names: &ResourceNames) -> Vec<String> {
    let systems: BTreeSet<&str> =
        workloads.iter().map(|workload| &*workload.system).filter(|of| *of != PLAIN).collect();
    if systems.is_empty() && nodes.is_empty() && workloads.is_empty() {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let refused = workloads.iter().filter(|workload| workload.refused.is_some()).count();
    if refused > 0 {
        steps.push(format!("change what is refused above ({refused}): such pods could not be created any more"));
    }
    let list = systems.into_iter().collect::<Vec<_>>().join(", ");
    steps.push(format!("install Divvy with dialects: [{list}], on no node yet: daemonset.nodeSelector of the chart"));
    for limit in limits {
        let Lost { kind, namespace, name, .. } = limit;
        let ResourceNames { count, memory, cores, .. } = names;
        steps.push(format!("write {kind} {namespace}/{name} anew, in requests of {count}, {memory} and {cores}"));
    }
    let schedulers: BTreeSet<&str> = workloads.iter().filter_map(|workload| workload.scheduler.as_deref()).collect();
    if !schedulers.is_empty() {
        let rewrites: Vec<String> = schedulers.iter().map(|name| format!("{name}=default-scheduler")).collect();
        steps.push(format!("give their pods to your scheduler: rewriteSchedulers: [{}]", rewrites.join(", ")));
    }
    for Node { name, pods, .. } in nodes {
        let count: usize = pods.values().sum();
        let running = match count {
            0 => String::new(),
            1 => ", which ends 1 GPU pod".to_owned(),
            _ => format!(", which ends {count} GPU pods"),
        };
        steps.push(format!(
            "kubectl drain {name} --ignore-daemonsets{running}; take the other system's DaemonSet off it, label it for divvy-node, kubectl uncordon {name}"
        ));
    }
    steps.push("kubectl divvy doctor: what the other systems left behind, and how it is removed".to_owned());
    steps
}

/// Whether a pod in Divvy's words is HAMi's: NVIDIA's plugin has no parts of GPUs, and what Divvy has admitted carries its request.
fn is_hamis(found: &Found, names: &ResourceNames) -> bool {
    let is_part = |name: &String| names.is_ours(name) && !names.counts_cards(name);
    let has_parts = found.pod.containers.iter().flat_map(resources).any(is_part);
    let has_scheduler = found.scheduler.as_deref().is_some_and(|name| HAMI_SCHEDULERS.contains(&name));
    has_scheduler || (has_parts && !found.pod.annotations.contains_key(RequestAnnotation::KEY))
}

/// Resources that a container names.
fn resources(container: &Container) -> impl Iterator<Item = &String> {
    container.limits.keys().chain(container.requests.keys())
}

// === impl Workload ===

impl Workload {
    /// `None` if the webhook never sees its pods, by its match conditions: whatever else they say, they request no GPU.
    fn of(found: &Found, dialects: &[Dialect], config: &SchedulingConfig, foreign: &BTreeSet<String>) -> Option<Self> {
        let names = &config.names;
        let Found { kind, namespace, name, template, scheduler, pod, .. } = found;
        let is_told = |resource: &str| names.is_ours(resource) || foreign.contains(resource);
        let mut keys = dialects.iter().flat_map(Dialect::requesting_annotations);
        let is_seen = pod.containers.iter().flat_map(resources).any(|resource| is_told(resource))
            || keys.any(|key| pod.annotations.contains_key(*key));
        if !is_seen {
            return None;
        }
        let context = Context { names, is_favoured: false };
        let spoken = spoken(pod, dialects, names);
        let translated = match &spoken {
            Ok(dialect) => dialect.map_or(Ok(None), |dialect| dialect.translate(pod, context)),
            Err(mixed) => Err(mixed.clone()),
        };
        let spoken = spoken.unwrap_or_else(|_mixed| dialects.iter().find(|dialect| dialect.is_spoken(pod, names)));
        let system = match spoken {
            // HAMi also reads what is in Divvy's words.
            Some(dialect) if dialect.name() != HAMI || dialect.is_spoken(pod, names) => dialect.name(),
            _ if is_hamis(found, names) => HAMI,
            _ => PLAIN,
        };
        let scheduler = scheduler.clone().filter(|scheduler| SCHEDULERS.contains(&&**scheduler));
        let workload = Self {
            kind: kind.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            template: template.clone(),
            pods: 0,
            system: system.to_owned(),
            written: written(pod, dialects, is_told),
            becomes: String::new(),
            warnings: Vec::new(),
            refused: None,
            scheduler,
        };
        Some(match translated {
            Err(refusal) => Self { refused: Some(refusal.to_string()), ..workload },
            Ok(translation) => match becomes(pod, translation.as_ref(), config) {
                Err(refused) => Self { refused: Some(refused), ..workload },
                Ok(becomes) => {
                    let warnings = translation.map(|translation| translation.warnings).unwrap_or_default();
                    Self { becomes, warnings, ..workload }
                }
            },
        })
    }
}

/// Amounts that concern GPUs, as written.
fn written(pod: &Pod, dialects: &[Dialect], is_told: impl Fn(&str) -> bool) -> String {
    let of_container = |container: &Container| {
        let mut amounts = container.requests.clone();
        amounts.extend(container.limits.clone());
        amounts.retain(|name, _| is_told(name));
        let amounts: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
        (!amounts.is_empty()).then(|| format!("{}: {}", container.name, amounts.join(", ")))
    };
    let mut parts: Vec<String> = pod.containers.iter().filter_map(of_container).collect();
    let keys = dialects.iter().flat_map(Dialect::requesting_annotations);
    parts.extend(keys.filter_map(|key| Some(format!("{key}: {}", pod.annotations.get(*key)?))));
    parts.join("; ")
}

/// Requests after the translation, container by container.
fn becomes(pod: &Pod, translation: Option<&Translation>, config: &SchedulingConfig) -> Result<String, String> {
    let SchedulingConfig { names, defaults, .. } = config;
    let mut parts = Vec::new();
    for (at, container) in pod.containers.iter().enumerate() {
        let new = translation.and_then(|translation| translation.limits[at].as_ref());
        let is_alone = |(name, amount): &(&String, &String)| {
            names.is_ours(name) && !container.limits.contains_key(*name) && parse_count(amount) != Ok(0)
        };
        if let Some((name, amount)) = container.requests.iter().find(is_alone).filter(|_| new.is_none()) {
            let field = &container.field;
            return Err(format!(
                "{field}.resources.requests[{name}]: {amount}: is a request without a limit: set the limit"
            ));
        }
        let limits: Amounts = new.unwrap_or(&container.limits).clone();
        let limits = limits.into_iter().filter(|(name, _)| names.is_ours(name)).collect();
        let kind = if container.is_app { ContainerKind::App } else { ContainerKind::Init };
        let index = pod.containers[..at].iter().filter(|before| before.is_app == container.is_app).count();
        let spec = ContainerSpec { name: container.name.clone(), kind, index, limits };
        let request = normalise(names, *defaults, &spec).map_err(|error| error.to_string())?;
        let profile = profile(names, &spec);
        parts.extend(request.map(|request| format!("{}: {}", container.name, told(request, profile))));
    }
    let ours = translation.into_iter().flat_map(|translation| &translation.annotations);
    parts.extend(ours.filter_map(|(key, value)| Some(format!("{key}: {}", value.as_ref()?))));
    Ok(if parts.is_empty() { "no GPU".to_owned() } else { parts.join("; ") })
}

/// A request in words. Instances are of a MIG profile, and no whole GPUs.
fn told(request: GpuRequest, profile: Option<MigProfile>) -> String {
    let Some(profile) = profile else { return request.to_string() };
    match request.cards {
        1 if request == GpuRequest::whole(1) => format!("1 whole MIG instance {profile}"),
        cards if request == GpuRequest::whole(cards) => format!("{cards} whole MIG instances {profile}"),
        _ => format!("{request}, MIG profile {profile}"),
    }
}
