//! Shares that are larger than the container's part of the card: what becomes managed memory, and what is refused.

use std::fs;
use std::path::Path;

use divvy_region::clock::DriverMemory;
use driver_api::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS};
use fake_cuda::{Fault, Machine};

use crate::container::{Container, GIB, MIB, Share, Tenant};

/// What programs allocate at once.
const BLOCK: u64 = 64 * MIB;

// === impl Container ===

impl Container {
    /// With so many MiB of a machine's card, of which so many may lie in host memory.
    pub(crate) fn oversubscribed(machine: &Machine, memory: u64, host: u64) -> Self {
        let container = Self::new(machine, &[Share::of_memory(memory)]);
        let limits = fs::read_to_string(container.path("limits/limits")).expect("limits");
        fs::write(container.path("limits/limits"), limits.replace("\nend", &format!(" host-mib {host}\nend")))
            .expect("room");
        container
    }

    /// 100 MiB of a card of 1 GiB, of which 60 have to lie there.
    fn of_60_and_40() -> Self {
        Self::oversubscribed(&Machine::uniform(1, GIB), 100, 40)
    }

    /// A tenant on the cards of another container.
    fn shell_on(&self, state: &Path) -> Tenant {
        let mut command = self.command(std::env::current_exe().expect("a program"));
        command.env("FAKE_CUDA_STATE", state);
        Tenant::start(command, "shell::tenant", "with a context")
    }

    /// What the books say is held of card 0 in all, and of it as managed memory. In MiB.
    #[track_caller]
    fn holds_managed(&self, (mib, managed): (u64, u64)) {
        let booked = self.totals(0).usage;
        assert_eq!((booked.committed, booked.managed, booked.tentative), (mib * MIB, managed * MIB, 0));
    }
}

// === impl Tenant ===

impl Tenant {
    /// Allocates as much as it can in blocks, writes into each and brings it to the card; where each belongs.
    fn fill(&mut self) -> Vec<String> {
        let mut places = Vec::new();
        while self.answers(&format!("allocate {} {BLOCK}", places.len())) == SUCCESS.0.to_string() {
            let name = places.len();
            let place = self.answers(&format!("belongs {name}"));
            if place != "plain" {
                self.succeeds_in(&[&format!("bring {name} {BLOCK}")]);
            }
            self.succeeds_in(&[&format!("write {name} 0 {name}"), &format!("write {name} {} {name}", BLOCK - 16)]);
            places.push(place);
        }
        self.does(&format!("allocate more {BLOCK}"), OUT_OF_MEMORY);
        places
    }

    /// What it has written is there.
    #[track_caller]
    fn finds(&mut self, blocks: usize) {
        for name in 0..blocks {
            for offset in [0, BLOCK - 1] {
                assert_eq!(self.answers(&format!("holds {name} {offset}")), name.to_string(), "at {offset}");
            }
        }
    }

    /// Allocates so many MiB, which belong there.
    #[track_caller]
    fn has(&mut self, name: &str, mib: u64, place: &str) {
        self.succeeds_in(&[&format!("allocate {name} {}", mib * MIB)]);
        assert_eq!(self.answers(&format!("belongs {name}")), place, "{name}");
    }
}

#[test]
fn plain_allocations_beyond_the_cards_part_are_managed() {
    let mut machine = Machine::uniform(1, 8 * GIB);
    machine.cards[0].context_bytes = 512 * MIB;
    let container = Container::oversubscribed(&machine, 8192, 4096);
    container.say_driver_memory(DriverMemory { context_bytes: 512 * MIB, graph_node_bytes: 0 });
    let mut tenant = container.shell();
    assert_eq!(tenant.answers("info"), "7680 of 8192");
    let places = tenant.fill();
    assert_eq!(places, [vec!["plain"; 56], vec!["0"; 64]].concat());
    container.holds_managed((8192, 4096));
    tenant.finds(places.len());
    assert_eq!(tenant.answers("info"), "0 of 8192");
    let totals = container.totals(0);
    assert_eq!((totals.allocs, totals.ooms), (120, 2), "what is spilled is granted");
    tenant.succeeds();
    assert_eq!(container.complaints(), "");
}

