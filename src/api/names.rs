//! Names of resources and annotations.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card_id::MigProfile;
use crate::quantity::Memory;

/// Prefix of every annotation that Divvy reads or writes.
pub const PREFIX: &str = "divvy.dev/";

/// Annotation keys.
pub mod annotation {
    /// Models that will do, comma separated: words of a name, `=` and a whole name, or a name with `*` for any text.
    pub const CARD_MODEL: &str = "divvy.dev/card-model";
    /// Models that won't do.
    pub const AVOID_CARD_MODEL: &str = "divvy.dev/avoid-card-model";
    /// Cards that will do, by UUID.
    pub const CARD_UUID: &str = "divvy.dev/card-uuid";
    /// Cards that won't do, by UUID.
    pub const AVOID_CARD_UUID: &str = "divvy.dev/avoid-card-uuid";
    /// Policy for the choice of the node.
    pub const NODE_POLICY: &str = "divvy.dev/node-policy";
    /// Policy for the choice of cards on the node.
    pub const CARD_POLICY: &str = "divvy.dev/card-policy";
    /// `strict` or `prefer`.
    pub const NUMA: &str = "divvy.dev/numa";
    /// At least this tier.
    pub const TIER: &str = "divvy.dev/tier";
    /// `cap` or `burst`.
    pub const COMPUTE: &str = "divvy.dev/compute";
    /// Percent of a GPU's compute that a container that may use idle compute has at most.
    pub const COMPUTE_LIMIT: &str = "divvy.dev/compute-limit";
    /// `high` or `low`.
    pub const PRIORITY: &str = "divvy.dev/priority";
    /// `true`: a part of the memory may be host memory.
    pub const OVERSUBSCRIBE: &str = "divvy.dev/oversubscribe";
    /// `true`: all containers' requests are of one GPU.
    pub const SAME_CARD: &str = "divvy.dev/same-card";
    /// Output of the webhook: the normalised requests.
    pub const REQUEST: &str = "divvy.dev/request";
    /// Output of the webhook: what the pod's author wrote in another system's words.
    pub const DIALECT: &str = "divvy.dev/dialect";
    /// Output of the webhook: hints which nodes fit.
    pub const NODE_FIT: &str = "divvy.dev/node-fit";
    /// Output of the webhook's leader: cards for every container.
    pub const PLANNED: &str = "divvy.dev/planned";
    /// Output of the daemon: what each container got.
    pub const CARDS: &str = "divvy.dev/cards";
    /// Output of the webhook's leader, on a Node: changes after a release, which wakes pods that its extender rejected.
    pub const GENERATION: &str = "divvy.dev/generation";
    /// Output of the daemon, on its Node: the labels that are its own.
    pub const LABELS: &str = "divvy.dev/labels";

    /// What the author of a pod may write.
    pub const INPUTS: [&str; 13] = [
        CARD_MODEL,
        AVOID_CARD_MODEL,
        CARD_UUID,
        AVOID_CARD_UUID,
        NODE_POLICY,
        CARD_POLICY,
        NUMA,
        TIER,
        COMPUTE,
        COMPUTE_LIMIT,
        PRIORITY,
        OVERSUBSCRIBE,
        SAME_CARD,
    ];
    /// What Divvy writes on a pod, and nobody else.
    pub const OUTPUTS: [&str; 5] = [REQUEST, DIALECT, NODE_FIT, PLANNED, CARDS];
}

/// Types of conditions of pods.
pub mod condition {
    /// Written by the webhook's leader, false with the reason while a pod with the gate fits nowhere.
    pub const PLACED: &str = "divvy.dev/Placed";
}

/// Scheduling gate of a pod that the webhook's leader still has to plan.
pub const GATE: &str = "divvy.dev/placement";

/// Label of GPU feature discovery for a Node's NVLink domain and clique: `<clusterUUID>.<cliqueId>`.
pub const CLIQUE: &str = "nvidia.com/gpu.clique";

