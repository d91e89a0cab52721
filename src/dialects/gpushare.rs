//! gpushare-scheduler-extender of Alibaba, and what its clusters (ACK) add today.

use divvy_api::ResourceNames;
use divvy_api::annotation::DialectOutput;
use divvy_api::names::annotation::{CARD_POLICY, SAME_CARD};
use divvy_api::quantity::parse_count;
use divvy_api::request::MOST_CARDS;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::reading::{Reading, shown};
use crate::{Part, Refusal, Size, System};

/// gpushare and ACK.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Gpushare {
    /// What one unit of `gpu-mem` is. There each node's daemon says it; here it is one for the cluster.
    unit: Unit,
    /// Whether the annotations and variables of its device plugin are written, which its command line and programs read.
    outputs: bool,
}

/// `--memory-unit` of its device plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Unit {
    #[default]
    Gi,
    Mi,
}

const MEMORY: &str = "aliyun.com/gpu-mem";
/// Percent of compute, in steps of 5 there.
const CORE_PERCENTAGE: &str = "aliyun.com/gpu-core.percentage";
const CORE_ANNOTATION: &str = "gpushare.alibabacloud.com/core-percentage";
/// Start of the annotations that its device plugin writes on pods, and divvy-node for pods that are to have them.
pub(crate) const WRITTEN: &str = "ALIYUN_COM_GPU_MEM_";
/// A label: so many GPUs share what the container names.
const COUNT_LABEL: &str = "aliyun.com/gpu-count";

// === impl Gpushare ===

impl System for Gpushare {
    fn resources(&self, _names: &ResourceNames) -> Vec<String> {
        [MEMORY, CORE_PERCENTAGE].map(str::to_owned).into()
    }

    fn inputs(&self) -> &'static [&'static str] {
        &[CORE_ANNOTATION]
    }

    fn outputs(&self) -> &'static [&'static str] {
        &[WRITTEN, "scheduler.framework.gpushare."]
    }

    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let cards = cards(draft)?;
        let memory = container.count(MEMORY)?.map(|units| units.saturating_mul(self.unit.mib()));
        let memory = memory.map(|total| {
            let each = container.each(MEMORY, total, cards, "Mi")?;
            container.mib(MEMORY, each)
        });
        let cores = match container.percent(CORE_PERCENTAGE)? {
            Some(percent) => Some(percent),
            None => annotated_cores(draft)?,
        };
        Ok(match (memory.transpose()?, cores) {
            (None, None) => None,
            (None, Some(cores)) => Some(Part { cards, memory: Some(Size::Percent(cores)), cores }),
            (memory, cores) => Some(Part { cards, memory, cores: cores.unwrap_or(0) }),
        })
    }

    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        draft.take(CORE_ANNOTATION);
        // What its containers name is one amount of one GPU, and they may share memory on it.
        let totalled = draft.pod.containers.iter().filter(|container| container.is_totalled).count();
        let is_new = draft.parts().next().is_some();
        if is_new && totalled + draft.parts().count() > 1 && draft.parts().all(|part| part.cards == 1) {
            draft.set(SAME_CARD, "true", &format!("{MEMORY} of several containers, which are of one GPU,"))?;
        }
        if draft.requests_gpus() {
            draft.set_default(CARD_POLICY, "binpack");
        }
        if self.outputs && is_new {
            draft.tell(DialectOutput::Gpushare);
        }
        Ok(())
    }
}

// === impl Unit ===

impl Unit {
    fn mib(self) -> u64 {
        match self {
            Self::Gi => 1024,
            Self::Mi => 1,
        }
    }
}

fn annotated_cores(draft: &Draft<'_>) -> Result<Option<u64>, Refusal> {
    let Some(text) = draft.pod.annotations.get(CORE_ANNOTATION) else { return Ok(None) };
    match parse_count(text.trim()) {
        Ok(0) => Ok(None),
        Ok(percent @ 1..=100) => Ok(Some(percent)),
        _ => Err(draft.refuse(CORE_ANNOTATION, "is not a percentage: expected 0 to 100")),
    }
}

fn cards(draft: &Draft<'_>) -> Result<u64, Refusal> {
    let Some(text) = draft.pod.labels.get(COUNT_LABEL) else { return Ok(1) };
    match parse_count(text) {
        Ok(cards @ 1..=MOST_CARDS) => Ok(cards),
        _ => Err(Refusal::Value {
            field: format!("label {COUNT_LABEL}"),
            value: shown(text),
            problem: format!("is not a number of GPUs: expected 1 to {MOST_CARDS}"),
        }),
    }
}
