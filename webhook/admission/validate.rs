//! What is refused after all webhooks have changed a pod, and later when somebody changes it again.

use divvy_api::names::annotation::{INPUTS, OUTPUTS};

use super::Settings;
use super::examine::{self, examine};
use super::mutate::unsettled;
use super::pod::Pod;
use super::refusal::Refusal;
use super::rules;
use super::translate::translate;

/// A new pod must be as [`mutate`](super::mutate::mutate) leaves it.
pub(super) fn created(pod: &Pod, namespace: &str, settings: &Settings) -> Result<(), Vec<Refusal>> {
    if let Some(pointer) = translate(pod, namespace, settings)?.first_change() {
        return Err(vec![Refusal::Mutated { pointer }]);
    }
    // While replicas are replaced, the one that completed the pod may give whole GPUs amounts where this one gives them none.
    let otherwise = Settings { whole_gpus_have_amounts: !settings.whole_gpus_have_amounts, ..settings.clone() };
    let unsettled = |settings: &Settings| {
        let patch = unsettled(pod, &examine(pod, namespace, settings)?, settings);
        Ok::<_, Vec<Refusal>>(patch.first().map(str::to_owned))
    };
    match unsettled(settings)? {
        Some(pointer) if unsettled(&otherwise)?.is_some() => Err(vec![Refusal::Mutated { pointer }]),
        _ => Ok(()),
    }
}

/// Ephemeral containers must be as [`debug`](super::mutate::debug) leaves them.
pub(super) fn debugged(old: &Pod, new: &Pod, settings: &Settings) -> Result<(), Vec<Refusal>> {
    let added = examine::debugged(old, new, settings)?;
    let selected = added.iter().find_map(|(place, access)| {
        let (position, _) = rules::selecting(place, *access).next()?;
        Some(format!("{}/env/{position}", place.pointer()))
    });
    selected.map_or(Ok(()), |pointer| Err(vec![Refusal::Mutated { pointer }]))
}

/// Annotations of a pod that is there; the API server itself keeps limits, variables and mounts as they are. What hasn't
/// changed isn't looked at, so that no pod is held back by rules that are younger than itself.
pub(super) fn updated(old: &Pod, new: &Pod, namespace: &str, settings: &Settings) -> Result<(), Vec<Refusal>> {
    let changed = |key: &&'static str| old.annotation(key) != new.annotation(key);
    let outputs = OUTPUTS.into_iter().filter(changed).map(|key| Refusal::OutputChanged { key });
    let mut refusals: Vec<_> = outputs.collect();
    let mut inputs = INPUTS.into_iter().filter(changed).peekable();
    if new.node().is_some() {
        refusals.extend(inputs.map(|key| Refusal::Fixed { key }));
    } else if inputs.peek().is_some()
        && let Err(found) = rules::preferences(new, namespace, settings)
    {
        refusals.extend(found);
    }
    if refusals.is_empty() { Ok(()) } else { Err(refusals) }
}