/// Labels of namespaces, each with the value `true`.
pub mod label {
    /// Pods of the namespace see no GPU unless they request one.
    pub const HIDE_GPUS: &str = "divvy.dev/hide-gpus";
    /// Templates of Jobs in the namespace are completed as their pods are.
    pub const COMPLETE_JOBS: &str = "divvy.dev/complete-jobs";
}

/// Taints of effect `PreferNoSchedule` that keep pods without GPUs off nodes where pods with GPUs will need the CPU.
pub mod taint {
    /// On nodes with GPU capacity that expected requests can use.
    pub const FREE_GPUS: &str = "divvy.dev/free-gpus";
    /// On those of them whose CPU such requests will need.
    pub const CPU_FOR_GPUS: &str = "divvy.dev/cpu-for-gpus";
    /// Keys in the order in which a node gets them: kube-scheduler counts taints (`TaintToleration`).
    pub const SOFT: [&str; 2] = [FREE_GPUS, CPU_FOR_GPUS];
    /// Effect of these taints.
    pub const EFFECT: &str = "PreferNoSchedule";

    /// Whether a taint of this key and effect is one of them.
    #[must_use]
    pub fn is_soft(key: &str, effect: &str) -> bool {
        effect == EFFECT && SOFT.contains(&key)
    }
}

/// The four resources that a request is written in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResourceNames {
    /// Number of distinct cards.
    pub count: ResourceName,
    /// Memory of each card, in units of `memory_unit`.
    pub memory: ResourceName,
    /// 1 MiB; larger where every unit is a device of the device-plugin API, and `memory` is named after it.
    pub memory_unit: Memory,
    /// Memory of each card in percent.
    pub memory_percentage: ResourceName,
    /// Compute of each card in percent.
    pub cores: ResourceName,
}

/// An extended resource's name: `domain/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceName(String);

/// A text that the API server would not take as an extended resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not an extended resource: expected domain/name, the domain outside kubernetes.io, the name of at most 63 letters, digits, '-', '_' or '.'"
)]
pub struct BadResourceName(String);

// === impl ResourceNames ===

impl Default for ResourceNames {
    fn default() -> Self {
        let stock = |name: &str| ResourceName(format!("nvidia.com/{name}"));
        Self {
            count: stock("gpu"),
            memory: stock("gpumem"),
            memory_unit: Memory::mib(1),
            memory_percentage: stock("gpumem-percentage"),
            cores: stock("gpucores"),
        }
    }
}

impl ResourceNames {
    /// These names, with memory counted in coarse units under a name that says so: `nvidia.com/gpumem-256mi`. An error
    /// if that is too long for a name.
    pub fn in_units(self, unit: Memory) -> Result<Self, BadResourceName> {
        let memory = format!("{}-{}mi", self.memory, unit.as_mib()).parse()?;
        Ok(Self { memory, memory_unit: unit, ..self })
    }

    /// The resource that counts MIG instances of one profile, in the domain of [`count`](Self::count):
    /// `nvidia.com/mig-1g.10gb`, the name that NVIDIA's plugin uses.
    pub fn of_profile(&self, profile: &MigProfile) -> ResourceName {
        ResourceName(format!("{}/mig-{}", self.count.domain(), profile.resource_text()))
    }

    /// The resource that counts instances of the profile, or, without one, cards.
    pub fn counting(&self, profile: Option<&MigProfile>) -> ResourceName {
        profile.map_or_else(|| self.count.clone(), |profile| self.of_profile(profile))
    }

    /// Whether memory is counted in devices, a unit each.
    pub fn counts_memory_in_devices(&self) -> bool {
        self.memory_unit > Memory::mib(1)
    }

    /// The resource that would count memory in MiB, where memory is counted in devices: the same name without the unit, which
    /// nobody offers.
    pub fn memory_in_mib(&self) -> Option<&str> {
        let unit = format!("-{}mi", self.memory_unit.as_mib());
        self.memory.as_str().strip_suffix(&unit).filter(|_| self.counts_memory_in_devices())
    }

    /// Whether requests are written in this resource.
    pub fn is_ours(&self, resource: &str) -> bool {
        let amounts = [&self.memory, &self.memory_percentage, &self.cores];
        amounts.iter().any(|name| name.as_str() == resource) || self.counts_cards(resource)
    }

