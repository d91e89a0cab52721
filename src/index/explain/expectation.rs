//! What is expected, for people.

use divvy_placement::{Expected, Kind};
use serde::Serialize;

use crate::cluster::Index;

/// What nodes are ranked by where `least-fragmentation` chooses them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expectation {
    /// Of what is kept in the cluster, as [`Learned`](crate::Learned) has it; 0 if nothing is, as far as is known.
    pub revision: u64,
    /// Pods that were counted, maybe some since then.
    pub pods: u64,
    /// The most frequent kinds of requests, in their order.
    pub requests: Vec<ExpectedPart>,
}

/// A kind of request, and how frequent it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedPart {
    /// Of all requests, to a tenth.
    pub percent: f64,
    /// What it asks for.
    #[serde(flatten)]
    pub kind: Kind,
}

// === impl Index ===

impl Index {
    /// What is expected, with so many kinds at most; `None` if nothing is.
    pub fn expectation(&self, most: usize) -> Option<Expectation> {
        let (mix, (revision, pods)) = (self.expected(), self.learned_from());
        let all: f64 = mix.requests.iter().map(|request| f64::from(request.weight)).sum();
        let part = |Expected { kind, weight }: &Expected| ExpectedPart {
            percent: (1000.0 * f64::from(*weight) / all).round() / 10.0,
            kind: kind.clone(),
        };
        let mut requests: Vec<&Expected> = mix.requests.iter().filter(|request| request.weight > 0).collect();
        requests.sort_by_key(|request| std::cmp::Reverse(request.weight));
        let requests: Vec<ExpectedPart> = requests.into_iter().take(most).map(part).collect();
        (!requests.is_empty()).then_some(Expectation { revision, pods, requests })
    }
}
