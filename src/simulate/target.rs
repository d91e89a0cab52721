//! The requests that are expected, and how much of what is free they couldn't use: FGD's measure (Weng et al., USENIX ATC
//! 2023).

use crate::cluster::Host;
use crate::workload::{Kind, Taints, Workload};

/// Kinds of pods that are expected, each with its part of all; together 1. Host memory and tolerations don't count: they are
/// nothing in all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// Those that cover most pods, the most frequent first.
    pub requests: Vec<(Kind, f64)>,
    /// All, with the weights that they were told with.
    pub all: Vec<(Kind, f64)>,
}

/// The part of all pods that a target covers at least, by the most frequent of their requests.
const COVERAGE: f64 = 0.95;

// === impl Target ===

impl Target {
    /// As the pods of a workload come.
    pub fn from_workload(workload: &Workload) -> Self {
        let mut weights = vec![0.0; workload.kinds.len()];
        for kind in &workload.pods {
            weights[*kind] += 1.0;
        }
        Self::weighted(&workload.kinds, &weights)
    }

    /// As kinds of pods come that weigh so much. Of equally frequent ones the earlier comes first.
    pub fn weighted(kinds: &[Kind], weights: &[f64]) -> Self {
        let mut requests: Vec<(Kind, f64)> = Vec::new();
        for (kind, weight) in kinds.iter().zip(weights).filter(|(_, weight)| **weight > 0.0) {
            let request = Kind { memory: 0, tolerates: Taints::default(), ..*kind };
            match requests.iter_mut().find(|(known, _)| *known == request) {
                Some((_, sum)) => *sum += weight,
                None => requests.push((request, *weight)),
            }
        }
        requests.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let all = requests.clone();
        let enough = COVERAGE * requests.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut covered = 0.0;
        requests.retain(|(_, weight)| {
            let is_wanted = covered < enough;
            covered += if is_wanted { *weight } else { 0.0 };
            is_wanted
        });
        for (_, weight) in &mut requests {
            *weight /= covered;
        }
        Self { requests, all }
    }

    /// Thousandths of the host's cards that are free and that the requests couldn't use, on average. A card that is short of
    /// compute or of memory is of no use, and counts with the mean of what is free of both.
    pub fn fragmented(&self, host: &Host) -> f64 {
        let free = host.free();
        self.requests.iter().map(|(request, part)| part * f64::from(useless(host, free, request)) / 2.0).sum()
    }
}

/// Thousandths of the host's cards that are `free` and useless to the request, of compute and memory together: all, if it
/// doesn't fit, else the cards that are too small.
fn useless(host: &Host, free: u32, request: &Kind) -> u32 {
    let Kind { cpu, cards, part, models, .. } = *request;
    if cards == 0 || host.cpu < cpu || !models.contain(host.model) {
        return free;
    }
    let mut fitting = 0;
    let mut too_small = 0;
    for card in &host.cards {
        let fits = card.covers(part);
        fitting += u32::from(fits);
        too_small += if fits { 0 } else { card.sum() };
    }
    if fitting < cards { free } else { too_small }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::even;
    use crate::workload::{Models, Part, Taints};

    fn kind(cpu: u32, cards: u32, milli: u32, models: Models) -> Kind {
        Kind { cpu, memory: 1, cards, part: even(milli), models, tolerates: Taints::default() }
    }

    fn host(cpu: u32) -> Host {
        let cards = vec![even(1000), even(300)];
        Host { machine: 0, model: 1, taints: Taints::default(), cpu, memory: 1, cards, revision: 1 }
    }

    #[test]
    fn target_covers_most_pods_by_frequent_requests() {
        let kinds: Vec<Kind> = (0..5).map(|cpu| kind(cpu, 1, 500, Models::ANY)).collect();
        let target = Target::weighted(&kinds, &[3.0, 90.0, 1.0, 4.0, 2.0]);
        let found: Vec<(u32, f64)> = target.requests.iter().map(|(request, part)| (request.cpu, part * 97.0)).collect();
        assert_eq!(found, [(1, 90.0), (3, 4.0), (0, 3.0)], "94 of 100 aren't enough, 97 are");
    }

    #[test]
    fn kinds_that_differ_in_host_memory_alone_are_one_request() {
        let kinds = [kind(1, 1, 500, Models::ANY), Kind { memory: 2, ..kind(1, 1, 500, Models::ANY) }];
        assert_eq!(Target::weighted(&kinds, &[1.0, 1.0]).requests.len(), 1);
    }

    #[test]
    fn capacity_unusable_by_a_request_is_a_fragment() {
        let fragmented =
            |cpu, request: Kind| Target::weighted(&[request], &[1.0]).fragmented(&host(cpu)).round() as u32;
        assert_eq!(fragmented(4000, kind(4000, 1, 500, Models::ANY)), 300, "one card is too small");
        assert_eq!(fragmented(4000, kind(4000, 1, 300, Models::ANY)), 0);
        assert_eq!(fragmented(3999, kind(4000, 1, 300, Models::ANY)), 1300, "too little CPU");
        assert_eq!(fragmented(4000, kind(4000, 2, 1000, Models::ANY)), 1300, "one card instead of two");
        assert_eq!(fragmented(4000, kind(4000, 1, 300, [0].into_iter().collect())), 1300, "another model");
        assert_eq!(fragmented(4000, kind(4000, 0, 0, Models::ANY)), 1300, "no card wanted");
    }

    #[test]
    fn card_short_of_either_amount_is_a_fragment() {
        let part = |cores, memory| Part { cores, memory };
        let host = Host { cards: vec![part(500, 101), part(99, 0), part(200, 100)], ..host(0) };
        let fragmented = |cores, memory| {
            let kind = Kind { part: part(cores, memory), ..kind(0, 1, 0, Models::ANY) };
            Target::weighted(&[kind], &[1.0]).fragmented(&host)
        };
        assert_eq!(fragmented(100, 100).to_bits(), 49.5_f64.to_bits());
        assert_eq!(fragmented(201, 100).to_bits(), (49.5_f64 + 150.0).to_bits());
        assert_eq!(fragmented(100, 102).to_bits(), (49.5_f64 + 150.0 + 300.5).to_bits());
    }

    #[test]
    fn fragments_are_weighted_by_request_frequency() {
        let kinds = [kind(0, 1, 500, Models::ANY), kind(0, 1, 1000, Models::ANY), kind(0, 0, 0, Models::ANY)];
        let target = Target::weighted(&kinds, &[2.0, 1.0, 1.0]);
        assert!((target.fragmented(&host(0)) - (0.5 * 300.0 + 0.25 * 300.0 + 0.25 * 1300.0)).abs() < 1e-9);
    }
}
