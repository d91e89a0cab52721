use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn busy(tenants: u32) -> Busy {
    Busy { tenants, ..Busy::default() }
}

#[test]
fn virtual_time_is_divided_among_busy_tenants() {
    let page = Page::default();
    let mut writer = Writer::new(&page, 1000 * MS);
    writer.publish(1000 * MS, busy(2));
    writer.publish(1020 * MS, busy(2));
    writer.publish(1028 * MS, busy(4));
    let reading = page.read().expect("a page");
    assert_eq!((reading.heartbeat_ns, reading.virtual_ns), (1028 * MS, 13 * MS), "who came did so half-way");
    assert_eq!(reading.virtual_at(1036 * MS), 15 * MS);
    assert_eq!(reading.virtual_at(1024 * MS), 12 * MS);
}

/// Beside one that is always busy.
#[test]
fn short_lived_tenant_is_charged_correctly() {
    let page = Page::default();
    let mut writer = Writer::new(&page, 0);
    let mut looks = (1..).map(|number| number * SAMPLE_PERIOD_NS).peekable();
    let (mut history, mut paid, mut due, mut drawn) = (History::new(), 0, 0, 1_u64);
    let (mut turn, mut from) = (5 * MS..10 * MS, 0);
    for now in (0..20_000 * MS).step_by(50_000) {
        let is_busy = turn.contains(&now);
        if looks.next_if(|at| *at <= now).is_some() {
            writer.publish(now, busy(1 + u32::from(is_busy)));
        }
        if now == turn.start {
            from = now;
        }
        if is_busy && now.is_multiple_of(MS) || now == turn.start || now == turn.end {
            history.record(now, page.read().as_ref());
            paid += history.cost(from, now);
            from = now;
        }
        if now == turn.end {
            due += (turn.end - turn.start) / 2;
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = now + 5 * MS + (drawn >> 40) % 300 * 50_000;
            turn = start..start + 4 * MS + (drawn >> 50) % 160 * 50_000;
        }
    }
    assert!(paid.abs_diff(due) < due / 20, "{paid} instead of {due}");
}

#[test]
fn time_counts_in_full_without_a_heartbeat() {
    let page = Page::default();
    let mut writer = Writer::new(&page, 0);
    writer.publish(1000 * MS, busy(2));
    let reading = page.read().expect("a page");
    let at = |ms: u64| reading.virtual_at(ms * MS) - reading.virtual_ns;
    assert_eq!((at(1100), at(1101), at(1500)), (50 * MS, 51 * MS, 450 * MS));
    assert!(!reading.is_stale(1100 * MS) && reading.is_stale(1101 * MS));
}

#[test]
fn restarted_daemon_continues_the_clock() {
    let page = Page::default();
    Writer::new(&page, 1000 * MS).publish(1000 * MS, busy(2));
    page.sequence.fetch_add(1, Ordering::Relaxed); // it was killed while it wrote
    assert_eq!(page.read(), None);
    let mut next = Writer::new(&page, 1200 * MS);
    assert_eq!(page.read().map(|reading| reading.virtual_ns), Some(150 * MS));
    next.publish(1100 * MS, busy(1));
    let reading = page.read().expect("a page");
    assert_eq!((reading.heartbeat_ns, reading.virtual_ns), (1200 * MS, 150 * MS), "time doesn't go back");
}

