//! Admission: a review in, a review out. No network, no clock, no state.
//!
//! ```text
//! body ──review──▶ Request ──pod──▶ Pod ──translate──▶ Pod in our words ──examine──▶ requests, access, preferences
//!                                                                  │             ├──mutate──▶ patch, warnings
//!                                     refusals, all at once ◀── anything wrong   └─validate──▶ yes or no
//! ```
//!
//! The pod is read through a narrow view, in one pass, and answered with a patch of exactly what changes: unknown fields
//! survive.

mod examine;
mod hints;
mod mutate;
mod patch;
mod pod;
mod refusal;
mod requests;
mod review;
mod rules;
mod templates;
mod translate;
mod validate;

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::ResourceNames;
use divvy_api::request::Defaults;
use divvy_index::Feasibility;
use divvy_index::demand::{Demand, PlannedPods};
use divvy_systems::Dialect;

use pod::Pod;
use refusal::Refusal;
use review::{Answer, Operation, Request};
use serde::{Deserialize, Serialize};
use templates::Workload;

/// Configuration of admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What requests are written in.
    pub names: ResourceNames,
    /// What stands for amounts that are left out.
    pub defaults: Defaults,
    /// Namespaces whose pods may ask for what others then lack.
    pub favoured_namespaces: FavouredNamespaces,
    /// Whether pods that request GPUs are made to tolerate [soft taints](divvy_api::names::taint).
    pub tolerate_soft_taints: bool,
    /// Whether pods are made to prefer the hinted nodes: for clusters whose scheduler has no extender.
    pub prefer_hinted_nodes: bool,
    /// Pods that wait with the [gate](divvy_api::names::GATE) until the leader has planned them.
    pub planned: PlannedPods,
    /// Whether pods that request whole GPUs get all memory and compute of them as amounts: for schedulers that count amounts
    /// alone, to which a GPU of which a part is in use has as many free slots as one that is free.
    pub whole_gpus_have_amounts: bool,
    /// Systems whose words are translated.
    pub dialects: Vec<Dialect>,
    /// Schedulers of such systems, and those that their translated pods are given to.
    pub rewrite_schedulers: BTreeMap<String, String>,
    /// What becomes of variables that say something else than the limits.
    pub conflicting_variables: ConflictingVariables,
}

/// What becomes of a container's variables that select GPUs, or load code ahead of libdivvy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConflictingVariables {
    /// Those that select GPUs are removed, those that load code are left, each with a warning.
    #[default]
    Override,
    /// The pod is refused.
    Refuse,
}

/// Namespaces whose pods may use `compute: burst`, `compute-limit`, `priority: high` and `oversubscribe: true`: each takes from
/// the other pods of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FavouredNamespaces {
    /// Every namespace.
    All,
    /// The named ones.
    Named(BTreeSet<String>),
}

/// What the API server asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// New pods, to be completed, and ephemeral containers that are added to them, to be shown no GPU.
    Mutate,
    /// New pods that request no GPU, and their ephemeral containers, to be shown none.
    Hide,
    /// New and changed pods and their ephemeral containers, to be checked.
    Validate,
    /// Jobs, whose pod templates are to be completed as their pods would be.
    Jobs,
    /// Workloads with a pod template, to be commented on.
    Templates,
}

// === impl FavouredNamespaces ===

impl FavouredNamespaces {
    fn contain(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(namespace),
        }
    }
}

/// None.
impl Default for FavouredNamespaces {
    fn default() -> Self {
        Self::Named(BTreeSet::new())
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// In metrics, and the path.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Hide => "hide",
            Self::Validate => "validate",
            Self::Jobs => "jobs",
            Self::Templates => "templates",
        }
    }
}

/// Marks the API server's copy of a static pod. The kubelet runs what its file says, compares the copy with that, and
/// deletes one that it has no file for; so it is let through as it is.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// An answered review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviewed {
    /// JSON, for the API server.
    pub body: Vec<u8>,
    /// `allowed`, `warned`, `refused`, or `malformed` where the question made no sense.
    pub verdict: &'static str,
}

/// Which nodes could take a pod, where that is known.
pub type Fits<'a> = dyn Fn(&Demand) -> Option<Feasibility> + 'a;

