//! Isolation tiers: what each one needs on the node, writes for a container, and adds to the response to `Allocate`. A node
//! serves the configured tier, or the strongest whose needs it meets.
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

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, fs, io};

use divvy_api::{CardId, Share, Tier};
use divvy_node_core::ports::{Mount, SetupError};
use divvy_region::terms::Words;
use divvy_runtime::logging::WarnOnce;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::accounting::Accounting;
pub use self::mig::Mig;
use self::mps::Mps;
use self::shim::Library;
pub use self::shim::Shim;
use crate::config::{Config, ConfigError};
use crate::container::clock::pages;
use crate::container::directories::ContainerDirectories;
use divvy_mps::MpsDirectory;

/// Isolation tier as served on this node.
pub trait Isolation: fmt::Debug + Send + Sync {
    /// The tier.
    fn tier(&self) -> Tier;

    /// The strongest tier that is enforced on this card.
    fn tier_on(&self, _: &CardId) -> Tier {
        self.tier()
    }

    /// The weaker tier that it builds on. Containers that were prepared for that, when the node served it, are served too.
    fn base(&self) -> Option<&dyn Isolation> {
        None
    }

    /// Why no container can be prepared now, though the node supported the tier when the daemon started.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Makes files that the container needs in its directories, except valid ones that exist. The container may be running.
    fn prepare(&self, _container: &ContainerDirectories, _shares: &[(CardId, Share)]) -> Result<(), SetupError> {
        Ok(())
    }

    /// Mounts of the container beside its directories.
    fn mounts(&self, _container: &ContainerDirectories, _shares: &[(CardId, Share)]) -> Vec<Mount> {
        Vec::new()
    }

    /// Environment variables of the container.
    fn variables(&self, _: &[(CardId, Share)]) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Removes files that no container needs any more, after some have been removed.
    fn clear(&self) {}
}

/// What a tier may need on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// libdivvy, and a place from which containers can load it.
    Library,
    /// CUDA's multi-process service, which `divvy-mps` runs.
    Service,
}

/// A tier as a node serves it: a row of the table of tiers.
struct Row {
    /// How it enforces shares, in the help of the key `tier`.
    help: &'static str,
    needs: &'static [Need],
    /// Whether `auto` can stand for it.
    auto: bool,
    /// Installs its files on the node.
    install: fn(&Config) -> Installed,
}

type Installed = Result<Box<dyn Isolation>, SetupError>;

/// What the node has of what tiers need, or what is wrong and what to do.
struct NodeSupport {
    library: Result<String, String>,
    service: Result<String, String>,
}

/// Tier of this node, and why it was selected.
#[derive(Debug)]
pub struct Selection {
    /// Tier that the node serves.
    pub tier: Tier,
    /// Reason, for logs and `/config`.
    pub reason: String,
}

/// Interval of checks for what the node supports.
const LOOK: Duration = Duration::from_secs(5);

/// The table of tiers. `auto` stands for the strongest of those with `auto` whose needs are met.
fn row(tier: Tier) -> Row {
    match tier {
        Tier::Accounting => {
            Row { help: "shares aren't enforced", needs: &[], auto: true, install: |_| Ok(Box::new(Accounting)) }
        }
        Tier::Shim => Row {
            help: "by libdivvy in the container",
            needs: &[Need::Library],
            auto: true,
            install: |config| Ok(Box::new(Shim::new(config)?)),
        },
        Tier::Mps => Row {
            help: "also by CUDA's multi-process service",
            needs: &[Need::Library, Need::Service],
            auto: true,
            install: |config| Ok(Box::new(Mps::new(Shim::new(config)?, MpsDirectory::new(&config.run_dir)))),
        },
        Tier::Mig => Row { help: "whole MIG instances only", needs: &[], auto: false, install: |_| Ok(Box::new(Mig)) },
    }
}

/// Whether nodes of this tier have that.
pub fn needs(tier: Tier, need: Need) -> bool {
    row(tier).needs.contains(&need)
}

