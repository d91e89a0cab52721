use proptest::prelude::*;

use super::*;
use crate::layout::Card;

const MS: u64 = 1_000_000;

fn quarter() -> Share {
    Share::from_parts(2500)
}

/// A bucket that was full at `now_ns`.
fn full(now_ns: u64, share: Share) -> Card {
    let card = Card::default();
    card.refill(now_ns, share);
    card
}

#[test]
fn bucket_starts_full_and_refills_by_its_share() {
    let card = full(1000 * MS, quarter());
    assert_eq!(card.balance_ns(), 12_500_000);
    card.debit(20 * MS);
    for step in 1..=1000 {
        card.refill(1000 * MS + step * 10_007, quarter());
    }
    assert_eq!(card.balance_ns(), -7_500_000 + 1000 * 2500, "a thousand grains of 10 µs, in odd steps");
    card.refill(1_000_000 * MS, quarter());
    assert_eq!(card.balance_ns(), 12_500_000, "idle time isn't saved up");
}

#[test]
fn gate_closes_at_zero_and_opens_at_a_batch() {
    let card = full(1000 * MS, quarter());
    assert_eq!(card.gate(Gate::Open, MS, 12 * MS, quarter()), Gate::Open);
    assert_eq!(card.gate(Gate::Open, MS, 13 * MS, quarter()), Gate::Shut);
    assert_eq!(card.gate(Gate::Shut, MS, 8 * MS, quarter()), Gate::Shut, "4.5 ms left is no batch");
    assert_eq!(card.gate(Gate::Shut, MS, 7 * MS, quarter()), Gate::Open);
    card.debit(12 * MS);
    assert_eq!(
        card.gate(Gate::Shut, 5 * MS, 0, quarter()),
        Gate::Single,
        "half a millisecond is left, and nothing in flight"
    );
    assert_eq!(card.gate(Gate::Shut, 4 * MS, 0, quarter()), Gate::Shut);
    assert_eq!(card.gate(Gate::Shut, 5 * MS, 1, quarter()), Gate::Shut);
    card.debit(MS);
    assert_eq!(card.gate(Gate::Open, 5 * MS, 0, quarter()), Gate::Shut);
}

#[test]
fn a_batch_of_a_small_share_fits_its_bucket() {
    let percent = Share::from_parts(100);
    assert_eq!((percent.burst_ns(), percent.reopen_ns()), (500_000, 450_000));
    assert_eq!(Share::from_parts(5000).reopen_ns(), 5_000_000);
    assert_eq!(full(1, Share::from_parts(0)).gate(Gate::Open, u64::MAX, 0, Share::from_parts(0)), Gate::Shut);
}

#[test]
fn whole_card_is_never_gated_or_charged() {
    let card = Card::default();
    card.debit(u64::MAX);
    card.refill(1000 * MS, Share::WHOLE);
    assert_eq!(card.gate(Gate::Shut, 1, u64::MAX, Share::from_parts(12_000)), Gate::Open);
    assert_eq!(card.refilled_at_ns.load(Ordering::Relaxed), 0);
}

#[test]
fn late_refill_is_ignored_and_clock_jump_is_followed() {
    let card = full(5_000 * MS, quarter());
    card.debit(MS);
    card.refill(4_999 * MS, quarter());
    card.refill(5_000 * MS, quarter());
    assert_eq!(card.balance_ns(), 11_500_000);
    card.refill(2_000 * MS, quarter());
    assert_eq!(card.balance_ns(), 11_500_000, "nothing is earned by it");
    card.refill(2_001 * MS, quarter());
    assert_eq!(card.balance_ns(), 11_750_000);
}

#[test]
fn estimate_follows_measurements() {
    let mut estimate = Estimate::UNKNOWN;
    estimate.observe(100_000, 10);
    assert_eq!(estimate.ns(), 703_000);
    (0..60).for_each(|_| estimate.observe(100_000, 10));
    assert!((10_000..10_010).contains(&estimate.ns()), "{estimate:?}");
    let settled = estimate.ns();
    estimate.observe(0, 10);
    assert_eq!(estimate.ns(), settled * 7 / 10, "one batch that seems to take nothing doesn't halve it");
    estimate.observe(5, 0);
    estimate.observe(u64::MAX, 1);
    assert!(estimate.ns() < u64::MAX / 2);
    assert!(!estimate.is_unknown() && Estimate::from_kept(estimate.kept()) == estimate);
}

