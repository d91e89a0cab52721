//! What is checked: each part is a list of findings.

use anyhow::{Error, Result};

use crate::container::Site;
use crate::report::Report;

mod memory;
mod overhead;
mod robustness;
mod share;

/// What all checks go by.
pub(crate) struct Check<'a> {
    pub(crate) site: &'a Site,
    pub(crate) report: &'a mut Report,
    pub(crate) is_quick: bool,
    /// Bytes of the card.
    pub(crate) card_bytes: u64,
}

/// A part that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// What the library adds to calls
    Overhead,
    /// Limits of memory, and what programs are told of them
    Memory,
    /// Shares of compute
    Share,
    /// Kills, forks and other accidents
    Robustness,
}

// === impl Part ===

impl Part {
    pub(crate) const ALL: [Self; 4] = [Self::Overhead, Self::Memory, Self::Share, Self::Robustness];

    pub(crate) fn run(self, check: &mut Check<'_>) -> Result<()> {
        match self {
            Self::Overhead => overhead::check(check),
            Self::Memory => memory::check(check),
            Self::Share => share::check(check),
            Self::Robustness => robustness::check(check),
        }
    }
}

// === impl Check ===

impl Check<'_> {
    /// Something that can go wrong as a whole: then it is a finding, and the next check goes on.
    fn attempt(&mut self, what: &str, check: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        check(self).or_else(|error: Error| self.report.broken(what, &format!("{error:#}")))
    }

    /// So many of something, or fewer if there is no time.
    fn count(&self, thorough: u64, quick: u64) -> u64 {
        if self.is_quick { quick } else { thorough }
    }

    /// What containers of the checks of memory may have: 8 GiB, or a quarter of a small card.
    fn memory_mib(&self) -> u64 {
        (self.card_bytes >> 22).min(8 << 10)
    }
}
