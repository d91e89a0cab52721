//! Tests that use the crate as its callers do.

pub(crate) mod build;
mod choices;
mod instances;
mod linked;
mod oracle;
pub(crate) mod properties;
mod refusals;
