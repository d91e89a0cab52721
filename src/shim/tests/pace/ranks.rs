//! Ranks of one job, whose kernels wait for one another.

use std::thread;
use std::time::Duration;

use crate::container::Tenant;
use crate::node::{Node, share};
use crate::shares::assert_near;

/// What a rank works between two exchanges, ns; these take a tenth of it.
const WORK: u64 = 5_000_000;
const SETTLING: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(3);

/// A container with this share of each of so many cards.
fn node(cores: u32, ranks: usize) -> Node {
    Node::with_cards(&vec![share(cores, "cap"); ranks])
}

/// Percent of a card's time that is useful to a job: what its kernels take that don't wait.
fn useful(node: &Node, tenant: &Tenant, card: u32) -> f64 {
    let kernels = || node.card_of(card).usage_of(tenant.id()).expect("it is there").kernels;
    let before = kernels();
    thread::sleep(MEASURED);
    #[expect(clippy::cast_precision_loss, reason = "some thousand")]
    let steps = (kernels() - before) as f64 / 2.0;
    steps * Duration::from_nanos(WORK + WORK / 10).as_secs_f64() / MEASURED.as_secs_f64() * 100.0
}

/// What ranks get that are threads of one process.
fn assert_threads(cores: u32, ranks: usize) {
    let node = node(cores, ranks);
    let tenant = node.tenant(0, &format!("ranks {ranks} {WORK}"));
    thread::sleep(SETTLING);
    assert_near(&[cores.into()], 3.0, || vec![useful(&node, &tenant, 1)]);
}

/// What ranks get that are processes.
fn assert_processes(cores: u32, ranks: usize) {
    let node = node(cores, ranks);
    let tenants: Vec<Tenant> = (0..ranks).map(|rank| node.tenant(0, &format!("rank {rank} {ranks} {WORK}"))).collect();
    thread::sleep(SETTLING);
    assert_near(&[cores.into()], 3.0, || vec![useful(&node, &tenants[1], 1)]);
}

#[test]
fn two_ranks_in_one_process_get_a_fifth() {
    assert_threads(20, 2);
}

#[test]
fn two_ranks_in_one_process_get_half() {
    assert_threads(50, 2);
}

#[test]
fn two_ranks_in_processes_get_a_fifth() {
    assert_processes(20, 2);
}

#[test]
fn two_ranks_in_processes_get_three_quarters() {
    assert_processes(75, 2);
}

#[test]
#[ignore = "a minute of figures"]
fn ranks_over_shares_figures() {
    for ranks in [2, 8] {
        for cores in [20, 30, 50, 75] {
            let node = node(cores, ranks);
            let tenant = node.tenant(0, &format!("ranks {ranks} {WORK}"));
            thread::sleep(SETTLING);
            let useful = useful(&node, &tenant, 1);
            let busy = node.shares_of(&[(tenant.id(), 0), (tenant.id(), 1)], MEASURED);
            println!("{ranks} ranks in one process, {cores} %: {useful:.1}, with waiting {busy:.1?}");
        }
    }
}
