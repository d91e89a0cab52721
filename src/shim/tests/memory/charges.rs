//! What is charged, for how long, and what is refused, in one process at a time.

use crate::container::{Container, GIB, MIB, Share, Tenant};
use divvy_region::clock::DriverMemory;
use driver_api::{ILLEGAL_ADDRESS, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS};
use fake_cuda::Machine;

#[test]
fn memory_is_charged_to_the_page_and_refused_above_the_limit() {
    let container = Container::of_memory(100);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["allocate a 1", "allocate b 12345"]);
    container.holds(2);
    tenant.does(&format!("allocate c {}", 98 * MIB + 1), OUT_OF_MEMORY);
    tenant.succeeds_in(&[&format!("allocate c {}", 96 * MIB + 1)]);
    container.holds(100);
    assert_eq!(tenant.answers("info"), "0 of 100");
    tenant.does(&format!("allocate d {}", MIB + 1), OUT_OF_MEMORY);
    // The page of the small ones has room, until it is full.
    tenant.succeeds_in(&[&format!("allocate d {MIB}")]);
    tenant.does(&format!("allocate e {MIB}"), OUT_OF_MEMORY);
    container.holds(100);
    tenant.succeeds_in(&["free a", "free d"]);
    container.holds(100);
    tenant.succeeds_in(&["free b", "free c"]);
    container.holds(0);
    assert_eq!(tenant.answers("info"), "100 of 100");
    let totals = container.totals(0);
    assert_eq!((totals.allocs, totals.ooms), (4, 3));
    tenant.succeeds();
}

#[test]
fn what_is_told_free_can_be_allocated() {
    // An array takes no whole page, and neither does the limit.
    let container = Container::of_memory(101);
    let mut tenant = container.shell();
    for first in ["array a 100 100", "allocate a 1", "allocate a 3000000", "allocate-async a 3000000"] {
        tenant.succeeds_in(&[first]);
        let told = tenant.answers("info");
        let free: u64 = told.split(' ').next().and_then(|free| free.parse().ok()).expect("a number");
        tenant.succeeds_in(&[&format!("allocate b {}", free * MIB), "free b"]);
        tenant.succeeds_in(&[if first.starts_with("array") { "end-array a" } else { "free a" }, "synchronise"]);
        assert!(free >= 96, "after {first}: {told}");
    }
}

/// Allocates pieces of this size until there is no more.
#[track_caller]
fn fill(tenant: &mut Tenant, name: &str, piece: u64) -> u64 {
    let full = (0..10_000).find(|number| tenant.answers(&format!("allocate {name}{number} {piece}")) != "0");
    full.expect("an end")
}

#[test]
fn pieces_of_any_size_take_no_more_than_the_share() {
    for (piece, fit) in [(MIB + MIB / 10, 50), (700 << 10, 100), (600 << 10, 150), (MIB, 100), (3 * MIB, 25)] {
        let container = Container::of_memory(100);
        assert_eq!(fill(&mut container.shell(), "a", piece), fit, "pieces of {piece}");
        let container = Container::of_memory(100);
        let mut tenant = container.shell();
        tenant.succeeds_in(&["allocate first 1"]);
        fill(&mut tenant, "a", piece);
        let used = container.card(0).memory_used();
        assert!(used <= 100 * MIB, "pieces of {piece}: {used}");
        container.holds_bytes(used);
    }
}

#[test]
fn refused_allocations_are_not_charged() {
    let mut machine = Machine::uniform(1, 50 * MIB);
    let fault = fake_cuda::Fault { code: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(), nth: Some(2) };
    machine.faults.insert("cuMemFree_v2".to_owned(), fault);
    let container = Container::new(&machine, &[Share::of_memory(100)]);
    let mut tenant = container.shell();
    tenant.does(&format!("allocate a {}", 60 * MIB), OUT_OF_MEMORY);
    tenant.does("allocate a 0", INVALID_VALUE);
    container.holds(0);
    assert_eq!(tenant.answers("info"), "50 of 100", "a card that is full is shown so");
    tenant.succeeds_in(&["allocate a 1000", "free nothing"]);
    tenant.does("free a", ILLEGAL_ADDRESS);
    container.holds(2);
    tenant.succeeds_in(&["free a"]);
    tenant.does("free a", INVALID_VALUE);
    container.holds(0);
}

