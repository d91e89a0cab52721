//! KAI scheduler, and Run:ai, which it comes from: parts of GPUs in annotations, no resource at all.

use std::cmp::Ordering;

use divvy_api::quantity::{parse_bytes, parse_count};
use divvy_api::request::MOST_CARDS;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::reading::MOST_OF_A_CARD;
use crate::system::Translate;
use crate::{Key, Part, Refusal, Size, System, Words};

/// KAI and Run:ai.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kai {}

/// Part of the memory of a GPU.
const FRACTION: &str = "gpu-fraction";
/// In MiB.
const MEMORY: &str = "gpu-memory";
const DEVICES: &str = "gpu-fraction-num-devices";
const CONTAINER: &str = "gpu-fraction-container-name";
/// What the pod may use beyond what it requests.
const LIMITS: [&str; 2] = ["gpu-fraction.limit", "gpu-memory.limit"];
/// How the pods on a GPU share its compute.
const MODE: &str = "kai.scheduler/gpu-compute-sharing-mode";

/// Start of a container's own annotations; its name follows.
const OWN: &str = "nvidia.com/container.";
/// What they began with before. CDI's annotations still do, without `.gpu-memory.`.
const OWN_BEFORE: &str = "nvidia.cdi.k8s.io/";
/// Between the name and `request` or `limit`.
const OWN_MEMORY: &str = ".gpu-memory.";
const OWN_AMOUNTS: [Key; 2] = [Key::OfContainer(OWN, OWN_MEMORY), Key::OfContainer(OWN_BEFORE, OWN_MEMORY)];
const OWN_MODE: [&str; 2] = [OWN, ".gpu-compute.mode"];
/// GPUs that KAI's binder has chosen.
const CHOSEN: [&str; 2] = [OWN, ".gpus.devices"];
const PORTION_LIMIT: [&str; 2] = ["kai.scheduler/container.", ".gpu-memory.portion.limit"];

/// Why a limit above the request is not kept.
const NO_MORE: &str = "a pod has no more memory than it requests";
/// In bytes.
const MIB: u64 = 1 << 20;

/// Memory of each GPU of a container, as one annotation has it.
#[derive(Clone, Copy, Debug)]
struct Amount<'a> {
    key: &'a str,
    /// Position of the container.
    at: usize,
    is_limit: bool,
    mib: u64,
}

pub(crate) const SYSTEM: System = System {
    schedulers: &["kai-scheduler"],
    words: Words {
        annotations: &[FRACTION, MEMORY, DEVICES, CONTAINER],
        requests: &[Key::Is(FRACTION), Key::Is(MEMORY), OWN_AMOUNTS[0], OWN_AMOUNTS[1]],
        own_annotations: &["runai-gpu-group", "runai/shared-gpu-configmap", "received-resource-type"],
        ..Words::NONE
    },
    ..System::new::<Kai>("kai", "KAI scheduler")
};

// === impl Kai ===

impl Translate for Kai {
    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        draft.drop(|key| LIMITS.contains(&key) || has_ends(key, PORTION_LIMIT), NO_MORE);
        remove_compute_modes(draft)?;
        let own = own_amount(draft)?;
        let (key, memory) = requested(draft, own)?;
        let cards = match draft.take(DEVICES).map(parse_count) {
            None => 1,
            Some(Ok(cards @ 1..=MOST_CARDS)) => cards,
            Some(_) => {
                return Err(draft.refuse(DEVICES, format!("is not a number of GPUs: expected 1 to {MOST_CARDS}")));
            }
        };
        let named = draft.take(CONTAINER);
        let at = match (named, own) {
            (Some(name), _) => {
                position(draft, name).ok_or_else(|| draft.refuse(CONTAINER, "is no container of the pod"))?
            }
            (None, Some(own)) if own.key == key => own.at,
            (None, _) => match draft.pod.containers.iter().position(|container| container.is_app) {
                Some(first) => first,
                None => return Ok(()),
            },
        };
        if let Some(own) = own.filter(|own| own.at != at) {
            return Err(twice(if named.is_some() { CONTAINER } else { key }, own.key));
        }
        let container = &draft.pod.containers[at];
        let ours = container.limits.keys().find(|name| draft.context.names.is_ours(name));
        if let Some(ours) = ours {
            return Err(Refusal::Twice { first: format!("annotation {key}"), second: container.field_of(ours) });
        }
        draft.set_part(at, Some(Part { cards, memory: Some(memory), cores: 0 }));
        Ok(())
    }
}

/// Memory of each GPU, and the annotation that requests it.
fn requested<'a>(draft: &mut Draft<'a>, own: Option<Amount<'a>>) -> Result<(&'a str, Size), Refusal> {
    let fraction = draft.take(FRACTION);
    let memory = match draft.take(MEMORY).map(parse_count) {
        None => None,
        Some(Ok(mib @ 1..=MOST_OF_A_CARD)) => Some(mib),
        Some(_) => return Err(draft.refuse(MEMORY, "is not a number of MiB of a GPU")),
    };
    Ok(match (fraction, memory, own) {
        (Some(_), Some(_), _) => return Err(twice(FRACTION, MEMORY)),
        (Some(_), None, Some(own)) => return Err(twice(FRACTION, own.key)),
        (Some(fraction), None, None) => {
            let problem = "is not a part of a GPU: expected 0.01 to 0.99, or limits for whole GPUs";
            (FRACTION, percent(fraction).ok_or_else(|| draft.refuse(FRACTION, problem))?)
        }
        // KAI itself writes what `gpu-memory` says for the container too.
        (None, Some(mib), Some(own)) if own.mib != mib => return Err(twice(MEMORY, own.key)),
        (None, Some(mib), _) => (MEMORY, Size::Mib(mib)),
        (None, None, Some(own)) => (own.key, Size::Mib(own.mib)),
        (None, None, None) => {
            let key = if draft.pod.annotations.contains_key(DEVICES) { DEVICES } else { CONTAINER };
            return Err(draft.refuse(key, format!("needs {FRACTION} or {MEMORY}")));
        }
    })
}

