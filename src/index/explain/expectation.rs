//! The requests that are expected, as explanations show them.

use divvy_placement::{Expected, Kind};
use serde::Serialize;

use crate::snapshot::Snapshot;

/// Requests that `least-fragmentation` ranks nodes by.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expectation {
    /// Number of pods that were counted.
    pub pods: u64,
    /// Kinds of requests, the most frequent first.
    pub requests: Vec<ExpectedPart>,
}

/// A kind of request, and how frequent it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedPart {
    /// Percent of all requests, to a tenth.
    pub percent: f64,
    /// Request of each of them.
    #[serde(flatten)]
    pub kind: Kind,
}

// === impl Snapshot ===

impl Snapshot {
    /// The requests that are expected, so many kinds at most; `None` if there are none.
    pub fn expectation(&self, most: usize) -> Option<Expectation> {
        let expected = self.expected();
        let pods = self.counted_pods;
        let all: f64 = expected.requests.iter().map(|request| f64::from(request.weight)).sum();
        let part = |Expected { kind, weight }: &Expected| ExpectedPart {
            percent: (1000.0 * f64::from(*weight) / all).round() / 10.0,
            kind: kind.clone(),
        };
        let mut requests: Vec<&Expected> = expected.requests.iter().filter(|request| request.weight > 0).collect();
        requests.sort_by_key(|request| std::cmp::Reverse(request.weight));
        let requests: Vec<ExpectedPart> = requests.into_iter().take(most).map(part).collect();
        (!requests.is_empty()).then_some(Expectation { pods, requests })
    }
}
