//! Events on the Node and on pods: what happened that somebody should act on.

use divvy_api::CardId;

use divvy_node_core::inventory::{CardHealth, CardInfo};
use divvy_node_core::pod::PodRef;

use super::View;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Happening {
    /// The pod it is about; `None`: the Node.
    pub(super) pod: Option<PodRef>,
    /// A card that it is about, too.
    pub(super) card: Option<CardId>,
    /// A `Warning`, not `Normal`.
    pub(super) warning: bool,
    /// One word, in camel case.
    pub(super) reason: &'static str,
    /// What to know and what to do.
    pub(super) note: String,
}

/// What happened between two moments.
pub(super) fn between(before: &View, after: &View) -> Vec<Happening> {
    let mut out: Vec<Happening> = after.inventory.cards.iter().filter_map(|card| health(before, after, card)).collect();
    if let Some(problem) = after.inventory.problem.as_ref().filter(|_| before.inventory.problem.is_none()) {
        out.push(on_node(None, true, "NvmlProblem", format!("{problem}; running pods keep their shares")));
    }
    let news = after.unasked.iter().filter(|pod| !before.unasked.contains(pod));
    out.extend(news.map(|pod| {
        Happening {
            pod: Some(pod.clone()),
            card: None,
            warning: true,
            reason: "NoCardAsked",
            note:
                "its limits name card memory or cores but no nvidia.com/gpu, so the kubelet gave it no card: install \
               divvy-webhook, or set nvidia.com/gpu as well"
                    .to_owned(),
        }
    }));
    out
}

fn health(before: &View, after: &View, card: &CardInfo) -> Option<Happening> {
    let was = before.inventory.cards.iter().find(|known| known.id == card.id).map(|known| &known.health);
    match (was, &card.health) {
        (None | Some(CardHealth::Healthy), CardHealth::Unhealthy { reason }) => {
            let pods = after.book.held(&card.id, None).pods;
            let note = format!("card {} takes no new pods: {reason}; pods that hold shares of it: {pods}", card.id);
            Some(on_node(Some(&card.id), true, "CardUnhealthy", note))
        }
        (Some(CardHealth::Unhealthy { .. }), CardHealth::Healthy) => {
            Some(on_node(Some(&card.id), false, "CardHealthy", format!("card {} takes pods again", card.id)))
        }
        _ => None,
    }
}

fn on_node(card: Option<&CardId>, warning: bool, reason: &'static str, note: String) -> Happening {
    Happening { pod: None, card: card.cloned(), warning, reason, note }
}
