//! What is measured, on nodes small enough to work it out by hand; and what must hold for any.

use divvy_api::{Cores, GpuRequest, Memory, NodeCards};
use proptest::prelude::*;

use super::*;
use crate::NodeState;
use crate::tests::build::{self, cards, instances, undivided};

const GIB: u64 = 1 << 10;

fn kind(cards: u32, gib: u64, cores: u32, cpu_milli: u32) -> Kind {
    let request =
        GpuRequest { cards, memory: MemoryAmount::Absolute(Memory::mib(gib * GIB)), cores: Cores::new(cores) };
    Kind { request, profile: None, instances: false, models: Vec::new(), avoid_models: Vec::new(), cpu_milli }
}

fn whole(cards: u32, cpu_milli: u32) -> Kind {
    Kind { request: GpuRequest::whole(cards), ..kind(cards, 1, 1, cpu_milli) }
}

fn expected(kinds: &[(Kind, u32)]) -> ExpectedRequests {
    ExpectedRequests {
        requests: kinds.iter().map(|(kind, weight)| Expected { kind: kind.clone(), weight: *weight }).collect(),
        counted: 1000,
    }
}

/// Hardware of a card with 80 GiB.
fn hardware() -> Hardware {
    Hardware::new(&cards(1)[0], &NodeCards::default())
}

fn forecast(kinds: &[(Kind, u32)]) -> Forecast {
    Forecast::new(&expected(kinds), &[hardware()])
}

/// A node of cards with 80 GiB, of which so many GiB and cores are held.
fn node(cpu_milli: u32, held: &[(u64, u32)]) -> FreeCapacity {
    let mut state = build::node(cards(held.len()));
    for (of_card, (gib, cores)) in state.held.iter_mut().zip(held) {
        of_card.memory = Memory::mib(gib * GIB);
        of_card.cores = Cores::new(*cores);
        of_card.pods = u32::from(*gib > 0);
    }
    FreeCapacity::new(Some(cpu_milli), &state, &vec![0; held.len()])
}

fn usable(forecast: &Forecast, node: &FreeCapacity) -> f64 {
    forecast.node_forecast(node.clone()).usable
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 2.0 // sizes are whole thousandths
}

#[test]
fn free_capacity_is_usable_where_a_request_fits() {
    let half = forecast(&[(kind(1, 40, 50, 0), 1)]);
    assert!(close(usable(&half, &node(8000, &[(0, 0), (40, 50)])), 1500.0));
    assert!(close(usable(&half, &node(8000, &[(0, 0), (60, 50)])), 1000.0), "20 GiB are of no use to it");
    assert!(close(usable(&half, &node(8000, &[(0, 0), (40, 60)])), 1000.0), "nor 40 % of the compute");
    let two = forecast(&[(kind(2, 40, 50, 0), 1)]);
    assert!(close(usable(&two, &node(8000, &[(0, 0), (60, 50)])), 0.0), "one card instead of two");
    let with_cpu = forecast(&[(kind(1, 40, 50, 4000), 1)]);
    assert!(close(usable(&with_cpu, &node(3999, &[(0, 0)])), 0.0), "too little CPU");
    assert!(
        close(usable(&with_cpu, &FreeCapacity { cpu_milli: None, ..node(0, &[(0, 0)]) }), 1000.0),
        "CPU isn't known"
    );
}

#[test]
fn usable_capacity_is_weighted_by_frequency() {
    let mixed = forecast(&[(kind(1, 40, 50, 0), 3), (whole(1, 0), 1)]);
    assert!(close(usable(&mixed, &node(8000, &[(0, 0), (40, 50)])), 0.75 * 1500.0 + 0.25 * 1000.0));
}

#[test]
fn request_for_models_uses_only_those() {
    let a100 = kind(1, 40, 50, 0);
    let model = cards(1)[0].model.to_string();
    let only = Kind { models: vec![model.clone()], ..a100.clone() };
    let not = Kind { avoid_models: vec![model], ..a100 };
    assert!(close(usable(&forecast(&[(only, 1)]), &node(0, &[(0, 0)])), 1000.0));
    assert!(close(usable(&forecast(&[(not, 1)]), &node(0, &[(0, 0)])), 0.0));
}