/// Help of the key `tier`.
pub fn help() -> String {
    let tiers = Tier::ALL.iter().map(|tier| format!("{tier} ({})", row(*tier).help));
    let auto = "auto (the strongest of the first three that the node supports)".to_owned();
    let all: Vec<_> = tiers.chain([auto]).collect();
    format!("Isolation tier: {}", Words(&all))
}

/// The strongest tier that the configuration allows and the node can serve; an error where it asks for more.
pub fn select(config: &Config) -> Result<Selection, ConfigError> {
    let configured = config.tier.named();
    if configured == Some(Tier::Mig) {
        mig::check(config)?;
    }
    config.check_oversubscription()?;
    let found = NodeSupport::new(config);
    let chosen = configured.unwrap_or_else(|| found.strongest());
    let of_some_gpus = config.card_overrides.tier().filter(|tier| *tier > chosen);
    let tier = of_some_gpus.unwrap_or(chosen);
    let there = found.needs_of(tier).map_err(|problem| found.refusal(tier, problem, of_some_gpus.is_some()))?;
    config.check_card_overrides(tier)?;
    let all = there.join(" and ");
    let reason = match (configured, &*there) {
        (Some(_), []) => "configured".to_owned(),
        (Some(_), _) if of_some_gpus.is_some() => format!("of some GPUs, by cardOverrides, with {all}"),
        (Some(_), _) => format!("configured, with {all}"),
        (None, []) => format!("auto: {}", found.first_problem()),
        (None, [_]) => format!("auto: there is {all}"),
        (None, _) => format!("auto: there are {all}"),
    };
    Ok(Selection { tier, reason })
}

/// Returns when a node with tier `auto` could serve a stronger one than `tier`: MPS may start after the daemon.
pub async fn outgrown(config: &Config, tier: Tier) {
    if config.tier.named().is_some() {
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

// === impl NodeSupport ===

impl NodeSupport {
    fn new(config: &Config) -> Self {
        Self {
            library: Library::read(config).map(|_library| config.libdivvy_path.display().to_string()),
            service: MpsDirectory::new(&config.run_dir).supervisor().map(|_pid| "the service".to_owned()),
        }
    }

    /// What the tier needs, the last need first, if all of it is there; else the first problem.
    fn needs_of(&self, tier: Tier) -> Result<Vec<&str>, &str> {
        let look = |need: &Need| match need {
            Need::Library => self.library.as_deref(),
            Need::Service => self.service.as_deref(),
        };
        let mut there = row(tier).needs.iter().map(look).collect::<Result<Vec<_>, _>>().map_err(String::as_str)?;
        there.reverse();
        Ok(there)
    }

    /// What `auto` stands for.
    fn strongest(&self) -> Tier {
        let is_served = |tier: &&Tier| row(**tier).auto && self.needs_of(**tier).is_ok();
        Tier::ALL.iter().rfind(is_served).copied().unwrap_or_default()
    }

    /// What keeps the node from a stronger tier than those that need nothing.
    fn first_problem(&self) -> &str {
        Tier::ALL.iter().find_map(|tier| self.needs_of(*tier).err()).unwrap_or_default()
    }

    /// Error: a tier that is configured, if only of some GPUs, can't be served.
    fn refusal(&self, tier: Tier, problem: &str, of_some_gpus: bool) -> ConfigError {
        let weaker = Tier::ALL.iter().rev().filter(|weaker| **weaker < tier && self.needs_of(**weaker).is_ok());
        let choices: Vec<_> = ["auto"].into_iter().chain(weaker.map(|weaker| weaker.as_str())).collect();
        // As the problem separates its own parts.
        let comma = if problem.contains(';') { ';' } else { ',' };
        let instead = if of_some_gpus {
            ", or take it out of cardOverrides".to_owned()
        } else {
            format!("{comma} or set tier to {}", Words(&choices))
        };
        ConfigError::Disagreement(format!("tier {tier} can't be served: {problem}{instead}"))
    }
}

// === impl Selection ===

impl Selection {
    /// Installs the files of the tier on the node.
    pub fn install(&self, config: &Config) -> Installed {
        (row(self.tier).install)(config)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.tier, self.reason)
    }
}

#[cfg(test)]
pub(crate) mod tests;
