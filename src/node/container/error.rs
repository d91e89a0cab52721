//! What can go wrong while a container is prepared.

use std::io;
use std::path::{Path, PathBuf};

use divvy_api::{CardId, Tier};

use super::limits::LimitsError;

/// Why a container can't be given its cards, or not all that belongs to them.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The nonce becomes part of a path.
    #[error("nonce {0:?} can't be a directory's name: expected 1 to 40 lower-case letters, digits and '-'")]
    Nonce(String),
    /// Names become fields of the limits file.
    #[error(
        "{field} {value:?} can't be written to the limits file: expected 1 to 253 letters, digits, '-', '_' and '.'"
    )]
    Field {
        /// Which name.
        field: &'static str,
        /// Its text.
        value: String,
    },
    /// The reader would refuse them.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// What enforces shares on this node has gone.
    #[error("tier {tier} can't be served now: {problem}; containers that run are not touched")]
    Isolation {
        /// The one that the container is given.
        tier: Tier,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Nothing to deliver.
    #[error("container \"{0}\" has no card to be given")]
    NoCards(String),
    /// CDI was asked for by name, so nothing else will do.
    #[error("card {card} can't be given by CDI, which deviceListStrategy demands: {problem}")]
    Cdi {
        /// The first such card.
        card: CardId,
        /// What keeps it out of the specification.
        problem: String,
    },
    /// The runtime would give the card's node, and the driver would not let the container use the instance.
    #[error("MIG instance {card} can't be given to a container: {problem}")]
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

/// The error of a step that failed there.
pub(crate) fn state(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ContainerError {
    let path = path.to_owned();
    move |source| ContainerError::State { doing, path, source }
}
