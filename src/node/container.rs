//! What `Allocate` answers, and what lies on disk for the container.
//!
//! Two directories of each container are mounted, not files: the kubelet answers a restart from its cache, and a runtime
//! makes a directory of a mount source that is missing. A container without limits in there has none to use.

mod capabilities;
mod cdi;
pub mod clock;
mod directories;
mod driver;
mod error;
pub(crate) mod files;
pub mod isolation;
pub mod limits;
pub(crate) mod region;
pub mod setup;
mod strategy;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use divvy_api::container::{LIMITS_MOUNT, REGION_MOUNT};
use divvy_api::{CardId, Share, Tier};
use divvy_proto::deviceplugin::{ContainerAllocateResponse, Mount};
use tracing::warn;

use crate::config::{Config, DeviceListStrategy, Strategy};
use divvy_node_core::ledger::{Nonce, Terms};

use self::isolation::Isolation;
pub use directories::{Container, LIMITS_FILE};
use directories::{Directories, mount};
pub(crate) use directories::{overhead_file, region_file};
pub use error::ContainerError;
pub use limits::{Limits, LimitsError};
pub use strategy::Strategies;

/// Configuration of delivery; each field but the last is the key of the same name.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the keys say it")]
pub struct ContainerOptions {
    pub run_dir: PathBuf,
    pub device_list_strategy: DeviceListStrategy,
    pub cdi_dir: PathBuf,
    pub cdi_annotation_prefix: String,
    pub nvidia_cdi_hook_path: PathBuf,
    pub driver_root: PathBuf,
    pub driver_root_ctr_path: PathBuf,
    pub dev_root: PathBuf,
    /// Where procfs is mounted.
    pub procfs: PathBuf,
}

/// What the ledger gives one container.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'a> {
    /// Whose container it is.
    pub pod: PodRef<'a>,
    /// The container's name.
    pub container: &'a str,
    /// Made at `Allocate`, once per container: lower-case letters, digits and '-', at most 40.
    pub nonce: &'a str,
    /// At least one card, each once.
    pub shares: &'a [(CardId, Share)],
    /// How the shares are enforced: by the delivery's tier, by a weaker one that the container was made for, or by the hardware.
    pub terms: Terms,
}

/// A pod by all its names.
#[derive(Clone, Copy, Debug)]
pub struct PodRef<'a> {
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
}

/// A card as the CDI specification names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdiCard {
    /// Its name.
    pub id: CardId,
    /// Number of its node, `/dev/nvidia<minor>`; a card without one can't be given by CDI.
    pub minor: Option<u32>,
    /// IDs of the GPU instance and the compute instance, if it is one on that node's card.
    pub instance: Option<(u32, u32)>,
}

/// Writes the directories and makes the answers. Holds no books: the ledger says what is handed out.
#[derive(Debug)]
pub struct Containers {
    options: ContainerOptions,
    directories: Directories,
    enforcement: Box<dyn Isolation>,
    published: Mutex<Published>,
}

/// What has become of the cards that were published.
#[derive(Debug)]
struct Published {
    specification: Specification,
    /// Instances that no container could use, and why.
    refused: BTreeMap<CardId, String>,
}

/// What has become of the CDI specification.
#[derive(Debug)]
enum Specification {
    /// It names these cards.
    Written(BTreeSet<CardId>),
    /// It isn't there, or is of no use.
    Missing(String),
}

// === impl ContainerOptions ===

impl From<&Config> for ContainerOptions {
    fn from(config: &Config) -> Self {
        Self {
            run_dir: config.run_dir.to_path_buf(),
            device_list_strategy: config.device_list_strategy.clone(),
            cdi_dir: config.cdi_dir.to_path_buf(),
            cdi_annotation_prefix: config.cdi_annotation_prefix.as_str().to_owned(),
            nvidia_cdi_hook_path: config.nvidia_cdi_hook_path.to_path_buf(),
            driver_root: config.driver_root.to_path_buf(),
            driver_root_ctr_path: config.driver_root_ctr_path.to_path_buf(),
            dev_root: config.dev_root.to_path_buf(),
            procfs: "/proc".into(),
        }
    }
}

// === impl Containers ===

