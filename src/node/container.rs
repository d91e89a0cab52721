//! Prepares containers: their directories on disk, their limits, and the response to `Allocate`.
//!
//! Two directories of each container are mounted, not files: the kubelet takes the response for a restarted container from
//! its cache, and a runtime makes a directory of a mount source that is missing. Without a limits file in its directory a
//! container can't use its GPUs.

mod capabilities;
mod cdi;
pub mod clock;
mod directories;
mod driver;
pub(crate) mod files;
pub mod isolation;
pub mod limits;
mod mounts;
pub(crate) mod region;
mod removal;
mod strategy;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use divvy_api::container::{LIMITS_MOUNT, REGION_MOUNT};
use divvy_api::{CardId, Share, Tier};

use crate::config::{AbsolutePath, Config, DeviceListStrategy, Strategy};
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::Nonce;
use divvy_node_core::ledger::reconcile::FoundContainer;
use divvy_node_core::ports::{AllocatedContainer, ContainerResponse, ContainerSetup, Mount, SetupError};

use self::isolation::Isolation;
pub use directories::{ContainerDirectories, LIMITS_FILE};
use directories::{Directories, mount};
pub(crate) use directories::{overhead_file, region_file};
pub use limits::Limits;
pub use strategy::Strategies;

/// Configuration of [`Containers`]; each field but the last two is the key of the same name.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the keys say it")]
pub struct ContainerOptions {
    pub run_dir: PathBuf,
    pub device_list_strategy: DeviceListStrategy,
    pub cdi_dir: PathBuf,
    pub host_root: AbsolutePath,
    pub driver_root: AbsolutePath,
    /// Where nvidia-cdi-hook would be, for the host and for the daemon.
    pub nvidia_cdi_hook: PathBuf,
    /// Where procfs is mounted.
    pub procfs: PathBuf,
}

/// Prepares containers for what the ledger allocates to them.
#[derive(Debug)]
pub struct Containers {
    options: ContainerOptions,
    directories: Directories,
    isolation: Arc<dyn Isolation>,
    published: Mutex<Published>,
}

/// Result of the last [`Containers::publish_cards`].
#[derive(Debug)]
struct Published {
    specification: Specification,
    /// Instances that no container could use, and why.
    refused: BTreeMap<CardId, String>,
}

/// State of the CDI specification.
#[derive(Debug)]
enum Specification {
    /// Written, with names for these cards.
    Written(BTreeSet<CardId>),
    /// Missing or unusable, and the reason.
    Missing(String),
}

// === impl ContainerOptions ===

impl From<&Config> for ContainerOptions {
    fn from(config: &Config) -> Self {
        Self {
            run_dir: config.run_dir.to_path_buf(),
            device_list_strategy: config.device_list_strategy.clone(),
            cdi_dir: config.cdi_dir.to_path_buf(),
            host_root: config.host_root.clone(),
            driver_root: config.driver_root.clone(),
            nvidia_cdi_hook: "/usr/bin/nvidia-cdi-hook".into(),
            procfs: "/proc".into(),
        }
    }
}

// === impl Containers ===

impl Containers {
    /// Containers of this node. Until [`publish_cards`](Self::publish_cards) no card can be given by CDI.
    pub fn new(options: ContainerOptions, isolation: Box<dyn Isolation>) -> Self {
        let unpublished = Specification::Missing("no GPU is published yet".to_owned());
        let directories = Directories::new(&options.run_dir);
        let published = Mutex::new(Published { specification: unpublished, refused: BTreeMap::new() });
        Self { options, directories, isolation: isolation.into(), published }
    }

    /// Refuses a container whose tier can't be served now.
    fn check(&self, container: &AllocatedContainer<'_>) -> Result<(), SetupError> {
        let problem = self.isolation_of(container).and_then(Isolation::problem);
        let tier = container.terms.tier;
        problem.map_or(Ok(()), |problem| {
            Err(SetupError(format!("tier {tier} can't be served now: {problem}; running containers are not affected")))
        })
    }

    /// Makes the container's directories and writes its limits: last, as a container without limits can't use its GPUs.
    fn write(&self, container: &AllocatedContainer<'_>) -> Result<ContainerDirectories, SetupError> {
        let limits = limits::write(container)?;
        let directories = self.directories.make(container.nonce, container.shares.len())?;
        if let Some(isolation) = self.isolation_of(container) {
            isolation.prepare(&directories, &container.shares)?;
        }
        directories.write(&limits)?;
        Ok(directories)
    }

