//! Tier `mig`: each container has whole MIG instances, and the hardware keeps it within them.
//!
//! On any node that is true of whoever holds nothing else. On a node of this tier nothing else is given out.

use divvy_api::{CardId, Share, Tier};
use divvy_proto::deviceplugin::Mount;

use super::Isolation;
use crate::config::{Config, ConfigError, MigStrategy, Scale};
use crate::container::directories::Container;
use crate::container::error::ContainerError;

/// Serves it. What it needs of the node is done before the daemon starts: GPUs are cut.
#[derive(Clone, Copy, Debug)]
pub struct Mig;

/// Whether the configuration leaves anything to be given out.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let refused = |problem: &str| Err(ConfigError::Disagreement(format!("tier mig can't be served: {problem}")));
    if config.mig_strategy == MigStrategy::None {
        return refused(
            "migStrategy none makes no card of an instance: set it to single or mixed, or set tier to auto",
        );
    }
    if config.memory_scale != Scale::ONE || config.cores_scale != Scale::ONE {
        return refused("an instance can't be promised more or less than once: set memoryScale and coresScale to 1");
    }
    Ok(())
}

// === impl Mig ===

impl Isolation for Mig {
    fn tier(&self) -> Tier {
        Tier::Mig
    }

    fn of(&self, tier: Tier) -> Option<&dyn Isolation> {
        (tier == Tier::Mig).then_some(self)
    }

    fn prepare(&self, _: &Container, _: &[(CardId, Share)]) -> Result<(), ContainerError> {
        Ok(())
    }

    fn mounts(&self, _: &Container, _: &[(CardId, Share)]) -> Vec<Mount> {
        Vec::new()
    }

    fn clear(&self) {}
}
