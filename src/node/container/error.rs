//! What can go wrong while a container is prepared.

use std::io;
use std::path::{Path, PathBuf};

use divvy_api::{CardId, Tier};
use divvy_node_core::ports::SetupError;

use super::limits::LimitsError;

/// Why a container can't be prepared.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// A name that can't be a field of the limits file.
    #[error(
        "{field} {value:?} can't be written to the limits file: expected 1 to 253 letters, digits, '-', '_' and '.'"
    )]
    Field {
        /// Kind of name.
        field: &'static str,
        /// The name itself.
        value: String,
    },
    /// Limits that a reader of the file would refuse.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// A tier that can't be served now.
    #[error("tier {tier} can't be served now: {problem}; running containers are not affected")]
    Isolation {
        /// Tier of the container.
        tier: Tier,
        /// Problem, and what to do.
        problem: String,
    },
    /// A container without shares.
    #[error("container \"{0}\" has no GPU allocated")]
    NoCards(String),
    /// A card without a CDI device, which the configured strategy requires.
    #[error("{card} has no CDI device, which deviceListStrategy requires: {problem}")]
    Cdi {
        /// The first such card.
        card: CardId,
        /// What keeps it out of the specification.
        problem: String,
    },
    /// A MIG instance that the driver wouldn't let the container use.
    #[error("MIG instance {card} can't be allocated: {problem}")]
    Refused {
        /// The first such instance.
        card: CardId,
        /// What is missing.
        problem: String,
    },
    /// The specification can't be written.
    #[error(
        "writing CDI specification {}: {source}: mount cdiDir writable into the daemon's pod, or set deviceListStrategy to volume-mounts",
        file.display()
    )]
    Specification {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A container's directories can't be made, written or removed.
    #[error("{doing} {}: {source}: runDir must be a directory that the daemon can write to", path.display())]
    State {
        /// The step.
        doing: &'static str,
        /// The directory or file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Turns the I/O error of a step at `path` into a [`ContainerError::State`].
pub(crate) fn state(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ContainerError {
    let path = path.to_owned();
    move |source| ContainerError::State { doing, path, source }
}

// === impl ContainerError ===

impl From<ContainerError> for SetupError {
    fn from(error: ContainerError) -> Self {
        Self(error.to_string())
    }
}
