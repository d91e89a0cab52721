//! What is changed in a new pod: amounts become totals, the requests are written beside them, and containers without a
//! request are shown no card. A pod that comes again, after other webhooks, is changed only where they have.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_api::annotation::{self, Document, Preferences};
use divvy_api::config::DEFAULT_SCHEDULER;
use divvy_api::container::VISIBLE_DEVICES;
use divvy_api::names::{GATE, taint};
use divvy_api::pod::wire::Resources;
use serde_json::json;

use super::examine::{self, Examined, examine};
use super::hints;
use super::patch::{Changes, Patch};
use super::pod::{Place, Pod};
use super::refusal::Refusal;
use super::requests::Requests;
use super::review::Answer;
use super::rules::{self, GpuAccess, NO_CARD};
use super::translate::{Translated, translate};
use super::{Fits, Settings};
use divvy_index::Feasibility;
use divvy_index::demand::Demand;

/// Answers the review of a new pod.
pub(super) fn create(pod: &Pod, namespace: &str, settings: &Settings, fits: &Fits<'_>) -> Result<Answer, Vec<Refusal>> {
    let (mut answer, is_planned) = mutate(pod, namespace, settings, fits)?;
    gate(pod, is_planned, &mut answer.patch);
    Ok(answer)
}

/// Completes a new pod or a template of pods, but for the gate, and says whether the leader plans the pod.
pub(super) fn mutate(
    pod: &Pod,
    namespace: &str,
    settings: &Settings,
    fits: &Fits<'_>,
) -> Result<(Answer, bool), Vec<Refusal>> {
    let Translated { pod, mut patch, variables, warnings: of_dialect } = translate(pod, namespace, settings)?;
    let pod = &*pod;
    let Examined { requests, accesses, preferences, mut warnings } = examine(pod, namespace, settings)?;
    warnings.splice(0..0, of_dialect);
    requests.write(pod, &settings.names, &mut patch);
    let Overridden { warnings: of_variables, .. } =
        override_variables(pod.containers().zip(accesses).collect(), &variables, &mut patch);
    warnings.extend(of_variables);
    if settings.tolerate_soft_taints && !requests.is_empty() {
        tolerate(pod, &mut patch);
    }
    let request = requests.request();
    let fit = if requests.is_empty() { None } else { fits(&demand(pod, namespace, requests, preferences)) };
    if let Some(refusal) = fit.as_ref().and_then(|fit| over_quota(pod, fit)) {
        return Err(vec![refusal]);
    }
    let mut annotations = Changes::new();
    annotate(pod, request.as_ref(), &mut annotations);
    annotate(pod, fit.as_ref().and_then(hints::annotation).as_ref(), &mut annotations);
    patch.change("/metadata/annotations", pod.annotations().is_some(), annotations);
    if let Some(fit) = fit {
        if settings.prefer_hinted_nodes {
            hints::prefer(&fit.best, pod, &mut patch);
        }
        warnings.extend(fit.refusal());
    }
    // A pod that names its node passes no scheduler, and the API server refuses it with a gate.
    let scheduler = pod.scheduler().unwrap_or(DEFAULT_SCHEDULER);
    let is_planned = request.is_some() && pod.node().is_none() && settings.planned.include(scheduler, pod.has_group());
    Ok((Answer { patch, warnings, ..Answer::default() }, is_planned))
}

/// Has the pod wait for the leader's plan, or frees one that would wait for ever: its gate comes with a copy
/// (`kubectl debug --copy-to`) or from its author, and no leader plans it.
fn gate(pod: &Pod, is_planned: bool, patch: &mut Patch) {
    let gates = pod.scheduling_gates();
    let ours = gates.into_iter().flatten().enumerate().filter(|(_, gate)| gate.is_ours());
    let ours: Vec<usize> = ours.map(|(position, _)| position).collect();
    if !is_planned {
        patch.remove("/spec/schedulingGates", ours);
    } else if ours.is_empty() {
        patch.append("/spec/schedulingGates", gates.is_some(), vec![json!({ "name": GATE })]);
    }
}

/// Why the pod can't start before others of its namespace end. The extender keeps to quotas at every binding; a pod that
/// names its node goes past it.
fn over_quota(pod: &Pod, fit: &Feasibility) -> Option<Refusal> {
    if let Some(reason) = &fit.used_up {
        return Some(Refusal::Quota(Arc::clone(reason)));
    }
    let reason = Arc::clone(&fit.exceeded.first()?.reason);
    pod.node().map(|_| Refusal::NodeNamed(reason))
}

/// Lets the pod be scheduled to nodes with soft taints as if they had none.
fn tolerate(pod: &Pod, patch: &mut Patch) {
    let present = pod.tolerations();
    let is_tolerated =
        |key: &str| present.unwrap_or_default().iter().any(|toleration| toleration.tolerates(key, taint::EFFECT));
    let toleration = |key: &str| json!({ "key": key, "operator": "Exists", "effect": taint::EFFECT });
    let missing = taint::SOFT.into_iter().filter(|key| !is_tolerated(key)).map(toleration).collect();
    patch.append("/spec/tolerations", present.is_some(), missing);
}

