//! Device list strategies: how a container is given its GPUs. Names are those of NVIDIA's device plugin.

use std::collections::BTreeSet;

use divvy_api::CardId;
use divvy_api::container::{DEVICES_AS_MOUNTS, VISIBLE_DEVICES};
use divvy_node_core::ports::{ContainerResponse, Mount};
use serde::Serialize;

use super::cdi;
use crate::config::Strategy;

/// Prefix of CDI annotations, from the CDI specification.
const ANNOTATION_PREFIX: &str = "cdi.k8s.io/";
/// Host path of each mount that names a GPU.
const NOTHING: &str = "/dev/null";

/// Strategies in effect, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Strategies {
    /// In effect now.
    pub active: BTreeSet<Strategy>,
    /// Why these were chosen.
    pub reason: String,
    /// Whether a pod can name cards that it wasn't given.
    pub bypassable: bool,
}

/// Adds to the response what each strategy needs. `key` makes the annotation's key unique among a container's.
pub(super) fn deliver(strategies: &BTreeSet<Strategy>, cards: &[&CardId], key: &str, response: &mut ContainerResponse) {
    let joined = |name: &dyn Fn(&CardId) -> String| cards.iter().map(|card| name(card)).collect::<Vec<_>>().join(",");
    // In this order: of two that set the variable the later one wins, as in NVIDIA's plugin.
    for strategy in strategies {
        match strategy {
            Strategy::Envvar => {
                response.envs.insert(VISIBLE_DEVICES.to_owned(), joined(&CardId::to_string));
            }
            Strategy::VolumeMounts => {
                response.envs.insert(VISIBLE_DEVICES.to_owned(), DEVICES_AS_MOUNTS.to_owned());
                response.mounts.extend(cards.iter().map(|card| Mount {
                    container_path: format!("{DEVICES_AS_MOUNTS}/{card}"),
                    host_path: NOTHING.to_owned(),
                    read_only: false,
                }));
            }
            Strategy::CdiAnnotations => {
                response.annotations.insert(format!("{ANNOTATION_PREFIX}divvy-node_{key}"), joined(&cdi::qualified));
            }
            Strategy::CdiCri => {
                response.cdi_devices.extend(cards.iter().map(|card| cdi::qualified(card)));
            }
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
