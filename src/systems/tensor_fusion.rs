//! TensorFusion: parts of GPUs in annotations of pods that have its label, and no resource at all.

use std::num::NonZeroU64;

use divvy_api::names::annotation::{CARD_MODEL, COMPUTE_LIMIT};
use divvy_api::quantity::{parse_bytes, parse_count, parse_cpu};
use divvy_api::request::MOST_CARDS;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::program::Mark::Resource;
use crate::reading::MOST_OF_A_CARD;
use crate::system::Translate;
use crate::{Devices, Key, NamedGpus, Part, Program, Refusal, Size, System, Words, wishes};

/// TensorFusion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TensorFusion {
    /// TFLOPS of each GPU of the cluster (`fp16TFlops` of its list of models), in which its users count compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    tflops: Option<NonZeroU64>,
}

/// Start of its annotations, labels and resources.
const DOMAIN: &str = "tensor-fusion.ai/";
/// A label of the pods that it changes.
const ENABLED: &str = "tensor-fusion.ai/enabled";

/// What a pod gets of each GPU at least, and at most.
const TFLOPS: [&str; 2] = ["tensor-fusion.ai/tflops-request", "tensor-fusion.ai/tflops-limit"];
const PERCENT: [&str; 2] = ["tensor-fusion.ai/compute-percent-request", "tensor-fusion.ai/compute-percent-limit"];
const MEMORY: [&str; 2] = ["tensor-fusion.ai/vram-request", "tensor-fusion.ai/vram-limit"];
const COUNT: &str = "tensor-fusion.ai/gpu-count";
const CONTAINER: &str = "tensor-fusion.ai/inject-container";
/// `soft` and `hard` limits, whole GPUs (`shared`, since 2.13), or instances of MIG (`partitioned`).
const ISOLATION: &str = "tensor-fusion.ai/isolation";
/// Whole GPUs, as parts of all that its model has.
const DEDICATED: &str = "tensor-fusion.ai/dedicated-gpu";
/// A name of its list of models: NVML's, or one of its own.
const MODEL: &str = "tensor-fusion.ai/gpu-model";
const VENDOR: &str = "tensor-fusion.ai/vendor";
/// `false`: the pod's calls go to a GPU of another node.
const LOCAL: &str = "tensor-fusion.ai/is-local-gpu";
/// An object with all that annotations could say.
const PROFILE: &str = "tensor-fusion.ai/workload-profile";
const INDICES: &str = "tensor-fusion.ai/gpu-indices";
const COUNTS: &str = "tensor-fusion.ai/container-gpu-count";
const POOL: &str = "tensor-fusion.ai/gpupool";
const QOS: &str = "tensor-fusion.ai/qos";

/// Annotations that mean something here.
const READ: &[&str] = &[
    TFLOPS[0], TFLOPS[1], PERCENT[0], PERCENT[1], MEMORY[0], MEMORY[1], COUNT, CONTAINER, ISOLATION, DEDICATED, MODEL,
    VENDOR, LOCAL, PROFILE, INDICES, COUNTS, POOL, QOS,
];

/// Annotations without which the rest says something else, and why they can't be followed.
const REFUSED: [(&str, &str); 3] = [
    (PROFILE, "names an object that Divvy doesn't read: write what it says in annotations"),
    (INDICES, "numbers the GPUs of a node: divvy.dev/card-uuid names them"),
    (COUNTS, "is by container: write Divvy's limits in each, nvidia.com/gpu and so on"),
];