/// Answers the review of a new pod without a request, which is to see no GPU.
pub(super) fn hide(pod: &Pod, settings: &Settings) -> Result<Answer, Vec<Refusal>> {
    let accesses: Vec<_> = pod.containers().map(|place| GpuAccess::new(&place, None, settings)).collect();
    let refusals = rules::containers(pod, &accesses, settings);
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let mut patch = Patch::default();
    let containers = pod.containers().zip(accesses).collect();
    let Overridden { warnings, .. } = override_variables(containers, &BTreeMap::new(), &mut patch);
    Ok(Answer { patch, warnings, ..Answer::default() })
}

/// Answers the review of ephemeral containers that are added to a pod.
pub(super) fn debug(old: &Pod, new: &Pod, settings: &Settings) -> Result<Answer, Vec<Refusal>> {
    let mut patch = Patch::default();
    let containers = examine::debugged(old, new, settings)?;
    let Overridden { hidden, mut warnings } = override_variables(containers, &BTreeMap::new(), &mut patch);
    let why = "sees no GPU, because an ephemeral container can't request one: kubectl exec runs a command in a container that has";
    warnings.extend(hidden.into_iter().map(|field| format!("{field}: {why}")));
    Ok(Answer { patch, warnings, ..Answer::default() })
}

/// Demand of a pod that is about to be created: it has no UID yet, by which the policy `random` draws, and its priority and
/// CPU are nobody's concern before it is scheduled.
fn demand(pod: &Pod, namespace: &str, requests: Requests, preferences: Preferences) -> Demand {
    Demand {
        uid: pod.name().into(),
        namespace: namespace.to_owned(),
        name: pod.name().to_owned(),
        priority: 0,
        containers: requests.0,
        preferences,
        requests: Resources::default(),
        group: None,
        scheduling: Arc::default(),
    }
}

/// What is still to be changed of a pod's requests and variables.
pub(super) fn unsettled(pod: &Pod, examined: &Examined, settings: &Settings) -> Patch {
    let mut patch = Patch::default();
    for (place, access) in pod.containers().zip(&examined.accesses) {
        remove_selections(&place, *access, &[], &mut patch);
    }
    examined.requests.write(pod, &settings.names, &mut patch);
    let mut annotations = Changes::new();
    annotate(pod, examined.requests.request().as_ref(), &mut annotations);
    patch.change("/metadata/annotations", pod.annotations().is_some(), annotations);
    patch
}

/// Sets our annotation to the document, or removes it. One that says the same in other words is left.
fn annotate<D: Document + PartialEq>(pod: &Pod, document: Option<&D>, changes: &mut Changes) {
    let present = pod.annotation(D::KEY);
    let decoded = present.and_then(|text| annotation::decode::<D>(text).ok());
    if present.is_some() != document.is_some() || decoded.as_ref() != document {
        changes.insert(D::KEY.to_owned(), document.map(|document| annotation::encode(document).into()));
    }
}

/// What became of the variables of containers.
#[derive(Default)]
struct Overridden {
    /// Containers that were shown GPUs by nothing but their image, and see none now.
    hidden: Vec<String>,
    warnings: Vec<String>,
}

/// Lets the limits alone say which GPUs a container sees. CUDA's images ask for all; a variable of the pod outdoes that, as it
/// does one from `envFrom`. Others are removed with them, by container and position.
fn override_variables(
    containers: Vec<(Place<'_>, GpuAccess)>,
    others: &BTreeMap<usize, Vec<usize>>,
    patch: &mut Patch,
) -> Overridden {
    let mut overridden = Overridden::default();
    for (at, (place, access)) in containers.into_iter().enumerate() {
        let others = others.get(&at).map_or(&[][..], Vec::as_slice);
        let removed = remove_selections(&place, access, others, patch);
        let sees = if access == GpuAccess::Without {
            "no GPU, as its limits request none"
        } else {
            "those that its limits request"
        };
        overridden.warnings.extend(removed.iter().map(|position| {
            let field = place.variable_field(*position);
            format!("{field}: {VISIBLE_DEVICES} is removed: the container sees {sees}")
        }));
        if access == GpuAccess::Without && place.variables(VISIBLE_DEVICES).count() == removed.len() {
            let variable = json!({ "name": VISIBLE_DEVICES, "value": NO_CARD });
            patch.append(&format!("{}/env", place.pointer()), place.container.env.is_some(), vec![variable]);
            overridden.hidden.push(place.field());
        }
    }
    overridden
}

/// Removes variables that select GPUs, whose positions it returns, and others.
fn remove_selections(place: &Place<'_>, access: GpuAccess, others: &[usize], patch: &mut Patch) -> Vec<usize> {
    let positions: Vec<usize> = rules::selecting(place, access).map(|(position, _)| position).collect();
    patch.remove(&format!("{}/env", place.pointer()), [&positions, others].concat());
    positions
}