/// What the annotations of one container request.
fn own_amount<'a>(draft: &mut Draft<'a>) -> Result<Option<Amount<'a>>, Refusal> {
    let written = &draft.pod.annotations;
    draft.remove(|key| has_ends(key, CHOSEN) || is_own_amount(key));
    // Beside the GPUs that it has chosen for a fraction, KAI's binder writes what that is of their memory.
    if written.contains_key(FRACTION) && written.keys().any(|key| has_ends(key, CHOSEN)) {
        return Ok(None);
    }
    let keys = written.keys().filter(|key| is_own_amount(key));
    let amounts = keys.map(|key| read(draft, key)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = amounts.first() else { return Ok(None) };
    if let Some(other) = amounts.iter().find(|amount| amount.at != first.at) {
        let problem = format!(
            "is of another container than annotation {}, and one can have such annotations: write Divvy's limits in the others, nvidia.com/gpumem and so on",
            first.key
        );
        return Err(draft.refuse(other.key, problem));
    }
    let request = only(&amounts, false)?;
    let limit = only(&amounts, true)?;
    if let (Some(request), Some(limit)) = (request, limit) {
        match limit.mib.cmp(&request.mib) {
            Ordering::Less => {
                let problem = format!("is less than annotation {} requests: leave one of them out", request.key);
                return Err(draft.refuse(limit.key, problem));
            }
            Ordering::Equal => {}
            Ordering::Greater => draft.warn(format!("annotation {}: has no effect: {NO_MORE}", limit.key)),
        }
    }
    Ok(request.or(limit))
}

/// The request, or the limit, which two annotations may say alike.
fn only<'a>(amounts: &[Amount<'a>], is_limit: bool) -> Result<Option<Amount<'a>>, Refusal> {
    let mut amounts = amounts.iter().copied().filter(|amount| amount.is_limit == is_limit);
    match (amounts.next(), amounts.next()) {
        (Some(first), Some(second)) if first.mib != second.mib => Err(twice(first.key, second.key)),
        (first, _) => Ok(first),
    }
}

/// Reads `nvidia.com/container.NAME.gpu-memory.request`, or its like.
fn read<'a>(draft: &Draft<'a>, key: &'a str) -> Result<Amount<'a>, Refusal> {
    let rest = [OWN, OWN_BEFORE].into_iter().find_map(|start| key.strip_prefix(start));
    let Some((name, end)) = rest.and_then(|rest| rest.split_once(OWN_MEMORY)) else {
        return Err(draft.refuse(key, format!("names no container: expected {OWN}CONTAINER{OWN_MEMORY}request")));
    };
    let is_limit = match end {
        "request" => false,
        "limit" => true,
        _ => return Err(draft.refuse(key, format!("is unknown: expected {OWN}{name}{OWN_MEMORY}request or …limit"))),
    };
    let at = position(draft, name).ok_or_else(|| draft.refuse(key, format!("{name} is no container of the pod")))?;
    let text = draft.pod.annotations[key].trim();
    let problem = match parse_bytes(text).map(|bytes| (bytes, bytes.div_ceil(MIB))) {
        Err(_) => "is not an amount of memory: expected a quantity such as 8Gi",
        Ok((..MIB, _)) => "is less than 1Mi: a number without a suffix is in bytes",
        Ok((_, mib @ ..=MOST_OF_A_CARD)) => return Ok(Amount { key, at, is_limit, mib }),
        Ok(_) => "is more memory than any GPU has",
    };
    Err(draft.refuse(key, problem))
}

/// Takes off how pods on a GPU share its compute: a node's tier says that here.
fn remove_compute_modes(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let is_mode = |key: &&String| *key == MODE || has_ends(key, OWN_MODE);
    for key in draft.pod.annotations.keys().filter(is_mode) {
        match draft.take(key) {
            Some("sm-sharing") => draft.warn(format!(
                "annotation {key}: has no effect: how pods share compute is up to the isolation tier of the node"
            )),
            // How it is there without the annotation.
            Some("time-slicing") | None => {}
            Some(_) => return Err(draft.refuse(key, "is unknown: expected time-slicing or sm-sharing")),
        }
    }
    Ok(())
}

/// Whether an annotation is a container's own amount of memory.
fn is_own_amount(key: &str) -> bool {
    OWN_AMOUNTS.into_iter().any(|amounts| amounts.matches(key))
}

/// Whether a key stands around a container's name.
fn has_ends(key: &str, [start, end]: [&str; 2]) -> bool {
    key.starts_with(start) && key.ends_with(end)
}

fn position(draft: &Draft<'_>, name: &str) -> Option<usize> {
    draft.pod.containers.iter().position(|container| container.name == name)
}

fn twice(first: &str, second: &str) -> Refusal {
    Refusal::Twice { first: format!("annotation {first}"), second: format!("annotation {second}") }
}

/// `0.5`: 50. What is below a percent of it is left out.
fn percent(fraction: &str) -> Option<Size> {
    let (whole, decimals) = fraction.split_once('.')?;
    let is_number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if !whole.bytes().all(|digit| digit == b'0') || decimals.is_empty() || !is_number(decimals) {
        return None;
    }
    let digits: String = decimals.chars().chain(['0']).take(2).collect();
    let percent: u64 = digits.parse().ok()?;
    (percent > 0).then_some(Size::Percent(percent))
}

#[cfg(test)]
mod tests;
