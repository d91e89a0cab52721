//! Hints for a pod that doesn't run.

use divvy_api::gpunode::CORDONED;
use divvy_index::Unschedulable;
use divvy_index::explain::{Explanation, Fits, NodeAnswer, State};

use super::fetch::Found;
use crate::text::listed;

/// Most nodes that one hint names, and most pods or cards of one of them.
const MOST: usize = 3;

/// A sentence each, what helps most first.
pub(super) fn hints(found: &Found) -> Vec<String> {
    let Explanation { namespace, name, uid, state, nodes, fitting, .. } = &found.explanation;
    let mut hints = Vec::new();
    let is_waiting = matches!(state, State::Waiting { .. });
    if !is_waiting && !matches!(state, State::Bound { .. }) {
        return hints;
    }
    if *fitting > 0 {
        if is_waiting && !uid.is_empty() {
            hints.push(format!(
                "there are GPUs for it: if it keeps waiting, kubectl describe pod -n {namespace} {name} says what else it \
                 lacks"
            ));
        }
        return hints;
    }
    if nodes.is_empty() && is_waiting {
        hints.push("kubectl divvy doctor says why no node has reported GPUs".to_owned());
        return hints;
    }
    let those = |fits: Fits| nodes.iter().filter(move |node| node.fits == fits).take(MOST);
    hints.extend(those(Fits::Barred).map(|NodeAnswer { name, barred, .. }| match barred {
        Some(Unschedulable::Cordoned) => format!("{name} fits: kubectl uncordon {name}"),
        _ => format!("{name} fits, but isn't ready: kubectl divvy inspect {name} says more"),
    }));
    for NodeAnswer { name, lower, .. } in those(Fits::ByEviction) {
        let pods: Vec<&str> = lower.iter().map(|uid| found.names.get(uid).unwrap_or(uid).as_str()).collect();
        let pods = listed(&pods, MOST);
        hints.push(format!(
            "{name} could run it without pods of lower priority: {pods}; the scheduler evicts such pods where amounts are \
             short, unless preemptionPolicy is Never"
        ));
    }
    hints.extend(nodes.iter().filter(|node| node.fits != Fits::Never).filter_map(cordoned_cards).take(MOST));
    let closed = nodes.iter().filter(|node| node.closed.is_some() && node.fits != Fits::Never);
    hints.extend(
        closed.take(MOST).map(|node| format!("{0} takes no pods: kubectl divvy inspect {0} says more", node.name)),
    );
    if is_waiting && nodes.iter().all(|node| node.fits == Fits::Never) {
        hints.push(
            "waiting doesn't help: ask for less of each GPU or for fewer of them, allow other GPUs, or add nodes"
                .to_owned(),
        );
    }
    hints
}

/// Cards that would give something if they weren't cordoned.
fn cordoned_cards(node: &NodeAnswer) -> Option<String> {
    let cards = node.cards.iter().filter(|card| card.reason.as_deref() == Some(CORDONED));
    let cards: Vec<&str> = cards.map(|card| card.uuid.as_str()).collect();
    let (are, them) = if cards.len() == 1 { ("is", "it") } else { ("are", "them") };
    let (name, listed) = (&node.name, listed(&cards, MOST));
    (!cards.is_empty()).then(|| {
        format!(
            "{listed} of {name} {are} cordoned: kubectl edit gpunode {name} gives {them} back (spec.unschedulableCards)"
        )
    })
}
