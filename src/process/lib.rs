//! divvy-process: what Divvy's long-running programs do beside their work: they run tasks, end on signals, and show their
//! metrics.

mod metrics;
mod signals;
mod tasks;

pub use metrics::metrics;
pub use signals::Signals;
pub use tasks::{Outcome, Tasks};
