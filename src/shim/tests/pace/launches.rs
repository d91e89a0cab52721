//! In whatever way work is launched, and by whichever process: it is held to the share.

use std::thread;
use std::time::Duration;

use crate::container::{Tenant, eventually};
use crate::node::{Node, share};
use crate::shares::assert_near;

/// A cycle of the bucket is 10 ms at one half: some of them, so that one more or less makes no difference.
const SETTLING: Duration = Duration::from_millis(200);
const MEASURED: Duration = Duration::from_millis(700);

fn launcher(node: &Node, words: &str) -> Tenant {
    node.containers[0].tenant("launchers::launcher", words)
}

#[test]
fn every_launch_function_is_held_to_the_share() {
    let node = Node::new(&[share(50, "cap")]);
    let mut tenant = launcher(&node, "any");
    tenant.says("ready");
    for way in [
        "extended",
        "extended, own default",
        "cooperative",
        "cooperative, own default",
        "cooperative, many",
        "grid",
        "grid, stream",
        "graphs",
        "graph, own default",
        "contexts",
        "events",
        "steps",
        // Short kernels last: what they take is learned at once, and that others take longer isn't.
        "single",
    ] {
        tenant.tell(way);
        tenant.says("begun");
        thread::sleep(SETTLING);
        assert_near(&[50.0], 4.0, || {
            let shares = node.shares(&[&tenant], MEASURED);
            println!("{way}: {shares:.1?}");
            shares
        });
    }
    tenant.tell("end");
    tenant.says("begun");
    tenant.succeeds();
    assert_eq!(node.containers[0].complaints(), "");
}

#[test]
fn processes_forked_before_cuinit_share_with_parent() {
    let node = Node::new(&[share(50, "cap")]);
    let mut parent = launcher(&node, "family");
    let processes = [(); 3].map(|()| parent.heard().and_then(|id| id.parse().ok()).expect("a process"));
    thread::sleep(SETTLING);
    let together = || vec![node.shares_of(&processes.map(|process| (process, 0)), MEASURED).iter().sum()];
    assert_near(&[50.0], 4.0, together);
}

#[test]
fn fork_during_polling_leaves_both_processes_working() {
    let node = Node::new(&[share(50, "cap")]);
    let mut parent = launcher(&node, "forks");
    let started: [u32; 3] = [(); 3].map(|()| parent.heard().and_then(|id| id.parse().ok()).expect("a process"));
    thread::sleep(SETTLING);
    let processes: Vec<_> = started.iter().chain([&parent.id()]).map(|process| (*process, 0)).collect();
    // Whoever waits longest passes first: each has its part in any short time, not only in the mean.
    assert_near(&[12.5, 12.5, 50.0], 2.5, || {
        let windows: Vec<_> = (0..3).map(|_| node.shares_of(&processes, MEASURED)).collect();
        let all = || windows.iter().flatten().copied();
        vec![all().fold(100.0, f64::min), all().fold(0.0, f64::max), all().sum::<f64>() / 3.0]
    });
    assert_eq!(node.containers[0].complaints(), "");
}

#[test]
fn each_card_of_a_container_has_its_own_share() {
    let node = Node::with_cards(&[share(25, "cap"), share(60, "cap")]);
    let mut tenant = launcher(&node, "cards");
    tenant.says("ready");
    thread::sleep(SETTLING);
    let both = [(tenant.id(), 0), (tenant.id(), 1)];
    assert_near(&[25.0, 60.0], 4.0, || node.shares_of(&both, MEASURED));
    // What is launched on both at once has the time of the lesser share on both.
    tenant.tell("all at once");
    tenant.says("at once");
    thread::sleep(SETTLING);
    assert_near(&[25.0, 25.0], 4.0, || node.shares_of(&both, MEASURED));
}

#[test]
fn unmeasured_kernel_is_launched_alone() {
    let node = Node::new(&[share(25, "cap")]);
    let tenant = node.tenant(0, "busy 300000000 1");
    eventually("a second launch", || (node.containers[0].totals(0).launches == 2).then_some(()));
    let launches = || node.card().usage_of(tenant.id()).map_or(0, |usage| usage.launches);
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(150) {
        assert_eq!(launches(), 1);
        thread::sleep(Duration::from_millis(5));
    }
    // And what it took is owed: three times as long again.
    eventually("its end", || (node.containers[0].totals(0).usage.in_flight_ns == 0).then_some(()));
    assert_eq!((launches(), node.containers[0].totals(0).balance_ns < -200_000_000), (1, true));
}
