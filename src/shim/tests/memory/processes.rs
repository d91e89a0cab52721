//! Many processes of a container, and what becomes of those that end, fork, begin again or lose their descriptors.

use std::fs;

use divvy_region::layout::SLOTS;
use driver_api::{Cuda, DEFAULT_STREAM, DRIVER, NOT_PERMITTED, OUT_OF_MEMORY, SUCCESS};
use fake_cuda::Machine;

use crate::container::{Container, GIB, MIB, Share, Tenant, eventually, listen, say, words};

const LIMIT: u64 = 64 * MIB;

#[test]
fn racing_processes_fill_the_limit_to_the_byte() {
    let container = Container::new(&Machine::uniform(1, GIB), &[Share::of_memory(LIMIT / MIB)]);
    let mut tenants = racers(&container, 64);
    for tenant in &mut tenants {
        let most: u64 = tenant.heard().and_then(|most| most.parse().ok()).expect("a number");
        assert!(most <= LIMIT, "{most} bytes of the card at once");
    }
    container.holds_bytes(LIMIT);
    for tenant in &mut tenants {
        tenant.tell("free");
    }
    for tenant in &mut tenants {
        tenant.says("freed");
    }
    container.holds(0);
}

#[test]
fn racing_processes_exceed_no_limit_of_an_oversubscribed_share() {
    let container = Container::oversubscribed(&Machine::uniform(1, GIB), LIMIT / MIB, 24);
    let mut tenants = racers(&container, 16);
    for tenant in &mut tenants {
        let most: u64 = tenant.heard().and_then(|most| most.parse().ok()).expect("a number");
        // Nobody brings managed memory there.
        assert!(most <= 40 * MIB, "{most} bytes of the card at once");
    }
    let booked = container.totals(0).usage;
    assert_eq!((booked.committed, booked.tentative), (LIMIT, 0));
    assert_eq!(booked.committed - booked.managed, container.card(0).memory_used());
}

/// So many [racers](racer), which have begun.
fn racers(container: &Container, count: u32) -> Vec<Tenant> {
    let mut tenants: Vec<_> = (0..count).map(|_| container.tenant("processes::racer", "race")).collect();
    for tenant in &mut tenants {
        tenant.says("ready");
    }
    for tenant in &mut tenants {
        tenant.tell("go");
    }
    tenants
}

/// Allocates and frees at random, and then takes what is left to the last byte. It looks at the card after each success,
/// and says the most that all processes had of it at once.
#[test]
#[ignore = "a tenant of another test"]
fn racer() {
    if words().is_empty() {
        return;
    }
    let cuda = Cuda::start(DRIVER);
    let card = fake_cuda::card::Card::open("lib/state".as_ref(), &Machine::uuid(0)).expect("a card");
    say("ready");
    listen();
    let mut random = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let (mut held, mut most) = (Vec::new(), 0);
    for _ in 0..400 {
        match cuda.try_allocate(1 + next() % (4 * MIB)) {
            Ok(address) => {
                held.push(address);
                most = most.max(card.memory_used());
            }
            Err(error) => assert_eq!(error, OUT_OF_MEMORY),
        }
        if held.len() > 4 || (!held.is_empty() && next() % 3 == 0) {
            let gone = held.swap_remove(next() as usize % held.len());
            assert_eq!(cuda.cuMemFree_v2(gone), SUCCESS);
        }
    }
    let mut step = 4 * MIB;
    while step > 0 {
        match cuda.try_allocate(step) {
            Ok(address) => held.push(address),
            Err(_) => step /= 2,
        }
        most = most.max(card.memory_used());
    }
    say(most);
    listen();
    for address in held {
        assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
    }
    say("freed");
    listen();
}