pub(crate) const SYSTEM: System = System {
    schedulers: &["tensor-fusion-scheduler"],
    words: Words {
        annotations: READ,
        requests: &[
            Key::Is(TFLOPS[0]),
            Key::Is(TFLOPS[1]),
            Key::Is(PERCENT[0]),
            Key::Is(PERCENT[1]),
            Key::Is(MEMORY[0]),
            Key::Is(MEMORY[1]),
            Key::Is(ISOLATION),
            Key::Is(DEDICATED),
            Key::Is(PROFILE),
        ],
        opt_outs: &[(ENABLED, "false")],
        own_annotations: OWN,
        ..Words::NONE
    },
    // Its device plugin counts pods, not GPUs, and its scheduler writes names of its own objects.
    devices: &[Devices { resources: &["tensor-fusion.ai/index_*"], gpus: NamedGpus::Nowhere }],
    // NexusGPU/tensor-fusion: charts/tensor-fusion, with the release's name of its documents. Its operator makes the pods of its
    // nodes itself, without a DaemonSet, so nothing tells where it still runs.
    programs: &[Program {
        name: "TensorFusion",
        marks: &[Resource("tensor-fusion.ai/index_*")],
        objects: &[
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tensor-fusion-sys-mutating-webhook",
        ],
        only_beside_divvy: true,
        ..Program::NONE
    }],
    ..System::new::<TensorFusion>("tensor-fusion", "TensorFusion")
};

/// What its webhook, scheduler and controllers write on pods (`pkg/constants/constants.go`).
const OWN: &[&str] = &[
    "tensor-fusion.ai/container-gpus",
    "tensor-fusion.ai/effective-hard-sm-percent",
    "tensor-fusion.ai/gang-desired-members",
    "tensor-fusion.ai/gang-group-key",
    "tensor-fusion.ai/gang-required-members",
    "tensor-fusion.ai/gpu-ids",
    "tensor-fusion.ai/gpu-released",
    "tensor-fusion.ai/index",
    "tensor-fusion.ai/partition-uuids",
    "tensor-fusion.ai/pending-owned-workload",
    "tensor-fusion.ai/pod-counter-key",
    "tensor-fusion.ai/port-number",
    "tensor-fusion.ai/selected-workload",
];

/// What a pair of annotations says of each GPU.
#[derive(Clone, Copy, Debug)]
struct Amount {
    /// The annotation that requests it.
    key: &'static str,
    requested: u64,
    /// A limit above that, and its annotation.
    limit: Option<(&'static str, u64)>,
}

// === impl TensorFusion ===

impl Translate for TensorFusion {
    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        if draft.pod.labels.get(ENABLED).is_none_or(|text| text != "true") {
            draft.remove(|key| key.starts_with(DOMAIN));
            draft.warn(format!(
                "annotations {DOMAIN}…: removed: they have no effect without the label {ENABLED}: \"true\", as with TensorFusion"
            ));
            return Ok(());
        }
        for (key, problem) in REFUSED {
            if draft.take(key).is_some() {
                return Err(draft.refuse(key, problem));
            }
        }
        let container = draft.take(CONTAINER);
        let count = cards(draft)?;
        match self.requested(draft, count.unwrap_or(1))? {
            Some((key, part)) => set_part(draft, container, key, part)?,
            None if count.is_some() => {
                draft.warn(format!("annotation {COUNT}: has no effect: no amount stands beside it"));
            }
            None => {}
        }
        set_model(draft)?;
        match draft.take(VENDOR) {
            None | Some("" | "NVIDIA") => {}
            Some(_) => return Err(draft.refuse(VENDOR, "is unknown: Divvy has GPUs of NVIDIA")),
        }
        if draft.take(LOCAL) == Some("false") {
            draft.warn(format!("annotation {LOCAL}: not kept: a pod runs on the node of its GPUs"));
        }
        draft.drop(
            |key| [POOL, QOS].contains(&key) || is_other(key),
            "pools, priorities, workers and scaling are TensorFusion's",
        );
        Ok(())
    }
}

