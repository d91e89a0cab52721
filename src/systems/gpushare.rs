//! gpushare-scheduler-extender of Alibaba, and what its clusters (ACK) add today.

use std::collections::BTreeMap;

use divvy_api::Tier;
use divvy_api::annotation::DialectAnnotation;
use divvy_api::names::annotation::{CARD_POLICY, SAME_CARD};
use divvy_api::quantity::parse_count;
use divvy_api::request::MOST_CARDS;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::output::OutputAnnotations;
use crate::program::Mark::{Label, Resource};
use crate::reading::{Reading, shown};
use crate::system::Translate;
use crate::{
    AllocatedShare, Allocation, Devices, NamedGpus, Output, Part, Program, Refusal, Size, System, UnitSetting, Words,
};

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
const WRITTEN: &str = "ALIYUN_COM_GPU_MEM_";
/// So many GPUs share what the container names: a label of a pod. A resource of a Node: its GPUs.
const COUNT: &str = "aliyun.com/gpu-count";

pub(crate) const SYSTEM: System = System {
    words: Words {
        resources: &[MEMORY, CORE_PERCENTAGE],
        annotations: &[CORE_ANNOTATION],
        own_annotations: &[WRITTEN, "scheduler.framework.gpushare."],
        ..Words::NONE
    },
    devices: &[Devices {
        resources: &["aliyun.com/gpu-*"],
        gpus: NamedGpus::ByNumber(&["ALIYUN_COM_GPU_MEM_IDX", "scheduler.framework.gpushare.allocation"]),
    }],
    outputs: &[OUTPUT],
    // AliyunContainerService/gpushare-device-plugin: device-plugin-ds.yaml. Its plugin patches gpu-count into the status.
    programs: &[Program {
        name: "gpushare",
        daemon_sets: &["gpushare-device-plugin-ds", "gpushare-core-device-plugin-ds", "gpushare-mps-device-plugin-ds"],
        marks: &[Label("gpushare=true"), Resource("aliyun.com/gpu-*")],
        shared: &[Label("cgpu.disable.isolation")],
        ..Program::NONE
    }],
    unit: Some(UnitSetting { key: "unit", memory: MEMORY, gpus: COUNT }),
    ..System::new::<Gpushare>("gpushare", "gpushare")
};

/// Variables and annotations of its device plugin, `ALIYUN_COM_GPU_MEM_*`.
const OUTPUT: Output = Output {
    name: "gpushare",
    variables,
    annotations: Some(OutputAnnotations { prefix: WRITTEN, write: annotations }),
};

// === impl Gpushare ===

impl Translate for Gpushare {
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
            draft.tell(&OUTPUT);
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
    let Some(text) = draft.pod.labels.get(COUNT) else { return Ok(1) };
    match parse_count(text) {
        Ok(cards @ 1..=MOST_CARDS) => Ok(cards),
        _ => Err(Refusal::Value {
            field: format!("label {COUNT}"),
            value: shown(text),
            problem: format!("is not a number of GPUs: expected 1 to {MOST_CARDS}"),
        }),
    }
}

/// As its device plugin writes them (`pkg/gpu/nvidia/allocate.go`), with one difference: its programs take the part
/// `CONTAINER / DEV` of the memory that they see. Under a limit they see their share alone, and DEV is that too, as the true
/// value would give them a share of their share.
fn variables(&Allocation { record, container, shares, tier }: &Allocation<'_>) -> Vec<(String, String)> {
    let own = record.containers.get(container).and_then(units);
    let (Some(own), Some(first)) = (own, shares.first()) else { return Vec::new() };
    let all = if tier == Tier::Accounting { units_of_gpu(first, own) } else { own };
    let texts = [("IDX", first.index as u64), ("POD", units_of_pod(record)), ("CONTAINER", own), ("DEV", all)];
    texts.map(|(name, number)| (format!("{WRITTEN}{name}"), number.to_string())).into()
}

/// As its extender and device plugin leave them, with true amounts: its command line and others add them up.
fn annotations(
    record: &DialectAnnotation,
    shares: &[(&str, AllocatedShare)],
    allocated_ns: i128,
) -> BTreeMap<String, String> {
    let of_container =
        |(container, share): &(&str, AllocatedShare)| Some((units(record.containers.get(*container)?)?, *share));
    let Some((own, first)) = shares.iter().find_map(of_container) else { return BTreeMap::new() };
    let texts = [
        ("IDX", first.index.to_string()),
        ("POD", units_of_pod(record).to_string()),
        ("DEV", units_of_gpu(&first, own).to_string()),
        ("ASSIGNED", "true".to_owned()),
        ("ASSUME_TIME", allocated_ns.to_string()),
    ];
    texts.map(|(name, text)| (format!("{WRITTEN}{name}"), text)).into()
}

/// Units that a container was written with; none if that is no positive number.
fn units(limits: &BTreeMap<String, String>) -> Option<u64> {
    parse_count(limits.get(MEMORY)?).ok().filter(|units| *units > 0)
}

fn units_of_pod(record: &DialectAnnotation) -> u64 {
    record.containers.values().filter_map(units).fold(0, u64::saturating_add)
}

/// Units of a GPU of which a container has so many.
fn units_of_gpu(allocated: &AllocatedShare, own: u64) -> u64 {
    allocated.memory.as_mib() / (allocated.share.memory.as_mib() / own).max(1)
}

#[cfg(test)]
mod tests;