impl Containers {
    /// Until [`publish_cards`](Self::publish_cards) no card can be given by CDI.
    pub fn new(options: ContainerOptions, enforcement: Box<dyn Isolation>) -> Self {
        let unpublished = Specification::Missing("no card is published yet".to_owned());
        let directories = Directories::new(&options.run_dir);
        let published = Mutex::new(Published { specification: unpublished, refused: BTreeMap::new() });
        Self { options, directories, enforcement, published }
    }

    /// How shares are enforced on this node.
    pub fn tier(&self) -> Tier {
        self.enforcement.tier()
    }

    /// How all of these are.
    pub fn tier_on(&self, shares: &[(CardId, Share)]) -> Tier {
        shares.iter().map(|(card, _)| self.enforcement.tier_on(card)).min().unwrap_or_default()
    }

    /// Why no container can be started just now that this node's tier is for.
    pub fn problem(&self) -> Option<String> {
        self.enforcement.problem()
    }

    /// Makes the container's directories, writes its limits and answers its `Allocate`. Can be repeated.
    pub fn prepare(&self, handout: &Allocation<'_>) -> Result<ContainerAllocateResponse, ContainerError> {
        let cards: Vec<&CardId> = handout.shares.iter().map(|(card, _)| card).collect();
        let strategies = self.strategies_for(&cards)?;
        self.check(handout)?;
        let container = self.write(handout)?;
        let region = Mount { read_only: false, ..mount(REGION_MOUNT, &container.region()) };
        let mut mounts = vec![mount(LIMITS_MOUNT, &container.limits()), region];
        let mut envs = HashMap::new();
        if let Some(enforcement) = self.enforcement_of(handout) {
            mounts.extend(enforcement.mounts(&container, handout.shares));
            envs.extend(
                enforcement.variables(handout.shares).into_iter().map(|(name, value)| (name.to_owned(), value)),
            );
        }
        let mut answer = ContainerAllocateResponse { mounts, envs, ..ContainerAllocateResponse::default() };
        strategy::deliver(&strategies, &cards, &self.options.cdi_annotation_prefix, handout.nonce, &mut answer);
        Ok(answer)
    }

    /// Writes the limits of a container that is about to start, and what else it was given where that is gone.
    pub fn write_limits(&self, handout: &Allocation<'_>) -> Result<(), ContainerError> {
        self.check(handout)?;
        self.write(handout).map(drop)
    }

    /// The same for one that may be running, if it has its directories: of others nothing is mounted.
    pub fn renew(&self, handout: &Allocation<'_>) -> Result<(), ContainerError> {
        if self.directories.exist(handout.nonce) { self.write(handout).map(drop) } else { Ok(()) }
    }

    /// Refuses a container that nothing would keep to its shares as it is promised.
    fn check(&self, handout: &Allocation<'_>) -> Result<(), ContainerError> {
        let problem = self.enforcement_of(handout).and_then(Isolation::problem);
        problem.map_or(Ok(()), |problem| Err(ContainerError::Isolation { tier: handout.terms.tier, problem }))
    }

    /// Limits come last: a container without any has none to use.
    fn write(&self, handout: &Allocation<'_>) -> Result<Container, ContainerError> {
        let limits = Limits::try_from(handout)?;
        let container = self.directories.make(handout.nonce)?;
        if let Some(enforcement) = self.enforcement_of(handout) {
            enforcement.prepare(&container, handout.shares)?;
        }
        container.write(&limits)?;
        Ok(container)
    }

    fn enforcement_of(&self, handout: &Allocation<'_>) -> Option<&dyn Isolation> {
        self.enforcement.of(handout.terms.tier)
    }

    /// Removes the directories of a container that has ended; `false` if there were none.
    pub fn remove(&self, nonce: &str) -> Result<bool, ContainerError> {
        let removed = self.directories.remove(nonce)?;
        self.enforcement.clear();
        Ok(removed)
    }

    /// Removes the directories of holdings that have ended. Those that can't be removed are logged, and left for the
    /// next start's [`sweep`](Self::sweep).
    pub fn remove_all(&self, ended: &[Nonce]) {
        for nonce in ended {
            if let Err(error) = self.remove(&nonce.to_string()) {
                warn!(%error, "an ended container's directory stays");
            }
        }
    }

    /// The nonce of the directories that a container was given, by what its limits say, and those.
    pub fn find(&self, pod_uid: &str, container: &str) -> Option<(String, Limits)> {
        self.directories.find(pod_uid, container)
    }

