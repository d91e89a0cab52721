//! `GpuQuota`: how much the pods of a namespace may hold of GPUs of some models. Administrators write it; it has no status.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use crate::gpunode::without_integer_format;
use crate::quantity::{Cores, Memory, QuantityError, parse_memory};
use crate::request::Totals;
use crate::share::Share;

/// Limits on what the pods of the namespace hold of GPUs of some models.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "divvy.dev",
    version = "v1alpha1",
    kind = "GpuQuota",
    plural = "gpuquotas",
    shortname = "gq",
    category = "divvy",
    namespaced,
    derive = "Default",
    doc = "How much the pods of a namespace may hold of GPUs of some models",
    printcolumn = r#"{"name":"Models","type":"string","jsonPath":".spec.models"}"#,
    printcolumn = r#"{"name":"GPUs","type":"integer","jsonPath":".spec.hard.gpu"}"#,
    printcolumn = r#"{"name":"Memory","type":"string","jsonPath":".spec.hard.gpumem"}"#,
    printcolumn = r#"{"name":"Percentage","type":"integer","jsonPath":".spec.hard.gpumem-percentage"}"#,
    printcolumn = r#"{"name":"Cores","type":"integer","jsonPath":".spec.hard.gpucores"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[schemars(transform = RecursiveTransform(without_integer_format))]
pub struct GpuQuotaSpec {
    /// Models that count, as in the annotation `divvy.dev/card-model`: words of a name, `=` and a whole name, or a name with
    /// `*` for any text. Together they are one class: what is held of any of them counts. None: all models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = r"^[^,]*[^,\s][^,]*$")))]
    pub models: Vec<String>,
    /// The most that all pods of the namespace hold of such GPUs together. What isn't named isn't limited.
    #[schemars(extend("minProperties" = 1))]
    pub hard: HardLimits,
}

/// Amounts as pods hold them, in whatever form they request them: of a whole GPU all its memory, 100 percent and 100 cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HardLimits {
    /// GPUs, each counted once for each container that has a part of it, as `nvidia.com/gpu` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u64>,
    /// Memory: MiB, or a binary suffix as in `160Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k)?$", "minimum" = 0))]
    pub gpumem: Option<IntOrString>,
    /// Memory in percent of a GPU; 400 are four GPUs.
    #[serde(rename = "gpumem-percentage", default, skip_serializing_if = "Option::is_none")]
    pub percentage: Option<u64>,
    /// Compute in percent of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpucores: Option<u64>,
}

/// An amount that is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    /// `gpu`.
    Count,
    /// `gpumem`, in MiB.
    Memory,
    /// `gpumem-percentage`.
    Percentage,
    /// `gpucores`.
    Cores,
}

/// The most of each amount; `None` where it isn't limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits([Option<u64>; 4]);

// === impl GpuQuotaSpec ===

impl GpuQuotaSpec {
    /// The limits as numbers. The error names the field by which the quota would limit nothing, or something else than meant:
    /// an object that is older than the schema's rules, or was pruned, may have any.
    pub fn limits(&self) -> Result<Limits, String> {
        let is_no_model = |model: &&String| model.trim().is_empty() || model.contains(',');
        if let Some(model) = self.models.iter().find(is_no_model) {
            return Err(format!("spec.models: \"{model}\" is not one model: write each as an item of its own"));
        }
        let limits = self.hard.limits().map_err(|error| format!("spec.hard.gpumem: {error}"))?;
        if limits == Limits::default() {
            return Err("spec.hard: limits nothing: set gpu, gpumem, gpumem-percentage or gpucores".to_owned());
        }
        Ok(limits)
    }
}

// === impl HardLimits ===

impl HardLimits {
    fn limits(&self) -> Result<Limits, QuantityError> {
        let memory = self.gpumem.as_ref().map(|memory| match memory {
            IntOrString::Int(mib) => u64::try_from(*mib).map_err(|_sign| QuantityError::OutOfRange(mib.to_string())),
            IntOrString::String(text) => parse_memory(text).map(Memory::as_mib),
        });
        Ok(Limits([self.gpu, memory.transpose()?, self.percentage, self.gpucores]))
    }
}

// === impl Amount ===