    /// Whether this resource counts cards, of whatever kind.
    pub fn counts_cards(&self, resource: &str) -> bool {
        resource == self.count.as_str() || self.profile(resource).is_some()
    }

    /// The profile whose instances this resource counts, if it is one of those.
    pub fn profile(&self, resource: &str) -> Option<MigProfile> {
        let profile = resource.split_once("/mig-")?.1.parse().ok()?;
        (self.of_profile(&profile).as_str() == resource).then_some(profile)
    }
}

// === impl ResourceName ===

impl ResourceName {
    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands before the slash.
    pub fn domain(&self) -> &str {
        self.0.split_once('/').map_or("", |(domain, _)| domain)
    }
}

impl FromStr for ResourceName {
    type Err = BadResourceName;

    /// `IsExtendedResourceName` of Kubernetes' `pkg/apis/core/v1/helper`: a qualified name with `requests.` in front.
    fn from_str(text: &str) -> Result<Self, BadResourceName> {
        let refused = || BadResourceName(text.to_owned());
        let (domain, name) = text.split_once('/').ok_or_else(refused)?;
        let plain = |c: char| c.is_ascii_alphanumeric();
        let framed = |part: &str| part.starts_with(plain) && part.ends_with(plain);
        let domain_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let domain_legal = domain.len() <= 253 - "requests.".len()
            && domain.split('.').all(|label| framed(label) && label.chars().all(domain_char));
        let name_legal = name.len() <= 63 && framed(name) && name.chars().all(|c| plain(c) || "-_.".contains(c));
        let reserved =
            domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") || domain.starts_with("requests.");
        if domain_legal && name_legal && !reserved { Ok(Self(text.to_owned())) } else { Err(refused()) }
    }
}

impl TryFrom<String> for ResourceName {
    type Error = BadResourceName;

    fn try_from(text: String) -> Result<Self, BadResourceName> {
        text.parse()
    }
}

impl From<ResourceName> for String {
    fn from(name: ResourceName) -> Self {
        name.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_a_resource_in_the_domain_of_the_cards() {
        let names = ResourceNames { count: "example.com/card".parse().expect("valid"), ..ResourceNames::default() };
        let name = names.of_profile(&"1g.10gb+me".parse().expect("valid"));
        assert_eq!(name.as_str(), "example.com/mig-1g.10gb.me");
        assert_eq!(names.profile(name.as_str()), "1g.10gb+me".parse().ok());
        for other in ["example.com/card", "example.com/mig-", "example.com/mig-1g", "nvidia.com/mig-1g.10gb"] {
            assert_eq!(names.profile(other), None, "{other}");
        }
        let longest = format!("1g.10gb+{}", "a".repeat(51)).parse().expect("the longest profile");
        let name = names.of_profile(&longest);
        assert_eq!(name.as_str().parse().as_ref(), Ok(&name), "it is a name that the API server takes");
    }

    #[test]
    fn requests_are_written_in_these_resources_and_no_others() {
        let names = ResourceNames::default();
        for ours in ["gpu", "gpumem", "gpumem-percentage", "gpucores", "mig-1g.10gb"] {
            assert!(names.is_ours(&format!("nvidia.com/{ours}")), "{ours}");
        }
        for other in ["cpu", "nvidia.com/gpu.shared", "nvidia.com/mig-new", "example.com/gpu"] {
            assert!(!names.is_ours(other), "{other}");
        }
    }

    #[test]
    fn resource_names_follow_the_api_server() {
        for good in ["nvidia.com/gpu", "a/b", "aliyun.com/gpu-mem", "x.y/Gpu_1.0"] {
            assert_eq!(good.parse::<ResourceName>().expect(good).as_str(), good);
        }
        for bad in
            ["gpu", "/gpu", "a/", "a/b/c", "kubernetes.io/gpu", "x.kubernetes.io/a", "requests.a/b", "A/b", "a/-b"]
        {
            assert!(bad.parse::<ResourceName>().is_err(), "{bad}");
        }
    }
}
