//! What each policy chooses.

use std::cmp::Ordering::{Greater, Less};

use divvy_api::annotation::{Numa, PolicyName, Preferences};
use divvy_api::pod::ContainerKind::{App, Init};
use divvy_api::{ContainerRequest, Cores, GpuRequest};

use super::build::{card, cards, container, held, held_with_host, no_wishes, oversubscribe, pod_request, twice};
use crate::{Card, Links, NodeScore, Policy, plan, score};

const ALL: [PolicyName; 5] =
    [PolicyName::Binpack, PolicyName::Spread, PolicyName::Random, PolicyName::LeastFragmentation, PolicyName::Topology];

fn by(name: PolicyName) -> Policy {
    Policy { name, ..Policy::default() }
}

fn chosen(cards: &[Card], links: &Links, containers: &[ContainerRequest], policy: &Policy) -> Vec<Vec<usize>> {
    wished(cards, links, containers, policy, no_wishes())
}

fn wished(
    cards: &[Card],
    links: &Links,
    containers: &[ContainerRequest],
    policy: &Policy,
    preferences: &Preferences,
) -> Vec<Vec<usize>> {
    let plan = plan(cards, links, &pod_request(containers, &[], preferences), policy).expect("a plan");
    plan.containers.into_iter().map(|container| container.chosen).collect()
}

fn rated(cards: &[Card], links: &Links, containers: &[ContainerRequest], policy: &Policy) -> NodeScore {
    let pod = pod_request(containers, &[], no_wishes());
    let plan = plan(cards, links, &pod, policy).expect("a plan");
    score(cards, links, &pod, &plan, policy)
}

/// Cards on which this much is held, in GiB and cores.
fn filled(held_each: &[(u64, u32)]) -> Vec<Card> {
    let mut cards = cards(held_each.len());
    for (card, (gib, cores)) in cards.iter_mut().zip(held_each).filter(|(_, held)| **held != (0, 0)) {
        card.held = held(gib << 10, *cores);
    }
    cards
}

fn app(cards: u32, gib: u64, cores: u32) -> ContainerRequest {
    container(App, cards, gib << 10, cores)
}

fn whole(cards: u32) -> ContainerRequest {
    ContainerRequest { request: Some(GpuRequest::whole(cards)), ..app(1, 1, 0) }
}

#[test]
fn binpack_takes_the_fullest_card_that_fits_then_opens_one() {
    let cards = filled(&[(0, 0), (20, 20), (40, 30), (75, 30)]);
    let (none, binpack) = (Links::default(), by(PolicyName::Binpack));
    assert_eq!(chosen(&cards, &none, &[app(1, 10, 10)], &binpack), [[2]]);
    assert_eq!(chosen(&cards, &none, &[app(1, 50, 10)], &binpack), [[1]]);
    assert_eq!(chosen(&cards, &none, &[app(1, 70, 10)], &binpack), [[0]]);
    assert_eq!(chosen(&cards, &none, &[app(1, 10, 10), app(1, 10, 10)], &binpack), [[2], [2]], "one card is enough");
}

#[test]
fn spread_takes_the_emptiest_card_for_each_container() {
    let cards = filled(&[(20, 20), (0, 0), (40, 30), (5, 0)]);
    let (none, spread) = (Links::default(), by(PolicyName::Spread));
    assert_eq!(chosen(&cards, &none, &[app(1, 10, 10)], &spread), [[1]]);
    let mut both = chosen(&cards, &none, &[app(1, 10, 10), app(1, 10, 10)], &spread).concat();
    both.sort_unstable();
    assert_eq!(both, [1, 3]);
}

#[test]
fn random_follows_its_seed_and_reaches_every_card() {
    let cards = filled(&[(20, 20), (0, 0), (40, 30), (5, 0)]);
    let under = |seed| chosen(&cards, &Links::default(), &[app(1, 10, 10)], &Policy { seed, ..by(PolicyName::Random) });
    assert_eq!(under(7), under(7));
    let mut reached: Vec<usize> = (0..64).flat_map(|seed| under(seed).concat()).collect();
    reached.sort_unstable();
    reached.dedup();
    assert_eq!(reached, [0, 1, 2, 3]);
}

#[test]
fn least_fragmentation_fits_best_among_the_cards_of_a_node() {
    let mut cards = filled(&[(0, 0), (60, 0), (40, 0)]);
    cards.push(card(3, 16 << 10));
    let policy = by(PolicyName::LeastFragmentation);
    assert_eq!(chosen(&cards, &Links::default(), &[app(1, 30, 10)], &policy), [[2]]);
    assert_eq!(chosen(&cards, &Links::default(), &[whole(1)], &policy), [[3]], "the small card is whole too");
}

