//! HAMi, and 4paradigm's vGPU scheduler, which it comes from: on our own names, with other meanings of some values.

use divvy_api::config::DefaultMemory;
use divvy_api::names::annotation::{CARD_POLICY, COMPUTE, NODE_POLICY, NUMA, PRIORITY};
use divvy_api::{Compute, MemoryAmount, ResourceNames};
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::program::Mark::{Annotation, Label, Resource};
use crate::reading::Reading;
use crate::system::Translate;
use crate::values::{MemoryFactor, WholeOrPart};
use crate::{Allocation, Devices, NamedGpus, Output, Part, Program, Refusal, Size, System, Words, wishes};

/// HAMi and 4paradigm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Hami {
    /// What a count alone asks for: whole GPUs, or this part of each (`defaultMem` of its scheduler).
    count_alone: WholeOrPart,
    /// Memory of a request that names cores alone.
    cores_alone: DefaultMemory,
    /// What a pod does with idle compute if it doesn't say so (`GPU_CORE_UTILIZATION_POLICY`).
    compute: Compute,
    /// MiB of one unit of memory (`memoryFactor` of its scheduler's device configuration).
    memory_factor: MemoryFactor,
    /// Whether programs find their limits in the variables that it sets, `CUDA_DEVICE_MEMORY_LIMIT_0` and so on.
    limit_variables: bool,
}

pub(crate) const USE_TYPE: &str = "nvidia.com/use-gputype";
pub(crate) const AVOID_TYPE: &str = "nvidia.com/nouse-gputype";
const USE_UUID: &str = "nvidia.com/use-gpuuuid";
const AVOID_UUID: &str = "nvidia.com/nouse-gpuuuid";
const NUMA_BIND: &str = "nvidia.com/numa-bind";
const NUMA_ALIGNMENT: &str = "hami.io/numa-alignment";
const NODES: &str = "hami.io/node-scheduler-policy";
const CARDS: &str = "hami.io/gpu-scheduler-policy";
const MODE: &str = "nvidia.com/vgpu-mode";
const WEIGHTS: &str = "hami.io/device-scoring-weights";

/// Variables of its library.
const UTILIZATION: &str = "GPU_CORE_UTILIZATION_POLICY";
const DISABLE: &str = "CUDA_DISABLE_CONTROL";
/// One for each GPU, by its number: `CUDA_DEVICE_MEMORY_LIMIT_0`.
const MEMORY_LIMIT: &str = "CUDA_DEVICE_MEMORY_LIMIT";
const CORES_LIMIT: &str = "CUDA_DEVICE_SM_LIMIT";

/// Annotations with the UUIDs of a container's GPUs: of HAMi, of one version of 4paradigm's scheduler, and of the others.
const CHOSEN: &[&str] = &["hami.io/vgpu-devices-allocated", "hami.sh/vgpu-devices-allocated", "4pd.io/vgpu-ids-new"];

pub(crate) const SYSTEM: System = System {
    schedulers: &["hami-scheduler", "4pd-scheduler"],
    words: Words {
        shares_names: true,
        annotations: &[
            USE_TYPE,
            AVOID_TYPE,
            USE_UUID,
            AVOID_UUID,
            NUMA_BIND,
            NUMA_ALIGNMENT,
            NODES,
            CARDS,
            MODE,
            WEIGHTS,
        ],
        opt_outs: &[("hami.io/webhook", "ignore"), ("4pd.io/webhook", "ignore")],
        own_annotations: &[
            "hami.io/vgpu-",
            "hami.io/bind-",
            "hami.io/mutex.",
            "4pd.io/vgpu-",
            "4pd.io/bind-",
            "4pd.io/devices-to-allocate",
        ],
        ..Words::NONE
    },
    // Its priority, which comes with its other resources.
    devices: &[Devices { resources: &["nvidia.com/priority"], gpus: NamedGpus::Nowhere }],
    drawn_ids: CHOSEN,
    outputs: &[LIMIT_VARIABLES],
    // Project-HAMi/HAMi: charts/hami/templates, pkg/device/nvidia/device.go; 4paradigm/k8s-vgpu-scheduler, of which it is the
    // successor. Keys of other vendors (`hami.io/node-handshake-…`) aren't named: their GPUs aren't Divvy's.
    programs: &[Program {
        name: "HAMi or 4paradigm vGPU",
        daemon_sets: &["hami-device-plugin", "hami-mock-device-plugin", "vgpu-device-plugin"],
        marks: &[
            Annotation("hami.io/node-handshake"),
            Annotation("hami.io/node-nvidia-*"),
            Annotation("hami.io/device-cordon"),
            Annotation("4pd.io/node-handshake"),
            Annotation("4pd.io/node-nvidia-*"),
            Resource("nvidia.com/priority"),
        ],
        shared: &[
            Annotation("hami.io/mutex.lock"),
            Annotation("4pd.io/mutex.lock"),
            Label("gpu=on"),
            Resource("nvidia.com/gpumem"),
            Resource("nvidia.com/gpumem-percentage"),
            Resource("nvidia.com/gpucores"),
        ],
        objects: &[
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hami-webhook",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/vgpu-webhook",
        ],
        ..Program::NONE
    }],
    counts_limits: true,
    ..System::new::<Hami>("hami", "HAMi")
};