    /// Implementation of the tier that the container was prepared for; `None` where it can't be served any more.
    fn isolation_of(&self, container: &AllocatedContainer<'_>) -> Option<&dyn Isolation> {
        iter::successors(Some(&*self.isolation), |isolation| isolation.base())
            .find(|isolation| isolation.tier() == container.terms.tier)
    }

    /// Gives each new region a file system of its own from now on, or says why that isn't possible here: then tenants can fill
    /// the one that `runDir` is on.
    pub fn bound_regions(&mut self) -> Result<(), String> {
        self.directories.bound()
    }

    /// Whether each new region is a file system of its own, with a size.
    pub fn are_regions_bounded(&self) -> bool {
        self.directories.are_bounded()
    }

    /// Starts the thread that removes what ended containers left, also under an earlier daemon.
    pub fn start_removal(&self) -> io::Result<()> {
        let isolation = Arc::clone(&self.isolation);
        self.directories.start_removal(move || isolation.clear())
    }

    /// Removes what ended containers left, on this thread.
    pub fn remove_dead(&self) -> io::Result<()> {
        let removed = self.directories.remove_dead();
        self.isolation.clear();
        removed
    }

    /// Puts the directories of all containers but the `live` ones away for their removal, and returns whose.
    pub fn sweep(&self, live: &HashSet<Nonce>) -> Result<Vec<Nonce>, SetupError> {
        self.directories.sweep(live)
    }

    /// Writes the CDI specification for the cards of this inventory, if a strategy may use it and its content has changed.
    ///
    /// After an error, or where the driver's files aren't found, `auto` stands for `volume-mounts`. An error about
    /// MIG instances concerns those alone; all else is published.
    pub fn publish_cards(&self, inventory: &Inventory) -> Result<(), SetupError> {
        let automatic = match &self.options.device_list_strategy {
            DeviceListStrategy::These(strategies) if !strategies.iter().any(|strategy| strategy.is_cdi()) => {
                return Ok(());
            }
            choice => *choice == DeviceListStrategy::Auto,
        };
        let draft = cdi::Draft::new(&self.options, inventory);
        let (specification, outcome) = match draft.lacks {
            Some(problem) if automatic => (Specification::Missing(problem), Ok(())),
            _ => match self.write_specification(&draft.spec) {
                Ok(()) => (Specification::Written(draft.cards), Ok(())),
                Err(error) => (Specification::Missing(error.to_string()), Err(error)),
            },
        };
        let refused = draft.refused.iter().next().map(|(card, problem)| refused(card, problem));
        *self.published() = Published { specification, refused: draft.refused };
        outcome.and(refused.map_or(Ok(()), Err))
    }

    /// The strategies in effect, for logs and metrics.
    pub fn strategies(&self) -> Strategies {
        match &self.options.device_list_strategy {
            DeviceListStrategy::These(strategies) => Strategies::new(strategies.clone(), "configured".to_owned()),
            DeviceListStrategy::Auto => match &self.published().specification {
                Specification::Written(_) => {
                    Strategies::new([Strategy::CdiCri].into(), "auto: the CDI specification is written".to_owned())
                }
                Specification::Missing(problem) => {
                    Strategies::new([Strategy::VolumeMounts].into(), format!("auto: no CDI specification: {problem}"))
                }
            },
        }
    }

    /// The strategies for one container: `auto` falls back where any of its cards has no CDI name.
    fn strategies_for(&self, cards: &[&CardId]) -> Result<BTreeSet<Strategy>, SetupError> {
        let unnamed = self.unnamed(cards)?;
        match (&self.options.device_list_strategy, unnamed) {
            (DeviceListStrategy::Auto, None) => Ok([Strategy::CdiCri].into()),
            (DeviceListStrategy::Auto, Some(_)) => Ok([Strategy::VolumeMounts].into()),
            (DeviceListStrategy::These(strategies), Some((card, problem))) if strategies.iter().any(|s| s.is_cdi()) => {
                Err(SetupError(format!("{card} has no CDI device, which deviceListStrategy requires: {problem}")))
            }
            (DeviceListStrategy::These(strategies), _) => Ok(strategies.clone()),
        }
    }