#[test]
fn first_measurement_above_the_guess_is_used_at_once() {
    let mut estimate = Estimate::UNKNOWN;
    estimate.observe(0, 0);
    assert!(estimate.is_unknown() && Estimate::from_kept(estimate.kept()).is_unknown());
    estimate.observe(2000 * MS, 1);
    assert_eq!(estimate.ns(), 2000 * MS);
    (0..200).for_each(|_| estimate.observe(0, 1));
    assert!(!estimate.is_unknown() && estimate.ns() < 10);
}

#[test]
fn concurrent_refills_add_each_moment_once() {
    for round in 1..50_u64 {
        let card = Card::default();
        card.balance_ns.store(-1_000_000_000, Ordering::Relaxed);
        card.refilled_at_ns.store(1, Ordering::Relaxed);
        let last = 1 + round * 977 * REFILL_STEP_NS;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let card = &card;
                scope.spawn(move || {
                    for step in 0..=50 {
                        card.refill(last * (step * 4 + thread).min(200) / 200, quarter());
                    }
                });
            }
        });
        assert_eq!(card.balance_ns(), -1_000_000_000 + (round * 977 * 2500).cast_signed());
    }
}

proptest! {
    /// (a) Of what a container used, all but one kernel and one full bucket was its share of the time.
    #[test]
    fn long_run_use_equals_the_share(
        parts in 100_u32..10_000,
        work in proptest::collection::vec((0_u64..3 * MS, 1_u64..300 * MS), 1..200),
    ) {
        let share = Share::from_parts(parts);
        let start = 1000 * MS;
        let card = full(start, share);
        let (mut now, mut used, mut longest, mut gate) = (start, 0, 0, Gate::Open);
        for (idle, kernel) in work {
            now += idle;
            card.refill(now, share);
            gate = card.gate(gate, kernel, 0, share);
            if gate != Gate::Shut {
                now += kernel;
                card.debit(kernel);
                used += kernel;
                longest = longest.max(kernel);
            }
            let earned = share.of_ns(now - start) + 1;
            prop_assert!(used <= earned + share.burst_ns().cast_unsigned() + longest, "{used} of {earned}");
        }
    }

    /// (b) After a kernel of any length the next waits at most as long as that one's length and a batch are worth, and if it
    /// is longer than a batch itself, as long as that one's length alone is.
    #[test]
    fn wait_never_exceeds_the_debt(
        parts in 1_u32..10_000,
        kernels in proptest::collection::vec(1_u64..2000 * MS, 1..20),
    ) {
        let share = Share::from_parts(parts);
        let mut now = 1000 * MS;
        let card = full(now, share);
        let batch = share.reopen_ns().cast_unsigned();
        for kernel in kernels {
            card.debit(kernel + card.balance_ns().max(0).cast_unsigned());
            now += kernel * 10_000 / u64::from(parts) + 2 * REFILL_STEP_NS;
            card.refill(now, share);
            prop_assert_eq!(card.gate(Gate::Shut, batch, 0, share), Gate::Single);
            now += batch * 10_000 / u64::from(parts);
            card.refill(now, share);
            prop_assert_eq!(card.gate(Gate::Shut, 1, 0, share), Gate::Open);
        }
    }

    /// Nothing that lies in the line, and no clock, makes it overflow.
    #[test]
    fn bucket_never_overflows(balance in any::<i64>(), at in any::<u64>(), now in any::<u64>(), ns in any::<u64>(), parts in any::<u32>()) {
        let (card, share) = (Card::default(), Share::from_parts(parts));
        card.balance_ns.store(balance, Ordering::Relaxed);
        card.refilled_at_ns.store(at, Ordering::Relaxed);
        card.refill(now, share);
        prop_assert!(share.is_whole() || card.balance_ns() <= balance.max(share.burst_ns()));
        card.debit(ns);
        let _any = (card.gate(Gate::Open, at, ns, share), card.gate(Gate::Shut, at, now, share));
        card.debit(ns);
    }

    /// What a share makes of a time is neither more nor, by more than a nanosecond, less.
    #[test]
    fn share_of_a_duration_is_exact(parts in 0_u32..=10_000, ns in any::<u64>()) {
        let exact = u128::from(ns) * u128::from(parts) / 10_000;
        prop_assert_eq!(u128::from(Share::from_parts(parts).of_ns(ns)), exact);
    }
}