#[test]
fn whole_instances_are_usable_by_requests_that_they_hold() {
    let empty = |state: &NodeState, kind: &Kind| {
        let hardware = Hardware::new(&state.cards()[0], &state.node);
        let forecast = Forecast::new(&expected(&[(kind.clone(), 1)]), &[hardware]);
        let node = FreeCapacity::new(None, state, &[0]);
        (usable(&forecast, &node), forecast.allocatable(&node).cards)
    };
    let size = |free: f64, allocated: f64| move |found: (f64, f64)| close(found.0, free) && close(found.1, allocated);
    let instance = &build::node(instances(&[40]));
    let (part, too_much) = (kind(1, 20, 0, 0), kind(1, 41, 0, 0));
    let strict = |kind: &Kind| Kind { instances: true, ..kind.clone() };
    assert!(size(750.0, 250.0)(empty(instance, &part)), "two parts fit, and need no compute");
    assert!(size(750.0, 750.0)(empty(instance, &strict(&part))), "it takes all of it");
    assert!(size(0.0, 0.0)(empty(instance, &strict(&too_much))));
    assert!(size(0.0, 0.0)(empty(&build::node(cards(1)), &strict(&part))), "a GPU");
    let mut promised = instances(&[40]);
    promised[0].scales.memory = 200;
    let undivided = &undivided(build::node(promised));
    assert!(empty(undivided, &part).1 > 700.0, "nor does its node give it in parts");
    assert!(size(0.0, 0.0)(empty(undivided, &too_much)), "whatever is promised of it");
}

#[test]
fn node_short_of_one_card_counts_as_part_of_a_slot() {
    let two = forecast(&[(whole(2, 4000), 1)]);
    let slots = |cpu, held: &[(u64, u32)]| two.node_forecast(node(cpu, held)).multi_gpu_slots[0];
    assert!((slots(8000, &[(0, 0); 4]) - 2.0).abs() < 1e-9);
    assert!((slots(7999, &[(0, 0); 4]) - 1.0).abs() < 1e-9, "CPU for one");
    assert!((slots(8000, &[(0, 0), (1, 1)]) - NEARLY).abs() < 1e-9);
    assert!((slots(8000, &[(1, 1), (1, 1)]) - NEARLY * NEARLY).abs() < 1e-9);
    assert!(slots(3999, &[(0, 0); 4]).abs() < 1e-9, "it'll never have the CPU before pods end");
    assert!(slots(8000, &[(0, 0)]).abs() < 1e-9, "it has one card");
}

#[test]
fn slots_weigh_more_where_they_are_scarce() {
    let two = forecast(&[(whole(2, 0), 1), (whole(1, 0), 3)]);
    let weight = |free, slots| two.slot_weights(free, 100_000, &[slots]).cost(|_| 1.0) / 2000.0;
    // Two of five cards are asked for in pairs: 20 cards make four pairs and a bit.
    assert!(weight(20_000, 0) > 0.99 && weight(20_000, 1) > 0.9 && weight(20_000, 20) < 0.05);
    assert!(weight(20_000, 4) > weight(20_000, 6));
    assert!(weight(2_000_000, 300) > 0.9 && weight(2_000_000, 600) < 0.01, "many come: about a normal distribution");
    let lost = |slots| SlotWeights(vec![(0, 1000.0)]).cost(|_| slots);
    assert!((lost(1.0) - 1000.0).abs() < 1e-9, "half of two cards");
}

#[test]
fn allocatable_is_what_fits_together() {
    let thirds = forecast(&[(kind(1, 30, 30, 1000), 1)]);
    let card = 0.5 * (2.0 * 30.0 / 80.0 * 1000.0 + 2.0 * 300.0);
    assert!(close(thirds.allocatable(&node(64_000, &[(0, 0)])).cards, card), "two fit, 20 GiB are left");
    assert!(close(thirds.allocatable(&node(1500, &[(0, 0)])).cards, card / 2.0), "CPU for one");
    assert!(close(thirds.allocatable(&node(64_000, &[(60, 0)])).cards, 0.0));
    let pairs = forecast(&[(whole(2, 0), 1)]);
    assert!(close(pairs.allocatable(&node(0, &[(0, 0), (0, 0), (0, 0)])).cards, 2000.0));
}

#[test]
fn soft_taints_follow_use_of_cards_and_need_of_cpu() {
    let halves = forecast(&[(kind(1, 40, 50, 4000), 1)]);
    let taints = |cpu, held: &[(u64, u32)]| {
        let node = node(cpu, held);
        halves.allocatable(&node).soft_taints(node.cpu_milli)
    };
    assert_eq!(taints(64_000, &[(80, 100)]), 0, "nothing is free");
    assert_eq!(taints(64_000, &[(60, 0)]), 0, "too little for such pods");
    assert_eq!(taints(3000, &[(0, 0)]), 0, "too little CPU for them");
    assert_eq!(taints(64_000, &[(0, 0)]), 1, "two such pods need 8 of 64 cores");
    assert_eq!(taints(10_000, &[(0, 0)]), 2, "8 of 10 cores");
    let node = FreeCapacity { cpu_milli: None, ..node(0, &[(0, 0)]) };
    assert_eq!(halves.allocatable(&node).soft_taints(None), 1, "nobody knows of a lack");
}

fn of_model(kind: Kind, model: &str) -> Kind {
    Kind { models: vec![model.to_owned()], ..kind }
}