/// Limits in the variables of its library, `CUDA_DEVICE_MEMORY_LIMIT_<i>` and `CUDA_DEVICE_SM_LIMIT`.
const LIMIT_VARIABLES: Output = Output { name: "limit-variables", variables: limit_variables, annotations: None };

// === impl Hami ===

impl Default for Hami {
    fn default() -> Self {
        Self {
            count_alone: WholeOrPart::Whole,
            cores_alone: DefaultMemory::Amount(MemoryAmount::Percent(100)),
            compute: Compute::Burst,
            memory_factor: MemoryFactor::default(),
            limit_variables: true,
        }
    }
}

impl Translate for Hami {
    fn resources(&self, names: &ResourceNames) -> Vec<String> {
        [Some(priority(names)), names.memory_in_mib().map(str::to_owned)].into_iter().flatten().collect()
    }

    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let names = draft.context.names;
        set_priority(container, draft)?;
        let cards = container.cards(names.count.as_str())?;
        if cards.is_none() && container.0.names(names.count.as_str()) {
            // A count of 0 is none, whatever else is written beside it.
            return Ok(None);
        }
        let memory = memory(container, self.memory_factor, draft)?;
        let cores = match container.count(names.cores.as_str())? {
            Some(cores) if cores > 100 => {
                let field = container.0.field_of(names.cores.as_str());
                draft.warn(format!("{field}: {cores} is taken for 100, as by HAMi: a whole GPU"));
                Some(100)
            }
            cores => cores,
        };
        let policy = container.0.variable(UTILIZATION);
        let is_unlimited = policy.is_some_and(|policy| policy.eq_ignore_ascii_case("disable"));
        // Its webhook adds a GPU where one of these is named and no count, whatever their amounts.
        let unset = [names.memory.as_str(), names.memory_percentage.as_str(), names.cores.as_str()];
        let unset = unset.into_iter().chain(names.memory_in_mib()).find(|name| container.0.names(name));
        Ok(match (cards, memory, cores) {
            (None, None, None) => unset.map(|name| {
                let field = container.0.field_of(name);
                draft.warn(format!("{field}: is no amount, and the container gets a GPU all the same, as with HAMi"));
                self.counted(1)
            }),
            (cards, Some(memory), cores) => {
                let cores = cores.filter(|_| !is_unlimited).unwrap_or(0);
                Some(Part { cards: cards.unwrap_or(1), memory: Some(memory), cores })
            }
            (Some(cards), None, None) => Some(self.counted(cards)),
            (cards, None, Some(cores)) => {
                let memory = self.cores_alone.amount().map_or(Size::Percent(cores), Size::from);
                let cores = if is_unlimited { 0 } else { cores };
                Some(Part { cards: cards.unwrap_or(1), memory: Some(memory), cores })
            }
        })
    }

    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        wishes::set_wanted_models(draft, USE_TYPE, AVOID_TYPE)?;
        wishes::set_cards(draft, USE_UUID, AVOID_UUID)?;
        set_numa(draft)?;
        set_policies(draft)?;
        wishes::set_mode(draft, MODE)?;
        remove_limit_variables(draft);
        if draft.take(WEIGHTS).is_some() {
            draft.warn(format!("annotation {WEIGHTS}: has no effect: Divvy ranks GPUs by divvy.dev/card-policy alone"));
        }
        self.set_compute(draft)?;
        if self.limit_variables && draft.parts().next().is_some() {
            draft.tell(&LIMIT_VARIABLES);
        }
        Ok(())
    }
}

