//! What is measured, on nodes small enough to work it out by hand; and what must hold for any.

use divvy_api::{Cores, GpuRequest, Memory};
use proptest::prelude::*;

use super::*;
use crate::Card;
use crate::tests::build::{cards, instances};

const GIB: u64 = 1 << 10;

fn kind(cards: u32, gib: u64, cores: u32, cpu_milli: u32) -> Kind {
    let request =
        GpuRequest { cards, memory: MemoryAmount::Absolute(Memory::mib(gib * GIB)), cores: Cores::new(cores) };
    Kind { request, profile: None, instances: false, models: Vec::new(), avoid_models: Vec::new(), cpu_milli }
}

fn whole(cards: u32, cpu_milli: u32) -> Kind {
    Kind { request: GpuRequest::whole(cards), ..kind(cards, 1, 1, cpu_milli) }
}

fn mix(kinds: &[(Kind, u32)]) -> Mix {
    Mix { requests: kinds.iter().map(|(kind, weight)| Expected { kind: kind.clone(), weight: *weight }).collect() }
}

fn forecast(kinds: &[(Kind, u32)]) -> Forecast {
    Forecast::new(&mix(kinds), &[Hardware::of(&cards(1)[0])])
}

/// A node of cards with 80 GiB, of which so many GiB and cores are held.
fn node(cpu_milli: u32, held: &[(u64, u32)]) -> Remains {
    let mut cards: Vec<Card> = cards(held.len());
    for (card, (gib, cores)) in cards.iter_mut().zip(held) {
        card.held.memory = Memory::mib(gib * GIB);
        card.held.cores = Cores::new(*cores);
        card.held.pods = u32::from(*gib > 0);
    }
    Remains::new(Some(cpu_milli), &cards, &vec![0; held.len()])
}

fn usable(forecast: &Forecast, node: &Remains) -> f64 {
    forecast.look_at(node.clone()).usable
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 2.0 // sizes are whole thousandths
}

#[test]
fn what_is_free_is_usable_as_far_as_a_request_fits() {
    let half = forecast(&[(kind(1, 40, 50, 0), 1)]);
    assert!(close(usable(&half, &node(8000, &[(0, 0), (40, 50)])), 1500.0));
    assert!(close(usable(&half, &node(8000, &[(0, 0), (60, 50)])), 1000.0), "20 GiB are of no use to it");
    assert!(close(usable(&half, &node(8000, &[(0, 0), (40, 60)])), 1000.0), "nor 40 % of the compute");
    let two = forecast(&[(kind(2, 40, 50, 0), 1)]);
    assert!(close(usable(&two, &node(8000, &[(0, 0), (60, 50)])), 0.0), "one card instead of two");
    let with_cpu = forecast(&[(kind(1, 40, 50, 4000), 1)]);
    assert!(close(usable(&with_cpu, &node(3999, &[(0, 0)])), 0.0), "too little CPU");
    assert!(close(usable(&with_cpu, &Remains { cpu_milli: None, ..node(0, &[(0, 0)]) }), 1000.0), "CPU isn't known");
}

#[test]
fn requests_count_by_how_often_they_come() {
    let mixed = forecast(&[(kind(1, 40, 50, 0), 3), (whole(1, 0), 1)]);
    assert!(close(usable(&mixed, &node(8000, &[(0, 0), (40, 50)])), 0.75 * 1500.0 + 0.25 * 1000.0));
}

#[test]
fn a_request_for_models_finds_only_those() {
    let a100 = kind(1, 40, 50, 0);
    let model = cards(1)[0].model.to_string();
    let only = Kind { models: vec![model.clone()], ..a100.clone() };
    let not = Kind { avoid_models: vec![model], ..a100 };
    assert!(close(usable(&forecast(&[(only, 1)]), &node(0, &[(0, 0)])), 1000.0));
    assert!(close(usable(&forecast(&[(not, 1)]), &node(0, &[(0, 0)])), 0.0));
}

#[test]
fn whole_instances_are_of_use_to_those_that_they_hold_and_nothing_else_is() {
    let empty = |card: &Card, kind: &Kind| {
        let forecast = Forecast::new(&mix(&[(kind.clone(), 1)]), &[Hardware::of(card)]);
        let node = Remains::new(None, std::slice::from_ref(card), &[0]);
        (usable(&forecast, &node), forecast.sellable(&node))
    };
    let size = |free: f64, sold: f64| move |found: (f64, f64)| close(found.0, free) && close(found.1, sold);
    let instance = &instances(&[40])[0];
    let (part, too_much) = (kind(1, 20, 0, 0), kind(1, 41, 0, 0));
    let strict = |kind: &Kind| Kind { instances: true, ..kind.clone() };
    assert!(size(750.0, 250.0)(empty(instance, &part)), "two parts fit, and need no compute");
    assert!(size(750.0, 750.0)(empty(instance, &strict(&part))), "it takes all of it");
    assert!(size(0.0, 0.0)(empty(instance, &strict(&too_much))));
    assert!(size(0.0, 0.0)(empty(&cards(1)[0], &strict(&part))), "a GPU");
    let undivided = &Card { undivided: true, memory_capacity: Memory::mib(80 * GIB), ..instance.clone() };
    assert!(empty(undivided, &part).1 > 700.0, "nor does its node give it in parts");
    assert!(size(0.0, 0.0)(empty(undivided, &too_much)), "whatever is promised of it");
}

