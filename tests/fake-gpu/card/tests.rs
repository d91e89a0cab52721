//! What a process leaves that dies in the middle of something.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{mem, thread};

use super::*;

fn card(directory: &tempfile::TempDir) -> Card {
    Card::create(directory.path(), "GPU-1", Duration::from_millis(2)).expect("a state")
}

/// Does something in another process, which then dies without a word; whether it could.
fn in_a_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses atomics, mutexes and `_exit` alone.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let failed = !work();
        // SAFETY: ends the child at once, as a signal would.
        unsafe { libc::_exit(failed.into()) };
    }
    let mut status = -1;
    // SAFETY: the status is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

#[test]
fn a_lock_opens_when_its_holder_dies_and_no_time_is_given_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    let card = card(&directory);
    let member = card.join().expect("a slot");
    member.demand(1, 1, |_| 1_000_000_000);
    let half_done = in_a_child(|| {
        let layout = card.layout();
        let _held = mem::ManuallyDrop::new(layout.lock());
        layout.advance(clock());
        // The span is written, and how far the card's time has come is not.
        let at = layout.at.load(Relaxed);
        layout.slots[0].serve(at, 50_000_000);
        true
    });
    assert!(half_done);
    let written = card.layout().slots[0].last_span().expect("a span");
    assert!(card.layout().at.load(Relaxed) < written.end());
    thread::sleep(Duration::from_millis(60));
    let mut spans = Vec::new();
    member.ran(|span| spans.push(span));
    assert!(spans.windows(2).all(|pair| pair[0].end() <= pair[1].at), "{spans:?}");
    let busy = spans.last().expect("a span").to;
    assert!(busy <= clock() - spans[0].at, "{busy} ns is more than there was");
}

#[test]
fn dead_process_releases_memory_and_time_slice() {
    let directory = tempfile::tempdir().expect("a directory");
    let card = card(&directory);
    let on_it = in_a_child(|| {
        card.join().is_some_and(|member| {
            member.demand(3, 2, |_| FOREVER);
            member.charge(700, 1000).is_ok()
        })
    });
    assert!(on_it);
    let member = card.join().expect("a slot");
    assert_eq!(member.charge(1000, 1000), Ok(()));
    assert_eq!(member.charge(1, 1000), Err(Full));
    let end = 1_000_000;
    member.demand(1, 1, |_| end);
    thread::sleep(Duration::from_millis(20));
    let mut reached = None;
    member.ran(|span| reached = (span.to >= end).then(|| span.reached(end)));
    assert!(reached.is_some(), "the dead one has the card");
    let dead = card.usage()[0];
    assert_eq!((dead.alive, dead.memory, dead.memory_peak, dead.kernels, dead.waiting), (false, 0, 700, 3, 0));
}

#[test]
fn places_of_dead_processes_are_reused() {
    let directory = tempfile::tempdir().expect("a directory");
    let card = card(&directory);
    for _ in 0..3 * layout::SLOTS {
        assert!(in_a_child(|| card.join().is_some()));
    }
    assert_eq!(card.usage().len(), layout::SLOTS);
    assert!(card.usage().iter().all(|usage| !usage.alive));
}
