//! The requests that are expected, from what came before.

use divvy_api::{GpuRequest, MigProfile};
use serde::Serialize;

/// Requests that `least-fragmentation` keeps capacity for. Empty: nothing is known, and it best-fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedRequests {
    /// Order doesn't matter, and each kind comes once.
    pub requests: Vec<Expected>,
    /// Requests that were counted. If they are few, others may come that haven't been seen.
    pub counted: u32,
}

/// A kind of request, and how often it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What it asks for.
    pub kind: Kind,
    /// Frequency, relative to the other kinds.
    pub weight: u32,
}

/// Request of a pod, as far as it decides which nodes would do for many such pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// Cards.
    pub request: GpuRequest,
    /// The MIG profile whose instances these are; `None`: cards of the plain count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<MigProfile>,
    /// Each of them must be a MIG instance, and is taken whole.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub instances: bool,
    /// Models that will do, as in `divvy.dev/card-model`; none named: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Models that won't, as in `divvy.dev/avoid-card-model`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoid_models: Vec<String>,
    /// Thousandths of a CPU core that the pod requests beside its cards.
    pub cpu_milli: u32,
}