/// Cards of two models.
fn two_models() -> [Hardware; 2] {
    ["A100", "L4"].map(|model| Hardware { model: model.into(), ..hardware() })
}

#[test]
fn model_that_requests_will_need_has_a_price() {
    let kinds = [(whole(1, 0), 90), (of_model(whole(1, 0), "L4"), 10)];
    let forecast = Forecast::new(&expected(&kinds), &two_models());
    // One in ten of the requests for all that is free, and for what becomes free, of 1 000 GPUs.
    let prices = |a100: u64, l4: u64| forecast.prices(&[a100 * 1000, l4 * 1000], 1_000_000);
    assert_eq!(prices(500, 300), [0.0, 0.0], "82 are expected");
    assert_eq!(prices(500, 10), [0.0, 1.0], "53");
    let [_, l4] = prices(500, 57)[..] else { panic!("two kinds of hardware") };
    assert!(l4 > 0.2 && l4 < 0.8, "57: {l4}");
    let unnamed = Forecast::new(&expected(&[(whole(1, 0), 1)]), &two_models());
    assert_eq!(unnamed.prices(&[500_000, 300_000], 1_000_000), [0.0, 0.0]);
    assert_eq!(Forecast::new(&ExpectedRequests::default(), &two_models()).prices(&[0, 0], 1_000_000), [0.0, 0.0]);
    assert_eq!(Forecast::default().prices(&[], 0), [0.0; 0]);
}

#[test]
fn scarce_model_has_a_price_while_few_requests_are_counted() {
    let l4 = |counted| {
        let expected = ExpectedRequests { counted, ..expected(&[(whole(1, 0), 1)]) };
        Forecast::new(&expected, &two_models()).prices(&[500_000, 5000], 1_000_000)[1]
    };
    // Ten requests for L4 are assumed beside those that were counted, and ten for A100: of 525 GPUs 131, 5, 0.5.
    assert_eq!([20, 1000, 10_000].map(|counted| l4(counted).to_bits()), [1.0, 0.6, 0.0].map(f64::to_bits));
}

#[test]
fn rare_requests_that_name_one_model_count_together() {
    let sizes = (1..=40).map(|gib| (of_model(kind(1, gib, 0, 0), "L4"), 1));
    let kinds: Vec<(Kind, u32)> = [(whole(1, 0), 960)].into_iter().chain(sizes).collect();
    let forecast = Forecast::new(&expected(&kinds), &two_models());
    assert_eq!(forecast.parts.len(), 2, "one kind stands for all forty");
    assert!((forecast.parts[1] - 0.04).abs() < 1e-9, "{:?}", forecast.parts);
}

#[test]
fn rare_multi_gpu_requests_are_kept() {
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
    fn no_measure_grows_after_a_pod(kinds in kinds(), held in held(), cpu in 0u32..32_000, gib in 1u64..40, cores in 0u32..50, milli in 0u32..8000) {
        let forecast = forecast(&kinds);
        let before = node(cpu, &held);
        let mut after = before.clone();
        let share = Share { memory: Memory::mib(gib * GIB), cores: Cores::new(cores), exclusive: gib == 1, ..Share::default() };
        let takes: Vec<(usize, Share)> = (0..held.len()).step_by(2).map(|card| (card, share)).collect();
        for (card, share) in &takes {
            after.take(*card, share);
        }
        after.take_cpu(milli);
        let (stand, then) = (forecast.node_forecast(before.clone()), forecast.node_forecast(after.clone()));
        prop_assert!(then.usable <= stand.usable + 1e-6);
        prop_assert!(stand.usable <= f64::from(before.size()) + 1e-6);
        prop_assert!(forecast.allocatable(&before).cards <= f64::from(before.size()) + 1e-6, "no more is allocated than there is");
        let loss = forecast.loss(&stand, milli, &takes);
        prop_assert!((loss.usable - (stand.usable - then.usable)).abs() < 1e-6, "{loss:?} {stand:?} {then:?}");
        prop_assert_eq!((loss.cards_left, loss.cpu_left), (after.size(), after.cpu_milli));
        for (several, lost) in loss.multi_gpu_slots.iter().enumerate() {
            prop_assert!(*lost >= 0.0 && (lost - (stand.multi_gpu_slots[several] - then.multi_gpu_slots[several])).abs() < 1e-9);
        }
    }

    #[test]
    fn forecast_ignores_the_order_of_cards(kinds in kinds(), mut held in held(), cpu in 0u32..32_000) {
        let forecast = forecast(&kinds);
        let one = node(cpu, &held);
        held.reverse();
        let other = node(cpu, &held);
        prop_assert!((usable(&forecast, &one) - usable(&forecast, &other)).abs() < 1e-6);
        prop_assert_eq!(one.sorted(), other.sorted());
    }
}