#[test]
fn a_node_that_lacks_a_card_is_a_part_of_a_host() {
    let two = forecast(&[(whole(2, 4000), 1)]);
    let hosts = |cpu, held: &[(u64, u32)]| two.look_at(node(cpu, held)).hosts[0];
    assert!((hosts(8000, &[(0, 0); 4]) - 2.0).abs() < 1e-9);
    assert!((hosts(7999, &[(0, 0); 4]) - 1.0).abs() < 1e-9, "CPU for one");
    assert!((hosts(8000, &[(0, 0), (1, 1)]) - NEARLY).abs() < 1e-9);
    assert!((hosts(8000, &[(1, 1), (1, 1)]) - NEARLY * NEARLY).abs() < 1e-9);
    assert!(hosts(3999, &[(0, 0); 4]).abs() < 1e-9, "it'll never have the CPU before pods end");
    assert!(hosts(8000, &[(0, 0)]).abs() < 1e-9, "it has one card");
}

#[test]
fn hosts_cost_where_they_are_scarce() {
    let two = forecast(&[(whole(2, 0), 1), (whole(1, 0), 3)]);
    let price = |free, hosts| two.prices(free, 100_000, &[hosts]).cost(|_| 1.0) / 2000.0;
    // Two of five cards are asked for in pairs: 20 cards make four pairs and a bit.
    assert!(price(20_000, 0) > 0.99 && price(20_000, 1) > 0.9 && price(20_000, 20) < 0.05);
    assert!(price(20_000, 4) > price(20_000, 6));
    assert!(price(2_000_000, 300) > 0.9 && price(2_000_000, 600) < 0.01, "many come: about a normal distribution");
    let lost = |hosts| Prices(vec![(0, 1000.0)]).cost(|_| hosts);
    assert!((lost(1.0) - 1000.0).abs() < 1e-9, "half of two cards");
}

#[test]
fn what_is_sold_in_the_end_is_what_fits_together() {
    let thirds = forecast(&[(kind(1, 30, 30, 1000), 1)]);
    let card = 0.5 * (2.0 * 30.0 / 80.0 * 1000.0 + 2.0 * 300.0);
    assert!(close(thirds.sellable(&node(64_000, &[(0, 0)])), card), "two fit, 20 GiB are left");
    assert!(close(thirds.sellable(&node(1500, &[(0, 0)])), card / 2.0), "CPU for one");
    assert!(close(thirds.sellable(&node(64_000, &[(60, 0)])), 0.0));
    let pairs = forecast(&[(whole(2, 0), 1)]);
    assert!(close(pairs.sellable(&node(0, &[(0, 0), (0, 0), (0, 0)])), 2000.0));
}

#[test]
fn the_rare_ones_of_several_cards_are_kept_and_other_rare_ones_are_not() {
    let forecast = forecast(&[(kind(1, 10, 10, 0), 980), (whole(8, 0), 10), (kind(1, 70, 70, 0), 10)]);
    assert_eq!((forecast.parts.len(), forecast.several.len(), forecast.classes.len()), (1, 1, 2));
}

fn kinds() -> impl Strategy<Value = Vec<(Kind, u32)>> {
    let one = (1u32..4, 1u64..80, 0u32..=100, 0u32..8000).prop_map(|(cards, gib, cores, cpu)| match cores {
        100 => whole(cards, cpu),
        _ => kind(cards, gib, cores, cpu),
    });
    prop::collection::vec((one, 0u32..10), 0..70)
}

fn held() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((0u64..=80, 0u32..=100), 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_worth_more_after_a_pod_has_come(kinds in kinds(), held in held(), cpu in 0u32..32_000, gib in 1u64..40, cores in 0u32..50, milli in 0u32..8000) {
        let forecast = forecast(&kinds);
        let before = node(cpu, &held);
        let mut after = before.clone();
        let share = Share { memory: Memory::mib(gib * GIB), cores: Cores::new(cores), exclusive: gib == 1 };
        let takes: Vec<(usize, Share)> = (0..held.len()).step_by(2).map(|card| (card, share)).collect();
        for (card, share) in &takes {
            after.take(*card, share);
        }
        after.take_cpu(milli);
        let (stand, then) = (forecast.look_at(before.clone()), forecast.look_at(after.clone()));
        prop_assert!(then.usable <= stand.usable + 1e-6);
        prop_assert!(stand.usable <= f64::from(before.size()) + 1e-6);
        prop_assert!(forecast.sellable(&before) <= f64::from(before.size()) + 1e-6, "no more is sold than there is");
        let loss = forecast.loss(&stand, milli, &takes);
        prop_assert!((loss.usable - (stand.usable - then.usable)).abs() < 1e-6, "{loss:?} {stand:?} {then:?}");
        prop_assert_eq!((loss.cards_left, loss.cpu_left), (after.size(), after.cpu_milli));
        for (several, lost) in loss.hosts.iter().enumerate() {
            prop_assert!(*lost >= 0.0 && (lost - (stand.hosts[several] - then.hosts[several])).abs() < 1e-9);
        }
    }

    #[test]
    fn the_order_of_cards_is_no_matter(kinds in kinds(), mut held in held(), cpu in 0u32..32_000) {
        let forecast = forecast(&kinds);
        let one = node(cpu, &held);
        held.reverse();
        let other = node(cpu, &held);
        prop_assert!((usable(&forecast, &one) - usable(&forecast, &other)).abs() < 1e-6);
        prop_assert_eq!(one.sorted(), other.sorted());
    }
}
