//! What each policy chooses.

use std::cmp::Ordering::{Greater, Less};

use divvy_api::annotation::{Numa, PolicyName, Preferences};
use divvy_api::pod::ContainerKind::{App, Init};
use divvy_api::{ContainerRequest, GpuRequest, Link, Links};

use super::build::{
    card, cards, change, container, held, held_with_host, linked, no_wishes, node, oversubscribe, pod_request, twice,
};
use crate::{Held, NodeScore, NodeState, Policy, plan, score};

const ALL: [PolicyName; 5] =
    [PolicyName::Binpack, PolicyName::Spread, PolicyName::Random, PolicyName::LeastFragmentation, PolicyName::Topology];

fn by(name: PolicyName) -> Policy {
    Policy { name, ..Policy::default() }
}

fn chosen(state: &NodeState, containers: &[ContainerRequest], policy: &Policy) -> Vec<Vec<usize>> {
    wished(state, containers, policy, no_wishes())
}

fn wished(
    state: &NodeState,
    containers: &[ContainerRequest],
    policy: &Policy,
    preferences: &Preferences,
) -> Vec<Vec<usize>> {
    let plan = plan(state, &pod_request(containers, &[], preferences), policy).expect("a plan");
    plan.containers.into_iter().map(|container| container.chosen).collect()
}

fn rated(state: &NodeState, containers: &[ContainerRequest], policy: &Policy) -> NodeScore {
    let pod = pod_request(containers, &[], no_wishes());
    let plan = plan(state, &pod, policy).expect("a plan");
    score(state, &pod, &plan, policy)
}

/// Amounts of these GiB and cores that pods hold; none holds nothing.
fn each_held(amounts: &[(u64, u32)]) -> Box<[Held]> {
    let held =
        |(gib, cores): &(u64, u32)| if (*gib, *cores) == (0, 0) { Held::default() } else { held(gib << 10, *cores) };
    amounts.iter().map(held).collect()
}

/// A node of cards on which this much is held, in GiB and cores.
fn filled(amounts: &[(u64, u32)]) -> NodeState {
    NodeState { held: each_held(amounts), ..node(cards(amounts.len())) }
}

fn app(cards: u32, gib: u64, cores: u32) -> ContainerRequest {
    container(App, cards, gib << 10, cores)
}

fn whole(cards: u32) -> ContainerRequest {
    ContainerRequest { request: Some(GpuRequest::whole(cards)), ..app(1, 1, 0) }
}

#[test]
fn binpack_takes_the_fullest_card_that_fits_then_opens_one() {
    let node = filled(&[(0, 0), (20, 20), (40, 30), (75, 30)]);
    let binpack = by(PolicyName::Binpack);
    assert_eq!(chosen(&node, &[app(1, 10, 10)], &binpack), [[2]]);
    assert_eq!(chosen(&node, &[app(1, 50, 10)], &binpack), [[1]]);
    assert_eq!(chosen(&node, &[app(1, 70, 10)], &binpack), [[0]]);
    assert_eq!(chosen(&node, &[app(1, 10, 10), app(1, 10, 10)], &binpack), [[2], [2]], "one card is enough");
}

#[test]
fn spread_takes_the_emptiest_card_for_each_container() {
    let node = filled(&[(20, 20), (0, 0), (40, 30), (5, 0)]);
    let spread = by(PolicyName::Spread);
    assert_eq!(chosen(&node, &[app(1, 10, 10)], &spread), [[1]]);
    let mut both = chosen(&node, &[app(1, 10, 10), app(1, 10, 10)], &spread).concat();
    both.sort_unstable();
    assert_eq!(both, [1, 3]);
}

#[test]
fn random_follows_its_seed_and_reaches_every_card() {
    let node = filled(&[(20, 20), (0, 0), (40, 30), (5, 0)]);
    let under = |seed| chosen(&node, &[app(1, 10, 10)], &Policy { seed, ..by(PolicyName::Random) });
    assert_eq!(under(7), under(7));
    let mut reached: Vec<usize> = (0..64).flat_map(|seed| under(seed).concat()).collect();
    reached.sort_unstable();
    reached.dedup();
    assert_eq!(reached, [0, 1, 2, 3]);
}

#[test]
fn least_fragmentation_fits_best_among_the_cards_of_a_node() {
    let cards = [cards(3), vec![card(3, 16 << 10)]].concat();
    let node = NodeState { held: each_held(&[(0, 0), (60, 0), (40, 0), (0, 0)]), ..node(cards) };
    let policy = by(PolicyName::LeastFragmentation);
    assert_eq!(chosen(&node, &[app(1, 30, 10)], &policy), [[2]]);
    assert_eq!(chosen(&node, &[whole(1)], &policy), [[3]], "the small card is whole too");
}

