//! Distribution of the requests that are expected: like those of the pods that have come, later pods weighing more.
//!
//! It isn't kept anywhere: a replica that starts counts the pods that it lists.

use divvy_placement::{Expected, ExpectedRequests, Kind};

use crate::demand::Demand;
use crate::state::decayed_counts::DecayedCounts;

/// Counts of the requests of pods that have come, by kind.
#[derive(Debug, Default)]
pub(crate) struct RequestDistribution {
    counts: DecayedCounts<Kind>,
    /// Requests with which the distribution is due again.
    due: u64,
}

/// Most requests between two distributions.
const PERIOD: u64 = 500;
/// Kinds that are kept; many clusters have fewer.
const MOST_KINDS: usize = 256;
/// Sum of the weights of a distribution, about.
const WEIGHTS: f64 = 1_000_000.0;

/// Number of requests with which a distribution is due again that was made of so many: twice as many, or a period more.
pub fn next_distribution(requests: u64) -> u64 {
    requests + requests.min(PERIOD)
}

// === impl RequestDistribution ===

impl RequestDistribution {
    /// Counts the requests of a pod that has come.
    pub(crate) fn count(&mut self, demand: &Demand) {
        for kind in demand.kinds() {
            self.counts.add(&kind);
        }
    }

    /// Number of requests counted.
    pub(crate) fn pods(&self) -> u64 {
        self.counts.added()
    }

    /// The distribution, if enough requests have come since the last one.
    pub(crate) fn due(&mut self) -> Option<ExpectedRequests> {
        if self.counts.added() < self.due { None } else { self.counted() }
    }

    /// The distribution of all requests so far; `None` without any.
    pub(crate) fn counted(&mut self) -> Option<ExpectedRequests> {
        let added = self.counts.added();
        if added == 0 {
            return None;
        }
        self.due = next_distribution(added);
        self.counts.keep(MOST_KINDS);
        let all: f64 = self.counts.weights().map(|(_, weight)| weight).sum();
        let expected =
            |(kind, weight): (&Kind, f64)| Expected { kind: kind.clone(), weight: rounded(weight / all * WEIGHTS) };
        let mut requests: Vec<Expected> = self.counts.weights().map(expected).collect();
        // Equal histories make equal distributions, however they are stored.
        requests.sort_by_cached_key(|request| (std::cmp::Reverse(request.weight), format!("{:?}", request.kind)));
        Some(ExpectedRequests { requests, counted: rounded(all) })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a million, or requests of which half count after 4 000 more"
)]
fn rounded(weight: f64) -> u32 {
    weight.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::SchedulingConfig;
    use crate::fixture::pod;

    fn counted(pods: u64) -> (RequestDistribution, u32) {
        let (mut distribution, mut due) = (RequestDistribution::default(), 0);
        for number in 0..pods {
            let gib = [8, 8, 8, 20][(number % 4) as usize];
            let demand =
                Demand::read(&pod("p", 1, gib, 0), &SchedulingConfig::default()).expect("a request").expect("cards");
            distribution.count(&demand);
            due += u32::from(distribution.due().is_some());
        }
        (distribution, due)
    }

    #[test]
    fn distribution_is_due_at_once_and_then_ever_more_rarely() {
        assert_eq!(counted(0).1, 0);
        assert_eq!(counted(1).1, 1);
        assert_eq!(counted(2012).1, 13, "with 1, 2, 4 and up to 512 pods, then every 500");
    }

    #[test]
    fn distribution_of_listed_pods_counts_all_of_them() {
        assert_eq!(counted(0).0.counted(), None, "nothing has come");
        let (mut listed, _) = counted(399);
        let counted = listed.counted().expect("many pods");
        assert_eq!(counted.requests.len(), 2);
        assert!(listed.due().is_none(), "the period begins anew");
    }

    #[test]
    fn requests_weigh_by_their_frequency() {
        let mix = counted(1000).0.counted().expect("many pods");
        let weights: Vec<u32> = mix.requests.iter().map(|request| request.weight / 10_000).collect();
        assert_eq!(weights, [74, 25]);
    }
}