#[test]
fn neighbours_on_a_full_card_are_refused_nothing() {
    let machine = Machine::uniform(1, 8 * GIB);
    let [one, two] = [(); 2].map(|()| Container::oversubscribed(&machine, 8192, 4096));
    let mut tenants = [&one, &two].map(|container| container.shell_on(&one.path("lib/state")));
    for tenant in &mut tenants {
        assert_eq!(tenant.answers("info"), "8192 of 8192", "whoever else is on the card");
        assert_eq!(tenant.fill(), [vec!["plain"; 64], vec!["0"; 64]].concat());
    }
    let used = tenants.each_ref().map(|tenant| one.card(0).usage_of(tenant.id()).expect("a process"));
    assert_eq!(used.map(|used| (used.memory - used.managed) / MIB), [4096; 2]);
    for tenant in &mut tenants {
        tenant.finds(128);
    }
}

#[test]
fn what_must_lie_on_the_card_is_refused_beyond_its_part() {
    let container = Container::of_60_and_40();
    let mut tenant = container.shell();
    tenant.does(&format!("create a {} card", 62 * MIB), OUT_OF_MEMORY);
    tenant.succeeds_in(&[
        &format!("create a {} card", 60 * MIB),
        "graph g",
        "add-allocation g 2000000",
        "default-pool p",
    ]);
    let physical = ["create b 2097152 card", "allocate-async b 1", "allocate-from b 1 p", "array b 100 100"];
    let others = ["array b 10 10 10", "mipmapped b 100 100 2", "instantiate e g", "pitched b 1000 10 2"];
    for line in physical.into_iter().chain(others) {
        tenant.does(line, OUT_OF_MEMORY);
    }
    tenant.does("narrow b 1000", OUT_OF_MEMORY);
    container.holds_managed((60, 0));
    assert_eq!(tenant.answers("info"), "40 of 100");
    tenant.has("c", 30, "0");
    tenant.succeeds_in(&[&format!("managed d {}", 10 * MIB)]);
    assert_eq!(tenant.answers("belongs d"), "-2", "the program's own is the program's to place");
    container.holds_managed((100, 40));
    tenant.does("managed e 1", OUT_OF_MEMORY);
    tenant.succeeds_in(&["release a", "free c", "free d"]);
    container.holds_managed((0, 0));
}

#[test]
fn freed_memory_makes_room_of_its_kind() {
    let container = Container::of_60_and_40();
    let mut tenant = container.shell();
    tenant.has("a", 30, "plain");
    tenant.has("b", 30, "plain");
    tenant.has("c", 20, "0");
    tenant.has("d", 20, "0");
    tenant.does("allocate e 1", OUT_OF_MEMORY);
    tenant.succeeds_in(&["free c"]);
    tenant.does(&format!("create e {} card", 2 * MIB), OUT_OF_MEMORY);
    tenant.has("c", 20, "0");
    tenant.succeeds_in(&["free a"]);
    tenant.has("e", 10, "plain");
    tenant.succeeds_in(&[&format!("create f {} card", 20 * MIB), "free d", "free b"]);
    container.holds_managed((50, 20));
    // All of the share may be managed, and then none of it is left for the card's part.
    tenant.succeeds_in(&["free e", "release f", "free c", &format!("managed a {}", 100 * MIB)]);
    tenant.does("allocate b 1", OUT_OF_MEMORY);
    tenant.succeeds_in(&["free a"]);
    container.holds(0);
}

#[test]
fn processes_share_both_limits_and_the_dead_give_them_back() {
    let container = Container::of_60_and_40();
    let mut tenants = [container.shell(), container.shell()];
    tenants[0].has("a", 60, "plain");
    tenants[1].has("a", 30, "0");
    tenants[1].does(&format!("create b {} card", 2 * MIB), OUT_OF_MEMORY);
    tenants[0].does(&format!("allocate b {}", 11 * MIB), OUT_OF_MEMORY);
    tenants[0].has("b", 10, "0");
    container.holds_managed((100, 40));
    tenants[1].kill();
    tenants[0].has("c", 30, "0");
    tenants[0].kill();
    let mut last = container.shell();
    last.has("a", 60, "plain");
    last.has("b", 40, "0");
    container.holds_managed((100, 40));
}

