//! The slowest plans among many different nodes: percentiles that a mean hides.

mod scenes;

use std::hint::black_box;
use std::time::{Duration, Instant};

use scenes::Scene;

const NODES: u64 = 10_000;
/// The best of some runs of each: the tail of the work is wanted, not that of the machine.
const RUNS: u32 = 5;

fn main() {
    println!("µs of four containers on sixteen cards: p50, p90, p99, p99.9 and most of {NODES} nodes; the worst pods");
    for policy in scenes::POLICIES {
        let mut times: Vec<Duration> = (0..NODES).map(|seed| time(&scenes::everyday(policy, seed))).collect();
        times.sort_unstable();
        let tail = [500, 900, 990, 999, 1000].map(|permille| times[(times.len() - 1) * permille / 1000].as_micros());
        let worst = [
            scenes::hopeless(policy, 17, 1),
            scenes::hopeless(policy, 3, 8),
            scenes::half_the_node(policy),
            scenes::eight_whole_cards(policy),
        ];
        let worst = worst.map(|scene| time(&scene).as_micros());
        println!("{policy:?}: {tail:?}; {worst:?}");
    }
}

fn time(scene: &Scene) -> Duration {
    let once = |_| {
        let start = Instant::now();
        drop(black_box(scene.plan()));
        start.elapsed()
    };
    (0..RUNS).map(once).min().unwrap_or_default()
}
