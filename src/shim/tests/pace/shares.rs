//! Shares, as far as a busy machine lets them be told.

use std::thread;
use std::time::Duration;

use crate::container::Tenant;
use crate::node::{Node, share};

const SETTLING: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(2);
/// A machine that is busy with other things may not let programs run in time for their turn: then it is measured again.
const TRIES: usize = 5;
/// So often one is called whose time another uses meanwhile: each time is short, all together are long enough to tell.
const TURNS: u32 = 8;

/// A tenant for each of the words, in a container of its own.
fn start(node: &Node, words: &[&str]) -> Vec<Tenant> {
    let tenants = words.iter().enumerate().map(|(container, words)| node.tenant(container, words)).collect();
    thread::sleep(SETTLING);
    tenants
}

#[track_caller]
pub(crate) fn assert_near(wanted: &[f64], points: f64, mut measure: impl FnMut() -> Vec<f64>) {
    let is_near = |shares: &Vec<f64>| shares.iter().zip(wanted).all(|(share, wanted)| (share - wanted).abs() <= points);
    let mut measured = Vec::new();
    while measured.len() < TRIES {
        measured.push(measure());
        if measured.last().is_some_and(is_near) {
            return;
        }
    }
    panic!("{measured:.1?} instead of {wanted:?}");
}

/// What containers with these promises get, who do this all the time.
#[track_caller]
fn assert_shares(node: &Node, words: &[&str], wanted: &[f64], points: f64) {
    let tenants = start(node, words);
    let tenants: Vec<_> = tenants.iter().collect();
    assert_near(wanted, points, || node.shares(&tenants, MEASURED));
}

#[test]
fn alone_short_kernels_get_a_quarter() {
    assert_shares(&Node::new(&[share(25, "cap")]), &["busy 10000 1"], &[25.0], 3.0);
}

#[test]
fn alone_kernels_of_a_millisecond_in_four_streams_get_half() {
    assert_shares(&Node::new(&[share(50, "cap")]), &["busy 1000000 4"], &[50.0], 3.0);
}

#[test]
fn alone_long_kernels_get_three_quarters() {
    assert_shares(&Node::new(&[share(75, "cap")]), &["busy 20000000 1"], &[75.0], 3.0);
}

#[test]
fn gaps_between_kernels_are_not_charged() {
    assert_shares(&Node::new(&[share(30, "cap")]), &["gaps 1000000 2000000"], &[30.0], 3.0);
}

#[test]
fn short_gaps_between_kernels_are_not_charged() {
    assert_shares(&Node::new(&[share(20, "cap")]), &["gaps 100000 200000"], &[20.0], 3.0);
}

#[test]
fn pretended_gaps_between_kernels_are_of_no_use() {
    let node = Node::new(&[share(20, "cap")]);
    let tenants = start(&node, &["pretends 240000"]);
    // Gaps that differ from those beside them are charged in part.
    assert_near(&[14.0], 6.0, || {
        let shares = node.shares(&[&tenants[0]], MEASURED);
        assert!(shares[0] <= 23.0, "{shares:.1?}, however busy the machine is");
        shares
    });
}

#[test]
fn container_pays_for_what_one_with_little_work_leaves() {
    // The other waits for its turn at each of its kernels, and has what this one leaves.
    let node = Node::new(&[share(30, "cap"), share(30, "cap")]);
    let tenants = start(&node, &["gaps 100000 200000", "busy 1000000 1"]);
    assert_near(&[30.0], 4.0, || node.shares(&[&tenants[1]], MEASURED));
}

#[test]
fn bursts_beside_another_cost_what_they_take() {
    let node = Node::new(&[share(50, "cap"), share(50, "cap")]);
    let tenants = start(&node, &["bursts 1000000 4", "busy 1000000 1"]);
    // What is charged, in percent of what it had.
    assert_near(&[100.0], 12.0, || {
        let paid = || node.containers[0].totals(0).usage.busy_ns;
        let before = paid();
        let had = node.shares(&[&tenants[0]], MEASURED)[0];
        #[expect(clippy::cast_precision_loss, reason = "some seconds")]
        let paid = (paid() - before) as f64 * 100.0 / MEASURED.as_nanos() as f64;
        vec![paid * 100.0 / had]
    });
}

