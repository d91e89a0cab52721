//! Shares, as far as a busy machine lets them be told.

use std::thread;
use std::time::Duration;

use crate::node::{Node, share};

const SETTLING: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(3);

/// What containers with these promises get, who do this all the time.
fn measure(node: &Node, words: &[&str]) -> Vec<f64> {
    let tenants: Vec<_> = words.iter().enumerate().map(|(container, words)| node.tenant(container, words)).collect();
    thread::sleep(SETTLING);
    node.shares(&tenants.iter().collect::<Vec<_>>(), MEASURED)
}

#[track_caller]
fn assert_near(shares: &[f64], wanted: &[f64], points: f64) {
    println!("{shares:.1?} for {wanted:?}");
    let near = shares.iter().zip(wanted).all(|(share, wanted)| (share - wanted).abs() <= points);
    assert!(near, "{shares:.1?} instead of {wanted:?}");
}

#[test]
fn alone_short_kernels_get_a_quarter() {
    assert_near(&measure(&Node::new(&[share(25, "cap")]), &["busy 10000 1"]), &[25.0], 3.0);
}

#[test]
fn alone_kernels_of_a_millisecond_in_four_streams_get_half() {
    assert_near(&measure(&Node::new(&[share(50, "cap")]), &["busy 1000000 4"]), &[50.0], 3.0);
}

#[test]
fn alone_long_kernels_get_three_quarters() {
    assert_near(&measure(&Node::new(&[share(75, "cap")]), &["busy 20000000 1"]), &[75.0], 3.0);
}

#[test]
fn without_a_daemon_one_alone_gets_its_share_too() {
    assert_near(&measure(&Node::silent(&[share(50, "burst")]), &["default 1000000"]), &[50.0], 3.0);
}

#[test]
fn each_threads_own_default_stream_is_held_too() {
    assert_near(&measure(&Node::new(&[share(50, "cap")]), &["own-default 1000000"]), &[50.0], 3.0);
}

#[test]
fn graphs_are_held_too() {
    let node = Node::new(&[share(50, "cap")]);
    assert_near(&measure(&node, &["graphs 500000 7"]), &[50.0], 3.0);
    let totals = node.containers[0].totals(0);
    assert!(totals.graph_launches > 100 && totals.launches == 0, "{totals:?}");
}

#[test]
fn two_that_were_promised_a_quarter_and_three_quarters_get_them() {
    let node = Node::new(&[25, 75].map(|cores| share(cores, "cap")));
    assert_near(&measure(&node, &["busy 1000000 1", "busy 20000000 1"]), &[25.0, 75.0], 4.0);
}

#[test]
fn three_get_what_they_were_promised() {
    let node = Node::new(&[20, 30, 50].map(|cores| share(cores, "cap")));
    assert_near(&measure(&node, &["busy 1000000 1"; 3]), &[20.0, 30.0, 50.0], 4.0);
}

#[test]
fn two_processes_of_a_container_share_its_promise() {
    let node = Node::new(&[share(50, "cap")]);
    let tenants = [node.tenant(0, "busy 1000000 1"), node.tenant(0, "busy 1000000 1")];
    thread::sleep(SETTLING);
    let shares = node.shares(&[&tenants[0], &tenants[1]], MEASURED);
    assert_near(&[shares.iter().sum()], &[50.0], 4.0);
}

#[test]
fn what_a_killed_process_had_in_flight_holds_nobody_up() {
    let node = Node::new(&[share(50, "cap")]);
    let mut killed = node.tenant(0, "busy 20000000 1");
    let left = node.tenant(0, "busy 1000000 1");
    thread::sleep(Duration::from_millis(500));
    killed.kill();
    thread::sleep(SETTLING);
    assert_near(&node.shares(&[&left], MEASURED), &[50.0], 3.0);
}

#[test]
fn idle_time_of_others_is_used_at_once_and_given_back_at_once() {
    let node = Node::new(&[share(25, "burst"), share(75, "burst")]);
    let one = node.tenant(0, "busy 1000000 1");
    let mut other = node.tenant(1, "called 1000000");
    thread::sleep(SETTLING);
    let moment = Duration::from_millis(100);
    assert_near(&node.shares(&[&one], MEASURED), &[100.0], 3.0);
    other.tell("3500");
    thread::sleep(moment);
    assert_near(&node.shares(&[&one, &other], MEASURED), &[25.0, 75.0], 4.0);
    other.says("done");
    thread::sleep(moment);
    assert_near(&node.shares(&[&one], MEASURED), &[100.0], 3.0);
}

#[test]
fn one_without_a_promise_gets_what_nobody_busy_was_promised() {
    let node = Node::new(&[share(0, "cap"), share(70, "cap")]);
    assert_near(&measure(&node, &["busy 1000000 1", "busy 1000000 1"]), &[30.0, 70.0], 4.0);
}

#[test]
fn a_share_that_is_changed_is_in_force_soon() {
    let node = Node::new(&[share(100, "cap")]);
    let tenant = node.tenant(0, "busy 1000000 1");
    thread::sleep(SETTLING);
    assert_near(&node.shares(&[&tenant], MEASURED), &[100.0], 3.0);
    for cores in [30_u8, 60] {
        node.containers[0].limit(&[share(cores.into(), "cap")]);
        thread::sleep(SETTLING);
        assert_near(&node.shares(&[&tenant], MEASURED), &[cores.into()], 3.0);
    }
}

#[test]
#[ignore = "a minute of figures"]
fn the_whole_matrix() {
    for cores in [25, 50, 75] {
        for width in [10_000, 1_000_000, 20_000_000] {
            let node = Node::new(&[share(cores, "cap")]);
            println!("alone {cores} % {width} ns: {:.2?}", measure(&node, &[&format!("busy {width} 1")]));
        }
    }
    for promised in [[25, 75], [30, 70], [50, 50]] {
        for width in [10_000, 1_000_000, 20_000_000] {
            let node = Node::new(&promised.map(|cores| share(cores, "cap")));
            let words = format!("busy {width} 1");
            println!("pair {promised:?} {width} ns: {:.2?}", measure(&node, &[&words, &words]));
        }
    }
    let node = Node::new(&[20, 30, 50].map(|cores| share(cores, "cap")));
    println!("three [20, 30, 50] 1 ms: {:.2?}", measure(&node, &["busy 1000000 1"; 3]));
    let node = Node::new(&[25, 75].map(|cores| share(cores, "cap")));
    println!("10 µs at 25, 20 ms at 75: {:.2?}", measure(&node, &["busy 10000 1", "busy 20000000 1"]));
    let node = Node::new(&[share(50, "cap")]);
    println!("alone 50 % in 4 streams 1 ms: {:.2?}", measure(&node, &["busy 1000000 4"]));
    println!("alone 50 % default stream 1 ms: {:.2?}", measure(&Node::new(&[share(50, "cap")]), &["default 1000000"]));
}