#[test]
fn idle_time_is_divided_among_bursting_tenants() {
    let of = |tenants, guaranteed, unguaranteed| {
        let busy = Busy { tenants, guaranteed, unguaranteed, ..Busy::default() };
        Reading { heartbeat_ns: 0, virtual_ns: 0, busy }
    };
    let share_of = |reading: Reading, promise, compute, now_ns| {
        reading.share(Entitlement { share: Share::of(promise), compute, priority: Priority::Normal }, now_ns).parts()
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
fn low_priority_yields_to_high_and_keeps_its_guarantee() {
    let share = |at_work: &[(u32, Priority)], (promise, priority): (u32, Priority)| {
        let mut busy = Busy::default();
        for (promise, priority) in at_work {
            busy.add(Share::of(*promise), *priority);
        }
        let reading = Reading { heartbeat_ns: 0, virtual_ns: 0, busy };
        reading.share(Entitlement { share: Share::of(promise), compute: Compute::Burst, priority }, 0).parts()
    };
    let (serving, batch, other) = ((2000, Priority::High), (2000, Priority::Low), (1000, Priority::Normal));
    assert_eq!(share(&[batch], batch), 10_000, "nobody is in a hurry");
    assert_eq!(share(&[batch, other], batch), 6666);
    assert_eq!([serving, batch].map(|of| share(&[serving, batch], of)), [8000, 2000]);
    assert_eq!([serving, batch, other].map(|of| share(&[serving, batch, other], of)), [5333, 2000, 2666]);
    let (anybody, last, first) = ((0, Priority::Normal), (0, Priority::Low), (0, Priority::High));
    assert_eq!([serving, last].map(|of| share(&[serving, last], of)), [9900, MIN_PARTS]);
    assert_eq!([first, anybody, last].map(|of| share(&[first, anybody, last], of)), [4950, 4950, MIN_PARTS]);
    assert_eq!([anybody, last].map(|of| share(&[anybody, last], of)), [5000, 5000]);
}

#[test]
fn old_work_is_charged_at_the_rate_of_its_time() {
    let (page, mut history) = (Page::default(), History::new());
    let mut writer = Writer::new(&page, 0);
    for ms in 1..=4000 {
        // Alone in every odd second, one of two in every even one.
        writer.publish(ms * MS, busy(1 + (ms / 1000 % 2) as u32));
        history.record(ms * MS, page.read().as_ref());
    }
    assert_eq!(history.cost(3989 * MS, 3999 * MS), 5 * MS);
    assert_eq!(history.cost(3998 * MS + 200_000, 3998 * MS + 600_000), 200_000);
    assert_eq!(history.cost(4000 * MS, 4010 * MS), 10 * MS, "not looked at since");
    let second = history.cost(2000 * MS, 3000 * MS);
    assert!(second.abs_diff(1000 * MS) < 70 * MS, "{second}");
    let both = history.cost(1000 * MS, 3000 * MS);
    assert!(both.abs_diff(1500 * MS) < 70 * MS, "{both}");
}

#[test]
fn time_without_a_clock_page_counts_in_full() {
    let mut history = History::new();
    assert_eq!(history.cost(5 * MS, 9 * MS), 4 * MS);
    (5..9).for_each(|ms| history.record(ms * MS, None));
    assert_eq!(history.cost(5 * MS, 9 * MS), 4 * MS);
    let late = Reading { heartbeat_ns: 20 * MS, virtual_ns: 700 * MS, busy: busy(2) };
    history.record(20 * MS, Some(&late));
    assert_eq!(history.cost(5 * MS, 20 * MS), 15 * MS);
    history.record(30 * MS, Some(&Reading { heartbeat_ns: 30 * MS, virtual_ns: 0, busy: busy(2) }));
    assert_eq!(history.cost(18 * MS, 30 * MS), 0, "nothing is known");
    history.record(25 * MS, Some(&late));
    assert_eq!(history.cost(30 * MS, 31 * MS), MS, "an old look is passed over");
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
    fn history_never_overflows(words in any::<[u64; 6]>(), counts in any::<[u32; 6]>(), promise in any::<u32>()) {
        let [tenants, guaranteed, unguaranteed, high, low_guaranteed, low_unguaranteed] = counts;
        let busy = Busy { tenants, guaranteed, unguaranteed, high, low_guaranteed, low_unguaranteed };
        let reading = Reading { heartbeat_ns: words[0], virtual_ns: words[1], busy };
        let mut history = History::new();
        for word in words {
            history.record(word, Some(&reading));
            history.record(word.saturating_add(1), None);
        }
        for span in words.windows(2) {
            prop_assert!(history.cost(span[0], span[1]) <= span[1].saturating_sub(span[0]));
        }
        for priority in [Priority::High, Priority::Normal, Priority::Low] {
            let share = Share::of(promise);
            let got = reading.share(Entitlement { share, compute: Compute::Burst, priority }, words[2]);
            prop_assert!(promise == 0 || got >= share);
        }
    }
}