#[test]
fn full_card_spills_within_the_cards_part() {
    let mut machine = Machine::uniform(1, GIB);
    machine.cards[0].memory_used = GIB - 20 * MIB;
    let container = Container::oversubscribed(&machine, 100, 40);
    let mut tenant = container.shell();
    assert_eq!(tenant.answers("info"), "100 of 100", "memory that isn't oversubscribed is elsewhere");
    tenant.has("a", 20, "plain");
    tenant.has("b", 30, "0");
    tenant.does(&format!("create c {} card", 2 * MIB), OUT_OF_MEMORY);
    tenant.has("c", 50, "0");
    container.holds_managed((100, 80));
    assert_eq!(container.totals(0).ooms, 0, "the library has refused nothing");
}

#[test]
fn share_may_exceed_the_card() {
    let container = Container::oversubscribed(&Machine::uniform(1, GIB), 3072, 2048);
    let mut tenant = container.shell();
    assert_eq!((tenant.answers("info"), tenant.answers("total")), ("3072 of 3072".to_owned(), "3072".to_owned()));
    assert_eq!(tenant.fill(), [vec!["plain"; 16], vec!["0"; 32]].concat());
}

#[test]
fn cards_without_concurrent_access_refuse() {
    let mut machine = Machine::uniform(1, GIB);
    machine.cards[0].concurrent_managed_access = false;
    let container = Container::oversubscribed(&machine, 100, 40);
    let mut tenant = container.shell();
    tenant.has("a", 60, "plain");
    tenant.does("allocate b 1", OUT_OF_MEMORY);
    tenant.succeeds_in(&["managed b 1000"]);
    assert_eq!(container.totals(0).ooms, 1);
}

#[test]
fn pitched_memory_spills_in_rows() {
    let container = Container::of_60_and_40();
    let mut tenant = container.shell();
    tenant.has("a", 60, "plain");
    tenant.succeeds_in(&["pitched b 1000 10"]);
    assert_eq!((tenant.answers("belongs b"), tenant.answers("number pitch")), ("0".to_owned(), "1024".to_owned()));
    assert_eq!(container.totals(0).usage.managed, 10_240);
    tenant.does(&format!("pitched c {} 10", u64::MAX), OUT_OF_MEMORY);
}

#[test]
fn nothing_spills_while_the_thread_captures() {
    let container = Container::of_60_and_40();
    let mut tenant = container.shell();
    tenant.has("a", 50, "plain");
    tenant.succeeds_in(&["capture per-thread"]);
    tenant.has("b", 10, "plain");
    tenant.does("allocate c 1", OUT_OF_MEMORY);
    tenant.succeeds_in(&["end-capture g per-thread"]);
    tenant.has("c", 10, "0");
}

#[test]
fn spilled_memory_is_not_exported() {
    let container = Container::of_60_and_40();
    let mut tenant = container.shell();
    tenant.has("a", 60, "plain");
    tenant.has("b", 10, "0");
    tenant.succeeds_in(&["export handle a"]);
    tenant.does("export handle b", INVALID_VALUE);
}

#[test]
fn advice_is_given_by_the_revision_that_there_is() {
    let mut machine = Machine::uniform(1, GIB);
    machine.lacks.insert("cuMemAdvise".to_owned());
    let container = Container::oversubscribed(&machine, 100, 100);
    container.shell().has("a", 10, "0");
}

#[test]
fn failing_advice_is_logged_and_no_error() {
    let mut machine = Machine::uniform(1, GIB);
    let fault = Fault { code: "CUDA_ERROR_INVALID_DEVICE".to_owned(), nth: None };
    machine.faults.insert("cuMemAdvise".to_owned(), fault);
    let container = Container::oversubscribed(&machine, 100, 100);
    let mut tenant = container.shell();
    tenant.has("a", 10, "-2");
    tenant.has("b", 10, "-2");
    container.holds_managed((20, 20));
    tenant.succeeds();
    let told = container.complaints();
    assert_eq!((told.lines().count(), told.contains("cuMemAdvise failed with 101")), (1, true), "{told}");
}

#[test]
fn refused_managed_memory_is_out_of_memory() {
    let mut machine = Machine::uniform(1, GIB);
    let fault = Fault { code: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(), nth: None };
    machine.faults.insert("cuMemAllocManaged".to_owned(), fault);
    let container = Container::oversubscribed(&machine, 100, 40);
    let mut tenant = container.shell();
    tenant.has("a", 60, "plain");
    tenant.does("allocate b 1", OUT_OF_MEMORY);
    container.holds(60);
}