#[test]
fn memory_of_killed_processes_is_free_again() {
    let container = Container::of_memory(64);
    for round in 0..50 {
        let mut tenants = racers(&container, 4);
        // Not at a fixed point: they are anywhere in their allocations by then.
        std::thread::sleep(std::time::Duration::from_micros(round * 617 % 9000));
        tenants.iter_mut().for_each(Tenant::kill);
        if round % 10 == 9 {
            let mut next = container.shell();
            next.succeeds_in(&[&format!("allocate all {}", 64 * MIB)]);
            container.holds(64);
            let held = container.usages(0).into_iter().filter(|(_, usage)| usage.committed > 0);
            assert_eq!(held.count(), 1, "the dead hold nothing");
            next.kill();
        }
    }
}

#[test]
fn later_programs_see_the_remaining_memory() {
    let container = Container::of_memory(100);
    // The next takes the place of the first over, and so what it held.
    let mut both = [container.shell(), container.shell()];
    for tenant in &mut both {
        tenant.succeeds_in(&["allocate a 30000000"]);
    }
    both.iter_mut().for_each(Tenant::kill);
    assert_eq!(container.totals(0).usage.committed, 60 * MIB, "nobody has looked yet");
    assert_eq!(container.shell().answers("info"), "100 of 100");
}

#[test]
fn forked_child_is_charged_separately() {
    let container = Container::of_memory(20);
    let mut parent = container.idle_shell();
    parent.tell("fork");
    parent.says("0");
    let child = container.totals(0).usage.committed;
    assert_eq!(child, 10 * MIB);
    parent.tell("");
    parent.says("0");
    parent.succeeds_in(&["start", "allocate a 1000"]);
    assert_eq!(container.usages(0).iter().filter(|(owner, _)| owner.pid == parent.id()).count(), 1);
    parent.succeeds_in(&[&format!("allocate b {}", 18 * MIB)]);
    container.holds(20);
}

#[test]
fn forked_child_leaves_its_parents_slot_alone() {
    let container = Container::of_memory(20);
    let mut parent = container.shell();
    parent.succeeds_in(&["allocate a 1000"]);
    parent.tell("fork");
    // The driver doesn't survive fork, and says so; its answer comes back.
    let answer = parent.heard().expect("an answer");
    assert_ne!(answer, "0");
    container.holds(2);
    let held: Vec<_> =
        container.usages(0).iter().map(|(owner, usage)| (owner.pid == parent.id(), usage.committed)).collect();
    assert_eq!(held, [(true, 2 * MIB), (false, 0)], "the child has a place of its own");
    parent.tell("");
    parent.says("0");
    parent.succeeds_in(&["free a"]);
    container.holds(0);
}

#[test]
fn program_after_exec_holds_nothing() {
    let container = Container::of_memory(20);
    let mut tenant = container.shell();
    tenant.succeeds_in(&["allocate a 3000000"]);
    let before = container.usages(0);
    tenant.tell("exec");
    eventually("the new image", || (container.usages(0)[0].0.nonce != before[0].0.nonce).then_some(()));
    tenant.succeeds_in(&["allocate b 30"]);
    let after = container.usages(0);
    assert_eq!((before.len(), after.len(), after[0].1.committed), (1, 1, 2 * MIB));
    assert_eq!((before[0].0.pid, before[0].0.started), (after[0].0.pid, after[0].0.started));
}

#[test]
fn process_that_closes_its_descriptors_keeps_its_slot() {
    let container = Container::of_memory(20);
    let (mut closing, mut other) = (container.shell(), container.shell());
    closing.succeeds_in(&["allocate a 1000000", "close-all"]);
    other.does(&format!("allocate b {}", 20 * MIB), OUT_OF_MEMORY);
    assert_eq!(container.usages(0).len(), 2);
    closing.succeeds_in(&["allocate c 2000000", "free a"]);
    container.holds(2);
    closing.kill();
    other.succeeds_in(&[&format!("allocate b {}", 20 * MIB)]);
    container.holds(20);
}