#[test]
fn busy_card_is_chosen_only_if_no_other_fits() {
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        let mut cards = filled(&[(0, 0), (40, 30), (40, 30)]);
        let chosen = |cards: &[Card], gib| chosen(cards, &Links::default(), &[app(1, gib, 10)], &policy).concat()[0];
        let favourite = chosen(&cards, 10);
        cards[favourite].busy = 24;
        assert_eq!(chosen(&cards, 10), favourite, "{policy:?}: a little is no reason");
        cards[favourite].busy = 25;
        assert_ne!(chosen(&cards, 10), favourite, "{policy:?}");
        (cards[0].busy, cards[1].busy, cards[2].busy) = (100, 0, 0);
        assert_eq!(chosen(&cards, 50), 0, "{policy:?}: only there is room");
    }
}

#[test]
fn sum_of_utilization_decides_between_card_sets() {
    let mut cards = filled(&[(40, 30), (40, 30), (0, 0)]);
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        (cards[0].busy, cards[1].busy, cards[2].busy) = (75, 25, 25);
        assert_eq!(chosen(&cards, &Links::default(), &[app(2, 10, 10)], &policy), [[1, 2]], "{policy:?}");
    }
}

#[test]
fn busy_card_lowers_the_score_only_if_it_would_be_chosen() {
    let none = Links::default();
    let (idle, mut busy) = (filled(&[(40, 30), (0, 0)]), filled(&[(40, 30), (0, 0)]));
    busy[0].busy = 100;
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        let compare =
            |pod: &[ContainerRequest]| rated(&busy, &none, pod, &policy).cmp(&rated(&idle, &none, pod, &policy));
        assert_eq!(compare(&[app(2, 10, 10)]), Less, "{policy:?}");
        assert!(compare(&[app(1, 50, 10)]).is_eq(), "{policy:?}: it fits on the other card alone");
    }
}

#[test]
fn several_cards_are_chosen_by_their_links() {
    let quads = Links::quads(8, 4);
    let busy = filled(&[(0, 0), (0, 0), (0, 0), (10, 10), (0, 0), (0, 0), (0, 0), (0, 0)]);
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        assert_eq!(chosen(&busy, &quads, &[whole(4)], &policy), [[4, 5, 6, 7]], "{policy:?}");
        assert_eq!(chosen(&busy, &quads, &[whole(2)], &policy), [[0, 1]], "{policy:?} leaves the whole quad");
        let switch = chosen(&cards(8), &Links::pcie(8), &[whole(2)], &policy).concat();
        assert_eq!(switch, [0, 1], "{policy:?}");
    }
    let pair = chosen(&cards(8), &Links::dgx1(), &[whole(2)], &by(PolicyName::Topology)).concat();
    assert_eq!(Links::dgx1().bottleneck(&pair), Some(crate::Link::NvLink(2)));
    let four = chosen(&cards(8), &Links::dgx1(), &[whole(4)], &by(PolicyName::Topology)).concat();
    assert!(four == [0, 1, 2, 3] || four == [4, 5, 6, 7], "{four:?}");
    let half = chosen(&cards(16), &Links::pcie(16), &[whole(8)], &by(PolicyName::Topology)).concat();
    assert_eq!(Links::pcie(16).bottleneck(&half), Some(crate::Link::Node));
}

#[test]
fn one_card_is_taken_where_links_are_least_useful() {
    let busy = filled(&[(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (10, 10), (0, 0), (0, 0)]);
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        assert_eq!(
            chosen(&busy, &Links::pcie(8), &[whole(1)], &policy),
            [[4]],
            "{policy:?}: the mate of the busy card"
        );
    }
    let shared = chosen(&busy, &Links::quads(8, 4), &[app(1, 10, 10)], &by(PolicyName::Topology));
    assert_eq!(shared, [[5]], "a card that is shared already breaks nothing");
}

#[test]
fn numa_is_required_or_preferred() {
    let mut cards = filled(&[(40, 40), (0, 0), (40, 40), (0, 0)]);
    for (card, node) in cards.iter_mut().zip([Some(0), Some(1), Some(1), None]) {
        card.numa = node;
    }
    let wish = |numa| Preferences { numa, ..Preferences::default() };
    let none = Links::default();
    let (pair, binpack) = ([app(2, 10, 10)], by(PolicyName::Binpack));
    assert_eq!(wished(&cards, &none, &pair, &binpack, &wish(None)), [[0, 2]]);
    assert_eq!(wished(&cards, &none, &pair, &binpack, &wish(Some(Numa::Prefer))), [[1, 2]]);
    assert_eq!(wished(&cards, &none, &pair, &binpack, &wish(Some(Numa::Strict))), [[1, 2]]);
    let three = [app(3, 10, 10)];
    assert_eq!(wished(&cards, &none, &three, &binpack, &wish(Some(Numa::Prefer))), [[0, 1, 2]]);
    let strict = wish(Some(Numa::Strict));
    assert!(plan(&cards, &none, &pod_request(&three, &[], &strict), &binpack).is_err());
}