#[test]
fn pitched_and_managed_memory_are_charged() {
    let container = Container::of_memory(100);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["pitched a 600 8192"]);
    container.holds(8);
    tenant.does(&format!("pitched b {} {}", u64::MAX, 2), OUT_OF_MEMORY);
    tenant.does("narrow b 1000", OUT_OF_MEMORY);
    tenant.does("narrow-pitched b 600 8192", OUT_OF_MEMORY);
    tenant.succeeds_in(&["free a"]);
    // The card isn't charged before it is used there.
    tenant.succeeds_in(&[&format!("managed a {}", 60 * MIB)]);
    assert_eq!(container.totals(0).usage.committed, 60 * MIB);
    tenant.does(&format!("managed b {}", 41 * MIB), OUT_OF_MEMORY);
    tenant.succeeds_in(&["free a"]);
    container.holds(0);
}

#[test]
fn pool_is_charged_with_its_reserved_memory() {
    let container = Container::of_memory(10);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["allocate-async a 1", "allocate-async b 3000000"]);
    container.holds(4);
    tenant.succeeds_in(&["free-async b"]);
    container.holds(4);
    tenant.succeeds_in(&["allocate-async b 4000000"]);
    container.holds(4);
    tenant.succeeds_in(&["allocate-async c 6000000"]);
    container.holds(10);
    tenant.does("allocate-async d 600000", OUT_OF_MEMORY);
    tenant.does("allocate d 1", OUT_OF_MEMORY);
    tenant.succeeds_in(&["free-async c"]);
    container.holds(10);
    // What lies idle in a pool is nobody's loss.
    tenant.succeeds_in(&["allocate d 6000000"]);
    container.holds(10);
    tenant.succeeds_in(&["free d", "free-async a", "free b", "default-pool p", "trim p 0"]);
    container.holds(0);
    assert_eq!(container.totals(0).allocs, 5);
}

#[test]
fn own_pool_is_charged_while_allocations_live() {
    let container = Container::of_memory(10);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["pool p", "keep-all p", "allocate-from a 3000000 p", "allocate-from b 3000000 p"]);
    container.holds(6);
    tenant.succeeds_in(&["free-async b", "synchronise"]);
    container.holds(6);
    tenant.succeeds_in(&["trim p 0"]);
    container.holds(4);
    tenant.succeeds_in(&["end-pool p"]);
    container.holds_bytes(3_000_000);
    tenant.succeeds_in(&["free-async a"]);
    container.holds(0);
    tenant.does("end-pool p", INVALID_VALUE);
    for pool in ["host-pool h", "host-default-pool h"] {
        tenant.succeeds_in(&[pool, "allocate-from a 30000000 h"]);
        container.holds(0);
    }
}

/// A real pool grows by 32 MiB, which nobody says beforehand.
#[test]
fn pool_growth_beyond_the_limit_is_not_usable() {
    let machine = Machine { granularity: 32 * MIB, ..Machine::uniform(1, GIB) };
    let container = Container::new(&machine, &[Share::of_memory(40)]);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["allocate-async a 1000000"]);
    container.holds(32);
    for _ in 0..2 {
        tenant.does(&format!("allocate-async b {}", 33 * MIB), OUT_OF_MEMORY);
        tenant.does(&format!("allocate-async b {}", 32 * MIB), OUT_OF_MEMORY);
    }
    tenant.succeeds_in(&[&format!("allocate-async b {}", 30 * MIB), "free-async b"]);
    tenant.does(&format!("allocate b {}", 9 * MIB), OUT_OF_MEMORY);
    tenant.succeeds_in(&[&format!("allocate b {}", 8 * MIB)]);
    container.holds(40);
    // With more room the same pool may have what it grew to.
    container.limit(&[Share::of_memory(100)]);
    crate::container::eventually("the new limit", || (tenant.answers("info") == "60 of 100").then_some(()));
    tenant.succeeds_in(&[&format!("allocate-async c {}", 33 * MIB), &format!("allocate-async d {}", 20 * MIB)]);
    container.holds(72);
}