impl Hami {
    /// What a count alone asks for.
    fn counted(&self, cards: u64) -> Part {
        match self.count_alone {
            WholeOrPart::Whole => Part::whole(cards),
            WholeOrPart::Amount(memory) => Part { cards, memory: Some(memory.into()), cores: 0 },
        }
    }

    /// Variables of all containers, which must agree: here it is the pod's.
    fn set_compute(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        let mut wanted = None;
        for (at, container) in draft.pod.containers.iter().enumerate() {
            let field = |name: &str| format!("{}.env {name}", container.field);
            if container.variable(DISABLE) == Some("true") && draft.shares(at) {
                draft
                    .warn(format!("{}: has no effect: nobody but an administrator takes a limit away", field(DISABLE)));
            }
            let compute = match container.variable(UTILIZATION).map(str::to_lowercase).as_deref() {
                Some("default") => Compute::Burst,
                Some("force") => Compute::Cap,
                // Its cores are dropped above.
                Some("disable") | None => continue,
                Some(other) => {
                    let value = crate::reading::shown(other);
                    let problem = "is unknown: expected default, force or disable";
                    return Err(Refusal::Value { field: field(UTILIZATION), value, problem: problem.to_owned() });
                }
            };
            if wanted.replace((compute, field(UTILIZATION))).is_some_and(|(before, _)| before != compute) {
                let problem = "is not what another container says, and a pod has one policy".to_owned();
                return Err(Refusal::Value { field: field(UTILIZATION), value: compute.as_str().to_owned(), problem });
            }
        }
        if !draft.requests_gpus() {
            return Ok(());
        }
        let (compute, source) = wanted.map_or((self.compute, None), |(compute, field)| (compute, Some(field)));
        match (compute, draft.context.is_favoured, source) {
            (Compute::Burst, _, Some(source)) => wishes::set_idle_compute(draft, COMPUTE, "burst", &source)?,
            (Compute::Burst, true, None) => draft.set_default(COMPUTE, "burst"),
            // Nobody has asked for it, and compute is capped unless somebody does.
            (Compute::Burst, false, None) | (Compute::Cap, ..) => {}
        }
        Ok(())
    }
}

/// 0 and 101 percent are no percentage there, and an amount outdoes one.
fn memory(container: Reading<'_>, factor: MemoryFactor, draft: &mut Draft<'_>) -> Result<Option<Size>, Refusal> {
    let in_mib = |name: &str| in_mib(container, name, factor);
    let names = draft.context.names;
    let percentage = names.memory_percentage.as_str();
    let (absolute, amount) = match names.memory_in_mib() {
        None => (names.memory.as_str(), in_mib(names.memory.as_str())?),
        Some(theirs) => match (container.count(names.memory.as_str())?, in_mib(theirs)?) {
            (Some(_), Some(_)) => {
                let [first, second] = [names.memory.as_str(), theirs].map(|name| container.0.field_of(name));
                return Err(Refusal::Twice { first, second });
            }
            (None, mib) => (theirs, mib),
            (units, None) => {
                (names.memory.as_str(), units.map(|units| units.saturating_mul(names.memory_unit.as_mib())))
            }
        },
    };
    let amount = amount.map(|mib| container.mib(absolute, mib)).transpose()?;
    let percent = container.count(percentage)?.filter(|percent| *percent != 101);
    if percent.is_some_and(|percent| percent > 100) {
        return Err(container.refuse(percentage, "is more than all memory of a GPU: set 1 to 100"));
    }
    if amount.is_some() && percent.is_some() {
        let field = container.0.field_of(percentage);
        draft.warn(format!("{field}: has no effect beside {absolute}, as with HAMi"));
    }
    Ok(amount.or(percent.map(Size::Percent)))
}

/// Memory in units of so many MiB, unless it says its unit: `3Gi`.
fn in_mib(container: Reading<'_>, name: &str, factor: MemoryFactor) -> Result<Option<u64>, Refusal> {
    let has_unit = container.text(name)?.is_some_and(|text| text.ends_with('i'));
    let factor = if has_unit { 1 } else { factor.mib() };
    Ok(container.memory_in_mib(name)?.map(|amount| amount.saturating_mul(factor)))
}

