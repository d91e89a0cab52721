//! What the driver charges beyond the books, as the daemon tells it, counts against the share.

use std::fs;

use driver_api::{OUT_OF_MEMORY, SUCCESS};
use fake_cuda::Machine;

use crate::container::{Container, GIB, MIB, Share, Tenant, eventually};

impl Container {
    /// Says so of card 0, as the daemon does.
    fn tell_overhead(&self, text: &str) {
        fs::write(self.path("limits/next"), text).expect("room");
        fs::rename(self.path("limits/next"), self.path("limits/overhead")).expect("a directory");
    }

    /// The same in MiB, known to a tenant once it shows so much of its share.
    fn charge_overhead(&self, mib: u64, tenant: &mut Tenant, shown: &str) {
        self.tell_overhead(&format!("{} {}\n", Machine::uuid(0), mib * MIB));
        tenant.is_shown(shown);
    }
}

impl Tenant {
    fn is_shown(&mut self, expected: &str) {
        eventually(expected, || (self.answers("info") == expected).then_some(()));
    }
}

#[test]
fn context_overhead_reduces_available_memory() {
    let container = Container::of_memory(100);
    let mut tenant = container.shell();
    tenant.succeeds_in(&[&format!("allocate a {}", 10 * MIB)]);
    container.charge_overhead(30, &mut tenant, "60 of 100");
    tenant.does(&format!("allocate b {}", 60 * MIB + 1), OUT_OF_MEMORY);
    tenant.succeeds_in(&[&format!("allocate b {}", 60 * MIB)]);
    // Whoever comes later knows from the beginning.
    let mut next = container.shell();
    next.does("allocate c 1", OUT_OF_MEMORY);
    assert_eq!(next.answers("info"), "0 of 100");
    container.charge_overhead(20, &mut tenant, "10 of 100");
    next.is_shown("10 of 100");
    next.succeeds_in(&[&format!("allocate c {}", 10 * MIB)]);
    tenant.does("allocate d 1", OUT_OF_MEMORY);
    container.holds(80);
}

#[test]
fn contexts_and_allocations_share_one_limit() {
    let mut machine = Machine::uniform(1, GIB);
    machine.cards[0].context_bytes = 40 * MIB;
    let container = Container::new(&machine, &[Share::of_memory(200)]);
    let mut tenants = [container.shell(), container.shell()];
    tenants[0].succeeds_in(&[&format!("allocate a {}", 50 * MIB)]);
    tenants[1].succeeds_in(&["start"]); // it answers once it has its context
    let taken = || container.card(0).memory_used();
    let overhead = taken() - container.totals(0).usage.committed;
    assert_eq!(overhead, 80 * MIB);
    container.charge_overhead(80, &mut tenants[1], "70 of 200");
    for tenant in &mut tenants {
        tenant.is_shown("70 of 200");
    }
    let mut held = 0;
    while tenants[held % 2].answers(&format!("allocate {held} {}", 10 * MIB)) == "0" {
        held += 1;
    }
    assert_eq!((held, taken()), (7, 200 * MIB));
}

#[test]
fn overhead_above_the_share_leaves_zero() {
    let container = Container::of_memory(100);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["allocate a 1000", "default-pool p", "keep-all p", "allocate-async b 3000000"]);
    tenant.succeeds_in(&["free-async b"]);
    container.charge_overhead(500, &mut tenant, "0 of 100");
    tenant.does("allocate c 2000000", OUT_OF_MEMORY);
    // Of what a pool has, which is charged already.
    tenant.does("allocate-async b 4194304", SUCCESS);
    tenant.does("allocate-async c 4194304", OUT_OF_MEMORY);
    tenant.succeeds_in(&["free-async b", "free a"]);
    container.charge_overhead(2, &mut tenant, "94 of 100");
}

#[test]
fn malformed_overhead_file_changes_nothing() {
    let container = Container::of_memory(100);
    let mut tenant = container.shell();
    container.charge_overhead(30, &mut tenant, "70 of 100");
    container.tell_overhead("nonsense\n");
    // It has been looked at by the time that new limits are in force.
    container.limit(&[Share::of_memory(90)]);
    tenant.is_shown("60 of 90");
    container.tell_overhead("GPU-of-somebody-else 1000000\n");
    tenant.is_shown("90 of 90");
    container.charge_overhead(40, &mut tenant, "50 of 90");
    fs::remove_file(container.path("limits/overhead")).expect("a file");
    tenant.is_shown("90 of 90");
}

#[test]
fn oversubscribed_overhead_takes_from_the_cards_part() {
    let container = Container::oversubscribed(&Machine::uniform(1, GIB), 100, 40);
    let mut tenant = container.shell();
    container.charge_overhead(30, &mut tenant, "70 of 100");
    tenant.does(&format!("create a {} card", 32 * MIB), OUT_OF_MEMORY);
    tenant.succeeds_in(&[&format!("create a {} card", 30 * MIB), "release a"]);
    // What it was told is free it gets, but less of it on the card.
    container.tell_overhead(&format!("{} {}\n", Machine::uuid(0), 50 * MIB));
    eventually("the new overhead", || {
        let is_refused = tenant.answers(&format!("create a {} card", 12 * MIB)) == OUT_OF_MEMORY.0.to_string();
        if !is_refused {
            tenant.succeeds_in(&["release a"]);
        }
        is_refused.then_some(())
    });
    tenant.succeeds_in(&[&format!("create b {} card", 10 * MIB), &format!("allocate c {}", 60 * MIB)]);
    tenant.does("allocate d 1", OUT_OF_MEMORY);
    assert_eq!((container.totals(0).usage.committed, container.totals(0).usage.managed), (70 * MIB, 60 * MIB));
}
