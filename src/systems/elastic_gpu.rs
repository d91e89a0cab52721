//! elastic-gpu-scheduler, and Tencent's qGPU, which it grew out of.

use divvy_api::names::annotation::PRIORITY;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::program::Mark::{Label, Resource};
use crate::reading::Reading;
use crate::system::Translate;
use crate::{Devices, NamedGpus, Part, Program, Refusal, Size, System, Words};

/// elastic-gpu and qGPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ElasticGpu {
    /// Whether 150 of `gpu-core` is one whole GPU, as its agent rounds it, and not an error.
    floor: bool,
}

/// Prefix of the documents, and that of the last version.
const CORE: [&str; 2] = ["elasticgpu.io/gpu-core", "elasticgpu.com/gpu-core"];
const MEMORY: [&str; 2] = ["elasticgpu.io/gpu-memory", "elasticgpu.com/gpu-memory"];
const Q_CORE: &str = "tke.cloud.tencent.com/qgpu-core";
const Q_MEMORY: &str = "tke.cloud.tencent.com/qgpu-memory";
/// Compute that is left over by others.
const Q_GREEDY: &str = "tke.cloud.tencent.com/qgpu-core-greedy";
const Q_CLASS: &str = "tke.cloud.tencent.com/app-class";

pub(crate) const SYSTEM: System = System {
    words: Words {
        resources: &[CORE[0], CORE[1], MEMORY[0], MEMORY[1], Q_CORE, Q_MEMORY, Q_GREEDY],
        annotations: &[Q_CLASS],
        own_annotations: &[
            "elasticgpu.io/assumed",
            "elasticgpu.io/container-",
            "elasticgpu.com/assumed",
            "elasticgpu.com/container-",
        ],
        ..Words::NONE
    },
    devices: &[
        Devices {
            resources: &["elasticgpu.io/*", "elasticgpu.com/*"],
            gpus: NamedGpus::ByNumber(&["elasticgpu.io/container-<name>", "elasticgpu.com/container-<name>"]),
        },
        Devices { resources: &["tke.cloud.tencent.com/qgpu-*"], gpus: NamedGpus::Nowhere },
    ],
    programs: &[
        // elastic-ai/elastic-gpu-agent: deploy/elastic-gpu-agent.yaml; its HEAD says elasticgpu.com.
        Program {
            name: "elastic-gpu",
            daemon_sets: &["elastic-gpu-agent"],
            marks: &[Resource("elasticgpu.io/*"), Resource("elasticgpu.com/*")],
            ..Program::NONE
        },
        // Tencent's documentation of TKE: qGPU, "Using qGPU".
        Program {
            name: "qGPU",
            daemon_sets: &["qgpu-manager"],
            marks: &[Resource("tke.cloud.tencent.com/qgpu-*")],
            shared: &[Label("qgpu-device-enable=enable"), Label("tke.cloud.tencent.com/qgpu-schedule-policy")],
            ..Program::NONE
        },
    ],
    ..System::new::<ElasticGpu>("elastic-gpu", "elastic-gpu")
};

// === impl ElasticGpu ===

impl Translate for ElasticGpu {
    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let words = CORE.into_iter().chain(MEMORY).filter(|name| container.0.names(name));
        let q_words = [Q_CORE, Q_MEMORY, Q_GREEDY].into_iter().filter(|name| container.0.names(name));
        if let (Some(word), Some(q_word)) = (words.clone().next(), q_words.clone().next()) {
            return Err(Refusal::Twice { first: container.0.field_of(word), second: container.0.field_of(q_word) });
        }
        if q_words.count() > 0 { shared_by_totals(container, draft) } else { self.shared(container, draft) }
    }

    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        match draft.take(Q_CLASS) {
            None | Some("online") => Ok(()),
            Some("offline") => draft.set(PRIORITY, "low", &format!("annotation {Q_CLASS}")),
            Some(_) => Err(draft.refuse(Q_CLASS, "is unknown: expected online or offline")),
        }
    }
}

