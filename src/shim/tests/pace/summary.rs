//! One line for each thing that a rule of pacing may be there for: what is left of it without the rule?
//! `cargo test -p divvy-shim --test pace -- --ignored summary --nocapture`.

use std::thread;
use std::time::Duration;

use crate::container::Tenant;
use crate::cost::ran;
use crate::node::{Node, share};
use crate::ranks;

const SETTLING: Duration = Duration::from_millis(1500);
const MEASURED: Duration = Duration::from_millis(2500);

/// Percent of the card that each of the programs gets, as many of them as are in one container given as one.
fn shares(promised: &[u32], compute: &'static str, words: &[&[&str]]) -> Vec<f64> {
    let node = Node::new(&promised.iter().map(|cores| share(*cores, compute)).collect::<Vec<_>>());
    let start = |(container, words): (usize, &&[&str])| -> Vec<Tenant> {
        words.iter().map(|words| node.tenant(container, words)).collect()
    };
    let tenants: Vec<Tenant> = words.iter().enumerate().flat_map(start).collect();
    thread::sleep(SETTLING);
    node.shares(&tenants.iter().collect::<Vec<_>>(), MEASURED)
}

/// Percent of a processor that the library's thread takes, and the program's own threads.
fn processor(cores: u32, words: &str) -> [f64; 2] {
    let node = Node::new(&[share(cores, "cap")]);
    let tenant = node.tenant(0, words);
    thread::sleep(SETTLING);
    let before = ran(tenant.id());
    thread::sleep(MEASURED);
    let after = ran(tenant.id());
    #[expect(clippy::cast_precision_loss, reason = "some milliseconds")]
    let percent = |number: usize| (after[number] - before[number]) as f64 / MEASURED.as_nanos() as f64 * 100.0;
    [percent(0), percent(2)]
}

#[test]
#[ignore = "a minute of figures"]
fn summary_figures() {
    let print = |what: &str, shares: &[f64]| println!("{what}: {shares:.1?}");
    print("alone 50 %, 10 µs", &shares(&[50], "cap", &[&["busy 10000 1"]]));
    print("alone 75 %, 20 ms", &shares(&[75], "cap", &[&["busy 20000000 1"]]));
    print("alone 30 %, four graphs of 7", &shares(&[30], "cap", &[&["graphs 500000 7"; 4]]));
    print("alone 30 %, gaps", &shares(&[30], "cap", &[&["gaps 100000 200000"]]));
    print("alone 50 %, steps", &shares(&[50], "cap", &[&["steps 100000 5"]]));
    print("alone 50 %, memsets", &shares(&[50], "cap", &[&["fills 1048576"]]));
    for words in
        ["contexts 10000 2", "contexts 10000 4", "contexts 10000 8", "contexts 1000000 2", "contexts 1000000 8"]
    {
        print(&format!("alone 50 %, {words}"), &shares(&[50], "cap", &[&[words]]));
    }
    print("25 and 75 %, 10 µs", &shares(&[25, 75], "cap", &[&["busy 10000 1"], &["busy 10000 1"]]));
    print("25 and 75 %, 1 ms", &shares(&[25, 75], "cap", &[&["busy 1000000 1"], &["busy 1000000 1"]]));
    print("25 and 75 %, 20 ms", &shares(&[25, 75], "cap", &[&["busy 20000000 1"], &["busy 20000000 1"]]));
    print("30 and 50 %, steps and 1 ms", &shares(&[30, 50], "cap", &[&["steps 100000 5"], &["busy 1000000 1"]]));
    print("25 and 25 % lent, 1 ms", &shares(&[25, 25], "burst", &[&["busy 1000000 1"], &["busy 1000000 1"]]));
    print("one of four processes, 50 %", &shares(&[50], "cap", &[&["busy 1000000 1"; 4]]));
    for (what, ranks, cores) in [("threads", 2, 20), ("processes", 2, 50), ("threads", 8, 75)] {
        ranks::print_figures(what, ranks, cores, None);
    }
    for (cores, words) in
        [(25, "busy 1000000 1"), (50, "busy 10000 4"), (50, "steps 100000 20"), (50, "paused 100000 5")]
    {
        let [own, others] = processor(cores, words);
        println!("processor, {words} at {cores} %: {own:.2} %, the program's {others:.2} %");
    }
}
