//! Tier `mig`: each container has whole MIG instances, and the hardware keeps it within them.
//!
//! That holds on any node for a container that has nothing else. On a node of this tier nothing else is allocated.

use divvy_api::Tier;

use super::Isolation;
use crate::config::{Config, ConfigError, MigStrategy, Scale};

/// Tier `mig`. GPUs are partitioned before the daemon starts.
#[derive(Clone, Copy, Debug)]
pub struct Mig;

/// Checks that the configuration leaves something to allocate.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let refused = |problem: &str| Err(ConfigError::Disagreement(format!("tier mig can't be served: {problem}")));
    if config.mig_strategy == MigStrategy::None {
        return refused("migStrategy none advertises no MIG instances: set it to single or mixed, or set tier to auto");
    }
    if config.memory_scale != Scale::ONE || config.cores_scale != Scale::ONE {
        return refused(
            "MIG instances can't be overcommitted or reserved in part: set memoryScale and coresScale to 1",
        );
    }
    Ok(())
}

// === impl Mig ===

impl Isolation for Mig {
    fn tier(&self) -> Tier {
        Tier::Mig
    }
}
