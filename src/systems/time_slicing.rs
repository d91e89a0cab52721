//! NVIDIA's device plugin with `sharing`: time-slicing and MPS.

use divvy_api::names::annotation::TIER;
use divvy_api::{ResourceName, ResourceNames};
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::program::Mark::Label;
use crate::reading::Reading;
use crate::system::Translate;
use crate::{Devices, NamedGpus, Part, Program, Refusal, RequiredSetting, Size, System};

/// Replicas of NVIDIA's plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TimeSlicing {
    /// How many of them a GPU has: `replicas` of the plugin's configuration.
    replicas: Replicas,
    /// What they are called: `nvidia.com/gpu.shared`, or without `renameByDefault` the name of whole GPUs.
    #[serde(default = "shared")]
    resource: ResourceName,
    /// By what they share it.
    #[serde(default)]
    sharing: Sharing,
}

/// 2 to 100: a part is at least 1 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub(crate) struct Replicas(u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sharing {
    /// No limit of memory or compute there.
    #[default]
    TimeSlicing,
    /// Equal parts of memory and compute.
    Mps,
}

fn shared() -> ResourceName {
    REPLICA.parse().expect("a qualified name")
}

/// Replicas as the plugin calls them by default.
const REPLICA: &str = "nvidia.com/gpu.shared";

pub(crate) const SYSTEM: System = System {
    devices: &[Devices { resources: &["nvidia.com/gpu", REPLICA, "nvidia.com/mig-*"], gpus: NamedGpus::InIds }],
    // NVIDIA/k8s-device-plugin: deployments/static, deployments/helm. Feature discovery stays beside Divvy; in the chart its
    // DaemonSet has another ending.
    programs: &[Program {
        name: "NVIDIA's device plugin",
        daemon_sets: &["nvidia-device-plugin", "nvidia-device-plugin-daemonset", "mps-control-daemon"],
        marks: &[Label("nvidia.com/device-plugin.config"), Label("nvidia.com/mps.capable=true")],
        only_beside_divvy: true,
        ..Program::NONE
    }],
    required: Some(RequiredSetting {
        resource: REPLICA,
        example: "replicas: N",
        unknown: "how many replicas a GPU has",
        hint: "the label nvidia.com/gpu.replicas of a Node may say N",
    }),
    ..System::new::<TimeSlicing>("time-slicing", "time-slicing")
};

// === impl TimeSlicing ===

impl Translate for TimeSlicing {
    fn resources(&self, names: &ResourceNames) -> Vec<String> {
        if self.reads_our_names(names) { Vec::new() } else { vec![self.resource.to_string()] }
    }

    fn reads_our_names(&self, names: &ResourceNames) -> bool {
        self.resource == names.count
    }

    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        let names = draft.context.names;
        let amounts = [&names.memory, &names.memory_percentage, &names.cores];
        if let Some(amount) = amounts.into_iter().find(|name| container.0.names(name.as_str())) {
            let problem =
                format!("has no place in a replica of {}: {} parts of a GPU are equal", self.resource, self.replicas.0);
            return Err(container.refuse(amount.as_str(), problem));
        }
        let Some(cards) = container.cards(self.resource.as_str())? else { return Ok(None) };
        if cards > 1 {
            let field = container.0.field_of(self.resource.as_str());
            draft.warn(format!("{field}: parts of {cards} GPUs: with NVIDIA's plugin they could all be of one"));
        }
        let part = 100 / self.replicas.0;
        let cores = match self.sharing {
            Sharing::TimeSlicing => 0,
            Sharing::Mps => part,
        };
        Ok(Some(Part { cards, memory: Some(Size::Percent(part)), cores }))
    }

    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        if self.sharing == Sharing::Mps && draft.parts().next().is_some() {
            draft.set_default(TIER, "mps");
        }
        Ok(())
    }
}

// === impl Replicas ===

impl TryFrom<u64> for Replicas {
    type Error = String;

    fn try_from(replicas: u64) -> Result<Self, String> {
        if (2..=100).contains(&replicas) {
            Ok(Self(replicas))
        } else {
            Err(format!("{replicas} replicas: expected 2 to 100"))
        }
    }
}

impl From<Replicas> for u64 {
    fn from(Replicas(replicas): Replicas) -> Self {
        replicas
    }
}

#[cfg(test)]
mod tests;
