//! A container with several cards, simulated in steps of 100 µs: programs whose kernels wait for one another, and others that
//! the same gates must not hold up.

use std::collections::VecDeque;
use std::vec::Vec;

use crate::bucket::{Estimate, Gate, Share};
use crate::coupling::has_overrun;
use crate::owned::Owned;

const MS: u64 = 1_000_000;
const STEP: u64 = MS / 10;
const START: u64 = 1_000_000 * MS;
const SECONDS: u64 = 8;
/// How long nobody looks.
const SETTLING: u64 = 2;
/// Kernels that are launched ahead.
const AHEAD: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    /// Each card works for 5 ms, then exchanges data for half a millisecond with all others.
    Ranks,
    /// Work of many lengths before each exchange, of one function.
    MixedRanks,
    /// A pipeline: one card after the other works for 5 ms.
    Turns,
    /// The first card always has work, the others a tenth of the time.
    Uneven,
    /// Nothing waits for anything; kernels of 1 ms on the first card, of 60 ms on the others.
    Independent,
}

struct Card {
    queue: VecDeque<Kernel>,
    gate: Gate,
    estimate: Estimate,
    launched: u64,
    /// Exchanges that it has finished.
    met: u64,
    useful_ns: u64,
    waited_ns: u64,
    longest_wait_ns: u64,
}

struct Kernel {
    /// Number of the exchange that it is.
    exchange: Option<u64>,
    estimate_ns: u64,
    in_flight_ns: u64,
    left_ns: u64,
    cost_ns: u64,
}

/// What the first and the second card got of the time, and the longest wait of any kernel, ns.
struct Outcome {
    shares: [f64; 2],
    longest_wait_ns: u64,
}

// === impl Program ===

impl Program {
    /// Whether a card has something to launch, if so much was launched on all.
    fn has_work(self, card: usize, cards: &[Card], now: u64) -> bool {
        match self {
            Self::Turns => {
                let stage: u64 = cards.iter().map(|card| card.launched).sum();
                stage % cards.len() as u64 == card as u64 && cards.iter().all(|card| card.queue.is_empty())
            }
            Self::Uneven => card == 0 || now % (100 * MS) < 10 * MS,
            Self::Ranks | Self::MixedRanks | Self::Independent => true,
        }
    }

    /// How long a card's next kernel takes, ns, and which exchange it is.
    fn kernel(self, card: usize, launched: u64) -> (u64, Option<u64>) {
        let exchange = (launched % 2 == 1).then_some(launched / 2 + 1);
        match self {
            Self::Ranks | Self::MixedRanks if exchange.is_some() => (MS / 2, exchange),
            Self::MixedRanks => ([2, 10, 120, 50, 1][(launched / 2 % 5) as usize] * MS / 10, None),
            Self::Independent => (if card == 0 { MS } else { 60 * MS }, None),
            Self::Ranks | Self::Turns | Self::Uneven => (5 * MS, None),
        }
    }
}

