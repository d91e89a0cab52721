//! What a pod must not do beside its requests: name GPUs, preload code before libdivvy, mount over Divvy's files, ask for what
//! its namespace may not have.
//!
//! None of this makes a limit a wall (the container's own command can still set a variable), but what is said in the
//! spec is meant, or is a mistake; either is better answered here than found out on the card.

use divvy_api::annotation::Preferences;
use divvy_api::container::{DEVICES_AS_MOUNTS, LIBRARY, LIMITS_MOUNT, PRELOAD_FILE, REGION_MOUNT, VISIBLE_DEVICES};
use divvy_api::names::annotation::{COMPUTE, COMPUTE_LIMIT, INPUTS, OUTPUTS, OVERSUBSCRIBE, PRIORITY, SAME_CARD};
use divvy_api::quantity::parse_count;
use divvy_api::{Compute, ContainerRequest, GpuRequest, Priority, ResourceNames};

use super::pod::{EnvVar, Place, Pod, Quantity};
use super::refusal::Refusal;
use super::{ConflictingVariables, Settings};

/// Values of [`VISIBLE_DEVICES`] that name no card.
pub(super) const NO_CARD: &str = "void";
const NO_CARDS: [&str; 3] = ["", "none", NO_CARD];
/// Variables whose libraries the dynamic linker loads before all others.
const PRELOADS: [&str; 2] = ["LD_PRELOAD", "LD_AUDIT"];

/// What a container may say about cards beside its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GpuAccess {
    /// Sees the GPUs of its request.
    Requests(GpuRequest),
    /// Sees no GPU.
    Without,
    /// Left alone: a privileged container can open every card of the node itself, so hiding them would only
    /// take the driver's libraries from it (and Pod Security decides who may run one); and one that asks for another
    /// resource of the same domain is given cards by another plugin, through the same variable.
    Exempt,
}

// === impl GpuAccess ===

impl GpuAccess {
    pub(super) fn new(place: &Place<'_>, request: Option<GpuRequest>, settings: &Settings) -> Self {
        let domain = settings.names.count.domain();
        let foreign = |(name, amount): (&str, &Quantity)| {
            let is_foreign = name.split_once('/').is_some_and(|(of, _)| of == domain) && !settings.names.is_ours(name);
            is_foreign && parse_count(&amount.0).is_ok_and(|amount| amount > 0)
        };
        match request {
            Some(request) => Self::Requests(request),
            None if place.is_privileged() || place.amounts().any(foreign) => Self::Exempt,
            None => Self::Without,
        }
    }

    /// Whether the container has part of a card, which something must keep it to.
    fn is_part(self) -> bool {
        matches!(self, Self::Requests(request) if request != GpuRequest::whole(request.cards))
    }
}

/// Refusals of all containers' variables and mounts.
pub(super) fn containers(pod: &Pod, accesses: &[GpuAccess], settings: &Settings) -> Vec<Refusal> {
    pod.containers().zip(accesses).flat_map(|(place, access)| container(&place, *access, settings)).collect()
}

/// Variables of a container that select GPUs, by position: the runtime obeys them, whatever the limits are.
pub(super) fn selecting<'p>(place: &Place<'p>, access: GpuAccess) -> impl Iterator<Item = (usize, &'p EnvVar)> {
    place.variables(VISIBLE_DEVICES).filter(move |(_, variable)| match access {
        GpuAccess::Exempt => false,
        GpuAccess::Without => !variable.text().is_some_and(|text| NO_CARDS.contains(&text)),
        GpuAccess::Requests(_) => true,
    })
}

/// Variables of a container whose libraries come before libdivvy, by position.
fn preloading(place: &Place<'_>, access: GpuAccess) -> impl Iterator<Item = (usize, &'static str)> {
    let names = PRELOADS.into_iter().filter(move |_| access.is_part());
    names.flat_map(|name| place.variables(name).map(move |(position, _)| (position, name)))
}

/// Refusals of one container's variables and mounts.
pub(super) fn container(place: &Place<'_>, access: GpuAccess, settings: &Settings) -> Vec<Refusal> {
    if access == GpuAccess::Exempt {
        return Vec::new();
    }
    let is_refused = settings.conflicting_variables == ConflictingVariables::Refuse;
    let named = selecting(place, access).filter(|_| is_refused);
    let named = named.map(|(position, variable)| Refusal::NamesCards {
        field: place.variable_field(position),
        value: shown(variable),
    });
    let preloads = preloading(place, access).filter(|_| is_refused);
    let preloads = preloads
        .map(|(position, name)| Refusal::Preloads { field: place.variable_field(position), name: name.to_owned() });
    let taken = [LIMITS_MOUNT, REGION_MOUNT, DEVICES_AS_MOUNTS].into_iter();
    let preloaded = [PRELOAD_FILE, LIBRARY].into_iter().filter(|_| access.is_part());
    let taken: Vec<_> = taken.chain(preloaded).map(parts).collect();
    let covers = |path: &str| taken.iter().any(|taken| parts(path).starts_with(taken));
    let mounts = place.mount_paths().filter(|(_, path)| covers(path));
    let mounts = mounts.map(|(field, path)| Refusal::Mounts { field, path: path.to_owned() });
    named.chain(preloads).chain(mounts).collect()
}

