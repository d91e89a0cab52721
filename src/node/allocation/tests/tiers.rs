//! Containers keep the tier that they were made for, as far as the node serves it.

use divvy_api::annotation::{Compute, PolicyName, Priority};
use divvy_api::names::annotation as key;
use divvy_api::{CardId, Tier};

use super::fixture::{Node, annotated, part, pod, slot};
use super::kind;
use divvy_mps::MpsDirectory;

/// A node that serves the shim, with one pod of each kind.
fn shimmed() -> Node {
    let mut node = Node::new(3, PolicyName::Binpack);
    node.restart(Tier::Shim);
    let burst = pod("burst", &[&[("gpu", "1"), ("gpumem", "300"), ("gpucores", "30")]]);
    node.pods.push(annotated(annotated(burst, key::COMPUTE, "burst"), key::PRIORITY, "low"));
    node.serve(1).expect("fits");
    node.pods.push(part("cap", "300"));
    node.serve(1).expect("fits");
    node.pods.push(annotated(pod("whole", &[&[("gpu", "1")]]), key::TIER, "shim"));
    node.serve(1).expect("fits");
    node
}

fn terms(node: &Node, pod: &str) -> (Tier, Compute) {
    let limits = node.written(pod, "c0");
    (limits.tier, limits.compute)
}

/// Pods, by name, that the clock is told of, with their cards and cores.
fn tenants(node: &Node) -> Vec<(&'static str, Vec<(CardId, u32)>)> {
    let named = |nonce| {
        let pods = ["burst", "cap", "whole", "old", "client"];
        let held = |pod: &&str| node.holding(pod, "c0").is_some_and(|holding| holding.nonce == nonce);
        pods.into_iter().find(held).expect("one of ours")
    };
    let view = node.allocator.tenants(0).expect("books that are new");
    let cores = |(card, cores): &(CardId, divvy_api::Cores)| (card.clone(), cores.units());
    let mut tenants: Vec<_> =
        view.tenants.iter().map(|tenant| (named(tenant.nonce), tenant.cards.iter().map(cores).collect())).collect();
    tenants.sort();
    tenants
}

#[test]
fn a_node_with_the_library_serves_the_shim_and_caps_who_asks_for_nothing_else() {
    let node = shimmed();
    assert_eq!(terms(&node, "burst"), (Tier::Shim, Compute::Burst));
    assert_eq!(terms(&node, "cap"), (Tier::Shim, Compute::Cap));
    assert_eq!(terms(&node, "whole"), (Tier::Shim, Compute::Cap));
    let card = slot("GPU-0::0").card;
    assert_eq!(tenants(&node), [("burst", vec![(card.clone(), 30)]), ("cap", vec![(card, 0)])]);
    let view = node.allocator.tenants(0).expect("books that are new");
    let last = view.tenants.iter().filter(|tenant| tenant.priority == Some(Priority::Low));
    assert_eq!(last.map(|tenant| tenant.cards[0].1.units()).collect::<Vec<_>>(), [30]);
    let revision = node.allocator.ledger().revision();
    assert!(node.allocator.tenants(revision).is_none(), "nothing is new");
}

#[test]
fn a_pod_may_demand_no_more_than_the_node_serves() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.restart(Tier::Shim);
    node.pods.push(annotated(part("a", "100"), key::TIER, "mps"));
    assert_eq!(kind(node.propose(1)), "tier");
    node.pods.push(annotated(part("b", "100"), key::TIER, "accounting"));
    node.serve(1).expect("at least that");
}

#[test]
fn a_node_that_serves_less_says_so_in_the_limits_of_containers_that_run() {
    let mut node = shimmed();
    node.restart(Tier::Accounting);
    for pod in ["burst", "cap", "whole"] {
        assert_eq!(terms(&node, pod).0, Tier::Accounting);
    }
    assert_eq!(tenants(&node), []);
    node.restart(Tier::Shim);
    assert_eq!(terms(&node, "burst"), (Tier::Shim, Compute::Burst), "it has the library still");
    assert_eq!(tenants(&node).len(), 2);
}

#[test]
fn a_container_without_the_library_stays_without_it() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("old", "300"));
    let slots = node.propose(1).expect("fits");
    node.allocate(&slots).expect("fits");
    node.restart(Tier::Shim);
    assert_eq!(terms(&node, "old").0, Tier::Accounting);
    assert_eq!(tenants(&node), []);
    node.allocator.pre_start(&slots).expect("written");
    assert_eq!(terms(&node, "old").0, Tier::Accounting);
}

#[test]
fn limits_tell_the_terms_of_a_pod_that_the_journal_has_lost() {
    let mut node = shimmed();
    let limits = node.limits("burst", "c0");
    node.lose_journal();
    let found = node.allocator.delivery().find("uid-burst", "c0").expect("its directories");
    assert!(limits.to_str().expect("text").contains(&found.0));
    assert_eq!((found.1.tier, found.1.compute), (Tier::Shim, Compute::Burst));
    assert_eq!(found.1.priority, Some(Priority::Low));
}

#[test]
fn a_node_with_the_service_serves_it_and_leaves_older_containers_what_they_are() {
    let mut node = shimmed();
    let place = MpsDirectory::new(&node.directory.path().join("run"));
    place.create().expect("directories");
    let up = place.mark_ready().expect("a lock");
    node.restart(Tier::Mps);
    assert_eq!(terms(&node, "burst"), (Tier::Shim, Compute::Burst));
    node.pods.push(annotated(part("client", "300"), key::TIER, "mps"));
    let slots = node.propose(1).expect("fits");
    node.allocate(&slots).expect("fits");
    assert_eq!(terms(&node, "client"), (Tier::Mps, Compute::Cap));
    assert_eq!(tenants(&node).len(), 2, "the driver needs no clock");
    drop(up);
    node.pods.push(part("late", "300"));
    assert_eq!(kind(node.serve(1)), "delivery");
    assert!(node.allocator.pre_start(&slots).is_err());
    node.restart(Tier::Shim);
    assert_eq!(terms(&node, "client").0, Tier::Shim, "a node that serves less says so");
}
