//! Policies as others have published them, asked about all nodes.

mod fgd;
mod packing;
mod random;

use divvy_simulate::policy::{BestFit, Policy, Scored, Ties};
use divvy_simulate::target::Target;
use divvy_simulate::workload::Workload;

pub use fgd::Fgd;
pub use packing::Packing;
pub use random::Random;

/// A policy by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The least that is left of CPU and cards.
    BestFit,
    /// Cards in use first, then hosts in use.
    Packing,
    /// Any host, any card.
    Random,
    /// Fragmentation gradient descent.
    Fgd,
}

// === impl Published ===

impl Published {
    /// Name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BestFit => "best-fit",
            Self::Packing => "packing",
            Self::Random => "random",
            Self::Fgd => "fgd",
        }
    }

    /// The policy, for an empty cluster to which pods come as `target` says.
    pub fn policy<'a>(self, workload: &Workload, target: &'a Target, ties: Ties) -> Box<dyn Policy + 'a> {
        match self {
            Self::BestFit => Box::new(Scored::new(BestFit, ties, workload)),
            Self::Packing => Box::new(Scored::new(Packing, ties, workload)),
            Self::Random => Box::new(Random::new(workload)),
            Self::Fgd => Box::new(Scored::new(Fgd::new(target), ties, workload)),
        }
    }
}

#[cfg(test)]
mod tests;
