//! How a container is told, and given, its cards: the strategies of NVIDIA's plugin, by its names.

use std::collections::BTreeSet;

use divvy_api::CardId;
use divvy_api::container::{DEVICES_AS_MOUNTS, VISIBLE_DEVICES};
use divvy_proto::deviceplugin::{CdiDevice, ContainerAllocateResponse, Mount};
use serde::Serialize;

use super::cdi;
use crate::config::Strategy;

/// The source of each card that is given as a mount.
const NOTHING: &str = "/dev/null";

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

// === impl Strategies ===

impl Strategies {
    pub(super) fn new(active: BTreeSet<Strategy>, reason: String) -> Self {
        let bypassable = active.contains(&Strategy::Envvar);
        Self { active, reason, bypassable }
    }
}
