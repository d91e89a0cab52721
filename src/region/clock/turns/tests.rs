use proptest::prelude::*;

use super::*;
use crate::clock::Busy;

const MS: u64 = 1_000_000;

/// A page on which containers with work have this weight together, as of this moment.
fn page(heartbeat_ns: u64, tenants: u32, weight: u32) -> Reading {
    Reading { heartbeat_ns, busy: Busy { tenants, weight, ..Busy::default() } }
}

/// Of the only process of its container.
fn weights(own: u32) -> Weights {
    Weights { own, container: own }
}

/// The meter of a process that has work from 11 to 13 ms.
fn meter(reading: Option<&Reading>, weights: Weights) -> Turns {
    let mut turns = Turns::new();
    turns.begin(11 * MS, None, Weights::default());
    (0..2).for_each(|_| turns.sample(13 * MS, reading, weights));
    turns
}

#[test]
fn lone_process_pays_for_all_time() {
    for reading in [None, Some(page(12 * MS, 0, 0)), Some(page(12 * MS, 1, 3))] {
        let mut turns = meter(reading.as_ref(), weights(64));
        assert_eq!([MS, 7 * MS, 3, 100 * MS].map(|time_ns| turns.charge(time_ns)), [MS, 7 * MS, 3, 100 * MS]);
    }
}

#[test]
fn processes_of_a_container_divide_the_time() {
    let mut turns = meter(None, Weights { own: 256, container: 3 * 256 });
    let cost_ns = turns.charge(3000 * MS);
    assert!(cost_ns.abs_diff(1000 * MS) < MS, "{cost_ns}");
}

#[test]
fn beside_another_half_of_the_time_is_charged() {
    let mut turns = meter(Some(&page(12 * MS, 2, 512)), weights(256));
    let cost_ns: u64 = (0..1000).map(|_| turns.charge(MS)).sum();
    assert!(cost_ns.abs_diff(500 * MS) < MS, "{cost_ns}");
    // Beside one that has work for an eighth of a slice, eight ninths.
    let mut turns = meter(Some(&page(12 * MS, 2, 256 + 32)), weights(256));
    let cost_ns: u64 = (0..900).map(|_| turns.charge(MS)).sum();
    assert!(cost_ns.abs_diff(800 * MS) < MS, "{cost_ns}");
}

#[test]
fn work_shorter_than_a_slice_costs_what_it_takes() {
    let mut turns = meter(Some(&page(12 * MS, 2, 256 + 13)), weights(13));
    for _ in 0..10 {
        turns.begin_slice();
        assert_eq!(turns.charge(MS / 10), MS / 10);
    }
    // Two slices of its own, with another's between them.
    turns.begin_slice();
    turns.sample(13 * MS, Some(&page(12 * MS, 2, 512)), weights(256));
    turns.sample(13 * MS, Some(&page(12 * MS, 2, 512)), weights(256));
    assert_eq!([turns.charge(3 * MS), turns.charge(MS), turns.charge(2 * MS)], [2 * MS, 0, 2 * MS]);
}

#[test]
fn others_count_whether_or_not_the_page_knows_of_the_process() {
    let other = |reading: &Reading| {
        let mut turns = meter(Some(reading), weights(256));
        turns.charge(1000 * MS)
    };
    assert!(other(&page(11 * MS - 1, 1, 256)).abs_diff(500 * MS) < MS, "the page is older");
    assert!(other(&page(11 * MS, 2, 512)).abs_diff(500 * MS) < MS);
    assert_eq!(other(&page(11 * MS, 1, 256)), 1000 * MS, "that is the process itself");
    // A break that is shorter than the daemon's interval tells nothing.
    let mut again = meter(Some(&page(11 * MS, 2, 512)), weights(256));
    again.begin(14 * MS, Some(&page(13 * MS + 1, 2, 512)), weights(0));
    assert!(again.charge(1000 * MS).abs_diff(500 * MS) < MS);
    // What the process has less of than the page knows isn't another's.
    let mut drained = meter(Some(&page(11 * MS, 2, 512)), weights(256));
    drained.sample(13 * MS, Some(&page(12 * MS, 2, 512)), weights(1));
    assert!(drained.charge(1000 * MS).abs_diff(500 * MS) < MS);
    assert_eq!(meter(Some(&page(11 * MS, 2, 512)), weights(256)).stretched_ns(3 * MS), 6 * MS);
    let mut stale = meter(Some(&page(11 * MS, 2, 512)), weights(256));
    (0..2).for_each(|_| stale.sample(200 * MS, Some(&page(11 * MS, 2, 512)), weights(256)));
    assert_eq!(stale.charge(1000 * MS), 1000 * MS, "nobody says so any more");
}

proptest! {
    #[test]
    fn no_time_costs_more_than_it_is_long(
        steps in prop::collection::vec((any::<[u64; 3]>(), any::<[u32; 4]>(), any::<bool>()), 0..20)
    ) {
        let mut turns = Turns::new();
        for ([now_ns, heartbeat_ns, time_ns], [tenants, weight, own, container], has_waited) in steps {
            let reading = page(heartbeat_ns, tenants, weight);
            if has_waited {
                turns.begin_slice();
                turns.begin(now_ns, Some(&reading), Weights { own, container });
            }
            turns.sample(now_ns, Some(&reading), Weights { own, container });
            prop_assert!(turns.charge(time_ns) <= time_ns);
        }
    }
}