#[test]
fn neighbour_of_unforeseen_long_kernels_keeps_its_share() {
    let node = Node::new(&[50, 50].map(|cores| share(cores, "cap")));
    assert_shares(&node, &["mixed 100000000 400", "busy 1000000 1"], &[50.0, 50.0], 6.0);
}

#[test]
fn memsets_are_limited() {
    assert_shares(&Node::new(&[share(50, "cap")]), &["fills 1048576"], &[50.0], 3.0);
}

#[test]
fn copies_within_a_card_are_limited() {
    assert_shares(&Node::new(&[share(50, "cap")]), &["copies 1048576"], &[50.0], 3.0);
}

#[test]
fn container_without_daemon_gets_its_share() {
    assert_shares(&Node::silent(&[share(50, "burst")]), &["default 1000000"], &[50.0], 3.0);
}

#[test]
fn per_thread_default_stream_is_limited() {
    assert_shares(&Node::new(&[share(50, "cap")]), &["own-default 1000000"], &[50.0], 3.0);
}

#[test]
fn graph_launches_are_limited() {
    let node = Node::new(&[share(50, "cap")]);
    assert_shares(&node, &["graphs 500000 7"], &[50.0], 3.0);
    let totals = node.containers[0].totals(0);
    assert!(totals.graph_launches > 100 && totals.launches == 0, "{totals:?}");
}

#[test]
fn two_containers_get_quarter_and_three_quarters() {
    let node = Node::new(&[25, 75].map(|cores| share(cores, "cap")));
    assert_shares(&node, &["busy 1000000 1", "busy 20000000 1"], &[25.0, 75.0], 4.0);
}

#[test]
fn two_half_shares_leave_no_idle_time() {
    let node = Node::new(&[50, 50].map(|cores| share(cores, "cap")));
    assert_shares(&node, &["busy 1000000 1"; 2], &[50.0, 50.0], 4.0);
}

#[test]
fn three_containers_get_their_shares() {
    let node = Node::new(&[20, 30, 50].map(|cores| share(cores, "cap")));
    assert_shares(&node, &["busy 1000000 1"; 3], &[20.0, 30.0, 50.0], 4.0);
}

#[test]
fn two_processes_divide_a_share_evenly() {
    let node = Node::new(&[share(50, "cap")]);
    let tenants = [node.tenant(0, "busy 1000000 1"), node.tenant(0, "busy 1000000 1")];
    thread::sleep(SETTLING);
    assert_near(&[25.0, 25.0, 50.0], 4.0, || {
        let each = node.shares(&[&tenants[0], &tenants[1]], MEASURED);
        vec![each[0], each[1], each[0] + each[1]]
    });
}

#[test]
fn two_processes_are_held_to_one_containers_share() {
    let node = Node::new(&[50, 50].map(|cores| share(cores, "cap")));
    let [one, two] = [(); 2].map(|()| node.tenant(0, "busy 1000000 1"));
    let _other = node.tenant(1, "busy 1000000 1");
    thread::sleep(SETTLING);
    assert_near(&[50.0], 4.0, || {
        let shares = node.shares(&[&one, &two], MEASURED);
        vec![shares[0] + shares[1]]
    });
}

#[test]
fn work_of_a_killed_process_delays_nobody() {
    let node = Node::new(&[share(50, "cap")]);
    let mut killed = node.tenant(0, "busy 20000000 1");
    let left = node.tenant(0, "busy 1000000 1");
    thread::sleep(Duration::from_millis(500));
    killed.kill();
    thread::sleep(SETTLING);
    assert_near(&[50.0], 3.0, || node.shares(&[&left], MEASURED));
}

#[test]
fn idle_time_is_lent_and_returned_at_once() {
    let node = Node::new(&[share(25, "burst"), share(75, "burst")]);
    let one = node.tenant(0, "busy 1000000 1");
    let mut other = node.tenant(1, "called 1000000");
    thread::sleep(SETTLING);
    let (moment, turn) = (Duration::from_millis(100), Duration::from_millis(400));
    assert_near(&[25.0, 75.0, 100.0], 4.0, || {
        let mut sums = vec![0.0; 3];
        for _ in 0..TURNS {
            other.tell("550");
            thread::sleep(moment);
            let mut shares = node.shares(&[&one, &other], turn);
            other.says("done");
            thread::sleep(moment);
            shares.extend(node.shares(&[&one], turn));
            sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share / f64::from(TURNS));
        }
        sums
    });
}