    /// Removes the directories of containers that aren't `live`, and says which; what can't be removed is logged.
    pub fn sweep(&self, live: &HashSet<String>) -> Result<Vec<String>, ContainerError> {
        let swept = self.directories.sweep(live)?;
        self.enforcement.clear();
        Ok(swept)
    }

    /// Writes the CDI specification for these cards, if a strategy may use it and its content has changed.
    ///
    /// After an error, or where the driver's files aren't found, `auto` stands for `volume-mounts`. [`ContainerError::Refused`]
    /// concerns some instances alone; all else is published.
    pub fn publish_cards(&self, cards: &[CdiCard]) -> Result<(), ContainerError> {
        let automatic = match &self.options.device_list_strategy {
            DeviceListStrategy::These(strategies) if !strategies.iter().any(|strategy| strategy.is_cdi()) => {
                return Ok(());
            }
            choice => *choice == DeviceListStrategy::Auto,
        };
        let draft = cdi::Draft::new(&self.options, cards);
        let (specification, outcome) = match draft.lacks {
            Some(problem) if automatic => (Specification::Missing(problem), Ok(())),
            _ => match self.write_specification(&draft.spec) {
                Ok(()) => (Specification::Written(draft.cards), Ok(())),
                Err(error) => (Specification::Missing(error.to_string()), Err(error)),
            },
        };
        let first = draft.refused.iter().next();
        let refused =
            first.map(|(card, problem)| ContainerError::Refused { card: card.clone(), problem: problem.clone() });
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
    fn strategies_for(&self, cards: &[&CardId]) -> Result<BTreeSet<Strategy>, ContainerError> {
        let unnamed = self.unnamed(cards)?;
        match (&self.options.device_list_strategy, unnamed) {
            (DeviceListStrategy::Auto, None) => Ok([Strategy::CdiCri].into()),
            (DeviceListStrategy::Auto, Some(_)) => Ok([Strategy::VolumeMounts].into()),
            (DeviceListStrategy::These(strategies), Some((card, problem))) if strategies.iter().any(|s| s.is_cdi()) => {
                Err(ContainerError::Cdi { card, problem })
            }
            (DeviceListStrategy::These(strategies), _) => Ok(strategies.clone()),
        }
    }

    /// The first card that the specification doesn't name, and why.
    fn unnamed(&self, cards: &[&CardId]) -> Result<Option<(CardId, String)>, ContainerError> {
        let published = self.published();
        if let Some((card, problem)) = cards.iter().find_map(|card| published.refused.get_key_value(*card)) {
            return Err(ContainerError::Refused { card: card.clone(), problem: problem.clone() });
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
    pub fn remove_specification(&self) -> Result<bool, ContainerError> {
        let file = self.options.cdi_dir.join(cdi::FILE_NAME);
        match fs::remove_file(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(ContainerError::Specification { file, source }),
            Ok(()) => Ok(true),
        }
    }

    fn write_specification(&self, spec: &cdi::Spec) -> Result<(), ContainerError> {
        let file = self.options.cdi_dir.join(cdi::FILE_NAME);
        let text = serde_json::to_string_pretty(spec).expect("texts and numbers always serialise") + "\n";
        if fs::read_to_string(&file).is_ok_and(|written| written == text) {
            return Ok(());
        }
        fs::create_dir_all(&self.options.cdi_dir)
            .and_then(|()| files::replace(&file, &text))
            .map_err(|source| ContainerError::Specification { file, source })
    }
}

// === impl Limits ===

impl TryFrom<&Allocation<'_>> for Limits {
    type Error = ContainerError;

    fn try_from(handout: &Allocation<'_>) -> Result<Self, ContainerError> {
        let Allocation { pod, container, shares, terms: Terms { tier, compute, priority }, .. } = *handout;
        let field = |field, value: &str| {
            let legal = limits::is_field(value);
            legal.then(|| value.to_owned()).ok_or_else(|| ContainerError::Field { field, value: value.to_owned() })
        };
        let container = field("container name", container)?;
        if shares.is_empty() {
            return Err(ContainerError::NoCards(container));
        }
        limits::check_unique(shares)?;
        Ok(Self {
            tier,
            compute,
            priority,
            pod_uid: field("pod UID", pod.uid)?,
            namespace: field("namespace", pod.namespace)?,
            pod: field("pod name", pod.name)?,
            container,
            cards: shares.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests;