/// Answers the review in `body`, whatever that is. `fits` is asked at most once.
pub fn review(body: &[u8], endpoint: Endpoint, settings: &Settings, fits: &Fits<'_>) -> Reviewed {
    let answered = match endpoint {
        Endpoint::Mutate => review::decode(body).map(|request| (mutated(&request, settings, fits), request.uid)),
        Endpoint::Hide => review::decode(body).map(|request| (hidden(&request, settings), request.uid)),
        Endpoint::Validate => review::decode(body).map(|request| (validated(&request, settings), request.uid)),
        Endpoint::Jobs => review::decode(body).map(|request| (completed(&request, settings), request.uid)),
        Endpoint::Templates => review::decode(body).map(|request| (Ok(advised(&request, settings, fits)), request.uid)),
    };
    let (answer, uid) = answered.unwrap_or_else(|refusal| (Err(vec![refusal]), review::uid(body)));
    let answer = answer.unwrap_or_else(|refusals| match endpoint {
        Endpoint::Templates => {
            let warnings = refusals.iter().map(Refusal::to_string).collect();
            Answer { warnings, ..Answer::default() }
        }
        Endpoint::Mutate | Endpoint::Hide | Endpoint::Validate | Endpoint::Jobs => Answer::refused(refusals),
    });
    Reviewed { verdict: answer.verdict(), body: answer.encode(&uid) }
}

fn hidden(request: &Request<Pod>, settings: &Settings) -> Result<Answer, Vec<Refusal>> {
    let Some(pod) = any_pod(request)?.filter(|pod| !pod.is_ours(settings)) else { return Ok(Answer::default()) };
    match (request.operation, request.sub_resource()) {
        (Operation::Create, "") => mutate::hide(pod, settings),
        (Operation::Update, "ephemeralcontainers") => mutate::debug(old_pod(request)?, pod, settings),
        _ => Ok(Answer::default()),
    }
}

fn mutated(request: &Request<Pod>, settings: &Settings, fits: &Fits<'_>) -> Result<Answer, Vec<Refusal>> {
    let Some(pod) = our_pod(request, settings)? else { return Ok(Answer::default()) };
    match (request.operation, request.sub_resource()) {
        (Operation::Create, "") => mutate::create(pod, request.namespace(), settings, fits),
        (Operation::Update, "ephemeralcontainers") => mutate::debug(old_pod(request)?, pod, settings),
        _ => Ok(Answer::default()),
    }
}

fn validated(request: &Request<Pod>, settings: &Settings) -> Result<Answer, Vec<Refusal>> {
    let Some(pod) = our_pod(request, settings)? else { return Ok(Answer::default()) };
    match (request.operation, request.sub_resource()) {
        (Operation::Create, "") => validate::created(pod, request.namespace(), settings)?,
        (Operation::Update, "") => validate::updated(old_pod(request)?, pod, request.namespace(), settings)?,
        (Operation::Update, "ephemeralcontainers") => validate::debugged(old_pod(request)?, pod, settings)?,
        _ => {}
    }
    Ok(Answer::default())
}

fn completed(request: &Request<Workload>, settings: &Settings) -> Result<Answer, Vec<Refusal>> {
    match (request.operation, &request.object) {
        (Operation::Create, Some(job)) => job.complete(request.namespace(), settings),
        (Operation::Update, Some(job)) => {
            Ok(job.complete_again(request.old_object.as_ref(), request.namespace(), settings))
        }
        _ => Ok(Answer::default()),
    }
}

fn advised(request: &Request<Workload>, settings: &Settings, fits: &Fits<'_>) -> Answer {
    let workload = request.object.as_ref();
    let warnings = workload.map(|workload| workload.advice(request.namespace(), settings, fits));
    let is_job = request.kind.kind == "Job";
    let miscounted = workload.filter(|_| is_job).and_then(|job| job.miscounted(settings));
    let warnings = warnings.into_iter().flatten().chain(miscounted).collect();
    Answer { warnings, ..Answer::default() }
}

/// The pod before it is changed.
fn old_pod(request: &Request<Pod>) -> Result<&Pod, Vec<Refusal>> {
    request.old_object.as_ref().ok_or_else(|| vec![Refusal::malformed("request.oldObject", "is missing")])
}

/// The pod that is created or changed, if we have anything to do with it.
fn our_pod<'a>(request: &'a Request<Pod>, settings: &Settings) -> Result<Option<&'a Pod>, Vec<Refusal>> {
    Ok(any_pod(request)?.filter(|pod| pod.is_ours(settings)))
}

/// The pod that is created or changed, unless it is the image of a static one, which nobody can change.
fn any_pod(request: &Request<Pod>) -> Result<Option<&Pod>, Vec<Refusal>> {
    if !matches!(request.operation, Operation::Create | Operation::Update) {
        return Ok(None);
    }
    let kind = request.kind.kind.as_str();
    if kind != "Pod" {
        let problem = format!("\"{kind}\" isn't reviewed here: expected Pod");
        return Err(vec![Refusal::malformed("request.kind.kind", problem)]);
    }
    let pod = request.object.as_ref().ok_or_else(|| vec![Refusal::malformed("request.object", "is missing")])?;
    Ok(Some(pod).filter(|pod| pod.annotation(MIRROR).is_none()))
}

#[cfg(test)]
mod tests;