impl TensorFusion {
    /// What the pod requests of so many GPUs, and the annotation that does.
    fn requested(&self, draft: &mut Draft<'_>, cards: u64) -> Result<Option<(&'static str, Part)>, Refusal> {
        if let Some(key) = whole_gpus(draft)? {
            draft.drop(|key| [TFLOPS, PERCENT, MEMORY].as_flattened().contains(&key), "whole GPUs are asked for");
            return Ok(Some((key, Part::whole(cards))));
        }
        let tflops = amount(draft, TFLOPS, |text| self.percent_of_tflops(text))?;
        let percent = amount(draft, PERCENT, percent)?;
        let memory = amount(draft, MEMORY, mib)?;
        let compute = match (tflops, percent) {
            (Some(tflops), Some(percent)) => return Err(twice(tflops.key, &format!("annotation {}", percent.key))),
            (tflops, percent) => tflops.or(percent),
        };
        if let Some((key, limit)) = compute.and_then(|compute| compute.limit) {
            wishes::set_idle_compute(draft, COMPUTE_LIMIT, limit.to_string(), &format!("annotation {key}"))?;
        }
        if let Some((key, _)) = memory.and_then(|memory| memory.limit) {
            draft.warn(format!("annotation {key}: has no effect: a pod has no more memory than it requests"));
        }
        let Some(first) = memory.or(compute) else { return Ok(None) };
        let cores = compute.map_or(0, |compute| compute.requested);
        let size = memory.map_or(Size::Percent(cores), |memory| Size::Mib(memory.requested));
        match (cores, size) {
            (100, Size::Percent(_)) => return Ok(Some((first.key, Part::whole(cards)))),
            (100, Size::Mib(_)) => draft.warn(
                "all compute of each GPU is requested, which no other pod shares then: request 99 percent to share it",
            ),
            _ => {}
        }
        Ok(Some((first.key, Part { cards, memory: Some(size), cores })))
    }

    /// Percent of a GPU's compute, rounded up. Like CPUs, its users write `10` and `71200m`.
    fn percent_of_tflops(&self, text: &str) -> Result<u64, String> {
        let Some(all) = self.tflops else {
            let problem = "counts TFLOPS, of which each model has another number: set tflops of the dialect tensor-fusion to that \
                           of the cluster's GPUs, or write";
            return Err(format!("{problem} {}", PERCENT[0]));
        };
        let milli = parse_cpu(text).map_err(|_other| "is not a number of TFLOPS: expected 10, or 500m".to_owned())?;
        let percent = (u64::from(milli) * 100).div_ceil(all.get().saturating_mul(1000));
        if percent <= 100 { Ok(percent) } else { Err(format!("is more than the {all} TFLOPS of a GPU")) }
    }
}

/// The annotation by which a pod asks for whole GPUs, if one does.
fn whole_gpus(draft: &mut Draft<'_>) -> Result<Option<&'static str>, Refusal> {
    let dedicated = (draft.take(DEDICATED) == Some("true")).then_some(DEDICATED);
    match draft.take(ISOLATION) {
        None | Some("" | "soft") => Ok(dedicated),
        Some("hard") => {
            draft.warn(format!(
                "annotation {ISOLATION}: has no effect: limits are kept by the isolation tier of the node"
            ));
            Ok(dedicated)
        }
        Some("shared") => Ok(Some(ISOLATION)),
        Some("partitioned") => {
            let problem =
                "is an instance of MIG: request its profile in the container, nvidia.com/mig-1g.10gb and so on";
            Err(draft.refuse(ISOLATION, problem))
        }
        Some(_) => Err(draft.refuse(ISOLATION, "is unknown: expected soft, hard, shared or partitioned")),
    }
}

/// Reads a pair of annotations. A limit alone is the request too; empty texts and zeros say nothing.
fn amount(
    draft: &mut Draft<'_>,
    [request, limit]: [&'static str; 2],
    read: impl Fn(&str) -> Result<u64, String>,
) -> Result<Option<Amount>, Refusal> {
    let [requested, most] = [request, limit].map(|key| match draft.take(key) {
        None | Some("") => Ok(None),
        Some(text) => {
            read(text).map(|amount| Some(amount).filter(|_| amount > 0)).map_err(|problem| draft.refuse(key, problem))
        }
    });
    match (requested?, most?) {
        (None, None) => Ok(None),
        (None, Some(most)) => Ok(Some(Amount { key: limit, requested: most, limit: None })),
        (Some(requested), Some(most)) if most < requested => {
            Err(draft.refuse(limit, format!("is less than annotation {request} requests: leave one of them out")))
        }
        (Some(requested), most) => {
            let limit = most.filter(|most| *most > requested).map(|most| (limit, most));
            Ok(Some(Amount { key: request, requested, limit }))
        }
    }
}

fn percent(text: &str) -> Result<u64, String> {
    let percent = parse_count(text).ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| "is not a percentage of a GPU: expected 1 to 100".to_owned())
}

fn mib(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|_other| "is not an amount of memory: expected a quantity such as 8Gi")?;
    match bytes.div_ceil(1 << 20) {
        1 if bytes < 1 << 20 => Err("is less than 1Mi: a number without a suffix is in bytes".to_owned()),
        mib if mib <= MOST_OF_A_CARD => Ok(mib),
        _ => Err("is more memory than any GPU has".to_owned()),
    }
}

