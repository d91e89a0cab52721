//! Events for what has changed between two views.

use divvy_api::{Card, CardId, Health};

use divvy_node_core::allocator::{ForeignHeld, ForeignPod};
use divvy_node_core::foreign;

use super::PendingEvent;
use crate::apiserver::view::View;

/// Events for the changes between two views.
pub(in crate::apiserver) fn between(before: &View, after: &View) -> Vec<PendingEvent> {
    let mut out: Vec<PendingEvent> =
        after.inventory.cards().iter().filter_map(|card| health(before, after, card)).collect();
    if let Some(problem) = after.inventory.problem.as_ref().filter(|_| before.inventory.problem.is_none()) {
        out.push(on_node(None, true, "NvmlProblem", format!("{problem}; running pods keep their GPUs")));
    }
    let news = after.unasked.iter().filter(|pod| !before.unasked.contains(pod));
    out.extend(news.map(|pod| {
        PendingEvent {
            pod: Some(pod.clone()),
            card: None,
            warning: true,
            reason: "NoGpuRequested",
            note: "limits name GPU memory or cores but not nvidia.com/gpu, so the kubelet allocated no GPU: install \
               divvy-webhook, or set nvidia.com/gpu as well"
                .to_owned(),
        }
    }));
    out.extend(after.foreign.iter().filter(|pod| !before.foreign.contains(pod)).map(on_foreign));
    out
}

fn on_foreign(ForeignPod { pod, resource, held }: &ForeignPod) -> PendingEvent {
    let (reason, note) = match held {
        ForeignHeld::Nothing => (
            "NotTranslated",
            format!(
                "limits name {resource}, a resource of another system: Divvy has allocated no GPU for it; divvy-webhook \
                 replaces it in pods that are created while the system's dialect is on, but not in static pods"
            ),
        ),
        ForeignHeld::Cards(cards) => {
            let cards = cards.iter().map(CardId::as_str).collect::<Vec<_>>().join(", ");
            (
                "ForeignGpu",
                format!(
                    "uses {cards}, allocated by another device plugin as {resource}: it holds them alone until it ends"
                ),
            )
        }
        ForeignHeld::All => {
            let keys = foreign::keys(resource);
            let hint = if keys.is_empty() { keys } else { format!(" (annotation {keys} doesn't say)") };
            (
                "ForeignGpuUnknown",
                format!(
                    "another device plugin has allocated {resource}, and it is unclear of which GPUs{hint}: no pod gets \
                     any GPU of this node until this one ends"
                ),
            )
        }
    };
    PendingEvent { pod: Some(pod.clone()), card: None, warning: true, reason, note }
}

fn health(before: &View, after: &View, card: &Card) -> Option<PendingEvent> {
    let was = before.inventory.node.card(&card.id).map(|known| &known.health);
    match (was, card.health.reason()) {
        (None | Some(Health::Healthy), Some(reason)) => {
            let pods = after.allocations.held(&card.id, None).pods;
            let note = format!("{} accepts no new pods: {reason}; pods with a share of it: {pods}", card.id);
            Some(on_node(Some(&card.id), true, "GpuUnhealthy", note))
        }
        (Some(Health::Cordoned { .. } | Health::Unhealthy { .. }), None) => {
            Some(on_node(Some(&card.id), false, "GpuHealthy", format!("{} accepts pods again", card.id)))
        }
        _ => None,
    }
}

fn on_node(card: Option<&CardId>, warning: bool, reason: &'static str, note: String) -> PendingEvent {
    PendingEvent { pod: None, card: card.cloned(), warning, reason, note }
}
