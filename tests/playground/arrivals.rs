//! Which pod comes when, and for how long, in scaled time: a lifetime is 1 on average.

use divvy_api::names::annotation as key;
use divvy_api::{ContainerKind, Memory};
use divvy_simulate::trace::TracePod;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::mix;
use divvy_testkit::pods::PodShape;

/// Pods that the mean demand is taken from.
const SAMPLE: u32 = 10_000;

/// Where pods come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The playground's own mix.
    Own,
    /// Drawn from a trace, with a few of our own among them.
    Trace(Vec<TracePod>),
}

/// The cluster that the pods are meant for.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Number of cards.
    pub cards: usize,
    /// Memory of a card in the middle.
    pub memory: Memory,
}

/// A pod that is offered.
#[derive(Clone, Debug)]
pub struct Offer {
    /// When.
    pub at: f64,
    /// When it ends, if it is admitted.
    pub end: f64,
    /// What it is.
    pub shape: PodShape,
}

/// The stream of pods. Gaps and lifetimes are exponential, so that on average `load` percent of the cards are asked for.
#[derive(Debug)]
pub struct Arrivals {
    source: Source,
    rng: StdRng,
    now: f64,
    mean_gap: f64,
    count: u32,
    /// Wrong ones so far.
    wrong: u32,
}

// === impl Arrivals ===

impl Arrivals {
    /// `load` is in percent of the cards.
    pub fn new(source: Source, capacity: Capacity, load: u32, seed: u64) -> Self {
        let sample = &mut StdRng::seed_from_u64(seed);
        let demand: f64 = (0..SAMPLE).map(|number| source.draw(sample, number, &mut 0).demand(capacity.memory)).sum();
        let cards = f64::from(u32::try_from(capacity.cards).unwrap_or(u32::MAX));
        let mean_gap = demand / f64::from(SAMPLE) / (cards * f64::from(load) / 100.0);
        // Pods that use no card wouldn't ever fill one: then they just come one after another.
        let mean_gap = if mean_gap > 0.0 { mean_gap } else { 0.01 };
        Self { source, rng: StdRng::seed_from_u64(seed), now: 0.0, mean_gap, count: 0, wrong: 0 }
    }

    /// The next pod.
    pub fn next_offer(&mut self) -> Offer {
        let mut exponential = |mean: f64| -mean * (1.0 - self.rng.random::<f64>()).ln();
        self.now += exponential(self.mean_gap);
        let end = self.now + exponential(1.0);
        self.count += 1;
        Offer { at: self.now, end, shape: self.source.draw(&mut self.rng, self.count, &mut self.wrong) }
    }
}

// === impl Source ===

impl Source {
    fn draw(&self, rng: &mut StdRng, number: u32, wrong: &mut u32) -> PodShape {
        match (self, rng.random_range(0..100)) {
            (_, 0..8) => {
                *wrong += 1;
                mix::wrong(*wrong - 1, number)
            }
            (Self::Trace(_), 8..14) => mix::composite(rng, number),
            (Self::Trace(pods), _) => {
                let pod = pods.choose(rng).expect("a trace without rows is refused when it is read");
                of_trace(pod, number)
            }
            (Self::Own, _) => mix::ordinary(rng, number),
        }
    }
}

/// A fraction asks for the same part of the memory where the trace has none of its own.
fn of_trace(pod: &TracePod, number: u32) -> PodShape {
    let cores = pod.milli.div_ceil(10).clamp(1, 99);
    let memory = pod.card_memory.map_or(cores, |memory| memory.div_ceil(10)).to_string();
    let cores = cores.to_string();
    let cards = pod.cards.to_string();
    let limits: &[(&str, &str)] = match (pod.cards, pod.milli) {
        (0, _) => &[],
        (_, 1000..) => &[("gpu", &cards)],
        _ => &[("gpu", &cards), ("gpucores", &cores), ("gpumem-percentage", &memory)],
    };
    // Drawn more than once, so the trace's own name isn't enough.
    let shape = PodShape::new(format!("{}-{number}", pod.name)).with(ContainerKind::App, "main", limits);
    if pod.models.is_empty() { shape } else { shape.annotated(key::CARD_MODEL, pod.models.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity() -> Capacity {
        Capacity { cards: 32, memory: Memory::mib(80 << 10) }
    }

    #[test]
    fn fractions_of_a_trace_become_percentages() {
        let limits = |cards, milli, card_memory| {
            let pod = TracePod {
                name: "p".into(),
                cards,
                milli,
                card_memory,
                models: vec!["T4".into(), "P100".into()],
                ..TracePod::default()
            };
            let shape = of_trace(&pod, 3);
            assert_eq!((&*shape.name, &*shape.annotations[key::CARD_MODEL]), ("p-3", "T4,P100"));
            let limits = shape.containers[0].limits.iter().map(|(name, amount)| format!("{name}={amount}"));
            limits.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(limits(1, 455, None), "nvidia.com/gpu=1 nvidia.com/gpucores=46 nvidia.com/gpumem-percentage=46");
        assert_eq!(
            limits(1, 455, Some(995)),
            "nvidia.com/gpu=1 nvidia.com/gpucores=46 nvidia.com/gpumem-percentage=100"
        );
        assert_eq!(limits(1, 999, None), "nvidia.com/gpu=1 nvidia.com/gpucores=99 nvidia.com/gpumem-percentage=99");
        assert_eq!(limits(8, 1000, None), "nvidia.com/gpu=8");
        assert_eq!(limits(0, 0, None), "");
    }

    #[test]
    fn equal_seeds_make_equal_streams() {
        let stream = |seed| {
            let mut arrivals = Arrivals::new(Source::Own, capacity(), 90, seed);
            let offers = (0..40).map(move |_| arrivals.next_offer());
            offers.map(|offer| (offer.at.to_bits(), offer.end.to_bits(), offer.shape)).collect::<Vec<_>>()
        };
        assert_eq!(stream(3), stream(3));
        assert_ne!(stream(3), stream(4));
    }

    #[test]
    fn the_offered_demand_is_the_load() {
        let mut arrivals = Arrivals::new(Source::Own, capacity(), 130, 5);
        let offers: Vec<_> = (0..20_000).map(|_| arrivals.next_offer()).collect();
        let work: f64 = offers.iter().map(|o| o.shape.demand(capacity().memory) * (o.end - o.at)).sum();
        let offered = work / offers.last().expect("offers").at / 32.0;
        assert!((1.2..1.4).contains(&offered), "{offered}");
    }
}
