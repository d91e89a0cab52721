//! Tier `mps`: CUDA's multi-process service runs the processes of all containers side by side and keeps each within its
//! limits; libdivvy adds what the service has no notion of: a container of several processes, and a card of its size.
//!
//! ```text
//! runDir/mps/pipe    where processes reach the service      mounted
//!           /shm     the memory that they share with it     mounted
//!           /ready   locked while the service is up
//! ```
//!
//! A container of whole cards is the service's client too: nobody else may open a card that the service has. The service
//! serves no MIG instances: a container of such has what the shim does.

use std::iter;
use std::path::PathBuf;

use divvy_api::container::{
    MPS_MEMORY_LIMIT, MPS_PIPE_DIRECTORY, MPS_PIPE_MOUNT, MPS_THREAD_PERCENTAGE, SHARED_MEMORY_MOUNT,
};
use divvy_api::{CardId, Cores, Share, Tier};
use divvy_node_core::ports::{Mount, SetupError};

use super::Isolation;
use super::shim::{self, Shim};
use crate::container::directories::{ContainerDirectories, mount};
use divvy_mps::MpsDirectory;

/// Tier `mps`, on top of the shim.
#[derive(Debug)]
pub(super) struct Mps {
    shim: Shim,
    service: MpsDirectory,
}

/// MPS limits of one client for each of its cards, which CUDA numbers from 0.
///
/// All ordinals get the largest memory: the driver's order of the cards isn't known here, and which share is on which card
/// is enforced by the library. A request asks the same of all its cards, so they differ only where it is a percentage of cards
/// that differ. The part of the cards' compute can be but one, the smallest; none where no compute is allocated.
fn limits(shares: &[(CardId, Share)]) -> impl Iterator<Item = (&'static str, String)> {
    let memory = shares.iter().map(|(_, share)| share.memory).max().unwrap_or_default().as_mib();
    let each: Vec<String> = (0..shares.len()).map(|ordinal| format!("{ordinal}={memory}M")).collect();
    let cores = shares.iter().map(|(_, share)| share.cores).min().filter(|cores| *cores > Cores::ZERO);
    let percentage = cores.map(|cores| (MPS_THREAD_PERCENTAGE, cores.units().to_string()));
    iter::once((MPS_MEMORY_LIMIT, each.join(","))).chain(percentage)
}

// === impl Mps ===

impl Mps {
    pub(super) fn new(shim: Shim, service: MpsDirectory) -> Self {
        Self { shim, service }
    }
}

impl Isolation for Mps {
    fn tier(&self) -> Tier {
        Tier::Mps
    }

    fn tier_on(&self, card: &CardId) -> Tier {
        if card.is_instance() { Tier::Shim } else { Tier::Mps }
    }

    fn base(&self) -> Option<&dyn Isolation> {
        Some(&self.shim)
    }

    fn problem(&self) -> Option<String> {
        self.service.supervisor().err()
    }

    fn prepare(&self, container: &ContainerDirectories, shares: &[(CardId, Share)]) -> Result<(), SetupError> {
        self.shim.prepare(container, shares)
    }

    fn mounts(&self, container: &ContainerDirectories, shares: &[(CardId, Share)]) -> Vec<Mount> {
        let writable = |path, source: PathBuf| Mount { read_only: false, ..mount(path, &source) };
        let mut mounts = self.shim.mounts(container, shares);
        mounts.push(writable(MPS_PIPE_MOUNT, self.service.pipe()));
        mounts.push(writable(SHARED_MEMORY_MOUNT, self.service.shared_memory()));
        mounts
    }

    fn variables(&self, shares: &[(CardId, Share)]) -> Vec<(&'static str, String)> {
        let limits = shim::is_needed(shares).then(|| limits(shares));
        iter::once((MPS_PIPE_DIRECTORY, MPS_PIPE_MOUNT.to_owned())).chain(limits.into_iter().flatten()).collect()
    }

    fn clear(&self) {
        self.shim.clear();
    }
}
