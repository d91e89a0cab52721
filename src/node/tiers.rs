//! How shares are enforced: what each tier needs of the node, puts on disk for a container, and adds to its answer.
//!
//! A container keeps the tier that it was made for as long as the node serves that or a stronger one: what a tier mounts is
//! part of the answer, which the kubelet caches. On a node that serves a weaker one its limits say so, and nobody enforces
//! them any more.
//!
//! The hardware keeps to its shares whoever has whole MIG instances, on every node and without anything being done for it.

mod accounting;
pub mod clock;
mod hardware;
mod shim;

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use divvy_contract::{CardId, Share, Tier};
use divvy_proto::deviceplugin::Mount;

pub use self::accounting::Accounting;
pub use self::hardware::Hardware;
use self::shim::Library;
pub use self::shim::Shim;
use crate::config::{Config, ConfigError, Served};
use crate::delivery::{Container, DeliveryError};

/// A tier, as this node serves it.
pub trait Enforcement: fmt::Debug + Send + Sync {
    /// Which one.
    fn tier(&self) -> Tier;

    /// Puts what the container needs into its directories, and leaves what is there and sound. The container may run.
    fn furnish(&self, container: &Container, shares: &[(CardId, Share)]) -> Result<(), DeliveryError>;

    /// What the container needs mounted beside its directories.
    fn mounts(&self, container: &Container, shares: &[(CardId, Share)]) -> Vec<Mount>;

    /// Removes what no container needs any more, after some have gone.
    fn clear(&self);
}

/// The tier of this node, and why it is that one.
#[derive(Debug)]
pub struct Choice {
    /// What the node serves.
    pub tier: Tier,
    /// For people.
    pub reason: String,
    library: Option<Library>,
}

/// The strongest tier that the configuration allows and the node can serve; an error where it asks for more.
pub fn choose(config: &Config) -> Result<Choice, ConfigError> {
    let accounting = |reason| Choice { tier: Tier::Accounting, reason, library: None };
    match (config.tier, Library::read(config)) {
        (Served::Mig, _) => {
            hardware::check(config)?;
            Ok(Choice { tier: Tier::Mig, reason: "configured".to_owned(), library: None })
        }
        (Served::Accounting, _) => Ok(accounting("configured".to_owned())),
        (Served::Auto, Err(problem)) => Ok(accounting(format!("auto: {problem}"))),
        (Served::Shim, Err(problem)) => Err(ConfigError::Disagreement(format!(
            "tier shim can't be served: {problem}, or set tier to auto or accounting"
        ))),
        (served, Ok(library)) => {
            let reason = if served == Served::Auto { "auto: there is " } else { "configured, with " };
            let reason = format!("{reason}{}", config.libdivvy_path.display());
            Ok(Choice { tier: Tier::Shim, reason, library: Some(library) })
        }
    }
}

/// Removes what tiers keep on the node beside containers' directories, once no container is left, and says what that was.
pub fn remove(config: &Config) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for directory in [config.state_dir.join(shim::LIBRARIES), config.run_dir.join(shim::CLOCKS)] {
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map(|()| removed.push(directory))?,
        }
    }
    Ok(removed)
}

// === impl Choice ===

impl Choice {
    /// Makes the node ready to serve it.
    pub fn install(self, run_dir: &Path) -> Result<Box<dyn Enforcement>, DeliveryError> {
        match self.library {
            _ if self.tier == Tier::Mig => Ok(Box::new(Hardware)),
            Some(library) => Ok(Box::new(Shim::install(&library, run_dir)?)),
            None => Ok(Box::new(Accounting)),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.tier, self.reason)
    }
}

#[cfg(test)]
pub(crate) mod tests;
