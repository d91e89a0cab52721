use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// So many that always have work.
fn busy(tenants: u32) -> Busy {
    Busy { tenants, weight: tenants * FULL_WEIGHT, ..Busy::default() }
}

#[test]
fn page_is_stale_without_a_heartbeat() {
    let page = Page::default();
    Writer::new(&page, 0).publish(1000 * MS, busy(2));
    let reading = page.read().expect("a page");
    assert!(!reading.is_stale(1100 * MS) && reading.is_stale(1101 * MS));
}

#[test]
fn restarted_daemon_continues_the_page() {
    let page = Page::default();
    Writer::new(&page, 1000 * MS).publish(1000 * MS, busy(2));
    page.sequence.fetch_add(1, Ordering::Relaxed); // it was killed while it wrote
    assert_eq!(page.read(), None);
    let mut next = Writer::new(&page, 1200 * MS);
    assert_eq!(page.read(), Some(Reading { heartbeat_ns: 1200 * MS, busy: busy(2) }));
    next.publish(1100 * MS, busy(1));
    assert_eq!(page.read(), Some(Reading { heartbeat_ns: 1200 * MS, busy: busy(1) }), "time doesn't go back");
}

#[test]
fn weight_grows_with_the_work_up_to_half_a_slice() {
    assert_eq!([0, 1, TIME_SLICE_NS / 4, TIME_SLICE_NS / 2, u64::MAX].map(weight), [0, 1, 128, 256, 256]);
}

#[test]
fn idle_time_is_divided_among_bursting_tenants() {
    let of = |tenants, guaranteed, unguaranteed| {
        let busy = Busy { tenants, guaranteed, unguaranteed, ..Busy::default() };
        Reading { heartbeat_ns: 0, busy }
    };
    let share_of = |reading: Reading, promise, compute, now_ns| {
        reading
            .share(
                Entitlement { share: Share::from_parts(promise), compute, limit: Share::WHOLE, priority: None },
                now_ns,
            )
            .parts()
    };
    let share = |promise, compute| share_of(of(3, 4000, 1), promise, compute, 0);
    assert_eq!(share(1000, Compute::Cap), 1000);
    assert_eq!(share(1000, Compute::Burst), 2500);
    assert_eq!(share(3000, Compute::Burst), 7500);
    assert_eq!(share(8000, Compute::Burst), 10_000, "not yet seen busy itself");
    assert_eq!([share(0, Compute::Cap), share(0, Compute::Burst)], [6000, 6000]);
    assert_eq!(share_of(of(3, 4000, 1), 1000, Compute::Burst, 101 * MS), 1000, "nobody knows who is busy");
    assert_eq!(share_of(of(4, 10_000, 2), 2500, Compute::Burst, 0), 2500);
    assert_eq!(share_of(of(4, 10_000, 2), 0, Compute::Burst, 0), 0);
    assert_eq!(share_of(of(4, 1000, 3), 0, Compute::Burst, 0), 3000);
}

#[test]
fn idle_time_is_used_up_to_a_limit_and_a_guarantee_is_kept() {
    let busy = Busy { tenants: 1, guaranteed: 2000, ..Busy::default() };
    let reading = Reading { heartbeat_ns: 0, busy };
    let share = |promise, limit| {
        let (share, limit) = (Share::from_parts(promise), Share::from_parts(limit));
        let entitlement = Entitlement { share, compute: Compute::Burst, limit, priority: None };
        reading.share(entitlement, 0).parts()
    };
    assert_eq!([share(2000, 10_000), share(2000, 5000), share(2000, 1000)], [10_000, 5000, 2000]);
    assert_eq!([share(0, 10_000), share(0, 5000)], [8000, 5000], "without a guarantee");
}

#[test]
fn low_priority_yields_to_high_and_keeps_its_guarantee() {
    let share = |at_work: &[(u32, Option<Priority>)], (promise, priority): (u32, Option<Priority>)| {
        let mut busy = Busy::default();
        for (promise, priority) in at_work {
            busy.add(FULL_WEIGHT, Share::from_parts(*promise), *priority);
        }
        let reading = Reading { heartbeat_ns: 0, busy };
        reading
            .share(
                Entitlement {
                    share: Share::from_parts(promise),
                    compute: Compute::Burst,
                    limit: Share::WHOLE,
                    priority,
                },
                0,
            )
            .parts()
    };
    let (serving, batch, other) = ((2000, Some(Priority::High)), (2000, Some(Priority::Low)), (1000, None));
    assert_eq!(share(&[batch], batch), 10_000, "nobody is in a hurry");
    assert_eq!(share(&[batch, other], batch), 6666);
    assert_eq!([serving, batch].map(|of| share(&[serving, batch], of)), [8000, 2000]);
    assert_eq!([serving, batch, other].map(|of| share(&[serving, batch, other], of)), [5333, 2000, 2666]);
    let (anybody, last, first) = ((0, None), (0, Some(Priority::Low)), (0, Some(Priority::High)));
    assert_eq!([serving, last].map(|of| share(&[serving, last], of)), [9900, MIN_PARTS]);
    assert_eq!([first, anybody, last].map(|of| share(&[first, anybody, last], of)), [4950, 4950, MIN_PARTS]);
    assert_eq!([anybody, last].map(|of| share(&[anybody, last], of)), [5000, 5000]);
}

#[test]
#[expect(unsafe_code, reason = "the constructors are what is tested")]
fn page_is_valid_once_a_writer_initialised_it() {
    let memory = Page::default();
    let base = core::ptr::from_ref(&memory).cast::<u8>();
    // SAFETY: `memory` outlives all views, and is written by atomics only.
    let [new, short, misaligned] =
        unsafe { [Page::new(base, LINE), Page::new(base, 63), Page::new(base.add(8), LINE)] };
    assert_eq!(new.map(Page::read), Err(InvalidRegion::Magic(0)));
    assert_eq!(short.map(Page::read), Err(InvalidRegion::Short { length: 63, needed: LINE }));
    assert!(matches!(misaligned, Err(InvalidRegion::Misaligned { .. })));
    // SAFETY: as above.
    let blank = unsafe { Page::blank(base, LINE) }.expect("any memory");
    let _writer = Writer::new(blank, 5);
    // SAFETY: as above.
    let page = unsafe { Page::new(base, LINE) }.expect("a page");
    assert_eq!(page.read().map(|reading| reading.heartbeat_ns), Some(5));
    blank.version.store(9, Ordering::Relaxed);
    // SAFETY: as above.
    assert_eq!(unsafe { Page::new(base, LINE) }.map(Page::read), Err(InvalidRegion::Version(9)));
}

proptest! {
    #[test]
    fn shares_never_overflow(words in any::<[u64; 2]>(), counts in any::<[u32; 7]>(), promise in any::<u32>(), limit in 0..=10_000_u32) {
        let [tenants, weight, guaranteed, unguaranteed, high, low_guaranteed, low_unguaranteed] = counts;
        let busy = Busy { tenants, weight, guaranteed, unguaranteed, high, low_guaranteed, low_unguaranteed };
        let reading = Reading { heartbeat_ns: words[0], busy };
        for priority in [Some(Priority::High), None, Some(Priority::Low)] {
            let (share, limit) = (Share::from_parts(promise), Share::from_parts(limit));
            let got = reading.share(Entitlement { share, compute: Compute::Burst, limit, priority }, words[1]);
            prop_assert!((promise == 0 || got >= share) && got <= share.max(limit));
        }
    }
}