/// How many GPUs, each with the same amounts.
fn cards(draft: &mut Draft<'_>) -> Result<Option<u64>, Refusal> {
    match draft.take(COUNT).filter(|text| !text.is_empty()).map(parse_count) {
        None => Ok(None),
        Some(Ok(cards @ 1..=MOST_CARDS)) => Ok(Some(cards)),
        Some(_) => Err(draft.refuse(COUNT, format!("is not a number of GPUs: expected 1 to {MOST_CARDS}"))),
    }
}

/// Gives the part to the container that is named, or to the only one.
fn set_part(draft: &mut Draft<'_>, list: Option<&str>, key: &str, part: Part) -> Result<(), Refusal> {
    let apps = draft.pod.containers.iter().enumerate().filter(|(_, container)| container.is_app);
    let apps: Vec<(usize, &str)> = apps.map(|(at, container)| (at, &*container.name)).collect();
    let names: Vec<&str> = list.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let at = match (&names[..], &apps[..]) {
        (_, []) => return Ok(()),
        ([], [(only, _)]) => *only,
        ([], _) => return Err(draft.refuse(CONTAINER, "names no container, and the pod has several: name one")),
        ([name], _) => match apps.iter().find(|(_, container)| container == name) {
            Some((at, _)) => *at,
            None => return Err(draft.refuse(CONTAINER, "is no container of the pod")),
        },
        _ => {
            let problem =
                "names several containers, which have one part together: write Divvy's limits in each of them";
            return Err(draft.refuse(CONTAINER, problem));
        }
    };
    let container = &draft.pod.containers[at];
    if let Some(ours) = container.limits.keys().find(|name| draft.context.names.is_ours(name)) {
        return Err(twice(key, &container.field_of(ours)));
    }
    draft.set_part(at, Some(part));
    Ok(())
}

/// Words of a model's name, as its documents have them. Names of its list that have an underscore are no GPU's.
fn set_model(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    match draft.take(MODEL) {
        None | Some("") => Ok(()),
        Some(model) if model.contains(['_', ',', '*', '=']) => {
            let problem = "is a name of TensorFusion's own: write divvy.dev/card-model in its place";
            Err(draft.refuse(MODEL, problem))
        }
        Some(model) => draft.set(CARD_MODEL, model, &format!("annotation {MODEL}")),
    }
}

/// Whether an annotation is one of those that nothing here corresponds to.
fn is_other(key: &str) -> bool {
    let is_own = OWN.iter().any(|start| key.starts_with(start));
    key.starts_with(DOMAIN) && !READ.contains(&key) && !is_own
}

fn twice(key: &str, other: &str) -> Refusal {
    Refusal::Twice { first: format!("annotation {key}"), second: other.to_owned() }
}

#[cfg(test)]
mod tests;