/// Lets a program run on cards of which it has so much. The first card's balance is `behind_ns` less at the start.
#[expect(clippy::cast_precision_loss, reason = "some billion nanoseconds")]
fn simulate(program: Program, percent: u32, count: usize, behind_ns: u64) -> Outcome {
    let owned = Owned::with_high(count, count, u32::try_from(count).unwrap());
    let (region, share) = (owned.region(), Share::from_parts(percent * 100));
    let new = || Card {
        queue: VecDeque::new(),
        gate: Gate::Open,
        estimate: Estimate::UNKNOWN,
        launched: 0,
        met: 0,
        useful_ns: 0,
        waited_ns: 0,
        longest_wait_ns: 0,
    };
    let mut cards: Vec<Card> = (0..count).map(|_| new()).collect();
    for card in 0..count {
        region.card(card).unwrap().refill(START, share);
    }
    region.card(0).unwrap().debit(behind_ns);
    for now in (0..SECONDS * 1000 * MS / STEP).map(|step| START + step * STEP) {
        if now == START + SETTLING * 1000 * MS {
            for card in &mut cards {
                (card.useful_ns, card.longest_wait_ns) = (0, 0);
            }
        }
        for card in 0..count {
            let (bucket, accounts) = (region.card(card).unwrap(), region.accounts(card).unwrap());
            let account = accounts.account(card).unwrap();
            bucket.refill(now, share);
            account.hold_until(0);
            // Ranks start one after the other.
            while now >= START + card as u64 * MS
                && cards[card].queue.len() < AHEAD
                && program.has_work(card, &cards, now)
            {
                let own = &mut cards[card];
                // What was never measured goes alone.
                if own.estimate.is_unknown() && !own.queue.is_empty() {
                    break;
                }
                let mut gate = bucket.gate(own.gate, own.estimate.ns(), accounts.in_flight_ns(), share);
                if region.is_coupled(now) {
                    gate = region.coupled_gate(card, gate, own.gate, share, now);
                }
                own.gate = gate;
                if gate == Gate::Shut {
                    account.hold_until(now + 2 * STEP);
                    break;
                }
                let (left_ns, exchange) = program.kernel(card, own.launched);
                let estimate_ns = own.estimate.ns();
                account.launched(estimate_ns);
                own.queue.push_back(Kernel { exchange, estimate_ns, in_flight_ns: estimate_ns, left_ns, cost_ns: 0 });
                own.launched += 1;
            }
        }
        for card in 0..count {
            let next = |card: &Card| card.queue.front().and_then(|kernel| kernel.exchange);
            let has_come = |number: u64| cards.iter().all(|other| other.met >= number || next(other) == Some(number));
            let may_go_on = next(&cards[card]).is_none_or(has_come);
            let (own, bucket) = (&mut cards[card], region.card(card).unwrap());
            let account = region.accounts(card).unwrap();
            let account = account.account(card).unwrap();
            let Some(kernel) = own.queue.front_mut() else { continue };
            kernel.cost_ns += STEP;
            bucket.debit(STEP);
            let done = STEP.min(kernel.in_flight_ns.saturating_sub(1));
            kernel.in_flight_ns -= done;
            account.completed(done, STEP);
            if has_overrun(kernel.cost_ns, kernel.estimate_ns) {
                region.overran(card, now);
            }
            if !may_go_on {
                own.waited_ns += STEP;
                own.longest_wait_ns = own.longest_wait_ns.max(own.waited_ns);
                continue;
            }
            own.waited_ns = 0;
            own.useful_ns += STEP;
            kernel.left_ns = kernel.left_ns.saturating_sub(STEP);
            if kernel.left_ns == 0 {
                own.estimate.observe(kernel.cost_ns, 1);
                account.completed(kernel.in_flight_ns, 0);
                own.met = kernel.exchange.unwrap_or(own.met);
                own.queue.pop_front();
            }
        }
    }
    let time = ((SECONDS - SETTLING) * 1000 * MS) as f64;
    let shares = [0, 1].map(|card| cards[card].useful_ns as f64 * 100.0 / time);
    Outcome { shares, longest_wait_ns: cards.iter().map(|card| card.longest_wait_ns).max().unwrap() }
}

#[track_caller]
fn assert_share(program: Program, percent: u32, count: usize, behind_ns: u64, wanted: [f64; 2]) {
    let Outcome { shares, longest_wait_ns } = simulate(program, percent, count, behind_ns);
    let is_near = shares.iter().zip(wanted).all(|(share, wanted)| (share - wanted).abs() <= 3.0);
    let what = format!("{program:?}, {percent} % of {count} cards: {shares:.1?} instead of {wanted:?}");
    assert!(is_near && longest_wait_ns <= 50 * MS, "{what}, waits of {} ms", longest_wait_ns / MS);
}

#[test]
fn ranks_get_their_share() {
    for percent in [20, 30, 50, 75] {
        assert_share(Program::Ranks, percent, 2, 0, [percent.into(); 2]);
        assert_share(Program::Ranks, percent, 2, 60 * MS, [percent.into(); 2]);
        assert_share(Program::Ranks, percent, 8, 0, [percent.into(); 2]);
        assert_share(Program::MixedRanks, percent, 2, 0, [percent.into(); 2]);
    }
}

#[test]
fn programs_that_wait_for_nothing_get_what_they_had() {
    for percent in [20, 30, 50, 75] {
        let share = f64::from(percent);
        assert_share(Program::Turns, percent, 2, 0, [share.min(50.0); 2]);
        assert_share(Program::Independent, percent, 2, 0, [share; 2]);
        let Outcome { shares, .. } = simulate(Program::Uneven, percent, 2, 0);
        assert!((shares[0] - share).abs() <= 3.0 && shares[1] >= share / 2.0 - 1.0, "{percent} %: {shares:.1?}");
    }
}
