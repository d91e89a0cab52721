//! What a migration would change.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::annotation::{Document as _, RequestAnnotation};
use divvy_api::limits::{normalise, profile};
use divvy_api::quantity::parse_count;
use divvy_api::{ContainerKind, ContainerSpec, GpuRequest, MigProfile, ResourceNames};
use divvy_index::demand::SchedulingConfig;
use divvy_systems::{ALL, Amounts, Container, Context, Dialect, Pod, System, Translation, is_scheduler, spoken};
use kube::ResourceExt as _;
use serde::Serialize;

use super::read::{FoundWorkload, MigrateInput};
use super::steps::steps;
use super::warnings::warnings;
use crate::admin::limits::Limit;
use crate::view::inspect::NodeView;

/// Everything that concerns GPUs. Fields are added without notice; one that changes its meaning, or goes, comes with another
/// `version`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MigrateReport {
    /// `v1`: of this structure.
    version: &'static str,
    pub(super) nodes: Vec<Node>,
    pub(super) workloads: Vec<Workload>,
    /// Those that would count nothing any more.
    pub(super) limits: Vec<Affected>,
    /// Those that would begin to count pods of their namespace, once these are translated.
    pub(super) new_limits: Vec<Affected>,
    /// What the report can't show, or may show wrongly.
    pub(super) warnings: Vec<String>,
    pub(super) steps: Vec<String>,
}

/// A node with GPU pods, other systems' resources, or GPUs that nobody uses.
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
    pub(super) scheduler: Option<String>,
    /// Resources that its pods would request, and don't name as written.
    #[serde(skip)]
    gains: BTreeSet<String>,
}

/// A `ResourceQuota` or `LimitRange`, with those of its resources that concern it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Affected {
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) resources: Vec<String>,
}

/// System of pods that request whole GPUs or MIG instances by NVIDIA's names, which are Divvy's and HAMi's too.
pub(super) const PLAIN: &str = "nvidia.com/gpu";

// === impl MigrateReport ===

impl MigrateReport {
    pub(super) fn new(objects: &MigrateInput, dialects: &[Dialect], config: &SchedulingConfig) -> Self {
        let names = &config.names;
        let foreign: BTreeSet<String> = dialects.iter().flat_map(|dialect| dialect.resources(names)).collect();
        let mut workloads = BTreeMap::new();
        let mut pods_of: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for found in &objects.pods {
            let Some(workload) = Workload::new(found, dialects, config, &foreign) else { continue };
            if let Some(node) = &found.node {
                *pods_of.entry(node.clone()).or_default().entry(workload.system.clone()).or_default() += 1;
            }
            let FoundWorkload { kind, namespace, name, template, .. } = found;
            workloads.entry((namespace, kind, name, template)).or_insert(workload).pods +=
                usize::from(found.node.is_some());
        }
        let workloads: Vec<Workload> = workloads.into_values().collect();
        let mut report = Self {
            version: "v1",
            limits: lost_limits(&objects.limits, &foreign, &workloads, names),
            new_limits: new(&objects.limits, &workloads),
            warnings: warnings(objects, dialects, &foreign),
            nodes: nodes(&objects.nodes, &pods_of, &foreign, names),
            workloads,
            steps: Vec::new(),
        };
        report.steps = steps(&report, dialects, names);
        report
    }
}

/// All with GPUs, if a pod requests one or another system has resources somewhere.
fn nodes(
    nodes: &[NodeView],
    pods_of: &BTreeMap<String, BTreeMap<String, usize>>,
    foreign: &BTreeSet<String>,
    names: &ResourceNames,
) -> Vec<Node> {
    let known: BTreeMap<String, &NodeView> = nodes.iter().map(|node| (node.name_any(), node)).collect();
    let node = |name: &String| {
        let resources = known.get(name).into_iter().flat_map(|node| node.resources());
        let resources = resources.filter(|resource| foreign.contains(*resource)).map(str::to_owned).collect();
        Node { name: name.clone(), pods: pods_of.get(name).cloned().unwrap_or_default(), resources }
    };
    let has_cards = |node: &Node| {
        let mut resources = known.get(&node.name).into_iter().flat_map(|node| node.resources());
        resources.any(|resource| names.counts_cards(resource))
    };
    let is_concerned = |node: &Node| !node.pods.is_empty() || !node.resources.is_empty();
    let all: BTreeSet<&String> = known.keys().chain(pods_of.keys()).collect();
    let listed: Vec<Node> = all.into_iter().map(node).filter(|node| is_concerned(node) || has_cards(node)).collect();
    if listed.iter().any(is_concerned) { listed } else { Vec::new() }
}

/// Limits of resources that no pod names once it is translated, and those that a system counts by itself: Kubernetes counts
/// requests of such resources alone.
fn lost_limits(
    limits: &[Limit],
    foreign: &BTreeSet<String>,
    workloads: &[Workload],
    names: &ResourceNames,
) -> Vec<Affected> {
    let counting = ALL.into_iter().find(|system| system.counts_limits);
    let is_counted = counting.is_some_and(|system| workloads.iter().any(|workload| workload.system == system.name));
    let of = |limit: &Limit| {
        let in_vain = limit.in_vain.iter().filter(|name| is_counted && names.is_ours(name));
        limit.among(foreign).into_iter().chain(in_vain.map(|name| format!("limits.{name}"))).collect()
    };
    limits.iter().filter_map(|limit| Affected::new(limit, of(limit))).collect()
}

