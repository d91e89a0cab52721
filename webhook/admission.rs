//! Admission: a review in, a review out. No network, no clock, no state.
//!
//! ```text
//! body ──review──▶ Request ──pod──▶ Pod ──examine──▶ claims, standings, preferences ──mutate──▶ patch, warnings
//!                                      │                        │             └────validate──▶ yes or no
//!                                      └── anything wrong ──▶ refusals, all at once
//! ```
//!
//! The pod is read through a narrow view and answered with a patch of exactly what changes: unknown fields survive.

mod claims;
pub mod conditions;
mod examine;
mod hints;
mod mutate;
mod patch;
mod pod;
mod refusal;
mod review;
mod rules;
mod templates;
mod validate;

use std::collections::BTreeSet;

use divvy_contract::ResourceNames;
use divvy_contract::claim::Defaults;
use serde_json::Value;

pub use hints::{Fit, Obstacle, PodDemand};
use pod::Pod;
use refusal::Refusal;
use review::{Answer, Operation, Request};

/// Configuration of admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What claims are written in.
    pub names: ResourceNames,
    /// What stands for amounts that are left out.
    pub defaults: Defaults,
    /// Namespaces whose pods may use `compute`, `priority` and `oversubscribe`; `None`: all.
    pub favoured_namespaces: Option<BTreeSet<String>>,
    /// Whether pods are made to prefer the hinted nodes: for clusters whose scheduler has no extender.
    pub prefer_hinted_nodes: bool,
}

/// What the API server asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// New pods, to be completed.
    Mutate,
    /// New and changed pods and their ephemeral containers, to be checked.
    Validate,
    /// Workloads with a pod template, to be commented on.
    Templates,
}

/// Marks the API server's copy of a static pod. The kubelet runs what its file says, compares the copy with that, and
/// deletes one that it has no file for; so it is let through as it is.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Answers the review in `body`, whatever that is. `fits` says which nodes could take a pod; it is asked at most once.
pub fn review(body: &[u8], endpoint: Endpoint, settings: &Settings, fits: &dyn Fn(&PodDemand) -> Fit) -> Vec<u8> {
    let (uid, answer) = match review::decode(body) {
        Ok(request) => {
            let answer = answer(&request, endpoint, settings, fits);
            (request.uid, answer)
        }
        Err(refusal) => (review::uid(body), Err(vec![refusal])),
    };
    let answer = answer.unwrap_or_else(|refusals| match endpoint {
        Endpoint::Templates => {
            let warnings = refusals.iter().map(Refusal::to_string).collect();
            Answer { warnings, ..Answer::default() }
        }
        Endpoint::Mutate | Endpoint::Validate => Answer::refused(refusals),
    });
    answer.encode(&uid)
}

fn answer(
    request: &Request,
    endpoint: Endpoint,
    settings: &Settings,
    fits: &dyn Fn(&PodDemand) -> Fit,
) -> Result<Answer, Vec<Refusal>> {
    let Request { kind, sub_resource, operation, namespace, object, old_object, .. } = request;
    let namespace = namespace.as_deref().unwrap_or_default();
    if !matches!(operation, Operation::Create | Operation::Update) {
        return Ok(Answer::default());
    }
    let object = present("request.object", object.as_ref())?;
    if endpoint == Endpoint::Templates {
        let warnings = templates::advise(&kind.kind, object, namespace, settings, fits);
        return Ok(Answer { warnings, ..Answer::default() });
    }
    if kind.kind != "Pod" {
        let problem = format!("\"{}\" isn't reviewed here: expected Pod", kind.kind);
        return Err(vec![Refusal::malformed("request.kind.kind", problem)]);
    }
    let pod = Pod::read("request.object", object).map_err(|refusal| vec![refusal])?;
    if !pod.is_ours(&settings.names) || pod.annotation(MIRROR).is_some() {
        return Ok(Answer::default());
    }
    let old = || {
        let object = present("request.oldObject", old_object.as_ref())?;
        Pod::read("request.oldObject", object).map_err(|refusal| vec![refusal])
    };
    match (endpoint, operation, sub_resource.as_deref().unwrap_or_default()) {
        (Endpoint::Mutate, Operation::Create, "") => return mutate::mutate(&pod, namespace, settings, fits),
        (Endpoint::Validate, Operation::Create, "") => validate::created(&pod, namespace, settings)?,
        (Endpoint::Validate, Operation::Update, "") => validate::updated(&old()?, &pod, namespace, settings)?,
        (Endpoint::Validate, Operation::Update, "ephemeralcontainers") => validate::debugged(&old()?, &pod, settings)?,
        _ => {}
    }
    Ok(Answer::default())
}

fn present<'a>(field: &str, object: Option<&'a Value>) -> Result<&'a Value, Vec<Refusal>> {
    object.ok_or_else(|| vec![Refusal::malformed(field, "is missing")])
}

#[cfg(test)]
mod tests;
