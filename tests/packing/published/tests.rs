use std::sync::Arc;

use divvy_simulate::Rng;
use divvy_simulate::cluster::{Cards, Cluster, Host, Place};
use divvy_simulate::policy::Score as _;
use divvy_simulate::workload::{Arrival, Kind, Part};
use rand::SeedableRng as _;

use super::*;
use crate::fixture::{host, kind, workload};

#[test]
fn packing_prefers_cards_in_use_then_hosts_in_use_then_small() {
    let rate = |cards: &[u32], kind: &Kind| Packing.rate(&host(cards), kind).0;
    let share = kind(1000, 1, 460);
    assert_eq!(rate(&[1000, 540], &share), 95);
    assert_eq!(rate(&[1000, 400], &share), 49);
    assert_eq!((rate(&[1000; 2], &share), rate(&[1000; 8], &share)), (31, 25));
    assert_eq!(rate(&[400, 1000, 1000], &kind(1000, 2, 1000)), 48);
    assert_eq!((rate(&[400], &kind(1000, 0, 0)), rate(&[1000; 8], &kind(1000, 0, 0))), (0, 0));
}

#[test]
fn fgd_rates_the_growth_of_fragments_in_steps() {
    let target = Arc::new(Target::weighted(&[kind(0, 1, 600)], &[1.0]));
    let rate = |cards: &[u32], kind: &Kind| Fgd::new(&target).rate(&host(cards), kind);
    // 700 are left, which is enough: nothing grows, and 100 · sigmoid(0) = 50.
    assert_eq!(rate(&[1000, 1000], &kind(0, 1, 300)), (50, Cards::one(0)));
    // 500 become useless: 100 · sigmoid(−0.5) = 37.8.
    assert_eq!(rate(&[1000, 1000], &kind(0, 1, 500)), (37, Cards::one(0)));
    // 500 useless ones are used: 100 · sigmoid(0.5) = 62.2.
    assert_eq!(rate(&[1000, 500], &kind(0, 1, 500)), (62, Cards::one(1)));
    assert_eq!(rate(&[500, 1000, 1000], &kind(0, 2, 1000)), (50, [1, 2].into_iter().collect()));
}

#[test]
fn random_takes_any_host_and_any_card_that_fit() {
    let workload = workload(3, 4, &[(64_000, 1, 500), (1000, 1, 500)]);
    let mut cluster = Cluster::in_order(&workload, 0..3);
    cluster.place(&workload.kinds[0], Place { host: 1, cards: Cards::one(0) });
    let mut rng = Rng::seed_from_u64(1);
    let mut policy = Random::new(&workload);
    let mut place = || policy.choose(&cluster, Arrival { serial: 0, kind: 1 }, &mut rng).expect("room");
    let places: Vec<(usize, usize)> =
        (0..400).map(|_| place()).map(|place| (place.host, place.cards.positions().next().expect("a card"))).collect();
    let all = (0..3).filter(|host| *host != 1).flat_map(|host| (0..4).map(move |card| (host, card)));
    assert!(places.iter().all(|(host, _)| *host != 1), "its CPU is taken");
    assert!(all.into_iter().all(|place| places.contains(&place)));
}

#[test]
fn compute_and_memory_of_a_card_both_count() {
    let part = |cores, memory| Part { cores, memory };
    let host = |cards: &[Part]| Host { cards: cards.to_vec(), ..host(&[]) };
    let bound = Kind { part: part(200, 400), ..kind(0, 1, 0) };
    assert_eq!(Packing.rate(&host(&[Part::WHOLE, part(900, 500)]), &bound), (93, Cards::one(1)));
    // 600 of compute are left and 100 of memory, of no use to another such: 100 · sigmoid(−0.35) = 41.3.
    let target = Target::weighted(&[bound], &[1.0]);
    let fgd = Fgd::new(&target);
    assert_eq!(fgd.rate(&host(&[part(800, 500), part(100, 0)]), &bound), (41, Cards::one(0)));
}
