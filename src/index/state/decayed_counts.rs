//! Counts in which later additions weigh more.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::FixedState;

/// Counts that halve with every so many additions.
#[derive(Clone, Debug)]
pub struct DecayedCounts<K> {
    /// In one order for equal counts, in every process.
    weights: HashMap<K, f64, FixedState>,
    /// Weight of the next addition; all weights are relative to it.
    next: f64,
    added: u64,
}

/// Additions after which one weighs half as much.
const HALF_LIFE: f64 = 4000.0;
/// Weights are scaled down before they become this large.
const LARGE: f64 = 1e12;

// === impl DecayedCounts ===

impl<K: Clone + Eq + Hash> DecayedCounts<K> {
    /// Counts one.
    pub fn add(&mut self, key: &K) {
        match self.weights.get_mut(key) {
            Some(weight) => *weight += self.next,
            None => drop(self.weights.insert(key.clone(), self.next)),
        }
        self.next *= (1.0 / HALF_LIFE).exp2();
        self.added += 1;
        if self.next > LARGE {
            self.weights.values_mut().for_each(|weight| *weight /= LARGE);
            self.next /= LARGE;
        }
    }

    /// Number of additions.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Keys with their weights, relative to that of the next addition.
    pub fn weights(&self) -> impl Iterator<Item = (&K, f64)> {
        self.weights.iter().map(|(key, weight)| (key, weight / self.next))
    }

    /// Keeps the keys that weigh most, so many.
    pub fn keep(&mut self, most: usize) {
        if self.weights.len() > most {
            let mut weights: Vec<f64> = self.weights.values().copied().collect();
            weights.sort_unstable_by(|one, other| other.total_cmp(one));
            let least = weights[most];
            self.weights.retain(|_, weight| *weight > least);
        }
    }
}

impl<K> Default for DecayedCounts<K> {
    fn default() -> Self {
        Self { weights: HashMap::default(), next: 1.0, added: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_halves_after_a_half_life() {
        let mut tally = DecayedCounts::default();
        (0..4000).for_each(|_| tally.add(&"before"));
        (0..4000).for_each(|_| tally.add(&"after"));
        let weight = |key| tally.weights().find(|(known, _)| **known == key).expect("counted").1;
        assert!((weight("before") / weight("after") - 0.5).abs() < 1e-9);
        assert_eq!(tally.added(), 8000);
    }

    #[test]
    fn weights_stay_bounded() {
        let mut tally = DecayedCounts::default();
        (0..400_000).for_each(|number| tally.add(&(number % 2)));
        let sum: f64 = tally.weights().map(|(_, weight)| weight).sum();
        let step = (-1.0 / HALF_LIFE).exp2();
        let series = step * (1.0 - step.powi(400_000)) / (1.0 - step);
        assert!((sum - series).abs() < 1e-3, "{sum}");
        assert!((sum - 4000.0 / std::f64::consts::LN_2).abs() < 1.0, "it has an end");
        assert!(tally.next <= LARGE);
    }

    #[test]
    fn keep_drops_the_rarest_keys() {
        let mut tally = DecayedCounts::default();
        (0..10).for_each(|number| (0..=number).for_each(|_| tally.add(&number)));
        tally.keep(3);
        let mut kept: Vec<u32> = tally.weights().map(|(number, _)| *number).collect();
        kept.sort_unstable();
        assert_eq!(kept, [7, 8, 9]);
    }
}