fn new(limits: &[Limit], workloads: &[Workload]) -> Vec<Affected> {
    let mut gains: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for workload in workloads {
        gains.entry(&workload.namespace).or_default().extend(workload.gains.iter().cloned());
    }
    let counted = |limit: &Limit| gains.get(&*limit.namespace).map(|gains| limit.counted(gains)).unwrap_or_default();
    limits.iter().filter_map(|limit| Affected::new(limit, counted(limit))).collect()
}

/// The system whose pod one in Divvy's words is, if any shares them: NVIDIA's plugin has no parts of GPUs, and what Divvy has
/// admitted carries its request.
fn system_in_our_words(found: &FoundWorkload, names: &ResourceNames) -> Option<&'static System> {
    let system = ALL.into_iter().find(|system| system.words.shares_names)?;
    let is_part = |name: &String| names.is_ours(name) && !names.counts_cards(name);
    let has_parts = found.pod.containers.iter().flat_map(resources).any(is_part);
    let has_scheduler = found.scheduler.as_deref().is_some_and(|name| system.schedulers.contains(&name));
    let is_its = has_scheduler || (has_parts && !found.pod.annotations.contains_key(RequestAnnotation::KEY));
    is_its.then_some(system)
}

/// Resources that a container names.
pub(super) fn resources(container: &Container) -> impl Iterator<Item = &String> {
    container.limits.keys().chain(container.requests.keys())
}

/// Divvy's resources that a pod requests once it is translated, and doesn't name as written.
fn gains(pod: &Pod, translation: Option<&Translation>, names: &ResourceNames) -> BTreeSet<String> {
    let limits = translation.iter().flat_map(|translation| translation.limits.iter().flatten()).flat_map(Amounts::keys);
    let written: BTreeSet<&String> = pod.containers.iter().flat_map(resources).collect();
    limits.filter(|name| names.is_ours(name) && !written.contains(name)).cloned().collect()
}

// === impl Affected ===

impl Affected {
    /// `None` if none of its resources is concerned.
    fn new(limit: &Limit, resources: Vec<String>) -> Option<Self> {
        let Limit { kind, namespace, name, .. } = limit;
        (!resources.is_empty()).then(|| Self { kind, namespace: namespace.clone(), name: name.clone(), resources })
    }
}

// === impl Workload ===

impl Workload {
    /// `None` if the webhook never sees its pods, by its match conditions: whatever else they say, they request no GPU.
    fn new(
        found: &FoundWorkload,
        dialects: &[Dialect],
        config: &SchedulingConfig,
        foreign: &BTreeSet<String>,
    ) -> Option<Self> {
        let names = &config.names;
        let FoundWorkload { kind, namespace, name, template, scheduler, pod, .. } = found;
        let is_told = |resource: &str| names.is_ours(resource) || foreign.contains(resource);
        let mut annotations = dialects.iter().flat_map(|dialect| dialect.requesting(&pod.annotations));
        let is_seen =
            pod.containers.iter().flat_map(resources).any(|resource| is_told(resource)) || annotations.next().is_some();
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
            Some(dialect) if !dialect.system().words.shares_names || dialect.is_spoken(pod, names) => dialect.name(),
            _ => system_in_our_words(found, names).map_or(PLAIN, |system| system.name),
        };
        let scheduler = scheduler.clone().filter(|scheduler| is_scheduler(scheduler));
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
            gains: BTreeSet::new(),
        };
        Some(match translated {
            Err(refusal) => Self { refused: Some(refusal.to_string()), ..workload },
            Ok(translation) => match becomes(pod, translation.as_ref(), config) {
                Err(refused) => Self { refused: Some(refused), ..workload },
                Ok(becomes) => {
                    let gains = gains(pod, translation.as_ref(), names);
                    let warnings = translation.map(|translation| translation.warnings).unwrap_or_default();
                    Self { becomes, warnings, gains, ..workload }
                }
            },
        })
    }
}

/// Amounts that concern GPUs, as written.
fn written(pod: &Pod, dialects: &[Dialect], is_told: impl Fn(&str) -> bool) -> String {
    let mut parts: Vec<String> =
        pod.containers.iter().filter_map(|container| written_amounts(container, &is_told)).collect();
    let annotations = dialects.iter().flat_map(|dialect| dialect.requesting(&pod.annotations));
    parts.extend(annotations.map(|(key, value)| format!("{key}: {value}")));
    parts.join("; ")
}

/// Those of a container.
fn written_amounts(container: &Container, is_told: impl Fn(&str) -> bool) -> Option<String> {
    let mut amounts = container.requests.clone();
    amounts.extend(container.limits.clone());
    amounts.retain(|name, _| is_told(name));
    let amounts: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
    (!amounts.is_empty()).then(|| format!("{}: {}", container.name, amounts.join(", ")))
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
        parts.extend(request.map(|request| format!("{}: {}", container.name, described(request, profile))));
    }
    let ours = translation.into_iter().flat_map(|translation| &translation.annotations);
    parts.extend(ours.filter_map(|(key, value)| Some(format!("{key}: {}", value.as_ref()?))));
    Ok(if parts.is_empty() { "no GPU".to_owned() } else { parts.join("; ") })
}

/// A request in words. Instances are of a MIG profile, and no whole GPUs.
fn described(request: GpuRequest, profile: Option<MigProfile>) -> String {
    let Some(profile) = profile else { return request.to_string() };
    match request.cards {
        1 if request == GpuRequest::whole(1) => format!("1 whole MIG instance {profile}"),
        cards if request == GpuRequest::whole(cards) => format!("{cards} whole MIG instances {profile}"),
        _ => format!("{request}, MIG profile {profile}"),
    }
}