#[test]
fn busy_card_is_chosen_only_if_no_other_fits() {
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        let mut node = filled(&[(0, 0), (40, 30), (40, 30)]);
        let chosen = |node: &NodeState, gib| chosen(node, &[app(1, gib, 10)], &policy).concat()[0];
        let favourite = chosen(&node, 10);
        node.held[favourite].busy = 24;
        assert_eq!(chosen(&node, 10), favourite, "{policy:?}: a little is no reason");
        node.held[favourite].busy = 25;
        assert_ne!(chosen(&node, 10), favourite, "{policy:?}");
        (node.held[0].busy, node.held[1].busy, node.held[2].busy) = (100, 0, 0);
        assert_eq!(chosen(&node, 50), 0, "{policy:?}: only there is room");
    }
}

#[test]
fn sum_of_utilization_decides_between_card_sets() {
    let mut node = filled(&[(40, 30), (40, 30), (0, 0)]);
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        (node.held[0].busy, node.held[1].busy, node.held[2].busy) = (75, 25, 25);
        assert_eq!(chosen(&node, &[app(2, 10, 10)], &policy), [[1, 2]], "{policy:?}");
    }
}

#[test]
fn busy_card_lowers_the_score_only_if_it_would_be_chosen() {
    let (idle, mut busy) = (filled(&[(40, 30), (0, 0)]), filled(&[(40, 30), (0, 0)]));
    busy.held[0].busy = 100;
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        let compare = |pod: &[ContainerRequest]| rated(&busy, pod, &policy).cmp(&rated(&idle, pod, &policy));
        assert_eq!(compare(&[app(2, 10, 10)]), Less, "{policy:?}");
        assert!(compare(&[app(1, 50, 10)]).is_eq(), "{policy:?}: it fits on the other card alone");
    }
}

#[test]
fn several_cards_are_chosen_by_their_links() {
    let busy = filled(&[(0, 0), (0, 0), (0, 0), (10, 10), (0, 0), (0, 0), (0, 0), (0, 0)]);
    let quads = linked(busy, Links::quads(8, 4));
    let empty = |links: &Links| linked(node(cards(links.cards())), links.clone());
    let pcie = empty(&Links::pcie(8));
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        assert_eq!(chosen(&quads, &[whole(4)], &policy), [[4, 5, 6, 7]], "{policy:?}");
        assert_eq!(chosen(&quads, &[whole(2)], &policy), [[0, 1]], "{policy:?} leaves the whole quad");
        let switch = chosen(&pcie, &[whole(2)], &policy).concat();
        assert_eq!(switch, [0, 1], "{policy:?}");
    }
    let pair = chosen(&empty(&Links::dgx1()), &[whole(2)], &by(PolicyName::Topology)).concat();
    assert_eq!(Links::dgx1().bottleneck(&pair), Some(Link::NvLink(2)));
    let four = chosen(&empty(&Links::dgx1()), &[whole(4)], &by(PolicyName::Topology)).concat();
    assert!(four == [0, 1, 2, 3] || four == [4, 5, 6, 7], "{four:?}");
    let half = chosen(&empty(&Links::pcie(16)), &[whole(8)], &by(PolicyName::Topology)).concat();
    assert_eq!(Links::pcie(16).bottleneck(&half), Some(Link::Node));
}

#[test]
fn one_card_is_taken_where_links_are_least_useful() {
    let busy = filled(&[(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (10, 10), (0, 0), (0, 0)]);
    let pcie = linked(busy.clone(), Links::pcie(8));
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        assert_eq!(chosen(&pcie, &[whole(1)], &policy), [[4]], "{policy:?}: the mate of the busy card");
    }
    let shared = chosen(&linked(busy, Links::quads(8, 4)), &[app(1, 10, 10)], &by(PolicyName::Topology));
    assert_eq!(shared, [[5]], "a card that is shared already breaks nothing");
}

#[test]
fn numa_is_required_or_preferred() {
    let mut node = filled(&[(40, 40), (0, 0), (40, 40), (0, 0)]);
    for (card, numa) in change(&mut node).cards.iter_mut().zip([Some(0), Some(1), Some(1), None]) {
        card.numa = numa;
    }
    let wish = |numa| Preferences { numa, ..Preferences::default() };
    let (pair, binpack) = ([app(2, 10, 10)], by(PolicyName::Binpack));
    assert_eq!(wished(&node, &pair, &binpack, &wish(None)), [[0, 2]]);
    assert_eq!(wished(&node, &pair, &binpack, &wish(Some(Numa::Prefer))), [[1, 2]]);
    assert_eq!(wished(&node, &pair, &binpack, &wish(Some(Numa::Strict))), [[1, 2]]);
    let three = [app(3, 10, 10)];
    assert_eq!(wished(&node, &three, &binpack, &wish(Some(Numa::Prefer))), [[0, 1, 2]]);
    let strict = wish(Some(Numa::Strict));
    assert!(plan(&node, &pod_request(&three, &[], &strict), &binpack).is_err());
}