#[test]
fn idle_time_is_used_up_to_the_limit() {
    assert_shares(&Node::new(&[share(20, "burst limit 50")]), &["busy 1000000 1"], &[50.0], 3.0);
    let node = Node::new(&[share(20, "burst limit 50"), share(20, "burst")]);
    assert_shares(&node, &["busy 1000000 1", "busy 1000000 1"], &[50.0, 50.0], 4.0);
}

#[test]
fn container_without_share_gets_unreserved_time() {
    let node = Node::new(&[share(0, "cap"), share(70, "cap")]);
    assert_shares(&node, &["busy 1000000 1", "busy 1000000 1"], &[30.0, 70.0], 4.0);
}

#[test]
fn low_priority_yields_to_high_and_keeps_its_share() {
    let node = Node::new(&[share(20, "burst low"), share(20, "burst high")]);
    assert_shares(&node, &["busy 1000000 1", "busy 1000000 1"], &[20.0, 80.0], 4.0);
}

#[test]
fn changed_share_takes_effect_soon() {
    let node = Node::new(&[share(100, "cap")]);
    let tenant = node.tenant(0, "busy 1000000 1");
    thread::sleep(SETTLING);
    assert_near(&[100.0], 3.0, || node.shares(&[&tenant], MEASURED));
    for cores in [30_u8, 60] {
        node.containers[0].limit(&[share(cores.into(), "cap")]);
        thread::sleep(SETTLING);
        assert_near(&[cores.into()], 3.0, || node.shares(&[&tenant], MEASURED));
    }
}

fn measure(node: &Node, words: &[&str]) -> Vec<f64> {
    node.shares(&start(node, words).iter().collect::<Vec<_>>(), MEASURED)
}

#[test]
#[ignore = "a minute of figures"]
fn shares_over_kernel_lengths_figures() {
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
    // One node at a time: each ends with its line.
    let figures = |what: &str, promised: &[u32], words: &[&str]| {
        let node = Node::new(&promised.iter().map(|cores| share(*cores, "cap")).collect::<Vec<_>>());
        println!("{what}: {:.2?}", measure(&node, words));
    };
    figures("three [20, 30, 50] 1 ms", &[20, 30, 50], &["busy 1000000 1"; 3]);
    figures("10 µs at 25, 20 ms at 75", &[25, 75], &["busy 10000 1", "busy 20000000 1"]);
    figures("alone 50 % in 4 streams 1 ms", &[50], &["busy 1000000 4"]);
    figures("alone 50 % default stream 1 ms", &[50], &["default 1000000"]);
}

/// Half a millisecond of kernels, then two after gaps, at a share of 20 %.
#[test]
#[ignore = "half a minute of figures"]
fn pretended_gaps_figures() {
    for gap_ns in [240_000, 330_000, 390_000] {
        let node = Node::new(&[share(20, "cap")]);
        println!("gaps of {gap_ns} ns: {:.1?}", measure(&node, &[&format!("pretends {gap_ns}")]));
    }
}

/// Programs whose processor can't keep a card busy: what they could have of it, what their share of it is, and what they get.
#[test]
#[ignore = "a minute of figures"]
fn gaps_between_kernels_figures() {
    let all =
        ["gaps 100000 200000", "gaps 1000000 2000000", "gaps 400000 200000", "gaps 20000 40000", "steps 100000 5"];
    for words in all {
        for cores in [100, 30] {
            let node = Node::new(&[share(cores, "cap")]);
            println!("{words} alone at {cores} %: {:.1?}", measure(&node, &[words]));
        }
        for promised in [[30, 30], [30, 70], [50, 50]] {
            let node = Node::new(&promised.map(|cores| share(cores, "cap")));
            let pair = measure(&node, &[words, "busy 1000000 1"]);
            println!("{words} at {} % beside one that is always busy at {} %: {pair:.1?}", promised[0], promised[1]);
        }
    }
}