    /// The first card that the specification doesn't name, and why.
    fn unnamed(&self, cards: &[&CardId]) -> Result<Option<(CardId, String)>, SetupError> {
        let published = self.published();
        if let Some((card, problem)) = cards.iter().find_map(|card| published.refused.get_key_value(*card)) {
            return Err(refused(card, problem));
        }
        let (card, problem) = match &published.specification {
            Specification::Missing(problem) => (cards.first(), problem.clone()),
            Specification::Written(named) => {
                (cards.iter().find(|card| !named.contains(**card)), "its device node is not known".to_owned())
            }
        };
        Ok(card.map(|card| ((*card).clone(), problem)))
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the CDI specification; false if there was none. Containers that restart still need it if they were given
    /// their cards by its names.
    pub fn remove_specification(&self) -> Result<bool, SetupError> {
        let file = self.options.cdi_dir.join(cdi::FILE_NAME);
        match fs::remove_file(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(unwritable(&file, &error)),
            Ok(()) => Ok(true),
        }
    }

    /// The directories below `runDir` that hold those of all containers.
    pub fn directories(&self) -> [PathBuf; 2] {
        self.directories.roots()
    }

    fn write_specification(&self, spec: &cdi::Spec) -> Result<(), SetupError> {
        let file = self.options.cdi_dir.join(cdi::FILE_NAME);
        let text = serde_json::to_string_pretty(spec).expect("texts and numbers always serialise") + "\n";
        if fs::read_to_string(&file).is_ok_and(|written| written == text) {
            return Ok(());
        }
        fs::create_dir_all(&self.options.cdi_dir)
            .and_then(|()| files::replace(&file, &text))
            .map_err(|error| unwritable(&file, &error))
    }
}

/// Error: the driver wouldn't let a container use this MIG instance.
fn refused(instance: &CardId, problem: &str) -> SetupError {
    SetupError(format!("MIG instance {instance} can't be allocated: {problem}"))
}

fn unwritable(file: &Path, error: &io::Error) -> SetupError {
    SetupError(format!(
        "writing CDI specification {}: {error}: mount cdiDir writable into the daemon's pod, or set deviceListStrategy to volume-mounts",
        file.display()
    ))
}

impl ContainerSetup for Containers {
    fn tier(&self) -> Tier {
        self.isolation.tier()
    }

    fn tier_on(&self, shares: &[(CardId, Share)]) -> Tier {
        shares.iter().map(|(card, _)| self.isolation.tier_on(card)).min().unwrap_or_default()
    }

    fn problem(&self) -> Option<String> {
        self.isolation.problem()
    }

    fn prepare(&self, container: &AllocatedContainer<'_>) -> Result<ContainerResponse, SetupError> {
        let cards: Vec<&CardId> = container.shares.iter().map(|(card, _)| card).collect();
        let strategies = self.strategies_for(&cards)?;
        self.check(container)?;
        let directories = self.write(container)?;
        let region = Mount { read_only: false, ..mount(REGION_MOUNT, &directories.region()) };
        let mounts = vec![mount(LIMITS_MOUNT, &directories.limits()), region];
        let mut response = ContainerResponse { mounts, ..ContainerResponse::default() };
        if let Some(isolation) = self.isolation_of(container) {
            response.mounts.extend(isolation.mounts(&directories, &container.shares));
            let variables = isolation.variables(&container.shares).into_iter();
            response.envs.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        }
        let key = container.nonce.to_string();
        strategy::deliver(&strategies, &cards, &key, &mut response);
        Ok(response)
    }

    fn try_preparing(&self) -> Result<(), SetupError> {
        let needs_specification = match &self.options.device_list_strategy {
            DeviceListStrategy::Auto => false,
            DeviceListStrategy::These(strategies) => strategies.iter().any(|strategy| strategy.is_cdi()),
        };
        match &self.published().specification {
            Specification::Missing(problem) if needs_specification => return Err(SetupError(problem.clone())),
            _ => {}
        }
        self.directories.try_making()
    }

    fn write_limits(&self, container: &AllocatedContainer<'_>) -> Result<(), SetupError> {
        self.check(container)?;
        self.write(container)?;
        Ok(())
    }

    fn renew_limits(&self, container: &AllocatedContainer<'_>) -> Result<(), SetupError> {
        if self.directories.exist(container.nonce) && !self.directories.are_of_newer_build(container.nonce) {
            self.write(container)?;
        }
        Ok(())
    }

    fn find(&self, pod_uid: &str, container: &str) -> Option<FoundContainer> {
        let (nonce, limits) = self.directories.find(pod_uid, container)?;
        let (terms, shares) = limits.map(|limits| (limits.terms, limits.cards)).unwrap_or_default();
        Some(FoundContainer { nonce, terms, shares })
    }

    fn remove(&self, ended: Vec<Nonce>) {
        for nonce in ended {
            self.directories.put_away(nonce);
        }
        self.directories.wake_removal();
    }

    fn remove_all_but(&self, live: &HashSet<Nonce>, unmatched: &HashSet<String>) -> Result<(), SetupError> {
        let mut stay = self.directories.in_doubt(live, unmatched);
        stay.extend(live);
        self.sweep(&stay)?;
        self.directories.wake_removal();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
