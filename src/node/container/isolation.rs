//! Isolation tiers: what each one needs on the node, writes for a container, and adds to the response to `Allocate`.
//!
//! A container keeps the tier that it was made for as long as the node serves that or a stronger one: what a tier mounts is
//! part of the response, which the kubelet caches. On a node that serves a weaker tier the container's limits state that one,
//! and its shares are no longer enforced as they were.
//!
//! A container of whole MIG instances is kept to its shares by the hardware, on every node and without preparation.

mod accounting;
mod mig;
mod mps;
mod shim;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use divvy_api::{CardId, Share, Tier};
use divvy_node_core::ports::{Mount, SetupError};
use divvy_runtime::logging::WarnOnce;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::accounting::Accounting;
pub use self::mig::Mig;
use self::mps::Mps;
use self::shim::Library;
pub use self::shim::Shim;
use crate::config::{Config, ConfigError, Served};
use crate::container::clock::pages;
use crate::container::directories::Container;
use divvy_mps::MpsDirectory;

/// Isolation tier as served on this node.
pub trait Isolation: fmt::Debug + Send + Sync {
    /// The tier.
    fn tier(&self) -> Tier;

    /// The strongest tier that is enforced on this card.
    fn tier_on(&self, _: &CardId) -> Tier {
        self.tier()
    }

    /// Implementation for a container that was prepared for `tier`, which this node may have served before; `None` where it
    /// can't be served any more.
    fn of(&self, tier: Tier) -> Option<&dyn Isolation>;

    /// Why no container can be prepared now, though the node supported the tier when the daemon started.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Makes files that the container needs in its directories, except valid ones that exist. The container may be running.
    fn prepare(&self, _container: &Container, _shares: &[(CardId, Share)]) -> Result<(), SetupError> {
        Ok(())
    }

    /// Mounts of the container beside its directories.
    fn mounts(&self, _container: &Container, _shares: &[(CardId, Share)]) -> Vec<Mount> {
        Vec::new()
    }

    /// Environment variables of the container.
    fn variables(&self, _: &[(CardId, Share)]) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Removes files that no container needs any more, after some have been removed.
    fn clear(&self) {}
}

/// Tier of this node, and why it was selected.
#[derive(Debug)]
pub struct Selection {
    /// Tier that the node serves.
    pub tier: Tier,
    /// Reason, for logs and `/config`.
    pub reason: String,
    library: Option<Library>,
}

/// Interval of checks for what the node supports.
const LOOK: Duration = Duration::from_secs(5);

/// The strongest tier that the configuration allows and the node can serve; an error where it asks for more.
pub fn select(config: &Config) -> Result<Selection, ConfigError> {
    if config.tier == Served::Mig {
        mig::check(config)?;
    }
    config.check_oversubscription()?;
    let accounting = |reason| Selection { tier: Tier::Accounting, reason, library: None };
    let refused = |tier: Tier, why: String| ConfigError::Disagreement(format!("tier {tier} can't be served: {why}"));
    let (library, service) = (Library::read(config), MpsDirectory::new(&config.run_dir).supervisor());
    let (tier, reason, library) = match (config.tier, library, service) {
        (Served::Accounting, Ok(library), _) if config.card_overrides.tier() == Some(Tier::Shim) => {
            (Tier::Shim, "of some GPUs, by cardOverrides, with", library)
        }
        (Served::Accounting | Served::Auto, Err(problem), _) if config.card_overrides.tier() == Some(Tier::Shim) => {
            return Err(refused(Tier::Shim, format!("{problem}, or take it out of cardOverrides")));
        }
        (Served::Accounting, ..) => return Ok(accounting("configured".to_owned())),
        (Served::Mig, ..) => {
            config.check_card_overrides(Tier::Mig)?;
            return Ok(Selection { tier: Tier::Mig, reason: "configured".to_owned(), library: None });
        }
        (Served::Auto, Err(problem), _) => return Ok(accounting(format!("auto: {problem}"))),
        (Served::Auto, Ok(library), Ok(_)) => (Tier::Mps, "auto: there are the service and", library),
        (Served::Auto, Ok(library), Err(_)) => (Tier::Shim, "auto: there is", library),
        (Served::Shim, Ok(library), _) => (Tier::Shim, "configured, with", library),
        (Served::Mps, Ok(library), Ok(_)) => (Tier::Mps, "configured, with the service and", library),
        (served @ (Served::Shim | Served::Mps), Err(problem), _) => {
            let tier = if served == Served::Shim { Tier::Shim } else { Tier::Mps };
            return Err(refused(tier, format!("{problem}, or set tier to auto or accounting")));
        }
        (Served::Mps, Ok(_), Err(problem)) => {
            return Err(refused(Tier::Mps, format!("{problem}; or set tier to auto, shim or accounting")));
        }
    };
    config.check_card_overrides(tier)?;
    let reason = format!("{reason} {}", config.libdivvy_path.display());
    Ok(Selection { tier, reason, library: Some(library) })
}

/// Returns when a node with tier `auto` could serve a stronger one than `tier`: MPS may start after the daemon.
pub async fn outgrown(config: &Config, tier: Tier) {
    if config.tier != Served::Auto {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let is_up = MpsDirectory::new(&config.run_dir).supervisor().is_ok();
        let better = is_up.then(|| select(config).ok()).flatten().filter(|choice| choice.tier > tier);
        if let Some(choice) = better {
            return info!("isolation tier {choice} is available: restarting");
        }
    }
}

/// Logs when the node's tier can't be served any more.
pub async fn watch(problem: impl Fn() -> Option<String>, stop: CancellationToken) {
    let mut warning = WarnOnce::default();
    while !stop.is_cancelled() {
        match problem() {
            Some(problem) => warning.warn(format!("containers are refused: {problem}")),
            None => warning.clear(),
        }
        tokio::select! { () = tokio::time::sleep(LOOK) => {}, () = stop.cancelled() => {} }
    }
}

/// Removes what tiers keep on the node beside containers' directories, once no container is left, and returns the paths.
pub fn remove(config: &Config) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for directory in [config.state_dir.join(shim::LIBRARIES), config.run_dir.join(pages::DIRECTORY)] {
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map(|()| removed.push(directory))?,
        }
    }
    Ok(removed)
}

// === impl Selection ===

impl Selection {
    /// Installs the files of the tier on the node.
    pub fn install(self, run_dir: &Path) -> Result<Box<dyn Isolation>, SetupError> {
        if self.tier == Tier::Mig {
            return Ok(Box::new(Mig));
        }
        let Some(library) = self.library else { return Ok(Box::new(Accounting)) };
        let shim = Shim::install(&library, run_dir)?;
        Ok(if self.tier == Tier::Mps { Box::new(Mps::new(shim, MpsDirectory::new(run_dir))) } else { Box::new(shim) })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.tier, self.reason)
    }
}

#[cfg(test)]
pub(crate) mod tests;