#[test]
fn preferred_models_and_cards_are_taken() {
    let mut cards = cards(3);
    cards[1].model = "Tesla T4".into();
    let uuid = |number: usize| cards[number].id.clone();
    let wishes = [
        (Preferences { models: vec!["t4".into()], ..Preferences::default() }, 1),
        (Preferences { avoid_models: vec!["A100".into()], ..Preferences::default() }, 1),
        (Preferences { cards: vec![uuid(2), uuid(1)], avoid_models: vec!["T4".into()], ..Preferences::default() }, 2),
        (Preferences { avoid_cards: vec![uuid(0), uuid(1)], ..Preferences::default() }, 2),
    ];
    for (wish, card) in wishes {
        let got = wished(&cards, &Links::default(), &[app(1, 1, 0)], &by(PolicyName::Binpack), &wish);
        assert_eq!(got, [[card]], "{wish:?}");
    }
}

#[test]
fn init_card_suits_containers_that_reuse_it() {
    let cards = filled(&[(70, 0), (30, 0), (0, 0)]);
    let pod = [container(Init, 1, 1 << 10, 0), app(1, 40, 0)];
    let plan = plan(&cards, &Links::default(), &pod_request(&pod, &[], no_wishes()), &by(PolicyName::Binpack))
        .expect("a plan");
    let [init, app] = &plan.containers[..] else { panic!("two containers") };
    assert_eq!((&init.chosen[..], &app.chosen[..], &app.reused[..], app.drawn), (&[1][..], &[][..], &[1][..], 1));
}

#[test]
fn nodes_are_ranked_like_cards() {
    let (empty, half, none) = (filled(&[(0, 0), (0, 0)]), filled(&[(0, 0), (40, 40)]), Links::default());
    let better = |policy: PolicyName, pod: &[ContainerRequest]| {
        rated(&half, &none, pod, &by(policy)).cmp(&rated(&empty, &none, pod, &by(policy)))
    };
    assert_eq!(better(PolicyName::Binpack, &[app(1, 10, 10)]), Greater);
    assert_eq!(better(PolicyName::Binpack, &[whole(1)]), Greater, "both open a card, but this node is fuller");
    assert_eq!(better(PolicyName::LeastFragmentation, &[app(1, 10, 10)]), Greater);
    assert_eq!(better(PolicyName::Spread, &[app(1, 10, 10)]), Less);
    let linked = |links: &Links| rated(&cards(4), links, &[whole(2)], &by(PolicyName::Topology));
    assert!(linked(&Links::nvswitch(4, 18)) > linked(&Links::pcie(4)));
}

#[test]
fn equal_cards_are_taken_from_the_first() {
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        assert_eq!(chosen(&cards(4), &Links::nvswitch(4, 18), &[app(2, 8, 20)], &policy), [[0, 1]], "{policy:?}");
    }
}

#[test]
fn overcommitted_compute_is_allocated_beyond_the_card() {
    let mut cards = filled(&[(10, 90)]);
    cards[0].cores_capacity = Cores::new(200);
    assert_eq!(chosen(&cards, &Links::default(), &[app(1, 70, 90)], &Policy::default()), [[0]]);
}

#[test]
fn oversubscribed_and_other_pods_are_on_cards_of_their_own() {
    let mut cards = twice(filled(&[(10, 0), (0, 0), (0, 0)]), 100);
    cards[1].held = held_with_host(45 << 10, 45 << 10);
    let none = Links::default();
    let asking = |gib| wished(&cards, &none, &[app(1, gib, 0)], &Policy::default(), &oversubscribe());
    assert_eq!(asking(70), [[1]], "35 GiB are left of the card, which is half of it");
    assert_eq!(asking(71), [[2]], "an empty card");
    assert_eq!(chosen(&cards, &none, &[app(1, 35, 0)], &Policy::default()), [[0]]);
    assert_eq!(chosen(&cards, &none, &[app(2, 35, 0)], &Policy::default()), [[0, 2]]);
}

#[test]
fn cards_are_alike_only_until_one_is_used() {
    // Binpack would put the second container beside the first, but only apart from it all four fit.
    let pod = [app(1, 40, 0), app(1, 25, 0), app(1, 50, 0), app(1, 40, 0)];
    let together = chosen(&cards(2), &Links::default(), &pod, &by(PolicyName::Binpack));
    assert_eq!(together, [[0], [1], [1], [0]]);
    let allocated = [vec![0]];
    let request = pod_request(&pod, &allocated, no_wishes());
    let beside_facts = plan(&cards(2), &Links::default(), &request, &by(PolicyName::Binpack));
    assert!(beside_facts.is_ok(), "{beside_facts:?}");
}

#[test]
fn reused_cards_are_on_the_required_numa_node() {
    let mut cards = filled(&[(20, 0), (0, 0), (0, 0), (70, 0)]);
    for (card, node) in cards.iter_mut().zip([Some(0), Some(1), Some(1), Some(0)]) {
        card.numa = node;
    }
    let pod = [container(Init, 1, 1 << 10, 0), app(2, 40, 0)];
    let strict = Preferences { numa: Some(Numa::Strict), ..Preferences::default() };
    let mut got = wished(&cards, &Links::default(), &pod, &by(PolicyName::Binpack), &strict).concat();
    got.sort_unstable();
    assert_eq!(got, [1, 2], "card 0 has no neighbour with enough memory");
}
