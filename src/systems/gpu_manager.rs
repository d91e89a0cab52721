//! gpu-manager of Tencent (GaiaGPU).

use divvy_api::names::annotation::COMPUTE_LIMIT;
use divvy_api::quantity::parse_count;
use divvy_api::request::MOST_CARDS;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::program::Mark::{Label, Resource};
use crate::reading::Reading;
use crate::system::Translate;
use crate::{Devices, NamedGpus, Part, Program, Refusal, System, Words, wishes};

/// gpu-manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuManager {}

const CORE: &str = "tencent.com/vcuda-core";
const MEMORY: &str = "tencent.com/vcuda-memory";
/// An annotation: compute that the container may use where nobody else does.
const CORE_LIMIT: &str = "tencent.com/vcuda-core-limit";
/// MiB of one unit of its memory.
const BLOCK: u64 = 256;

pub(crate) const SYSTEM: System = System {
    words: Words {
        resources: &[CORE, MEMORY],
        annotations: &[CORE_LIMIT],
        own_annotations: &["tencent.com/predicate-", "tencent.com/gpu-assigned"],
        ..Words::NONE
    },
    devices: &[Devices {
        resources: &["tencent.com/vcuda-*"],
        gpus: NamedGpus::ByNumber(&["tencent.com/predicate-gpu-idx-<index>"]),
    }],
    // tkestack/gpu-manager: gpu-manager.yaml.
    programs: &[Program {
        name: "gpu-manager",
        daemon_sets: &["gpu-manager-daemonset"],
        marks: &[Resource("tencent.com/vcuda-*"), Label("gaia.tencent.com/gpu-model")],
        shared: &[Label("nvidia-device-enable=enable")],
        ..Program::NONE
    }],
    ..System::new::<GpuManager>("gpu-manager", "gpu-manager")
};

// === impl GpuManager ===

impl Translate for GpuManager {
    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let core = container.count(CORE)?;
        let memory = container.memory(MEMORY, BLOCK)?;
        match (core, memory) {
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let field = container.0.field_of(MEMORY);
                draft.warn(format!(
                    "{field}: requests no GPU without {CORE}, as with gpu-manager: the container gets none"
                ));
                Ok(None)
            }
            (Some(core), memory) if core >= 100 => {
                if !core.is_multiple_of(100) {
                    return Err(container.refuse(CORE, "is no multiple of 100: set 1 to 99, or 100 for each whole GPU"));
                }
                if core / 100 > MOST_CARDS {
                    return Err(container.refuse_cards(CORE));
                }
                if memory.is_some() {
                    let field = container.0.field_of(MEMORY);
                    draft.warn(format!("{field}: has no effect beside whole GPUs, as with gpu-manager"));
                }
                Ok(Some(Part::whole(core / 100)))
            }
            (Some(_), None) => Err(container.refuse(CORE, format!("needs {MEMORY}: set it, in units of 256Mi"))),
            (Some(cores), memory) => Ok(Some(Part { cards: 1, memory, cores })),
        }
    }

    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        let Some(limit) = draft.take(CORE_LIMIT) else { return Ok(()) };
        let Ok(limit @ 1..=100) = parse_count(limit) else {
            return Err(draft.refuse(CORE_LIMIT, "is not a percentage of a GPU: expected 1 to 100"));
        };
        wishes::set_idle_compute(draft, COMPUTE_LIMIT, limit.to_string(), &format!("annotation {CORE_LIMIT}"))
    }
}

#[cfg(test)]
mod tests;