impl ElasticGpu {
    /// Percent of one GPU below 100, whole GPUs above, and MiB.
    fn shared(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let (core_name, core) = one_of(container, CORE)?;
        let (memory_name, _) = one_of(container, MEMORY)?;
        let memory = container.memory(memory_name, 1)?;
        let whole = match core {
            None | Some(..100) => None,
            Some(core) if core.is_multiple_of(100) || self.floor => Some(core / 100),
            Some(_) => {
                let problem = "is no multiple of 100, and no container has parts of several GPUs: set 1 to 99, or 100 for each GPU";
                return Err(container.refuse(core_name, problem));
            }
        };
        if let Some(cards) = whole {
            if memory.is_some() {
                let field = container.0.field_of(memory_name);
                draft.warn(format!("{field}: has no effect beside whole GPUs, as with elastic-gpu"));
            }
            return whole_gpus(container, core_name, cards).map(Some);
        }
        Ok(match (core, memory) {
            (None, None) => None,
            (Some(cores), None) => Some(Part { cards: 1, memory: Some(Size::Percent(cores)), cores }),
            (cores, memory) => Some(Part { cards: 1, memory, cores: cores.unwrap_or(0) }),
        })
    }
}

/// qGPU: memory in GiB; above 100 of compute, both are totals of several GPUs.
fn shared_by_totals(container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
    let core = container.count(Q_CORE)?;
    let greedy = container.percent(Q_GREEDY)?;
    if core.is_some() && greedy.is_some() {
        return Err(Refusal::Twice { first: container.0.field_of(Q_CORE), second: container.0.field_of(Q_GREEDY) });
    }
    let gib = container.count(Q_MEMORY)?;
    if let Some(core) = core.filter(|core| *core >= 100 && core.is_multiple_of(100)) {
        if gib.is_some() {
            let field = container.0.field_of(Q_MEMORY);
            draft.warn(format!("{field}: has no effect beside whole GPUs"));
        }
        return whole_gpus(container, Q_CORE, core / 100).map(Some);
    }
    if let Some(greedy) = greedy {
        let field = container.0.field_of(Q_GREEDY);
        draft.warn(format!(
            "{field}: {greedy} isn't guaranteed, nor a ceiling here: the container gets what others leave"
        ));
    }
    let cards = core.map_or(1, |core| core.div_ceil(100));
    let cores = core.map(|core| container.each(Q_CORE, core, cards, "")).transpose()?.unwrap_or(0);
    let memory = gib.map(|gib| {
        let mib = container.each(Q_MEMORY, gib.saturating_mul(1024), cards, "Mi")?;
        container.mib(Q_MEMORY, mib)
    });
    Ok(match (core.or(greedy), memory.transpose()?) {
        (None, None) => None,
        (Some(share), None) => {
            let percent = core.map_or(share, |_| cores);
            Some(Part { cards, memory: Some(Size::Percent(percent)), cores })
        }
        (_, memory) => Some(Part { cards, memory, cores }),
    })
}

fn whole_gpus(container: Reading<'_>, name: &str, cards: u64) -> Result<Part, Refusal> {
    if cards > divvy_api::request::MOST_CARDS {
        return Err(container.refuse(name, "asks for more GPUs than any container can have"));
    }
    Ok(Part::whole(cards))
}

/// The one of two names that the container uses, and its number.
fn one_of(container: Reading<'_>, [first, second]: [&'static str; 2]) -> Result<(&'static str, Option<u64>), Refusal> {
    match (container.0.names(first), container.0.names(second)) {
        (true, true) => {
            Err(Refusal::Twice { first: container.0.field_of(first), second: container.0.field_of(second) })
        }
        (false, true) => Ok((second, container.count(second)?)),
        _ => Ok((first, container.count(first)?)),
    }
}

#[cfg(test)]
mod tests;
