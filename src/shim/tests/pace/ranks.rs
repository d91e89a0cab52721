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

/// The longest exchange of tenants since they were asked last, ms.
fn longest_wait(tenants: &mut [Tenant]) -> f64 {
    let longest = |tenant: &mut Tenant| {
        tenant.tell("how long?");
        tenant.heard().and_then(|answer| answer.parse::<f64>().ok()).expect("microseconds")
    };
    tenants.iter_mut().map(|tenant| longest(tenant) / 1000.0).fold(0.0, f64::max)
}

/// What ranks get on these nodes, and how long the longest wait was; `beside` is the share of one on card 0 that always has
/// work.
pub(crate) fn print_figures(what: &str, ranks: u32, cores: u32, beside: Option<u32>) {
    let cards = |cores| vec![share(cores, "cap"); ranks as usize];
    let (own, other) = (cards(cores), cards(beside.unwrap_or(1)));
    let pods = if what == "pods" { ranks } else { 1 };
    let mut containers: Vec<&[_]> = vec![&own; pods as usize];
    containers.extend(beside.map(|_| &*other));
    let node = Node::shared(ranks, &containers);
    let mut tenants: Vec<Tenant> = match what {
        "threads" => vec![node.tenant(0, &format!("ranks {ranks} {WORK}"))],
        "processes" => (0..ranks).map(|rank| node.tenant(0, &format!("rank {rank} {ranks} {WORK}"))).collect(),
        _ => (0..ranks).map(|rank| node.tenant(rank as usize, &format!("rank {rank} {ranks} {WORK}"))).collect(),
    };
    let neighbour = beside.map(|_| node.tenant(pods as usize, "busy 1000000 1"));
    thread::sleep(SETTLING);
    longest_wait(&mut tenants);
    let (first, last) = (&tenants[0], tenants.last().expect("a rank"));
    let time = node.shares_of(&[(first.id(), 0), (last.id(), ranks - 1)], MEASURED);
    let useful = useful(&node, last, ranks - 1);
    let waited = longest_wait(&mut tenants);
    let beside = neighbour.map(|neighbour| node.shares(&[&neighbour], MEASURED)[0]);
    println!(
        "{ranks} ranks as {what} at {cores} %: {useful:.1} %, with waiting {time:.1?}, longest wait {waited:.1} ms, beside \
         {beside:.1?}"
    );
}

#[test]
#[ignore = "minutes of figures"]
fn ranks_over_shares_figures() {
    for (ranks, what) in [(2, "threads"), (2, "processes"), (8, "threads"), (2, "pods")] {
        for cores in [20, 30, 50, 75] {
            for beside in [None, Some(25)] {
                print_figures(what, ranks, cores, beside);
            }
        }
    }
}
