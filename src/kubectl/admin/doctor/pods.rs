//! Checks of pods: whether their nodes are chosen by their GPUs, and which pods wait.

use divvy_api::config::Scheduling;
use divvy_api::names::annotation::PLANNED;
use divvy_index::demand::{Demand, SchedulingConfig};
use divvy_index::pod::PodView;

use super::finding::Verdict;
use super::objects::{Objects, calls};
use crate::cluster::Refusal;
use crate::text::listed;

/// Whether nodes are chosen by their GPUs.
pub(super) fn scheduler(objects: &Objects) -> Result<Verdict, &Refusal> {
    match objects.scheduling() {
        Scheduling::Gates => Ok(Verdict::ok("scheduling is gates: it follows the plans of the webhook's leader")),
        Scheduling::Extender => extender(objects),
        Scheduling::Node => Ok(Verdict::warning(
            "scheduling is node: nodes are chosen without regard to their GPUs",
            "set scheduling: gates in cluster-config.yaml",
        )),
    }
}

/// Whether the scheduler calls the extender: it counts its calls, and every pod that it has bound carries a plan.
fn extender(objects: &Objects) -> Result<Verdict, &Refusal> {
    let calls = calls(&objects.replicas);
    if let Some(calls) = calls.filter(|calls| *calls > 0.0) {
        return Ok(Verdict::ok(format!("it has called the extender {calls:.0} times")));
    }
    let lists = [&objects.pending, &objects.running];
    let mut pods = lists.iter().filter_map(|list| list.as_ref().ok()).flatten();
    if pods.any(|pod| pod.annotations.contains_key(PLANNED)) {
        return Ok(Verdict::ok("pods carry plans of the extender"));
    }
    if calls.is_none() {
        lists.into_iter().try_for_each(|list| list.as_ref().map(drop))?;
    }
    Ok(Verdict::warning(
        "no sign that it calls the extender: nodes are chosen without regard to their GPUs",
        "add the extender to the scheduler's configuration, as deploy/scheduler shows",
    ))
}

/// Pods that ask for cards and have no node.
pub(super) fn waiting(objects: &Objects) -> Result<Verdict, &Refusal> {
    let reading = SchedulingConfig::default();
    let waits = |pod: &&PodView| pod.node.is_none() && !matches!(Demand::read(pod, &reading), Ok(None));
    let waiting: Vec<&PodView> = objects.pending.as_ref()?.iter().filter(waits).collect();
    let Some(first) = waiting.first() else {
        return Ok(Verdict::ok("no pod waits for GPUs"));
    };
    let names: Vec<String> = waiting.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let count = waiting.len();
    let s = if waiting.len() == 1 { " waits" } else { "s wait" };
    let why = format!("kubectl divvy explain -n {} {} says why", first.namespace, first.name);
    Ok(Verdict::warning(format!("{count} pod{s} for GPUs: {}", listed(&names, 3)), why))
}