#[test]
fn preferred_models_and_cards_are_taken() {
    let mut cards = cards(3);
    cards[1].model = "Tesla T4".into();
    let node = node(cards);
    let uuid = |number: usize| node.cards()[number].id.clone();
    let wishes = [
        (Preferences { models: vec!["t4".into()], ..Preferences::default() }, 1),
        (Preferences { avoid_models: vec!["A100".into()], ..Preferences::default() }, 1),
        (Preferences { cards: vec![uuid(2), uuid(1)], avoid_models: vec!["T4".into()], ..Preferences::default() }, 2),
        (Preferences { avoid_cards: vec![uuid(0), uuid(1)], ..Preferences::default() }, 2),
    ];
    for (wish, card) in wishes {
        let got = wished(&node, &[app(1, 1, 0)], &by(PolicyName::Binpack), &wish);
        assert_eq!(got, [[card]], "{wish:?}");
    }
}

#[test]
fn init_card_suits_containers_that_reuse_it() {
    let node = filled(&[(70, 0), (30, 0), (0, 0)]);
    let pod = [container(Init, 1, 1 << 10, 0), app(1, 40, 0)];
    let plan = plan(&node, &pod_request(&pod, &[], no_wishes()), &by(PolicyName::Binpack)).expect("a plan");
    let [init, app] = &plan.containers[..] else { panic!("two containers") };
    assert_eq!((&init.chosen[..], &app.chosen[..], &app.reused[..], app.drawn), (&[1][..], &[][..], &[1][..], 1));
}

#[test]
fn nodes_are_ranked_like_cards() {
    let (empty, half) = (filled(&[(0, 0), (0, 0)]), filled(&[(0, 0), (40, 40)]));
    let better = |policy: PolicyName, pod: &[ContainerRequest]| {
        rated(&half, pod, &by(policy)).cmp(&rated(&empty, pod, &by(policy)))
    };
    assert_eq!(better(PolicyName::Binpack, &[app(1, 10, 10)]), Greater);
    assert_eq!(better(PolicyName::Binpack, &[whole(1)]), Greater, "both open a card, but this node is fuller");
    assert_eq!(better(PolicyName::LeastFragmentation, &[app(1, 10, 10)]), Greater);
    assert_eq!(better(PolicyName::Spread, &[app(1, 10, 10)]), Less);
    let rated = |links: Links| rated(&linked(node(cards(4)), links), &[whole(2)], &by(PolicyName::Topology));
    assert!(rated(Links::nvswitch(4, 18)) > rated(Links::pcie(4)));
}

#[test]
fn equal_cards_are_taken_from_the_first() {
    let node = linked(node(cards(4)), Links::nvswitch(4, 18));
    for policy in ALL.into_iter().filter(|name| *name != PolicyName::Random).map(by) {
        assert_eq!(chosen(&node, &[app(2, 8, 20)], &policy), [[0, 1]], "{policy:?}");
    }
}

#[test]
fn overcommitted_compute_is_allocated_beyond_the_card() {
    let mut node = filled(&[(10, 90)]);
    change(&mut node).cards[0].scales.cores = 200;
    assert_eq!(chosen(&node, &[app(1, 70, 90)], &Policy::default()), [[0]]);
}

#[test]
fn oversubscribed_and_other_pods_are_on_cards_of_their_own() {
    let mut node = twice(filled(&[(10, 0), (0, 0), (0, 0)]), 100);
    node.held[1] = held_with_host(45 << 10, 45 << 10);
    let asking = |gib| wished(&node, &[app(1, gib, 0)], &Policy::default(), &oversubscribe());
    assert_eq!(asking(70), [[1]], "35 GiB are left of the card, which is half of it");
    assert_eq!(asking(71), [[2]], "an empty card");
    assert_eq!(chosen(&node, &[app(1, 35, 0)], &Policy::default()), [[0]]);
    assert_eq!(chosen(&node, &[app(2, 35, 0)], &Policy::default()), [[0, 2]]);
}

#[test]
fn cards_are_alike_only_until_one_is_used() {
    // Binpack would put the second container beside the first, but only apart from it all four fit.
    let pod = [app(1, 40, 0), app(1, 25, 0), app(1, 50, 0), app(1, 40, 0)];
    let node = node(cards(2));
    let together = chosen(&node, &pod, &by(PolicyName::Binpack));
    assert_eq!(together, [[0], [1], [1], [0]]);
    let allocated = [vec![0]];
    let request = pod_request(&pod, &allocated, no_wishes());
    let beside_facts = plan(&node, &request, &by(PolicyName::Binpack));
    assert!(beside_facts.is_ok(), "{beside_facts:?}");
}

#[test]
fn reused_cards_are_on_the_required_numa_node() {
    let mut node = filled(&[(20, 0), (0, 0), (0, 0), (70, 0)]);
    for (card, numa) in change(&mut node).cards.iter_mut().zip([Some(0), Some(1), Some(1), Some(0)]) {
        card.numa = numa;
    }
    let pod = [container(Init, 1, 1 << 10, 0), app(2, 40, 0)];
    let strict = Preferences { numa: Some(Numa::Strict), ..Preferences::default() };
    let mut got = wished(&node, &pod, &by(PolicyName::Binpack), &strict).concat();
    got.sort_unstable();
    assert_eq!(got, [1, 2], "card 0 has no neighbour with enough memory");
}