/// The start of a variable's value, which may be long.
fn shown(variable: &EnvVar) -> String {
    match variable.text() {
        None => "a reference".to_owned(),
        Some(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
    }
}

/// The names along a path of a container, as a runtime resolves it; `/run` is where `/var/run` leads in most images.
fn parts(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    if parts.first() == Some(&"run") {
        parts.insert(0, "var");
    }
    parts
}

/// What the pod's author asks for beside amounts.
pub(super) fn preferences(pod: &Pod, namespace: &str, settings: &Settings) -> Result<Preferences, Vec<Refusal>> {
    let ours = pod.our_annotations().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let read = Preferences::from_annotations(&ours);
    let preferences = read.map_err(|error| vec![error.into()])?;
    let favours = [
        (COMPUTE, "burst", preferences.compute == Some(Compute::Burst)),
        (COMPUTE_LIMIT, "burst", preferences.compute_limit.is_some()),
        (PRIORITY, "high", preferences.priority == Some(Priority::High)),
        (OVERSUBSCRIBE, "true", preferences.oversubscribe),
    ];
    let is_granted = settings.favoured_namespaces.contain(namespace);
    let refused = favours.into_iter().filter(|(.., is_asked)| *is_asked && !is_granted);
    let refusals: Vec<_> =
        refused.map(|(key, value, _)| Refusal::Namespace { key, value, namespace: namespace.to_owned() }).collect();
    if refusals.is_empty() { Ok(preferences) } else { Err(refusals) }
}

/// Refusal of a pod that asks for oversubscription and for nothing that could be.
pub(super) fn oversubscription(
    preferences: &Preferences,
    requests: &[ContainerRequest],
    names: &ResourceNames,
) -> Option<Refusal> {
    let mut parts = requests.iter().filter_map(|container| container.request).peekable();
    let is_in_vain = preferences.oversubscribe && parts.peek().is_some() && parts.all(|part| part.is_exclusive());
    is_in_vain.then(|| Refusal::NothingToOversubscribe {
        key: OVERSUBSCRIBE,
        memory: names.memory.clone(),
        percentage: names.memory_percentage.clone(),
        cores: names.cores.clone(),
    })
}

/// Refusals of containers that are guaranteed more compute than they may have.
pub(super) fn compute_limit(preferences: &Preferences, requests: &[ContainerRequest]) -> Vec<Refusal> {
    let Some(limit) = preferences.compute_limit else { return Vec::new() };
    let guaranteed = requests.iter().filter_map(|container| Some((container, container.request?)));
    let beyond = guaranteed.filter(|(_, request)| !request.is_exclusive() && request.cores.units() > limit.percent());
    let refusals = beyond.map(|(container, request)| Refusal::BelowGuarantee {
        key: COMPUTE_LIMIT,
        limit: limit.percent(),
        container: container.name.clone(),
        cores: request.cores.units(),
    });
    refusals.collect()
}

/// Refusals of containers that can't have all of their GPUs in common with the pod's others.
pub(super) fn same_card(preferences: &Preferences, requests: &[ContainerRequest]) -> Vec<Refusal> {
    let several = |container: &&ContainerRequest| container.request.is_some_and(|request| request.cards > 1);
    let refused = requests.iter().filter(|_| preferences.same_card).filter(several);
    let refusal = |container: &ContainerRequest| Refusal::SeveralGpus {
        key: SAME_CARD,
        container: container.name.clone(),
        cards: container.request.map_or(0, |request| request.cards),
    };
    refused.map(refusal).collect()
}

/// Warnings about what is allowed and probably not meant.
pub(super) fn warnings(pod: &Pod, accesses: &[GpuAccess]) -> Vec<String> {
    let requests = |access: &GpuAccess| matches!(access, GpuAccess::Requests(_));
    let unknown = pod.our_annotations().filter(|(key, _)| !INPUTS.contains(key) && !OUTPUTS.contains(key));
    let unknown = unknown.map(|(key, _)| format!("annotation {key}: unknown to Divvy, has no effect"));
    let mut warnings: Vec<String> = unknown.collect();
    if !accesses.iter().any(requests) {
        let idle = pod.our_annotations().filter(|(key, _)| INPUTS.contains(key));
        warnings.extend(idle.map(|(key, _)| format!("annotation {key}: has no effect: no container requests a GPU")));
        return warnings;
    }
    let privileged = pod.containers().zip(accesses).filter(|(place, access)| requests(access) && place.is_privileged());
    warnings.extend(privileged.map(|(place, _)| {
        let field = place.field();
        format!("{field}.securityContext.privileged: it can open every GPU of its node, whatever its limits")
    }));
    let preloads = pod.containers().zip(accesses).flat_map(|(place, access)| {
        let preloading: Vec<_> = preloading(&place, *access).collect();
        preloading.into_iter().map(move |(position, name)| {
            let field = place.variable_field(position);
            format!("{field}: {name} loads code ahead of what keeps the container to its share: an allocator does no harm, other hooks of CUDA do")
        })
    });
    warnings.extend(preloads);
    let devices = pod.host_paths().filter(|(_, path)| shows_devices(path));
    warnings
        .extend(devices.map(|(field, path)| format!("{field}: {path} exposes GPUs to containers beyond their limits")));
    warnings
}

/// Whether a directory or file of the node is, or holds, the device nodes of cards.
fn shows_devices(path: &str) -> bool {
    match *parts(path) {
        [] | ["dev"] => true,
        ["dev", device, ..] => device.starts_with("nvidia"),
        _ => false,
    }
}
