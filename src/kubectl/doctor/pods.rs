//! Checks of pods: whether their nodes are chosen by their GPUs, and which pods wait.

use divvy_api::config::Scheduling;
use divvy_api::names::annotation::PLANNED;
use divvy_index::demand::{Demand, SchedulingConfig};
use divvy_index::pod::PodView;

use super::check::Check;
use super::facts::Facts;
use crate::text::listed;

/// Whether nodes are chosen by their GPUs.
pub(super) fn scheduler(facts: &Facts) -> Check {
    match facts.scheduling() {
        Scheduling::Gates => {
            Check::ok("scheduler", "scheduling is gates: it follows the plans of the webhook's leader")
        }
        Scheduling::Extender => extender(facts),
        Scheduling::Node => Check::warning(
            "scheduler",
            "scheduling is node: nodes are chosen without regard to their GPUs",
            "set scheduling: gates in cluster-config.yaml",
        ),
    }
}

/// Whether the scheduler calls the extender: it counts its calls, and every pod that it has bound carries a plan.
fn extender(facts: &Facts) -> Check {
    let link = "scheduler";
    let calls = facts.webhook.calls();
    if let Some(calls) = calls.filter(|calls| *calls > 0.0) {
        return Check::ok(link, format!("it has called the extender {calls:.0} times"));
    }
    let lists = [&facts.pending, &facts.running];
    let planned =
        lists.iter().filter_map(|list| list.as_ref().ok()).flatten().any(|pod| pod.annotations.contains_key(PLANNED));
    if planned {
        return Check::ok(link, "pods carry plans of the extender");
    }
    if let (None, [Err(refused), _] | [_, Err(refused)]) = (calls, lists) {
        return Check::unseen(link, refused);
    }
    Check::warning(
        link,
        "no sign that it calls the extender: nodes are chosen without regard to their GPUs",
        "add the extender to the scheduler's configuration, as deploy/scheduler shows",
    )
}

/// Pods that ask for cards and have no node.
pub(super) fn waiting(facts: &Facts) -> Check {
    let link = "waiting pods";
    let pending = match &facts.pending {
        Err(refused) => return Check::unseen(link, refused),
        Ok(pending) => pending,
    };
    let reading = SchedulingConfig::default();
    let waits = |pod: &&PodView| pod.node.is_none() && !matches!(Demand::of(pod, &reading), Ok(None));
    let waiting: Vec<&PodView> = pending.iter().filter(waits).collect();
    let Some(first) = waiting.first() else {
        return Check::ok(link, "no pod waits for GPUs");
    };
    let names: Vec<String> = waiting.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let (count, s) = (waiting.len(), if waiting.len() == 1 { " waits" } else { "s wait" });
    let why = format!("kubectl divvy explain -n {} {} says why", first.namespace, first.name);
    Check::warning(link, format!("{count} pod{s} for GPUs: {}", listed(&names, 3)), why)
}
