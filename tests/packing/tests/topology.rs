//! The published rules by hand, and what ours are held to.

#![allow(clippy::mod_module_files, reason = "bench and test include the study by its path")]

use divvy_api::annotation::PolicyName;
use divvy_api::{Link, Links};
use divvy_simulate::Rng;
use rand::SeedableRng as _;

use study::optimum::Optimum;
use study::rule::{BestEffort, Name, hami, product};
use study::{CardSet, Machine, study};

#[path = "../benches/topology/study/mod.rs"]
#[expect(dead_code, reason = "the bench uses the rest")]
mod study;

/// Four cards in a row with two, three and two NVLinks from one to the next. A pair has 10, 30 or 50 points by PCIe, which
/// never decide here.
fn row() -> Machine {
    let links = Links::new(4, |a, b| match (a, b) {
        (0, 1) | (2, 3) => Link::NvLink(2),
        (1, 2) => Link::NvLink(3),
        _ => Link::System,
    });
    Machine::new("row", links)
}

fn best_effort(machine: &Machine, free: CardSet, wanted: u32) -> CardSet {
    BestEffort::new(machine).choose(free, wanted)
}

#[test]
fn best_effort_takes_the_best_pair_of_the_best_split() {
    // 01|23: 250 + 250 with the same switch. 12|03: 310 + 10. 02|13: 10 + 10.
    assert_eq!(best_effort(&row(), 0b1111, 2), 0b0011);
    // 01|2: 250. 02|1: 10. 12|0: 310. The card that is left over has no pair.
    assert_eq!(best_effort(&row(), 0b0111, 2), 0b0110);
    assert_eq!(best_effort(&row(), 0b1111, 4), 0b1111);
}

#[test]
fn best_effort_splits_the_remainder_off() {
    // Of seven cards in quads a four is whole, and the three that are left make a set with three links.
    let quads = Machine::new("quads", Links::quads(8, 4));
    assert_eq!(best_effort(&quads, 0b1111_1110, 4), 0b1111_0000);
    // Of three and two free ones for three: the whole quad's.
    assert_eq!(best_effort(&quads, 0b0011_0111, 3), 0b0000_0111);
}

#[test]
fn best_effort_takes_the_first_single_card() {
    assert_eq!(best_effort(&row(), 0b1110, 1), 0b0010);
}

#[test]
fn hami_takes_the_highest_sum_of_links() {
    // 12: 310, and 0 and 3 are left with no link.
    assert_eq!(hami(&row(), 0b1111, 2), 0b0110);
    // 012: 250 + 310 + 10, and 0 and 2 have no link between them.
    assert_eq!(hami(&row(), 0b1111, 3), 0b0111);
}

#[test]
fn hami_takes_the_least_linked_single_card() {
    // Of 0, 1, 2, 3: 270, 570, 570, 270; without 0: 1 has 320, 2 has 560, 3 has 260.
    assert_eq!(hami(&row(), 0b1111, 1), 0b0001);
    assert_eq!(hami(&row(), 0b1110, 1), 0b1000);
}

#[test]
fn nvswitch_links_count_for_hami_only() {
    // Cards 0 and 2 with two links to switches each, on different PCIe switches; 2 and 3 are on one.
    let links = Links::new(4, |a, b| if (a, b) == (0, 2) { Link::NvLink(2) } else { Link::System });
    let machine = Machine::new("switched", links).switched();
    assert_eq!(best_effort(&machine, 0b1101, 2), 0b1100);
    assert_eq!(hami(&machine, 0b1101, 2), 0b0101);
}

#[test]
fn topology_policy_maximises_the_worst_link() {
    // Cards 0, 1 and 2 with one link in each pair: 150 + 110 + 110. Card 3 with four links to 0 alone, so that 0, 1 and 3 have
    // 150 + 410 + 10, and no link between 1 and 3.
    let links = Links::new(4, |a, b| match (a, b) {
        (0, 3) => Link::NvLink(4),
        (_, 3) => Link::System,
        _ => Link::NvLink(1),
    });
    let machine = Machine::new("triangle", links);
    assert_eq!((best_effort(&machine, 0b1111, 3), hami(&machine, 0b1111, 3)), (0b1011, 0b1011));
    for policy in [PolicyName::Topology, PolicyName::LeastFragmentation] {
        assert_eq!(product(&machine, policy, 0b1111, 3), 0b0111);
    }
}

#[test]
fn topology_policy_is_optimal_on_known_machines() {
    let seeds: Vec<u64> = (1..=10).collect();
    for machine in Machine::all_known() {
        let ours = study(&machine, Name::Product(PolicyName::Topology), &seeds);
        assert_eq!((ours.best_now_pct(), ours.regret_pct()), (100.0, 0.0), "{}", machine.name);
        let default = study(&machine, Name::Product(PolicyName::LeastFragmentation), &seeds);
        assert_eq!(default, ours, "{}: whole cards are alike to the default but for their links", machine.name);
    }
}

#[test]
fn optimum_counts_disjoint_sets() {
    let dgx1 = Machine::new("dgx1", Links::dgx1());
    let mut optimum = Optimum::new(&dgx1);
    assert_eq!(optimum.best(dgx1.all(), 4), Link::NvLink(1));
    assert_eq!(optimum.best(0b0000_0011, 2), Link::NvLink(1));
    assert_eq!((optimum.apart(dgx1.all(), 2), optimum.apart(dgx1.all(), 4), optimum.apart(0b1110, 4)), (4, 2, 0));
    assert_eq!(optimum.apart(0b0000_1111, 2), 2, "0 with 3 and 1 with 2 have two links");
}

#[test]
fn equal_seeds_give_equal_requests() {
    let draw = |seed| study::requests::requests(8, 100, &mut Rng::seed_from_u64(seed));
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
    assert!(draw(7).iter().zip(0..).all(|(request, now)| [1, 2, 4, 8].contains(&request.cards) && request.until > now));
}

#[test]
fn all_rules_place_the_same_requests() {
    let machine = Machine::new("pcie", Links::pcie(8));
    let refused = Name::ALL.map(|name| study(&machine, name, &[1, 2, 3]).refused);
    assert!(refused[0] > 0 && refused == [refused[0]; 5], "{refused:?}");
}
