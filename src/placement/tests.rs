//! Tests that use the crate as its callers do.

pub(crate) mod build;
mod choices;
mod oracle;
mod properties;
mod refusals;