/// As its device plugin writes them (`pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go`), without its cache file.
fn limit_variables(allocation: &Allocation<'_>) -> Vec<(String, String)> {
    let mib = allocation.shares.iter().map(|allocated| allocated.share.memory.as_mib());
    let memory = mib.enumerate().map(|(at, mib)| (format!("{MEMORY_LIMIT}_{at}"), format!("{mib}m")));
    let cores = allocation.shares.first().map(|first| (CORES_LIMIT.to_owned(), first.share.cores.to_string()));
    memory.chain(cores).collect()
}

/// Takes out limits that an author has written for its library, which is Volcano's too: they limit nothing here, and would hide
/// the true ones, which the node sets, from programs that read them.
pub(crate) fn remove_limit_variables(draft: &mut Draft<'_>) {
    if !draft.requests_gpus() {
        return;
    }
    let is_limit = |name: &&String| name.starts_with(MEMORY_LIMIT) || *name == CORES_LIMIT;
    for (at, container) in draft.pod.containers.iter().enumerate() {
        for name in container.variables.keys().filter(is_limit) {
            let field = &container.field;
            draft.warn(format!("{field}.env {name}: removed: it limits nothing; the container's limits do"));
            draft.remove_variable(at, name);
        }
    }
}

/// Resource for the order on a shared GPU.
fn priority(names: &ResourceNames) -> String {
    format!("{}/priority", names.count.domain())
}

/// 0 goes first there; it is the container's, and here the pod's.
fn set_priority(container: Reading<'_>, draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let name = priority(draft.context.names);
    let Some(text) = container.text(&name)? else { return Ok(()) };
    let field = container.0.field_of(&name);
    match text {
        "0" if draft.context.is_favoured => draft.set(PRIORITY, "high", &field),
        "0" => {
            draft.warn(format!(
                "{field}: not kept: the namespace is not in favouredNamespaces, so its pods go before no others"
            ));
            Ok(())
        }
        "1" => draft.set(PRIORITY, "low", &field),
        _ => Err(container.refuse(&name, "is unknown: expected 0 for high or 1 for low")),
    }
}

fn set_numa(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let bind = match draft.take(NUMA_BIND) {
        Some("true") => Some("strict"),
        None | Some("false" | "") => None,
        Some(_) => return Err(draft.refuse(NUMA_BIND, "is unknown: expected true or false")),
    };
    let alignment = match draft.take(NUMA_ALIGNMENT) {
        None | Some("none" | "") => None,
        Some("best-effort") => Some("prefer"),
        Some("strict") => Some("strict"),
        Some(_) => return Err(draft.refuse(NUMA_ALIGNMENT, "is unknown: expected best-effort or strict")),
    };
    for (key, numa) in [(NUMA_BIND, bind), (NUMA_ALIGNMENT, alignment)] {
        if let Some(numa) = numa {
            draft.set(NUMA, numa, &format!("annotation {key}"))?;
        }
    }
    Ok(())
}

fn set_policies(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    match draft.take(NODES) {
        None | Some("") => {}
        Some(policy @ ("binpack" | "spread")) => draft.set(NODE_POLICY, policy, &format!("annotation {NODES}"))?,
        Some(_) => return Err(draft.refuse(NODES, "is unknown: expected binpack or spread")),
    }
    let Some(policies) = draft.take(CARDS) else { return Ok(()) };
    let source = format!("annotation {CARDS}");
    let chain: Vec<&str> = policies.split(',').map(str::trim).collect();
    // No order of GPUs, but a GPU that nobody uses: a whole one.
    if chain.contains(&"mutex") && draft.parts().any(|part| !part.is_alone()) {
        return Err(draft.refuse(CARDS, "mutex has no counterpart: request whole GPUs for a pod that shares with none"));
    }
    let mut orders = chain.into_iter().filter(|policy| *policy != "mutex");
    let first = orders.next().unwrap_or_default();
    if orders.next().is_some() {
        draft.warn(format!("{source}: only the first of several, {}, has an effect", crate::reading::shown(first)));
    }
    match first {
        "" => Ok(()),
        "binpack" | "spread" => draft.set(CARD_POLICY, first, &source),
        "topology-aware" => draft.set(CARD_POLICY, "topology", &source),
        "numa" => draft.set(NUMA, "prefer", &source),
        _ => Err(draft.refuse(CARDS, "is unknown: expected binpack, spread, topology-aware, numa or mutex")),
    }
}

#[cfg(test)]
mod tests;
