//! What the containers of a pod request, and the limits and requests that say so to scheduler and kubelet.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::annotation::{self, Document as _, RequestAnnotation};
use divvy_api::limits::{check_number, pod_requests};
use divvy_api::quantity::{QuantityError, parse_count, parse_memory_total};
use divvy_api::request::Totals;
use divvy_api::{ContainerRequest, GpuRequest, Memory, MemoryAmount, ResourceNames};

use super::Settings;
use super::patch::{self, Patch};
use super::pod::{Place, Pod, Quantity};
use super::refusal::Refusal;

/// The requests of a pod, in admission order: one for each init and app container.
#[derive(Debug)]
pub(super) struct Requests(pub(super) Vec<ContainerRequest>);

// === impl Requests ===

impl Requests {
    /// Reads limits per card, or, where the pod's `request` names the container, as the totals that we wrote before.
    /// So a pod may come again, and bring containers that others have added.
    pub(super) fn read(pod: &Pod, settings: &Settings) -> Result<Self, Vec<Refusal>> {
        let mut refusals = Vec::new();
        let text = pod.annotation(RequestAnnotation::KEY);
        let annotated: Option<RequestAnnotation> =
            text.and_then(|text| annotation::decode(text).map_err(|error| refusals.push(Refusal::from(error))).ok());
        let mut seen = BTreeSet::new();
        let mut requests = Vec::new();
        for place in pod.containers() {
            if !seen.insert(place.name()) {
                let field = format!("{}.name", place.field());
                refusals.push(Refusal::SameName { field, name: place.name().to_owned() });
            }
            refusals.extend(contradictions(&place, &settings.names));
            match read_request(&place, annotated.as_ref(), settings) {
                Ok(request) => requests.push(request),
                Err(refusal) => refusals.push(refusal),
            }
        }
        refusals.extend(check_number(&requests).err().map(Refusal::from));
        if refusals.is_empty() { Ok(Self(requests)) } else { Err(refusals) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|container| container.request.is_none())
    }

    /// `divvy.dev/request`; `None` for a pod without requests.
    pub(super) fn request(&self) -> Option<RequestAnnotation> {
        let by_name = self.0.iter().filter_map(|container| Some((container.name.clone(), container.request?)));
        let containers: BTreeMap<String, GpuRequest> = by_name.collect();
        (!containers.is_empty()).then_some(RequestAnnotation { containers })
    }

    /// Brings limits and requests to the totals of the requests, and removes those of zero.
    pub(super) fn write(&self, pod: &Pod, names: &ResourceNames, patch: &mut Patch) {
        for (place, container) in pod.containers().zip(&self.0) {
            let wanted = resources(container, names);
            for (list, present) in [("limits", place.limits()), ("requests", place.requests())] {
                let pointer = format!("{}/resources/{list}", place.pointer());
                let changes = patch::amounts(present, &wanted, |name| names.is_ours(name));
                patch.change(&pointer, present.is_some(), changes);
            }
        }
    }
}

/// The request of one container, if it has one.
///
/// This is where limits become requests, and so where other systems' spellings are to be translated: whatever stands
/// behind it knows ours alone.
fn read_request(
    place: &Place<'_>,
    request: Option<&RequestAnnotation>,
    settings: &Settings,
) -> Result<ContainerRequest, Refusal> {
    let names = &settings.names;
    let spec = place.spec(names);
    let request = request.filter(|request| request.containers.contains_key(&spec.name));
    let mut requests = pod_requests(names, settings.defaults, request, std::slice::from_ref(&spec))?;
    let container = requests.pop().expect("pod_requests answers one for each container");
    let request = container.request.map(|request| in_units(request, names));
    let profile = container.profile.filter(|_| request.is_some());
    Ok(ContainerRequest {
        profile,
        request,
        counted: request.map(|request| counted(request, settings)).unwrap_or_default(),
        ..container
    })
}

/// Memory that is counted in devices is requested in whole ones: a default may be less.
fn in_units(request: GpuRequest, names: &ResourceNames) -> GpuRequest {
    let unit = names.memory_unit.as_mib().max(1);
    let memory = match request.memory {
        MemoryAmount::Absolute(memory) => {
            MemoryAmount::Absolute(Memory::mib(memory.as_mib().div_ceil(unit).saturating_mul(unit)))
        }
        percent @ MemoryAmount::Percent(_) => percent,
    };
    GpuRequest { memory, ..request }
}

/// What is written for a request.
fn counted(request: GpuRequest, settings: &Settings) -> Totals {
    let totals = request.totals();
    if request == GpuRequest::whole(request.cards) && !settings.whole_gpus_have_amounts {
        Totals { count: totals.count, ..Totals::default() }
    } else {
        totals
    }
}

/// Our resources of a container, each with its number.
fn resources(container: &ContainerRequest, names: &ResourceNames) -> BTreeMap<String, String> {
    let Totals { count, memory, percent, cores } = container.counted;
    let amounts = [
        (names.counting(container.profile.as_ref()), count),
        (names.memory.clone(), memory / names.memory_unit.as_mib().max(1)),
        (names.memory_percentage.clone(), percent),
        (names.cores.clone(), cores),
    ];
    let amounts = amounts.into_iter().filter(|(_, amount)| *amount > 0);
    amounts.map(|(name, amount)| (name.into(), amount.to_string())).collect()
}

/// Requests that say something else than the limits. A request of zero alone is no contradiction; it is removed.
fn contradictions(place: &Place<'_>, names: &ResourceNames) -> Vec<Refusal> {
    let ours = place.requests().into_iter().flatten().filter(|(name, _)| names.is_ours(name));
    ours.filter_map(|(name, request)| contradiction(place, name, request, names)).collect()
}

fn contradiction(place: &Place<'_>, name: &str, request: &Quantity, names: &ResourceNames) -> Option<Refusal> {
    let field = format!("{}.resources.requests[{name}]", place.field());
    let amount = number(name, &request.0, names);
    let value = request.0.clone();
    match place.limits().and_then(|limits| limits.get(name)) {
        None if amount == Ok(0) => None,
        None => Some(Refusal::RequestAlone { field, value }),
        Some(limit) if limit.0 == request.0 || amount.is_ok() && amount == number(name, &limit.0, names) => None,
        Some(limit) => Some(Refusal::RequestDiffers { field, value, limit: limit.0.clone() }),
    }
}

/// An amount of one of our resources, as the API server may have rewritten it.
fn number(name: &str, text: &str, names: &ResourceNames) -> Result<u64, QuantityError> {
    let is_memory = name == names.memory.as_str() && !names.counts_memory_in_devices();
    if is_memory { parse_memory_total(text).map(Memory::as_mib) } else { parse_count(text) }
}

/// Refuses ephemeral containers that name our resources.
pub(super) fn no_request(place: &Place<'_>, names: &ResourceNames) -> Option<Refusal> {
    let name = place.resources().find(|name| names.is_ours(name))?;
    Some(Refusal::Ephemeral { field: format!("{}.resources[{name}]", place.field()) })
}
