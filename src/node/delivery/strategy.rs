//! How a container is told, and given, its cards: the strategies of NVIDIA's plugin, by its names.

use std::collections::BTreeSet;

use divvy_api::CardId;
use divvy_api::container::{DEVICES_AS_MOUNTS, VISIBLE_DEVICES};
use divvy_proto::deviceplugin::{CdiDevice, ContainerAllocateResponse, Mount};
use serde::{Deserialize, Serialize};

use super::cdi;
use crate::config::List;

/// The source of each card that is given as a mount.
const NOTHING: &str = "/dev/null";

/// One way; several can be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// UUIDs in a variable, which any image or pod can set too.
    Envvar,
    /// UUIDs as mounts, which a pod can't make: the toolkit must be told to read them.
    VolumeMounts,
    /// CDI names in an annotation of the container.
    CdiAnnotations,
    /// CDI names in the kubelet's own field.
    CdiCri,
}

/// `deviceListStrategy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "List<String>", into = "String")]
pub enum Choice {
    /// `cdi-cri` where it can work, else `volume-mounts`.
    Auto,
    /// These, come what may.
    These(BTreeSet<Strategy>),
}

/// What is used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Strategies {
    /// In effect now.
    pub active: BTreeSet<Strategy>,
    /// What they were chosen for.
    pub reason: String,
    /// Whether a pod can name cards that it wasn't given.
    pub bypassable: bool,
}

/// Adds to the answer what each strategy needs. `key` makes the annotation's key unique among a container's.
pub(super) fn deliver(
    strategies: &BTreeSet<Strategy>,
    cards: &[&CardId],
    annotation_prefix: &str,
    key: &str,
    answer: &mut ContainerAllocateResponse,
) {
    let joined = |name: &dyn Fn(&CardId) -> String| cards.iter().map(|card| name(card)).collect::<Vec<_>>().join(",");
    // In this order: of two that set the variable the later one wins, as in NVIDIA's plugin.
    for strategy in strategies {
        match strategy {
            Strategy::Envvar => {
                answer.envs.insert(VISIBLE_DEVICES.to_owned(), joined(&CardId::to_string));
            }
            Strategy::VolumeMounts => {
                answer.envs.insert(VISIBLE_DEVICES.to_owned(), DEVICES_AS_MOUNTS.to_owned());
                answer.mounts.extend(cards.iter().map(|card| Mount {
                    container_path: format!("{DEVICES_AS_MOUNTS}/{card}"),
                    host_path: NOTHING.to_owned(),
                    read_only: false,
                }));
            }
            Strategy::CdiAnnotations => {
                answer.annotations.insert(format!("{annotation_prefix}divvy-node_{key}"), joined(&cdi::qualified));
            }
            Strategy::CdiCri => {
                answer.cdi_devices.extend(cards.iter().map(|card| CdiDevice { name: cdi::qualified(card) }));
            }
        }
    }
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
    pub(super) fn is_cdi(self) -> bool {
        matches!(self, Self::CdiAnnotations | Self::CdiCri)
    }
}

// === impl Choice ===

impl TryFrom<List<String>> for Choice {
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

impl From<Choice> for String {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Auto => "auto".to_owned(),
            Choice::These(strategies) => strategies.into_iter().map(Strategy::as_str).collect::<Vec<_>>().join(","),
        }
    }
}

// === impl Strategies ===

impl Strategies {
    pub(super) fn new(active: BTreeSet<Strategy>, reason: String) -> Self {
        let bypassable = active.contains(&Strategy::Envvar);
        Self { active, reason, bypassable }
    }
}