#[test]
fn captured_memory_is_charged_with_its_graph() {
    let container = Container::of_memory(10);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["stream s", "capture s", "allocate-async a 12000000 s", "allocate-async b 1000000 s"]);
    tenant.succeeds_in(&["free-async a s", "free-async b s", "end-capture g s"]);
    container.holds(0);
    tenant.does("instantiate e g", OUT_OF_MEMORY);
    container.holds(0);
}

#[test]
fn graph_memory_is_charged_until_it_is_trimmed() {
    let container = Container::of_memory(10);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["graph g", "add-allocation g 3000000", "instantiate e g"]);
    assert_eq!(container.totals(0).usage.committed, 4 * MIB, "no launch takes what isn't there");
    tenant.succeeds_in(&["launch e"]);
    container.holds(4);
    tenant.succeeds_in(&["graph h", "add-allocation h 7000000"]);
    tenant.does("instantiate f h", OUT_OF_MEMORY);
    container.holds(4);
    tenant.succeeds_in(&["end-executable e"]);
    container.holds(4);
    // What the driver still calls used, because the graph didn't free it, can't be trimmed.
    tenant.does("trim-graphs", SUCCESS);
    container.holds(4);
}

/// Captures graph `name` in stream `s`: these sizes are allocated and freed one after the other.
#[track_caller]
fn capture(tenant: &mut Tenant, name: &str, sizes: &[u64]) {
    tenant.succeeds_in(&["capture s"]);
    for size in sizes {
        tenant.succeeds_in(&[&format!("allocate-async m {} s", size * MIB), "free-async m s"]);
    }
    tenant.succeeds_in(&[&format!("end-capture {name} s")]);
}

#[test]
fn graph_is_charged_with_the_most_that_it_has_at_once() {
    let container = Container::of_memory(10);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["stream s"]);
    capture(&mut tenant, "g", &[4, 8, 2, 6]);
    tenant.succeeds_in(&["instantiate e g"]);
    assert_eq!(container.totals(0).usage.committed, 8 * MIB);
    tenant.succeeds_in(&["launch e s"]);
    container.holds(8);
    tenant.does("allocate a 4000000", OUT_OF_MEMORY);
}

#[test]
fn graphs_of_one_stream_share_their_memory() {
    let container = Container::of_memory(20);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["stream s", "stream t", "stream u"]);
    for name in 0..30 {
        capture(&mut tenant, &format!("g{name}"), &[8]);
        tenant.succeeds_in(&[&format!("instantiate e{name} g{name}"), &format!("launch e{name} s")]);
        container.holds(8);
    }
    // Elsewhere they may run meanwhile.
    tenant.succeeds_in(&["upload e0 t", "launch e0 t", "launch e1 s"]);
    container.holds(16);
    tenant.succeeds_in(&["synchronise", "allocate a 8000000"]);
    assert_eq!((container.totals(0).usage.committed, container.card(0).memory_used()), (16 * MIB, 8 * MIB), "trimmed");
    tenant.succeeds_in(&["launch e2 u"]);
    container.holds(16);
    tenant.does("allocate b 12000000", OUT_OF_MEMORY);
    tenant.succeeds_in(&["free a", "launch e3 s"]);
    for name in 0..30 {
        tenant.succeeds_in(&[&format!("end-executable e{name}")]);
    }
    tenant.succeeds_in(&["synchronise", "trim-graphs"]);
    container.holds(0);
}

#[test]
fn launch_that_would_exceed_the_limit_is_refused() {
    let container = Container::of_memory(22);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["stream s", "stream t", "allocate flag 4"]);
    capture(&mut tenant, "g", &[12]);
    capture(&mut tenant, "h", &[10]);
    tenant.succeeds_in(&["instantiate e g", "instantiate f h", "spin s flag", "launch e s"]);
    container.holds(14);
    tenant.does("launch f t", OUT_OF_MEMORY);
    container.holds(14);
    tenant.succeeds_in(&["raise t flag", "synchronise", "launch f t"]);
    assert_eq!((container.totals(0).usage.committed, container.card(0).memory_used()), (14 * MIB, 12 * MIB));
}

#[test]
fn graphs_are_released_with_their_context() {
    let container = Container::of_memory(10);
    container.say_driver_memory(DriverMemory { context_bytes: 0, graph_node_bytes: MIB });
    let mut tenant = container.shell();
    tenant.succeeds_in(&["context c", "graph g", "add-allocation g 3000000", "instantiate e g"]);
    let graph = 112 << 10;
    assert_eq!(container.totals(0).usage.committed, 5 * MIB + graph, "what it may allocate, a node, and the graph");
    tenant.succeeds_in(&["end-context c"]);
    assert_eq!(container.totals(0).usage.committed, 0);
}

