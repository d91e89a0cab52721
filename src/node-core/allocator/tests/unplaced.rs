//! Pods that were refused for lack of room.

use divvy_api::request::Totals;

use super::*;

fn of_memory(memory: u64) -> Totals {
    Totals { count: 1, memory, ..Totals::default() }
}

/// Two GPUs with 400 MiB free each, and a pod that finds no 500 on either.
fn full() -> Node {
    let mut node = Node::new(2, PolicyName::Spread);
    node.hold("one", &slot("GPU-0::0"), 600);
    node.hold("two", &slot("GPU-1::0"), 600);
    node.pods.push(part("a", "500"));
    assert_eq!(kind(node.propose(1)), "no-fit");
    node
}

#[test]
fn refused_pod_is_unplaced_until_it_fits() {
    let mut node = full();
    assert_eq!(node.allocator.unplaced(), [of_memory(500)]);
    node.set_health(1, divvy_api::Health::unhealthy("XID 79"));
    assert_eq!(node.allocator.unplaced(), [of_memory(500)]);
    node.pods.retain(|pod| pod.name == "two");
    (0..2).for_each(|_| node.look());
    assert_eq!(node.allocator.unplaced(), []);
    assert!(!node.allocator.has_unplaced());
}

#[test]
fn refused_pods_of_one_shape_are_one() {
    let mut node = full();
    for name in ["b", "c"] {
        node.pods.truncate(2);
        node.pods.push(part(name, "500"));
        assert_eq!(kind(node.propose(1)), "no-fit");
    }
    node.pods.truncate(2);
    node.pods.push(pod("d", &[&[("gpu", "2"), ("gpumem", "450")]]));
    assert_eq!(kind(node.propose(2)), "no-fit");
    assert_eq!(node.allocator.unplaced(), [of_memory(500), Totals { count: 2, memory: 450, ..Totals::default() }]);
}

#[test]
fn pod_refused_for_what_else_it_requires_is_not_unplaced() {
    let mut node = Node::new(2, PolicyName::Spread);
    node.pods.push(annotated(part("a", "500"), key::CARD_UUID, "GPU-7"));
    assert_eq!(kind(node.propose(1)), "no-fit");
    assert_eq!(node.allocator.unplaced(), []);
}
