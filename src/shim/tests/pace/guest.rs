//! A library that measures programs and doesn't disturb them.

use crate::container::eventually;
use crate::node::{Node, share};

/// Nothing is in flight in the end, though the program waits for nothing.
#[track_caller]
fn comes_to_rest(node: &Node) {
    eventually("rest", || (node.containers[0].totals(0).usage.in_flight_ns == 0).then_some(()));
}

#[test]
fn unawaited_work_is_detected_as_completed() {
    let paid = || {
        let node = Node::new(&[share(50, "cap")]);
        let tenant = node.tenant(0, "once 500000 5");
        comes_to_rest(&node);
        let totals = node.containers[0].totals(0);
        assert_eq!(totals.launches, 10, "{totals:?}");
        (totals.usage.busy_ns, node.card().usage_of(tenant.id()).expect("it is there").busy)
    };
    // The library's thread looks every millisecond; where it is kept from the processor, it sees the end later.
    let runs: Vec<(u64, u64)> = (0..5).map(|_| paid()).collect();
    assert!(runs.iter().all(|(paid, took)| *took >= 2_500_000 && paid * 5 >= took * 4), "{runs:?}");
    assert!(runs.iter().any(|(paid, took)| *paid < took + 2_000_000), "{runs:?}");
}

#[test]
fn waiting_for_an_event_completes_the_stream() {
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
fn stream_captures_are_neither_disturbed_nor_charged() {
    let node = Node::new(&[share(50, "cap")]);
    let _tenant = node.tenant(0, "captures 40");
    comes_to_rest(&node);
    let totals = node.containers[0].totals(0);
    assert_eq!((totals.graph_launches, totals.launches), (40, 40 * 6));
    assert_eq!(node.containers[0].complaints(), "");
}

#[test]
fn streams_and_contexts_may_be_destroyed_while_watched() {
    let node = Node::new(&[share(60, "cap")]);
    let mut tenant = node.tenant(0, "ends 60");
    comes_to_rest(&node);
    tenant.succeeds();
    assert_eq!(node.containers[0].complaints(), "");
}

#[test]
fn error_on_one_card_leaves_the_others_watched() {
    let node = Node::with_cards(&[share(50, "cap"); 2]);
    let _tenant = node.tenant(0, "fails");
    comes_to_rest(&node);
    eventually("rest", || (node.containers[0].totals(1).usage.in_flight_ns == 0).then_some(()));
    assert_eq!(node.containers[0].totals(1).launches, 3);
}

#[test]
fn stream_destroyed_from_another_context_is_forgotten() {
    let node = Node::with_cards(&[share(50, "cap"); 2]);
    let tenant = node.tenant(0, "elsewhere");
    comes_to_rest(&node);
    let paid_ns = node.containers[0].totals(0).usage.busy_ns;
    let took_ns = node.card().usage_of(tenant.id()).expect("it is there").busy;
    assert!(took_ns >= 4_000_000 && paid_ns >= took_ns * 4 / 5, "{paid_ns} of {took_ns} ns");
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
