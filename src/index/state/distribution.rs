//! What requests are expected: those that have come, the later ones weighing more.

use divvy_placement::{Expected, Kind, Mix};

use crate::demand::Demand;
use crate::state::decayed_counts::{DecayedCounts, sum_of};
use crate::state::learned::{FEWEST_PODS, Learned, MOST_KINDS};

/// Counts the kinds of requests as their pods come.
#[derive(Debug)]
pub(crate) struct RequestDistribution {
    tally: DecayedCounts<Kind>,
    /// Pods with which the mix is told anew.
    due: u64,
    /// Of what is kept in the cluster, as far as is known.
    pub(crate) revision: u64,
}

/// Most pods between two views of what is expected.
const PERIOD: u64 = 500;
/// What the weights of a mix add up to, about.
const WEIGHTS: f64 = 1_000_000.0;

// === impl RequestDistribution ===

impl RequestDistribution {
    /// A pod has come; what is expected from now on, if it is time to look.
    pub(crate) fn learn(&mut self, demand: &Demand) -> Option<Mix> {
        for kind in demand.kinds() {
            self.tally.add(&kind);
        }
        if self.tally.added() < self.due {
            return None;
        }
        self.due = self.tally.added() + self.tally.added().clamp(FEWEST_PODS, PERIOD);
        Some(self.mix())
    }

    /// Pods that were counted.
    pub(crate) fn pods(&self) -> u64 {
        self.tally.added()
    }

    /// What a successor has to know; `None` before anything is expected.
    pub(crate) fn learned(&mut self) -> Option<Learned> {
        let (revision, pods) = (self.revision, self.pods());
        (pods >= FEWEST_PODS).then(|| Learned { revision, pods, requests: self.mix().requests })
    }

    /// What is expected by all that has come.
    fn mix(&mut self) -> Mix {
        self.tally.keep(MOST_KINDS);
        let all: f64 = self.tally.weights().map(|(_, weight)| weight).sum();
        let expected =
            |(kind, weight): (&Kind, f64)| Expected { kind: kind.clone(), weight: rounded(weight / all * WEIGHTS) };
        let mut requests: Vec<Expected> = self.tally.weights().map(expected).collect();
        // Equal histories make equal mixes, however they are stored.
        requests.sort_by_cached_key(|request| (std::cmp::Reverse(request.weight), format!("{:?}", request.kind)));
        Mix { requests }
    }

    /// Goes on from what somebody else has learned.
    pub(crate) fn restore(&mut self, learned: &Learned) {
        let Learned { revision, pods, requests } = learned;
        let weights = requests.iter().map(|request| (request.kind.clone(), f64::from(request.weight)));
        let all: f64 = weights.clone().map(|(_, weight)| weight).sum();
        // The weights of as many pods add up to less than so many, as the earlier ones weigh less.
        let scale = sum_of(*pods) / all.max(1.0);
        self.tally = DecayedCounts::restore(weights.map(|(kind, weight)| (kind, weight * scale)), *pods);
        (self.due, self.revision) = (pods + PERIOD, *revision);
    }
}

impl Default for RequestDistribution {
    fn default() -> Self {
        Self { tally: DecayedCounts::default(), due: FEWEST_PODS, revision: 0 }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a million")]
fn rounded(weight: f64) -> u32 {
    weight.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::SchedulingConfig;
    use crate::fixture::pod;

    fn learned(pods: u64) -> (RequestDistribution, u32) {
        let (mut distribution, mut told) = (RequestDistribution::default(), 0);
        for number in 0..pods {
            let gib = [8, 8, 8, 20][(number % 4) as usize];
            let demand =
                Demand::of(&pod("p", 1, gib, 0), &SchedulingConfig::default()).expect("a request").expect("cards");
            told += u32::from(distribution.learn(&demand).is_some());
        }
        (distribution, told)
    }

    #[test]
    fn nothing_is_expected_of_a_few_pods_and_what_is_expected_is_told_now_and_then() {
        assert_eq!(learned(49).1, 0);
        assert_eq!(learned(50).1, 1);
        assert_eq!(learned(2000).1, 7, "with 50, 100, 200, 400 and 800 pods, then every 500");
    }

    #[test]
    fn requests_weigh_by_how_often_they_come() {
        let mix = learned(1000).0.mix();
        let weights: Vec<u32> = mix.requests.iter().map(|request| request.weight / 10_000).collect();
        assert_eq!(weights, [74, 25]);
    }

    #[test]
    fn what_was_learned_goes_on_elsewhere() {
        let (mut one, _) = learned(1000);
        let mut other = RequestDistribution::default();
        other.restore(&one.learned().expect("many pods"));
        assert_eq!(other.learned(), one.learned());
        let demand = Demand::of(&pod("p", 2, 8, 0), &SchedulingConfig::default()).expect("a request").expect("cards");
        for distribution in [&mut one, &mut other] {
            (0..200).for_each(|_| drop(distribution.learn(&demand)));
        }
        let (one, other) = (one.mix(), other.mix());
        let differences = one.requests.iter().zip(&other.requests).map(|(one, other)| {
            assert_eq!(one.kind, other.kind);
            one.weight.abs_diff(other.weight)
        });
        assert!(differences.max() < Some(10), "{one:?} {other:?}");
    }
}
