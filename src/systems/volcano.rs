//! Volcano's vGPU plugin, and its older device plugin.

use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::hami::{AVOID_TYPE, USE_TYPE, remove_limit_variables};
use crate::program::Mark::{Annotation, Resource};
use crate::reading::Reading;
use crate::system::Translate;
use crate::values::MemoryFactor;
use crate::{Devices, NamedGpus, Part, Program, Refusal, Size, System, Words, wishes};

/// Volcano.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Volcano {
    /// `--gpu-memory-factor` of its device plugin.
    memory_factor: MemoryFactor,
}

const NUMBER: &str = "volcano.sh/vgpu-number";
const MEMORY: &str = "volcano.sh/vgpu-memory";
const PERCENTAGE: &str = "volcano.sh/vgpu-memory-percentage";
const CORES: &str = "volcano.sh/vgpu-cores";
/// Resources of the older plugin: MiB of one GPU, or whole ones.
const OLD_MEMORY: &str = "volcano.sh/gpu-memory";
const OLD_NUMBER: &str = "volcano.sh/gpu-number";
const MODE: &str = "volcano.sh/vgpu-mode";
const USE_UUID: &str = "volcano.sh/vgpu-use-gpuuuid";
const AVOID_UUID: &str = "volcano.sh/vgpu-nouse-gpuuuid";
/// How the pods of a group share GPUs.
const GROUP: &str = "volcano.sh/vgpu-podgroup-policy";

pub(crate) const SYSTEM: System = System {
    schedulers: &["volcano"],
    words: Words {
        resources: &[NUMBER, MEMORY, PERCENTAGE, CORES, OLD_MEMORY, OLD_NUMBER],
        annotations: &[MODE, USE_UUID, AVOID_UUID, GROUP],
        borrowed_annotations: &[USE_TYPE, AVOID_TYPE],
        own_annotations: &[
            "volcano.sh/vgpu-ids-new",
            "volcano.sh/vgpu-node",
            "volcano.sh/vgpu-time",
            "volcano.sh/bind-",
            "volcano.sh/devices-to-allocate",
            "volcano.sh/gpu-index",
            "volcano.sh/predicate-time",
        ],
        ..Words::NONE
    },
    devices: &[
        Devices { resources: &["volcano.sh/vgpu-*"], gpus: NamedGpus::ByUuid(&["volcano.sh/vgpu-ids-new"]) },
        Devices { resources: &["volcano.sh/gpu-*"], gpus: NamedGpus::ByNumber(&["volcano.sh/gpu-index"]) },
    ],
    // Project-HAMi/volcano-vgpu-device-plugin: volcano-vgpu-device-plugin.yml, pkg/plugin/vgpu/util/types.go.
    programs: &[Program {
        name: "Volcano vGPU",
        daemon_sets: &["volcano-device-plugin", "volcano-vgpu-device-plugin"],
        marks: &[Annotation("volcano.sh/node-vgpu-*"), Resource("volcano.sh/vgpu-*")],
        shared: &[Annotation("volcano.sh/mutex.lock")],
        ..Program::NONE
    }],
    ..System::new::<Volcano>("volcano", "Volcano")
};

// === impl Volcano ===

impl Translate for Volcano {
    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let new = [NUMBER, MEMORY, PERCENTAGE, CORES].into_iter().find(|name| container.0.names(name));
        let old = [OLD_MEMORY, OLD_NUMBER].into_iter().find(|name| container.0.names(name));
        match (new, old) {
            (Some(new), Some(old)) => {
                Err(Refusal::Twice { first: container.0.field_of(new), second: container.0.field_of(old) })
            }
            (None, Some(_)) => old_part(container),
            // None, whatever else is written beside it.
            _ if container.0.names(NUMBER) && container.cards(NUMBER)?.is_none() => Ok(None),
            _ => several(container, [NUMBER, MEMORY, PERCENTAGE, CORES], self.memory_factor, draft),
        }
    }

    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        wishes::set_wanted_models(draft, USE_TYPE, AVOID_TYPE)?;
        wishes::set_cards(draft, USE_UUID, AVOID_UUID)?;
        draft.drop(|key| key == GROUP, "GPUs are chosen pod by pod");
        remove_limit_variables(draft);
        wishes::set_mode(draft, MODE)
    }
}

/// Equal parts of so many GPUs: what HAMi's descendants share. Without an amount it is all memory and no compute that is
/// guaranteed, beside other containers.
pub(crate) fn several(
    container: Reading<'_>,
    [number, memory, percentage, cores]: [&str; 4],
    factor: MemoryFactor,
    draft: &mut Draft<'_>,
) -> Result<Option<Part>, Refusal> {
    let cards = container.cards(number)?;
    let cores = container.percent(cores)?;
    let amount = container.memory(memory, factor.mib())?;
    let percent = container.percent(percentage)?.map(Size::Percent);
    if cards.is_none() && cores.is_none() && amount.is_none() && percent.is_none() {
        return Ok(None);
    }
    if amount.is_some() && percent.is_some() {
        draft.warn(format!("{}: has no effect beside {memory}", container.0.field_of(percentage)));
    }
    let memory = amount.or(percent).unwrap_or(Size::Percent(100));
    Ok(Some(Part { cards: cards.unwrap_or(1), memory: Some(memory), cores: cores.unwrap_or(0) }))
}

fn old_part(container: Reading<'_>) -> Result<Option<Part>, Refusal> {
    match (container.memory(OLD_MEMORY, 1)?, container.cards(OLD_NUMBER)?) {
        (None, None) => Ok(None),
        (None, Some(cards)) => Ok(Some(Part::whole(cards))),
        (memory, None) => Ok(Some(Part { cards: 1, memory, cores: 0 })),
        (Some(_), Some(_)) => {
            Err(Refusal::Twice { first: container.0.field_of(OLD_MEMORY), second: container.0.field_of(OLD_NUMBER) })
        }
    }
}

#[cfg(test)]
mod tests;
