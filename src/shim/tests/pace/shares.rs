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
    let near = shares.iter().zip(wanted).all(|(share, wanted)| (share - wanted).abs() <= points);
    assert!(near, "{shares:.1?} instead of {wanted:?}");
}

#[test]
#[ignore = "figures"]
fn what_is_paid() {
    for (cores, words) in [(50, "busy 1000000 4"), (75, "busy 10000 1"), (100, "busy 10000 1"), (50, "busy 1000000 1")]
    {
        let node = Node::new(&[share(cores, "cap")]);
        let tenant = node.tenant(0, words);
        thread::sleep(SETTLING);
        let paid = node.containers[0].totals(0);
        let shares = node.shares(&[&tenant], MEASURED);
        let after = node.containers[0].totals(0);
        println!(
            "{cores} {words}: {shares:.2?}, paid {:.2} {:?}",
            (after.usage.busy_ns - paid.usage.busy_ns) as f64 / 3e7,
            after
        );
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