#[test]
fn physical_memory_lives_as_long_as_its_handles_and_mappings() {
    let container = Container::of_memory(10);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["create a 4194304 card", "create b 2097152 card", "create h 20971520 host"]);
    container.holds(6);
    tenant.does("create c 6291456 card", OUT_OF_MEMORY);
    tenant.succeeds_in(&["reserve r 20971520", "map r 0 4194304 a", "map r 4194304 2097152 b", "release a"]);
    container.holds(6);
    tenant.succeeds_in(&["retain a2 r 2097152", "unmap r 0 6291456"]);
    container.holds(6);
    tenant.succeeds_in(&["release a2"]);
    container.holds(2);
    tenant.succeeds_in(&["share d b", "import i d", "release i", "release h"]);
    container.holds(2);
    tenant.succeeds_in(&["release b"]);
    container.holds(0);
    tenant.does("release b", INVALID_VALUE);
    tenant.does("create c 1 card", INVALID_VALUE);
    container.holds(0);
}

#[test]
fn arrays_are_charged_with_their_tiles() {
    let container = Container::of_memory(10);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["array a 100 100"]);
    container.holds_bytes(192 << 10);
    tenant.succeeds_in(&["array b 100 10 10", "mipmapped m 256 256 3"]);
    container.holds_bytes((192 << 10) + (128 << 10) + (384 << 10));
    tenant.does("array c 1024 1024", OUT_OF_MEMORY);
    tenant.succeeds_in(&["end-array a", "end-array b", "end-mipmapped m"]);
    container.holds(0);
    tenant.succeeds_in(&["narrow-array a 100 100", "narrow-array b 100 10 10"]);
    container.holds_bytes((192 << 10) + (256 << 10));
    tenant.does("narrow-array c 1024 1024", OUT_OF_MEMORY);
    tenant.succeeds_in(&["end-array a", "end-array b"]);
    container.holds(0);
}

#[test]
fn imported_memory_is_charged_to_its_owner() {
    let container = Container::of_memory(10);
    let (mut maker, mut other) = (container.shell(), container.shell());
    maker.succeeds_in(&["allocate a 6000000", "export file a"]);
    other.succeeds_in(&["open a file", "allocate b 4000000"]);
    container.holds(10);
    other.does("allocate c 1000000", OUT_OF_MEMORY);
    other.succeeds_in(&["close a", "free b"]);
    container.holds(6);
}

#[test]
fn open_imports_are_counted_and_not_charged() {
    let container = Container::of_memory(10);
    let imported = || container.totals(0).usage.imported;
    let (mut maker, mut other) = (container.shell(), container.shell());
    maker.succeeds_in(&["allocate a 6000000", "export file a"]);
    other.succeeds_in(&["open a file"]);
    assert_eq!(imported(), 6_000_000);
    other.succeeds_in(&["context c", "open b file"]);
    assert_eq!(imported(), 12_000_000);
    other.succeeds_in(&["end-context c"]);
    assert_eq!(imported(), 6_000_000, "it was open there alone");
    other.succeeds_in(&["start", "close a"]);
    other.does("close a", INVALID_VALUE);
    assert_eq!(imported(), 0);
    other.succeeds_in(&["create v 4194304 card", "share d v", "import i d", "reserve r 8388608"]);
    assert_eq!(imported(), 0, "nothing tells how large it is");
    other.succeeds_in(&["map r 0 4194304 i", "map r 4194304 4194304 i"]);
    assert_eq!(imported(), 4 * MIB);
    other.succeeds_in(&["unmap r 0 4194304", "release i"]);
    assert_eq!(imported(), 4 * MIB);
    other.succeeds_in(&["unmap r 4194304 4194304", "open a file"]);
    assert_eq!(imported(), 6_000_000);
    other.kill();
    assert_eq!(maker.answers("info"), "4 of 10");
    assert_eq!(imported(), 0, "the dead have nothing open");
}

