//! `deviceListStrategy`: how a container is given its GPUs, by the names of NVIDIA's plugin.

use std::collections::BTreeSet;

use divvy_runtime::settings::List;
use serde::{Deserialize, Serialize};

/// One strategy; several can be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// UUIDs in a variable, which any image or pod can set too.
    Envvar,
    /// UUIDs as mounts, which a pod can't make: the toolkit must be configured to read them.
    VolumeMounts,
    /// CDI names in an annotation of the container.
    CdiAnnotations,
    /// CDI names in the kubelet's own field.
    CdiCri,
}

/// `deviceListStrategy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "List<String>", into = "String")]
pub enum DeviceListStrategy {
    /// `cdi-cri` where it can work, else `volume-mounts`.
    Auto,
    /// These, whether or not they can work.
    These(BTreeSet<Strategy>),
}

// === impl Strategy ===

impl Strategy {
    const ALL: [Self; 4] = [Self::Envvar, Self::VolumeMounts, Self::CdiAnnotations, Self::CdiCri];

    /// The name that configuration and metrics use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Envvar => "envvar",
            Self::VolumeMounts => "volume-mounts",
            Self::CdiAnnotations => "cdi-annotations",
            Self::CdiCri => "cdi-cri",
        }
    }

    /// Whether the CDI specification is needed.
    pub fn is_cdi(self) -> bool {
        matches!(self, Self::CdiAnnotations | Self::CdiCri)
    }
}

// === impl DeviceListStrategy ===

impl TryFrom<List<String>> for DeviceListStrategy {
    type Error = String;

    fn try_from(List(names): List<String>) -> Result<Self, String> {
        const ALLOWED: &str = "expected auto alone, or any of envvar, volume-mounts, cdi-annotations and cdi-cri";
        if names.as_slice() == ["auto"] {
            return Ok(Self::Auto);
        }
        if names.is_empty() {
            return Err(format!("no strategy: {ALLOWED}"));
        }
        let find = |name: String| match Strategy::ALL.into_iter().find(|strategy| strategy.as_str() == name) {
            Some(strategy) => Ok(strategy),
            None => Err(format!("\"{name}\" is not a strategy that can stand here: {ALLOWED}")),
        };
        names.into_iter().map(find).collect::<Result<_, _>>().map(Self::These)
    }
}

impl From<DeviceListStrategy> for String {
    fn from(choice: DeviceListStrategy) -> Self {
        match choice {
            DeviceListStrategy::Auto => "auto".to_owned(),
            DeviceListStrategy::These(strategies) => {
                strategies.into_iter().map(Strategy::as_str).collect::<Vec<_>>().join(",")
            }
        }
    }
}
