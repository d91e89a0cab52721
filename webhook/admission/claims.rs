//! What the containers of a pod claim, and the limits and requests that say so to scheduler and kubelet.

use std::collections::{BTreeMap, BTreeSet};

use divvy_contract::annotation::{self, Document as _, Request};
use divvy_contract::claim::{Totals, pod_claims};
use divvy_contract::quantity::{parse_count, parse_memory_total};
use divvy_contract::{Claim, ContainerClaim, Memory, MemoryAmount, ResourceNames};

use super::Settings;
use super::patch::{Changes, Patch};
use super::pod::{Amounts, Place, Pod, Quantity};
use super::refusal::Refusal;

/// The claims of a pod, in admission order: one for each init and app container.
#[derive(Debug)]
pub(super) struct Claims(pub(super) Vec<ContainerClaim>);

// === impl Claims ===

impl Claims {
    /// Reads limits per card, or, where the pod's `request` names the container, as the totals that we wrote before.
    /// So a pod may come again, and bring containers that others have added.
    pub(super) fn read(pod: &Pod, settings: &Settings) -> Result<Self, Vec<Refusal>> {
        let mut refusals = Vec::new();
        let text = pod.annotation(Request::KEY);
        let request: Option<Request> =
            text.and_then(|text| annotation::decode(text).map_err(|error| refusals.push(Refusal::from(error))).ok());
        let mut seen = BTreeSet::new();
        let mut claims = Vec::new();
        for place in pod.containers() {
            if !seen.insert(place.name()) {
                let field = format!("{}.name", place.field());
                refusals.push(Refusal::SameName { field, name: place.name().to_owned() });
            }
            refusals.extend(contradictions(&place, &settings.names));
            match claim(&place, request.as_ref(), settings) {
                Ok(claim) => claims.push(claim),
                Err(refusal) => refusals.push(refusal),
            }
        }
        if refusals.is_empty() { Ok(Self(claims)) } else { Err(refusals) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|container| container.claim.is_none())
    }

    /// `divvy.dev/request`; `None` for a pod without claims.
    pub(super) fn request(&self) -> Option<Request> {
        let by_name = self.0.iter().filter_map(|container| Some((container.name.clone(), container.claim?)));
        let containers: BTreeMap<String, Claim> = by_name.collect();
        (!containers.is_empty()).then_some(Request { containers })
    }

    /// Brings limits and requests to the totals of the claims, and removes those of zero.
    pub(super) fn write(&self, pod: &Pod, names: &ResourceNames, patch: &mut Patch) {
        for (place, container) in pod.containers().zip(&self.0) {
            let wanted = resources(container, names);
            for (list, present) in [("limits", place.limits()), ("requests", place.requests())] {
                let pointer = format!("{}/resources/{list}", place.pointer());
                patch.change(&pointer, present.is_some(), changes(present, &wanted, names));
            }
        }
    }
}

/// The claim of one container, if it has one.
///
/// This is where limits become claims, and so where other systems' spellings are to be translated: whatever stands
/// behind it knows ours alone.
fn claim(place: &Place<'_>, request: Option<&Request>, settings: &Settings) -> Result<ContainerClaim, Refusal> {
    let names = &settings.names;
    let spec = place.spec(names);
    let request = request.filter(|request| request.containers.contains_key(&spec.name));
    let mut claims = pod_claims(names, settings.defaults, request, std::slice::from_ref(&spec))?;
    let container = claims.pop().expect("pod_claims answers one for each container");
    let claim = container.claim.map(|claim| in_units(claim, names));
    let profile = container.profile.filter(|_| claim.is_some());
    Ok(ContainerClaim { profile, claim, counted: claim.map(counted).unwrap_or_default(), ..container })
}

/// Memory that is counted in devices is claimed in whole ones: a default may be less.
fn in_units(claim: Claim, names: &ResourceNames) -> Claim {
    let unit = names.memory_unit.as_mib().max(1);
    let memory = match claim.memory {
        MemoryAmount::Absolute(memory) => {
            MemoryAmount::Absolute(Memory::mib(memory.as_mib().div_ceil(unit).saturating_mul(unit)))
        }
        percent @ MemoryAmount::Percent(_) => percent,
    };
    Claim { memory, ..claim }
}

/// What is written for a claim. Whole cards are counted alone, as their users and all stock tools know them.
fn counted(claim: Claim) -> Totals {
    let totals = claim.totals();
    if claim == Claim::whole(claim.cards) { Totals { count: totals.count, ..Totals::default() } } else { totals }
}

/// Our resources of a container, each with its number.
fn resources(container: &ContainerClaim, names: &ResourceNames) -> BTreeMap<String, u64> {
    let Totals { count, memory, percent, cores } = container.counted;
    let amounts = [
        (names.counting(container.profile.as_ref()), count),
        (names.memory.clone(), memory / names.memory_unit.as_mib().max(1)),
        (names.memory_percentage.clone(), percent),
        (names.cores.clone(), cores),
    ];
    amounts.into_iter().filter(|(_, amount)| *amount > 0).map(|(name, amount)| (name.into(), amount)).collect()
}

/// How our resources in a list have to change. An amount that Kubernetes already reads as the same number stays as it is
/// written: the API server writes 80000 as `80k`.
fn changes(present: Option<&Amounts>, wanted: &BTreeMap<String, u64>, names: &ResourceNames) -> Changes {
    let text = |name: &str| present.and_then(|amounts| amounts.get(name)).map(|amount| amount.0.as_str());
    let surplus = present.into_iter().flat_map(BTreeMap::keys);
    let surplus = surplus.filter(|name| names.is_ours(name) && !wanted.contains_key(*name));
    let missing = wanted.iter().filter(|(name, amount)| text(name).map(parse_count) != Some(Ok(**amount)));
    let missing = missing.map(|(name, amount)| (name.clone(), Some(amount.to_string().into())));
    surplus.map(|name| (name.clone(), None)).chain(missing).collect()
}

/// Requests that say something else than the limits. A request of zero alone is no contradiction; it is removed.
fn contradictions(place: &Place<'_>, names: &ResourceNames) -> Vec<Refusal> {
    let number = |name: &str, text: &str| {
        let memory = name == names.memory.as_str() && !names.counts_memory_in_devices();
        if memory { parse_memory_total(text).map(Memory::as_mib) } else { parse_count(text) }
    };
    let ours = place.requests().into_iter().flatten().filter(|(name, _)| names.is_ours(name));
    let against = |(name, request): (&String, &Quantity)| {
        let field = format!("{}.resources.requests[{name}]", place.field());
        let (amount, value) = (number(name, &request.0), request.0.clone());
        match place.limits().and_then(|limits| limits.get(name)) {
            None if amount == Ok(0) => None,
            None => Some(Refusal::RequestAlone { field, value }),
            Some(limit) if limit.0 == request.0 || amount.is_ok() && amount == number(name, &limit.0) => None,
            Some(limit) => Some(Refusal::RequestDiffers { field, value, limit: limit.0.clone() }),
        }
    };
    ours.filter_map(against).collect()
}

/// Refuses ephemeral containers that name our resources.
pub(super) fn no_claim(place: &Place<'_>, names: &ResourceNames) -> Option<Refusal> {
    let name = place.resources().find(|name| names.is_ours(name))?;
    Some(Refusal::Ephemeral { field: format!("{}.resources[{name}]", place.field()) })
}