#[test]
fn destroyed_context_releases_its_memory() {
    let container = Container::of_memory(100);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["allocate a 1000", "context c", "allocate b 5000", "array d 100 100"]);
    container.holds_bytes(4 * MIB + (192 << 10));
    tenant.succeeds_in(&["end-context c"]);
    container.holds(2);
    tenant.succeeds_in(&["start", "release-primary"]);
    container.holds(2);
    tenant.succeeds_in(&["release-primary"]);
    container.holds(0);
    tenant.succeeds_in(&["start", "allocate a 2000"]);
    container.holds(2);
    tenant.succeeds_in(&["reset-primary"]);
    container.holds(0);
}

#[test]
fn context_ends_when_its_last_user_detaches() {
    let container = Container::of_memory(100);
    container.say_driver_memory(DriverMemory { context_bytes: 10 * MIB, graph_node_bytes: 0 });
    let charged = || container.totals(0).usage.committed / MIB;
    let mut tenant = container.shell();
    tenant.succeeds_in(&["context c", "allocate a 4000000", "attach", "detach c"]);
    assert_eq!(charged(), 24, "its maker has it");
    tenant.succeeds_in(&["detach c"]);
    assert_eq!(charged(), 10);
}

#[test]
fn green_context_is_charged_as_the_primary_one() {
    let container = Container::of_memory(100);
    container.say_driver_memory(DriverMemory { context_bytes: 10 * MIB, graph_node_bytes: 0 });
    let charged = || container.totals(0).usage.committed / MIB;
    let mut tenant = container.idle_shell();
    tenant.succeeds_in(&["init", "green g"]);
    assert_eq!(charged(), 10);
    tenant.succeeds_in(&["start", "end-green g"]);
    assert_eq!(charged(), 10, "it is retained");
    tenant.succeeds_in(&["release-primary"]);
    assert_eq!(charged(), 0);
}

#[test]
fn green_context_memory_ends_with_primary_context() {
    let container = Container::of_memory(100);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["allocate a 1000", "green g", "enter-green g", "allocate b 5000"]);
    container.holds(4);
    tenant.succeeds_in(&["end-green g"]);
    container.holds(4);
    tenant.succeeds_in(&["release-primary"]);
    container.holds(0);
    let mut other = container.idle_shell();
    other.succeeds_in(&["init", "green g", "enter-green g"]);
    assert_eq!(container.usages(0).len(), 2, "it has a place before it allocates");
    other.succeeds_in(&["allocate a 1000", "green h", "end-green g"]);
    container.holds(2);
    other.succeeds_in(&["end-green h"]);
    container.holds(0);
}

#[test]
fn each_card_has_its_own_limit() {
    let shares = [Share::of_memory(10), Share::of_memory(20)];
    let container = Container::new(&Machine::uniform(2, GIB), &shares);
    let mut command = container.command(std::env::current_exe().expect("a program"));
    command.env("CUDA_VISIBLE_DEVICES", "1,0");
    let mut tenant = Tenant::start(command, "shell::tenant", "with a context");
    assert_eq!(tenant.answers("info"), "20 of 20");
    tenant.succeeds_in(&["allocate a 20000000"]);
    assert_eq!([0, 1].map(|card| container.totals(card).usage.committed), [0, 20 * MIB]);
    assert_eq!(container.card(1).memory_used(), 20 * MIB);
}

#[test]
fn lowered_limit_keeps_memory_and_refuses_more() {
    let container = Container::of_memory(100);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["allocate a 60000000"]);
    container.limit(&[Share::of_memory(50)]);
    // Seen by who allocates and asks for nothing else.
    let refused = || {
        let code = tenant.answers("allocate b 1");
        if code == "0" {
            tenant.succeeds_in(&["free b"]);
        }
        (code == OUT_OF_MEMORY.0.to_string()).then_some(())
    };
    crate::container::eventually("the new limit", refused);
    assert_eq!(tenant.answers("info"), "0 of 50");
    tenant.does("allocate b 1", OUT_OF_MEMORY);
    container.holds(58);
    tenant.succeeds_in(&["free a", "allocate a 50000000"]);
    container.limit(&[Share::of_memory(200)]);
    crate::container::eventually("the new limit", || (tenant.answers("info") == "152 of 200").then_some(()));
    tenant.succeeds_in(&["allocate b 100000000"]);
}