/// The number of a process that is gone belongs to another now, which started at another time.
#[test]
fn reused_pid_is_another_process() {
    let container = Container::of_memory(20);
    let mut gone = container.shell();
    gone.succeeds_in(&["allocate a 15000000"]);
    gone.kill();
    // As it would look from within the container: the place of the dead names a living process and the wrong start.
    let living = std::process::id();
    let slot = divvy_region::layout::slot_bytes(1, 0);
    let mut books = fs::read(container.path("region/books")).expect("books");
    let at = books[slot.clone()].windows(4).position(|word| word == gone.id().to_ne_bytes()).expect("its number");
    books[slot.start + at..][..4].copy_from_slice(&living.to_ne_bytes());
    fs::write(container.path("region/books"), books).expect("room");
    let mut next = container.shell();
    next.succeeds_in(&["allocate b 20000000"]);
    container.holds(20);
}

#[test]
fn processes_without_descriptors_are_not_reaped() {
    let container = Container::of_memory(20);
    let mut other = container.shell();
    other.succeeds_in(&["allocate a 15000000", "close-all"]); // nor does its lock say that it lives
    let mut starved = container.shell();
    starved.succeeds_in(&["allocate b 1000", "exhaust"]);
    starved.does("allocate c 10000000", OUT_OF_MEMORY);
    starved.succeeds_in(&["allocate c 1000000", "free c"]);
    container.holds(18);
}

#[test]
fn threads_share_the_slot_of_their_process() {
    let container = Container::of_memory(64);
    let mut tenants: Vec<_> = (0..2).map(|_| container.tenant("processes::threaded", "8")).collect();
    for tenant in &mut tenants {
        tenant.says("done");
    }
    container.holds(0);
    assert_eq!(container.usages(0).len(), 2);
}

#[test]
#[ignore = "a tenant of another test"]
fn threaded() {
    let [threads] = &words()[..] else { return };
    let cuda = Cuda::start(DRIVER);
    std::thread::scope(|scope| {
        for thread in 0..threads.parse().expect("a number") {
            let cuda = &cuda;
            scope.spawn(move || {
                cuda.enter(0);
                for round in 0..500_u64 {
                    let size = 1 + (round * 7919 + thread * 104_729) % (3 * MIB);
                    let plain = cuda.try_allocate(size);
                    let mut pooled = 0;
                    let from_pool = cuda.cuMemAllocAsync(&raw mut pooled, size as usize, DEFAULT_STREAM);
                    if let Ok(address) = plain {
                        assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
                    }
                    if from_pool == SUCCESS {
                        assert_eq!(cuda.cuMemFreeAsync(pooled, DEFAULT_STREAM), SUCCESS);
                    }
                }
            });
        }
    });
    let pool = cuda.get(|cuda, to| cuda.cuDeviceGetDefaultMemPool(to, 0));
    assert_eq!(cuda.cuMemPoolTrimTo(pool, 0), SUCCESS);
    say("done");
    listen();
}

#[test]
fn process_beyond_the_slots_is_refused_and_logged() {
    as_many_as_there_are_places_are_served_of(SLOTS + 76);
}

#[test]
#[ignore = "12 s of processor time"]
fn three_thousand_processes_beyond_the_slots_are_refused() {
    as_many_as_there_are_places_are_served_of(4 * SLOTS);
}

#[track_caller]
fn as_many_as_there_are_places_are_served_of(crowd: usize) {
    let container = Container::of_memory(64);
    let program = container.compile("crowd", false);
    let output = container.command(program).arg(crowd.to_string()).output().expect("a program that runs");
    assert!(output.status.success(), "{}\n{}", output.status, container.complaints());
    let answered = String::from_utf8(output.stdout).expect("text");
    let refused = answered.lines().filter(|code| *code == NOT_PERMITTED.0.to_string()).count();
    assert_eq!((answered.lines().count(), refused), (crowd, crowd - SLOTS), "the others had no driver to speak of");
    let told = container.complaints();
    assert_eq!(told.lines().count(), crowd - SLOTS);
    assert!(told.lines().all(|line| line.starts_with("libdivvy: 1024 processes of this container use GPUs already")));
    // They are gone, and so are their places.
    let mut next = container.shell();
    next.succeeds_in(&[&format!("allocate all {}", 64 * MIB)]);
    eventually("a burial", || (next.answers("info") == "0 of 64" && container.usages(0).len() == 1).then_some(()));
}
