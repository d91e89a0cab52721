//! KAI scheduler, and Run:ai, which it comes from: fractions in annotations, no resource at all.

use divvy_api::ResourceNames;
use divvy_api::quantity::parse_count;
use divvy_api::request::MOST_CARDS;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::reading::MOST_OF_A_CARD;
use crate::{Part, Refusal, Size, System};

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
/// Starts of the same for one container, `nvidia.com/container.NAME.gpu-memory.limit`.
const OF_CONTAINER: [&str; 2] = ["nvidia.com/container.", "nvidia.cdi.k8s.io/"];

// === impl Kai ===

impl System for Kai {
    fn resources(&self, _names: &ResourceNames) -> Vec<String> {
        Vec::new()
    }

    fn inputs(&self) -> &'static [&'static str] {
        &[FRACTION, MEMORY, DEVICES, CONTAINER]
    }

    fn outputs(&self) -> &'static [&'static str] {
        &["runai-gpu-group", "runai/shared-gpu-configmap", "received-resource-type"]
    }

    fn requesting_annotations(&self) -> &'static [&'static str] {
        &[FRACTION, MEMORY]
    }

    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        draft.drop(|key| LIMITS.contains(&key), "a pod has no more memory than it requests");
        let is_of_container = |key: &str| OF_CONTAINER.iter().any(|start| key.starts_with(start));
        draft.drop(
            |key| is_of_container(key) && key.contains(".gpu-memory."),
            "write the container's own limits of Divvy, nvidia.com/gpumem and so on",
        );
        let (fraction, memory) = (draft.take(FRACTION), draft.take(MEMORY));
        let (devices, container) = (draft.take(DEVICES), draft.take(CONTAINER));
        let memory = match (fraction, memory) {
            (Some(_), Some(_)) => {
                return Err(Refusal::Twice {
                    first: format!("annotation {FRACTION}"),
                    second: format!("annotation {MEMORY}"),
                });
            }
            (Some(fraction), None) => percent(fraction).ok_or_else(|| {
                draft.refuse(FRACTION, "is not a part of a GPU: expected 0.01 to 0.99, or limits for whole GPUs")
            })?,
            (None, Some(memory)) => match parse_count(memory) {
                Ok(mib @ 1..=MOST_OF_A_CARD) => Size::Mib(mib),
                _ => return Err(draft.refuse(MEMORY, "is not a number of MiB of a GPU")),
            },
            (None, None) => {
                let key = if devices.is_some() { DEVICES } else { CONTAINER };
                return Err(draft.refuse(key, format!("needs {FRACTION} or {MEMORY}")));
            }
        };
        let cards = match devices.map(parse_count) {
            None => 1,
            Some(Ok(cards @ 1..=MOST_CARDS)) => cards,
            Some(_) => {
                return Err(draft.refuse(DEVICES, format!("is not a number of GPUs: expected 1 to {MOST_CARDS}")));
            }
        };
        let named = |name: &str| draft.pod.containers.iter().position(|container| container.name == name);
        let at = match container {
            Some(name) => named(name).ok_or_else(|| draft.refuse(CONTAINER, "is no container of the pod"))?,
            None => match draft.pod.containers.iter().position(|container| container.is_app) {
                Some(first) => first,
                None => return Ok(()),
            },
        };
        let container = &draft.pod.containers[at];
        let ours = container.limits.keys().find(|name| draft.context.names.is_ours(name));
        if let Some(ours) = ours {
            let key = if fraction.is_some() { FRACTION } else { MEMORY };
            return Err(Refusal::Twice { first: format!("annotation {key}"), second: container.field_of(ours) });
        }
        draft.set_part(at, Part { cards, memory: Some(memory), cores: 0 });
        Ok(())
    }
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
