//! vgpu-manager, whose resources are in the domain of NVIDIA's own.

use divvy_api::names::annotation::{CARD_POLICY, COMPUTE, NODE_POLICY, NUMA};
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::reading::Reading;
use crate::system::Translate;
use crate::values::MemoryFactor;
use crate::volcano::several;
use crate::{Devices, NamedGpus, Part, Refusal, Size, System, Words, wishes};

/// vgpu-manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct VgpuManager {
    /// `--device-memory-factor` of its device plugin.
    memory_factor: MemoryFactor,
}

const NUMBER: &str = "nvidia.com/vgpu-number";
const MEMORY: &str = "nvidia.com/vgpu-memory";
const CORES: &str = "nvidia.com/vgpu-cores";
const NODES: &str = "nvidia.com/node-scheduler-policy";
const CARDS: &str = "nvidia.com/device-scheduler-policy";
const USE_TYPE: &str = "nvidia.com/include-gpu-type";
const AVOID_TYPE: &str = "nvidia.com/exclude-gpu-type";
const USE_UUID: &str = "nvidia.com/include-gpu-uuid";
const AVOID_UUID: &str = "nvidia.com/exclude-gpu-uuid";
const TOPOLOGY: &str = "nvidia.com/device-topology-mode";
const CROSS_POD: &str = "nvidia.com/cross-pod-topology";
const COMPUTE_POLICY: &str = "nvidia.com/vgpu-compute-policy";
/// Nodes whose plugin offers host memory as GPU memory, or those whose doesn't.
const MEMORY_POLICY: &str = "nvidia.com/memory-scheduler-policy";

pub(crate) const SYSTEM: System = System {
    schedulers: &["vgpu-scheduler"],
    words: Words {
        resources: &[NUMBER, MEMORY, CORES],
        annotations: &[
            NODES,
            CARDS,
            USE_TYPE,
            AVOID_TYPE,
            USE_UUID,
            AVOID_UUID,
            TOPOLOGY,
            CROSS_POD,
            COMPUTE_POLICY,
            MEMORY_POLICY,
        ],
        own_annotations: &["nvidia.com/pre-allocated", "nvidia.com/real-allocated", "nvidia.com/predicate-"],
        ..Words::NONE
    },
    devices: &[Devices { resources: &["nvidia.com/vgpu-*"], gpus: NamedGpus::Nowhere }],
    ..System::new::<VgpuManager>("vgpu-manager", "vgpu-manager")
};

// === impl VgpuManager ===

impl Translate for VgpuManager {
    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let part = several(container, [NUMBER, MEMORY, "", CORES], self.memory_factor, draft)?;
        // Its scheduler gives a number alone all compute (`resolveContainerNeeds`).
        let is_number_alone = |part: &Part| part.memory == Some(Size::Percent(100)) && part.cores == 0;
        Ok(part.map(|part| if is_number_alone(&part) { Part::whole(part.cards) } else { part }))
    }

    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        let [wanted, avoided] = [USE_TYPE, AVOID_TYPE].map(|key| Some((key, draft.take(key)?)));
        wishes::set_models(draft, wanted, avoided)?;
        wishes::set_cards(draft, USE_UUID, AVOID_UUID)?;
        set_order(draft)?;
        match draft.take(COMPUTE_POLICY) {
            None | Some("" | "fixed") => {}
            Some("balance") => {
                wishes::set_idle_compute(draft, COMPUTE, "burst", &format!("annotation {COMPUTE_POLICY}"))?;
            }
            Some("none") => draft.warn(format!(
                "annotation {COMPUTE_POLICY}: not kept: a container with vgpu-cores gets no more than those, one without what is idle"
            )),
            Some(_) => return Err(draft.refuse(COMPUTE_POLICY, "is unknown: expected fixed, balance or none")),
        }
        draft.drop(|key| key == CROSS_POD, "GPUs are chosen pod by pod");
        draft.drop(|key| key == MEMORY_POLICY, "divvy.dev/oversubscribe asks for host memory beside that of the GPU");
        Ok(())
    }
}

/// Order of nodes, and of GPUs, where a topology comes before a policy, as there.
fn set_order(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    if let Some(policy) = policy(NODES, draft)? {
        draft.set(NODE_POLICY, policy, &format!("annotation {NODES}"))?;
    }
    let cards = policy(CARDS, draft)?;
    let source = format!("annotation {TOPOLOGY}");
    let has_links = match draft.take(TOPOLOGY) {
        None | Some("" | "none") => false,
        Some("numa") => draft.set(NUMA, "prefer", &source).map(|()| false)?,
        Some("numa-strict") => draft.set(NUMA, "strict", &source).map(|()| false)?,
        Some("link") => draft.set(CARD_POLICY, "topology", &source).map(|()| true)?,
        Some("link-strict") => {
            return Err(draft
                .refuse(TOPOLOGY, "has no counterpart: link prefers GPUs with fast links, and nothing requires them"));
        }
        Some(_) => return Err(draft.refuse(TOPOLOGY, "is unknown: expected numa, numa-strict or link")),
    };
    match cards {
        Some(_) if has_links => draft.warn(format!("annotation {CARDS}: has no effect beside {TOPOLOGY}: link")),
        Some(policy) => draft.set(CARD_POLICY, policy, &format!("annotation {CARDS}"))?,
        None => {}
    }
    Ok(())
}

fn policy<'a>(key: &'static str, draft: &mut Draft<'a>) -> Result<Option<&'a str>, Refusal> {
    match draft.take(key) {
        None | Some("" | "none") => Ok(None),
        policy @ Some("binpack" | "spread") => Ok(policy),
        Some(_) => Err(draft.refuse(key, "is unknown: expected binpack or spread")),
    }
}

#[cfg(test)]
mod tests;
