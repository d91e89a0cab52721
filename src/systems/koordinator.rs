//! Koordinator: amounts are of all GPUs of a container together.

use std::collections::BTreeMap;

use divvy_api::request::MOST_CARDS;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::reading::Reading;
use crate::system::Translate;
use crate::{Devices, NamedGpus, Part, Refusal, Size, System, Words};

/// Koordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Koordinator {}

/// Compute and memory alike, in percent; 100 for each GPU.
const GPU: &str = "koordinator.sh/gpu";
const SHARED: &str = "koordinator.sh/gpu.shared";
const CORE: &str = "koordinator.sh/gpu-core";
/// In bytes, also without a suffix.
const MEMORY: &str = "koordinator.sh/gpu-memory";
const RATIO: &str = "koordinator.sh/gpu-memory-ratio";
/// Which GPUs of a node go together.
const PARTITION: &str = "scheduling.koordinator.sh/gpu-partition-spec";
/// Which kinds of devices are to be near one another.
const JOINT: &str = "scheduling.koordinator.sh/device-joint-allocate";
/// Which devices, by their labels.
const HINT: &str = "scheduling.koordinator.sh/device-allocate-hint";

pub(crate) const SYSTEM: System = System {
    schedulers: &["koord-scheduler"],
    words: Words {
        resources: &[GPU, SHARED, CORE, MEMORY, RATIO],
        annotations: &[PARTITION],
        shared_annotations: &[JOINT, HINT],
        own_annotations: &["scheduling.koordinator.sh/device-allocated"],
        ..Words::NONE
    },
    devices: &[Devices { resources: &["koordinator.sh/gpu*"], gpus: NamedGpus::Nowhere }],
    ..System::new::<Koordinator>("koordinator", "Koordinator")
};

// === impl Koordinator ===

impl Translate for Koordinator {
    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        // Its annotations hold for `nvidia.com/gpu` too.
        if !draft.requests_gpus() && !draft.names_ours() {
            draft.take(PARTITION);
            return Ok(());
        }
        // By kind of device; what is said of other kinds is Koordinator's.
        let is_about_gpus = |hint: &String| {
            serde_json::from_str::<BTreeMap<String, IgnoredAny>>(hint).map_or(true, |hints| hints.contains_key("gpu"))
        };
        if draft.pod.annotations.get(HINT).is_some_and(is_about_gpus) {
            let problem = "chooses GPUs by labels that they don't have here: divvy.dev/card-model names models";
            return Err(draft.refuse(HINT, problem));
        }
        draft.drop(|key| key == PARTITION, "divvy.dev/card-policy: topology asks for GPUs with fast links");
        if draft.pod.annotations.contains_key(JOINT) {
            draft.warn(format!("annotation {JOINT}: not kept for GPUs: Divvy doesn't choose them by what is near"));
        }
        Ok(())
    }

    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let twice = |first: &str, second: &str| Refusal::Twice {
            first: container.0.field_of(first),
            second: container.0.field_of(second),
        };
        let core = container.count(CORE)?;
        let memory = container.bytes(MEMORY)?;
        let ratio = container.count(RATIO)?;
        if let Some(both) = container.count(GPU)? {
            if let Some(other) = [SHARED, CORE, MEMORY, RATIO].into_iter().find(|name| container.0.names(name)) {
                return Err(twice(GPU, other));
            }
            let cards = spread(container, GPU, both)?;
            return Ok(Some(part(cards, Some(Size::Percent(both / cards)), both / cards)));
        }
        if memory.is_some() && ratio.is_some() {
            return Err(twice(MEMORY, RATIO));
        }
        let shared = container.cards(SHARED)?;
        if shared.is_none() && core.is_none() && memory.is_none() && ratio.is_none() {
            return Ok(None);
        }
        if memory.is_none() && ratio.is_none() {
            let name = if core.is_some() { CORE } else { SHARED };
            return Err(container.refuse(name, format!("needs {MEMORY} or {RATIO}: set one of them")));
        }
        let cards = match (shared, ratio) {
            (Some(cards), _) => cards,
            (None, Some(ratio)) => spread(container, RATIO, ratio)?,
            (None, None) => 1,
        };
        let percent =
            ratio.map(|ratio| within(container, RATIO, container.each(RATIO, ratio, cards, "")?)).transpose()?;
        let mib = memory.map(|mib| container.mib(MEMORY, container.each(MEMORY, mib, cards, "Mi")?)).transpose()?;
        let cores = core.map(|core| within(container, CORE, container.each(CORE, core, cards, "")?)).transpose()?;
        if cores == Some(100) && percent != Some(100) {
            let field = container.0.field_of(CORE);
            draft.warn(format!(
                "{field}: is all compute of each GPU, which no other pod shares then: set 99 to share it"
            ));
        }
        Ok(Some(match (core, percent) {
            // A ratio of 100 for each GPU and no compute: whole ones.
            (None, Some(100)) if shared.is_none() => Part::whole(cards),
            _ => part(cards, mib.or(percent.map(Size::Percent)), cores.unwrap_or(0)),
        }))
    }
}

fn part(cards: u64, memory: Option<Size>, cores: u64) -> Part {
    if memory == Some(Size::Percent(100)) && cores == 100 { Part::whole(cards) } else { Part { cards, memory, cores } }
}

/// Over how many GPUs a percentage without a number of GPUs goes.
fn spread(container: Reading<'_>, resource: &str, percent: u64) -> Result<u64, Refusal> {
    match percent {
        ..=100 => Ok(1),
        _ if percent / 100 > MOST_CARDS => Err(container.refuse_cards(resource)),
        _ if percent.is_multiple_of(100) => Ok(percent / 100),
        _ => Err(container.refuse(
            resource,
            format!("is no multiple of 100: set 1 to 100, 100 for each GPU, or {SHARED} for how many it is of"),
        )),
    }
}

fn within(container: Reading<'_>, resource: &str, percent: u64) -> Result<u64, Refusal> {
    if percent <= 100 { Ok(percent) } else { Err(container.refuse(resource, "is more than 100 for each GPU")) }
}

#[cfg(test)]
mod tests;
