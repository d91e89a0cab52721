//! Hints for a pod that doesn't run.

use divvy_index::Unschedulable;
use divvy_index::explain::{Explanation, Fits, NodeAnswer, State};

/// A sentence each, what takes least first.
pub(super) fn hints(explanation: &Explanation) -> Vec<String> {
    let Explanation { namespace, name, uid, state, nodes, fitting, suggestions, .. } = explanation;
    match state {
        State::Bound { .. } => return nodes.iter().filter_map(of_own_node).collect(),
        State::Waiting { .. } => {}
        _ => return Vec::new(),
    }
    let mut hints: Vec<String> = suggestions
        .iter()
        .map(|suggestion| match &suggestion.command {
            Some(command) => format!("{}: {command}", suggestion.text),
            None => suggestion.text.clone(),
        })
        .collect();
    if nodes.is_empty() {
        hints.push("kubectl divvy doctor says why no node has reported GPUs".to_owned());
    } else if *fitting > 0 && hints.is_empty() && !uid.is_empty() {
        hints.push(format!(
            "there are GPUs for it: if it keeps waiting, kubectl describe pod -n {namespace} {name} says what else it lacks"
        ));
    } else if nodes.iter().all(|node| node.fits == Fits::Never) {
        hints.push(
            "waiting doesn't help: ask for less of each GPU or for fewer of them, allow other GPUs, or add nodes"
                .to_owned(),
        );
    }
    hints
}

/// What keeps the node that a pod is bound to from giving it GPUs, beside what they hold.
fn of_own_node(NodeAnswer { name, barred, closed, .. }: &NodeAnswer) -> Option<String> {
    let is_away = matches!(barred, Some(Unschedulable::NotReady | Unschedulable::Gone));
    (closed.is_some() || is_away).then(|| format!("{name} takes no pods: kubectl divvy inspect {name} says more"))
}