impl Amount {
    /// All amounts, in the order of [`HardLimits`].
    pub const ALL: [Self; 4] = [Self::Count, Self::Memory, Self::Percentage, Self::Cores];

    /// Key in `spec.hard`.
    pub fn key(self) -> &'static str {
        ["gpu", "gpumem", "gpumem-percentage", "gpucores"][self as usize]
    }

    /// This amount in these totals.
    pub fn in_totals(self, totals: &Totals) -> u64 {
        [totals.count, totals.memory, totals.percent, totals.cores][self as usize]
    }

    /// The amount as people write it: memory with a suffix.
    pub fn text(self, amount: u64) -> String {
        if self == Self::Memory { Memory::mib(amount).to_string() } else { amount.to_string() }
    }
}

// === impl Limits ===

impl Limits {
    /// The limit of an amount, if it has one.
    pub fn limit(&self, amount: Amount) -> Option<u64> {
        self.0[amount as usize]
    }
}

/// What a share of a GPU with so much physical memory counts, held by so many containers. A GPU that nobody else can hold a
/// share of counts in full.
pub fn counted(share: &Share, memory: Memory, containers: u32) -> Totals {
    let count = containers.into();
    if share.exclusive {
        return Totals { count, memory: memory.as_mib(), percent: 100, cores: Cores::FULL.units().into() };
    }
    let percent = (u128::from(share.memory.as_mib()) * 100).div_ceil(u128::from(memory.as_mib().max(1)));
    let percent = u64::try_from(percent).unwrap_or(u64::MAX);
    Totals { count, memory: share.memory.as_mib(), percent, cores: share.cores.units().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(hard: &str) -> Result<Limits, QuantityError> {
        serde_json::from_str::<HardLimits>(hard).expect("limits").limits()
    }

    #[test]
    fn limits_are_read_as_requests_are() {
        let read = limits(r#"{"gpu":4,"gpumem":"160Gi","gpumem-percentage":400}"#).expect("amounts");
        assert_eq!(Amount::ALL.map(|amount| read.limit(amount)), [Some(4), Some(160 << 10), Some(400), None]);
        assert_eq!(limits(r#"{"gpumem":3000}"#).expect("MiB").limit(Amount::Memory), Some(3000));
        assert_eq!(limits("{}").expect("none"), Limits::default());
        for (hard, named) in [(r#"{"gpumem":"8G"}"#, "did you mean \"8Gi\""), (r#"{"gpumem":-1}"#, "\"-1\" is out")] {
            let error = limits(hard).expect_err(hard).to_string();
            assert!(error.contains(named), "{error}");
        }
        assert!(serde_json::from_str::<HardLimits>(r#"{"gpus":4}"#).is_err(), "a limit that limits nothing");
    }

    #[test]
    fn a_quota_that_would_limit_nothing_is_an_error() {
        let read = |spec: &str| serde_json::from_str::<GpuQuotaSpec>(spec).expect("a spec").limits();
        assert!(read(r#"{"models":["A100","=NVIDIA H100 80GB HBM3"],"hard":{"gpu":0}}"#).is_ok());
        for (spec, named) in [
            (r#"{"hard":{}}"#, "spec.hard: limits nothing"),
            (r#"{"hard":{"gpu":null}}"#, "spec.hard: limits nothing"),
            (r#"{"models":["A100,H100"],"hard":{"gpu":1}}"#, "spec.models: \"A100,H100\" is not one model"),
            (r#"{"models":["T4"," "],"hard":{"gpu":1}}"#, "spec.models: \" \" is not one model"),
            (r#"{"hard":{"gpumem":"8G"}}"#, "spec.hard.gpumem: "),
        ] {
            let error = read(spec).expect_err(spec);
            assert!(error.starts_with(named), "{error}");
        }
    }

    #[test]
    fn share_counts_in_every_amount() {
        let part = Share { memory: Memory::mib(27_033), cores: Cores::new(30), ..Share::default() };
        let card = Memory::mib(81_920);
        assert_eq!(counted(&part, card, 2), Totals { count: 2, memory: 27_033, percent: 33, cores: 30 });
        let whole = Share { memory: Memory::mib(8192), exclusive: true, ..Share::default() };
        assert_eq!(counted(&whole, card, 1), Totals { count: 1, memory: 81_920, percent: 100, cores: 100 });
    }
}
