//! Processes that lack what others have: descriptors, memory, `/proc`, calls of the kernel, or the end of their own books.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use driver_api::{NOT_PERMITTED, OUT_OF_MEMORY, SUCCESS};
use fake_cuda::Machine;

use crate::container::{Container, GIB, MIB, Share, Tenant};

#[test]
fn start_without_descriptors_is_refused_and_logged() {
    let container = Container::of_memory(20);
    let mut tenant = container.idle_shell();
    tenant.succeeds_in(&["exhaust"]);
    tenant.does("start", NOT_PERMITTED);
    tenant.does("start", NOT_PERMITTED);
    let told = container.complaints();
    assert!(told.starts_with("libdivvy: limits/limits: too many open files: this process may use no GPU"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    tenant.succeeds();
}

#[test]
fn unreadable_limits_keep_the_last_ones() {
    let container = Container::of_memory(20);
    let (mut starved, mut other) = (container.shell(), container.shell());
    starved.succeeds_in(&["allocate a 1000", "exhaust"]);
    container.limit(&[Share::of_memory(1)]);
    let (most, deadline) = (format!("allocate b {}", 10 * MIB), Instant::now() + Duration::from_secs(30));
    while other.answers(&most) == SUCCESS.0.to_string() {
        assert!(Instant::now() < deadline, "limits that have changed are in force");
        other.succeeds_in(&["free b"]);
    }
    starved.succeeds_in(&[&most, "free b"]);
    container.holds(2);
}

#[test]
fn untracked_allocation_stays_charged() {
    let container = Container::of_memory(20);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["no-more-memory", "allocate a 1000", "free a"]);
    assert_eq!((container.totals(0).usage.committed, container.card(0).memory_used()), (2 * MIB, 0));
    tenant.kill();
    container.shell().succeeds_in(&[&format!("allocate b {}", 20 * MIB)]);
}

#[test]
fn without_monitor_thread_work_is_still_charged() {
    let container = Container::new(&Machine::uniform(1, GIB), &[Share { cores: 50, ..Share::of_memory(20) }]);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["deny-calls", "work 100", "allocate a 1000", "free a"]);
    assert_eq!(container.totals(0).launches, 100);
    assert!(container.usages(0)[0].1.busy_ns > 0, "{:?}", container.usages(0));
    assert_eq!(container.complaints(), "");
    tenant.succeeds();
}

/// Into an empty directory; false if this machine doesn't let us.
fn has_moved(tenant: &mut Tenant, container: &Container) -> bool {
    fs::create_dir_all(container.path("empty")).expect("a directory");
    let has_moved = tenant.answers("move-to empty") == "0";
    if !has_moved {
        eprintln!("left out: this user may not change the root of a process");
    }
    has_moved
}

#[test]
fn processes_without_proc_are_not_reaped() {
    let container = Container::of_memory(20);
    let (mut seen, mut blind) = (container.shell(), container.shell());
    seen.succeeds_in(&["allocate a 15000000", "close-all"]); // its lock is gone too
    if !has_moved(&mut blind, &container) {
        return;
    }
    blind.does("allocate b 10000000", OUT_OF_MEMORY);
    blind.succeeds_in(&["allocate b 1000000"]);
    container.holds(18);
    seen.kill();
    blind.succeeds_in(&["allocate c 10000000"]);
    container.holds(12);
}

#[test]
fn process_started_without_proc_is_not_reaped() {
    let container = Container::of_memory(20);
    let mut blind = container.idle_shell();
    blind.succeeds_in(&["init"]);
    if !has_moved(&mut blind, &container) {
        return;
    }
    blind.succeeds_in(&["start", "allocate a 15000000", "close-all"]);
    assert_eq!(container.usages(0)[0].0.started, 0);
    let mut other = container.shell();
    other.does("allocate b 10000000", OUT_OF_MEMORY);
    blind.kill();
    other.succeeds_in(&["allocate b 10000000"]);
    container.holds(10);
}

/// The memory that it looks at is gone: there is nothing else that the kernel could do.
#[test]
fn truncated_region_ends_the_processes() {
    let container = Container::of_memory(20);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["allocate a 1000"]);
    File::options()
        .write(true)
        .open(container.path("region/books"))
        .and_then(|accounts| accounts.set_len(64))
        .expect("cut");
    tenant.tell("allocate b 1000");
    assert_eq!(tenant.heard(), None);
    assert_eq!(tenant.wait().signal(), Some(libc::SIGBUS));
}
