//! A library that measures programs and doesn't disturb them.

use crate::container::eventually;
use crate::node::{Node, share};

/// Nothing is in flight in the end, though the program waits for nothing.
#[track_caller]
fn comes_to_rest(node: &Node) {
    eventually("rest", || (node.containers[0].totals(0).usage.in_flight_ns == 0).then_some(()));
}

#[test]
fn what_nobody_waits_for_is_seen_to_be_done() {
    let node = Node::new(&[share(50, "cap")]);
    let _tenant = node.tenant(0, "once 500000 5");
    comes_to_rest(&node);
    let totals = node.containers[0].totals(0);
    let paid = totals.usage.busy_ns;
    assert!(totals.launches == 10 && (4_000_000..7_000_000).contains(&paid), "{totals:?}");
}

#[test]
fn who_has_waited_for_an_event_is_seen_to_be_idle_at_once() {
    let node = Node::new(&[share(50, "cap")]);
    let mut tenant = node.tenant(0, "waits 20");
    let mut seen = 0;
    for _ in 0..20 {
        tenant.says("done");
        seen += u32::from(node.containers[0].totals(0).usage.in_flight_ns == 0);
        tenant.tell("go on");
    }
    // The library's thread may just have looked, and then looks again a millisecond later.
    assert!(seen >= 18, "{seen} of 20 times");
}

#[test]
fn captures_are_not_disturbed_and_not_counted() {
    let node = Node::new(&[share(50, "cap")]);
    let _tenant = node.tenant(0, "captures 40");
    comes_to_rest(&node);
    let totals = node.containers[0].totals(0);
    assert_eq!((totals.graph_launches, totals.launches), (40, 40 * 6));
    assert_eq!(node.containers[0].complaints(), "");
}

#[test]
fn streams_and_contexts_end_while_they_are_watched() {
    let node = Node::new(&[share(60, "cap")]);
    let mut tenant = node.tenant(0, "ends 60");
    comes_to_rest(&node);
    tenant.succeeds();
    assert_eq!(node.containers[0].complaints(), "");
}

#[test]
fn whole_card_counts_launches_only_roughly() {
    let node = Node::new(&[share(100, "cap")]);
    let mut tenant = node.tenant(0, "called 10000");
    tenant.tell("200");
    tenant.says("done");
    let totals = node.containers[0].totals(0);
    let launches = node.card().usage_of(tenant.id()).expect("it is there").launches;
    assert!(totals.launches.abs_diff(launches) <= 65, "{} of {launches}", totals.launches);
    assert_eq!((totals.usage.busy_ns, totals.usage.in_flight_ns, totals.throttled_ns), (0, 0, 0));
}
