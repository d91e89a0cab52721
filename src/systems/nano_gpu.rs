//! nano-gpu-scheduler, in all three of its versions.

use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::program::Mark::{Label, Resource};
use crate::reading::Reading;
use crate::system::Translate;
use crate::values::MemoryUnit;
use crate::{Devices, NamedGpus, Part, Program, Refusal, Size, System, Words};

/// nano-gpu.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct NanoGpu {
    /// What one unit of `gpu-memory` is. The system never said: its agents report whatever they count in.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_unit: Option<MemoryUnit>,
}

const CORE: &str = "nano-gpu.io/gpu-core";
const MEMORY: &str = "nano-gpu.io/gpu-memory";
/// Since 0.2, of compute alone.
const PERCENT: &str = "nano-gpu/gpu-percent";

pub(crate) const SYSTEM: System = System {
    words: Words {
        resources: &[CORE, MEMORY, PERCENT],
        own_annotations: &["nano-gpu.io/", "nano-gpu/"],
        ..Words::NONE
    },
    devices: &[Devices {
        resources: &["nano-gpu/*", "nano-gpu.io/*"],
        gpus: NamedGpus::ByNumber(&["nano-gpu.io/gpu-<name>", "nano-gpu/container-<name>"]),
    }],
    // nano-gpu/nano-gpu-agent: deploy/nano-gpu-agent.yaml.
    programs: &[Program {
        name: "nano-gpu",
        daemon_sets: &["nano-gpu-agent"],
        marks: &[Resource("nano-gpu/*"), Resource("nano-gpu.io/*")],
        shared: &[Label("nvidia-device-enable=enable")],
        ..Program::NONE
    }],
    ..System::new::<NanoGpu>("nano-gpu", "nano-gpu")
};

// === impl NanoGpu ===

impl Translate for NanoGpu {
    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let core = container.percent(CORE)?;
        let percent = container.percent(PERCENT)?;
        if core.is_some() && percent.is_some() {
            return Err(Refusal::Twice { first: container.0.field_of(CORE), second: container.0.field_of(PERCENT) });
        }
        let unit = self.memory_unit.unwrap_or_default();
        let memory = container.memory(MEMORY, unit.mib())?;
        if memory.is_some() && self.memory_unit.is_none() {
            let field = container.0.field_of(MEMORY);
            draft.warn(format!("{field}: counted in units of 1Gi: nano-gpu doesn't say what it counts in; memoryUnit of its dialect does"));
        }
        Ok(match (core.or(percent), memory) {
            (None, None) => None,
            (Some(100), memory) => {
                if memory.is_some() {
                    let field = container.0.field_of(MEMORY);
                    draft.warn(format!("{field}: has no effect: 100 is a whole GPU here, with all of its memory"));
                }
                Some(Part::whole(1))
            }
            // There a share of compute alone took no memory; here it can't be more than its share of the GPU.
            (Some(cores), None) => Some(Part { cards: 1, memory: Some(Size::Percent(cores)), cores }),
            (cores, memory) => Some(Part { cards: 1, memory, cores: cores.unwrap_or(0) }),
        })
    }
}

#[cfg(test)]
mod tests;
