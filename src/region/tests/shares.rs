//! Containers on a card that serves them in turns, simulated in steps of 20 µs: what their processes do each millisecond,
//! and what the daemon does at each look, with everything that this crate has for it.

use std::collections::VecDeque;
use std::vec::Vec;

use crate::bucket::{Estimate, Gate, Share};
use crate::clock::{Busy, Page, SAMPLE_PERIOD_NS, Turns, Writer};
use crate::owned::Owned;

const MS: u64 = 1_000_000;
const STEP: u64 = 20_000;
/// How long the card serves one container before it looks at the next.
const SLICE: u64 = 2 * MS;
const START: u64 = 1000 * MS;
const SECONDS: u64 = 12;
/// How long nobody looks: an estimate of 1 ms lets too many longer kernels through before the first was measured.
const SETTLING: u64 = 2;

/// A container with one process, which always has more work.
struct Tenant {
    region: Owned,
    share: Share,
    kernel_ns: u64,
    queue: VecDeque<Kernel>,
    done: Vec<Kernel>,
    gate: Gate,
    estimate: Estimate,
    turns: Turns,
    served_ns: u64,
}

struct Kernel {
    /// What is left of its estimate.
    estimate: u64,
    left: u64,
    /// Nothing was in flight: a marker before it tells when the card comes to it.
    is_first: bool,
    launched: u64,
    /// Time in which the card had come to it that isn't charged yet, and what it has cost.
    uncharged: u64,
    cost: u64,
}

// === impl Tenant ===

impl Tenant {
    fn new(percent: u32, kernel_ns: u64) -> Self {
        Self {
            region: Owned::with_high(1, 1, 1),
            share: Share::from_parts(percent * 100),
            kernel_ns,
            queue: VecDeque::new(),
            done: Vec::new(),
            gate: Gate::Open,
            estimate: Estimate::UNKNOWN,
            turns: Turns::new(),
            served_ns: 0,
        }
    }

    /// Launches what the gate lets through.
    fn launch(&mut self, now: u64, page: Option<&Page>) {
        let region = self.region.region();
        let (card, accounts) = (region.card(0).expect("a card"), region.accounts(0).expect("a card"));
        let account = accounts.account(0).expect("a slot");
        card.refill(now, self.share);
        while self.queue.len() < 1024 {
            let estimate_ns = self.estimate.ns();
            self.gate = card.gate(self.gate, estimate_ns, accounts.in_flight_ns(), self.share);
            if self.gate == Gate::Shut {
                break;
            }
            let is_first = accounts.in_flight_ns() == 0;
            if is_first {
                self.turns.begin(now, page.and_then(Page::read).as_ref(), account.weights());
            }
            account.launched(estimate_ns);
            let (left, launched) = (self.kernel_ns, now);
            self.queue.push_back(Kernel { estimate: estimate_ns, left, is_first, launched, uncharged: 0, cost: 0 });
        }
    }

    /// Each millisecond: charges for what is done, and for what is being done.
    fn settle(&mut self, now: u64, page: Option<&Page>) {
        let region = self.region.region();
        let account = region.accounts(0).and_then(|accounts| accounts.account(0)).expect("a slot");
        self.turns.sample(now, page.and_then(Page::read).as_ref(), account.weights());
        for kernel in self.done.iter_mut().chain(self.queue.front_mut()) {
            let cost_ns = self.turns.charge(core::mem::take(&mut kernel.uncharged));
            let charged = cost_ns.min(kernel.estimate.saturating_sub(1));
            (kernel.cost, kernel.estimate) = (kernel.cost + cost_ns, kernel.estimate - charged);
            account.completed(charged, cost_ns);
            region.card(0).expect("a card").debit(cost_ns);
        }
        for Kernel { estimate, cost, .. } in self.done.drain(..) {
            account.completed(estimate, 0);
            self.estimate.observe(cost, 1);
        }
    }

    /// The card works on another's kernels: this tenant's first one waits for its turn.
    fn wait(&mut self) {
        if let Some(kernel) = self.queue.front_mut().filter(|kernel| !kernel.is_first || kernel.left < self.kernel_ns) {
            kernel.uncharged += STEP;
        }
    }

    /// The card works on this tenant's first kernel.
    fn serve(&mut self, now: u64) {
        let Some(kernel) = self.queue.front_mut() else { return };
        if kernel.is_first && kernel.left == self.kernel_ns && now > kernel.launched + MS / 20 {
            self.turns.begin_slice();
        }
        kernel.left = kernel.left.saturating_sub(STEP);
        kernel.uncharged += STEP;
        self.served_ns += STEP;
        if kernel.left == 0 {
            self.done.extend(self.queue.pop_front());
        }
    }
}

/// What part of the time each tenant was served, the first seconds aside.
#[expect(clippy::cast_precision_loss, reason = "some billion nanoseconds")]
fn simulate(mut tenants: Vec<Tenant>, with_clock: bool) -> Vec<f64> {
    let page = Page::default();
    let mut writer = Writer::new(&page, START);
    let (mut turn, mut slice_ends, mut look_at) = (0, START, START);
    for now in (0..SECONDS * 1000 * MS / STEP).map(|step| START + step * STEP) {
        if now >= look_at {
            let mut busy = Busy::default();
            for tenant in &tenants {
                let weight = tenant.region.region().accounts(0).expect("a card").weight();
                if weight > 0 {
                    busy.add(weight, tenant.share, None);
                }
            }
            writer.publish(now, busy);
            look_at += SAMPLE_PERIOD_NS;
        }
        if now.is_multiple_of(MS) {
            for tenant in &mut tenants {
                tenant.settle(now, with_clock.then_some(&page));
            }
        }
        if now == START + SETTLING * 1000 * MS {
            for tenant in &mut tenants {
                tenant.served_ns = 0;
            }
        }
        for tenant in &mut tenants {
            tenant.launch(now, with_clock.then_some(&page));
        }
        if now >= slice_ends || tenants[turn].queue.is_empty() {
            let count = tenants.len();
            turn =
                (1..=count).map(|by| (turn + by) % count).find(|next| !tenants[*next].queue.is_empty()).unwrap_or(turn);
            slice_ends = now + SLICE;
        }
        for (number, tenant) in tenants.iter_mut().enumerate() {
            if number == turn { tenant.serve(now) } else { tenant.wait() }
        }
    }
    let time = ((SECONDS - SETTLING) * 1000 * MS) as f64;
    tenants.iter().map(|tenant| tenant.served_ns as f64 / time).collect()
}

#[track_caller]
fn assert_near(shares: &[f64], wanted: &[f64]) {
    let near = shares.iter().zip(wanted).all(|(share, wanted)| (share - wanted).abs() <= 0.02);
    assert!(near, "{shares:.3?} instead of {wanted:?}");
}

#[test]
fn single_container_gets_its_share_for_any_kernel() {
    for percent in [25, 50, 75] {
        for kernel_ns in [STEP, MS, 20 * MS] {
            assert_near(&simulate(vec![Tenant::new(percent, kernel_ns)], true), &[f64::from(percent) / 100.0]);
        }
    }
}

#[test]
fn two_containers_get_a_quarter_and_three_quarters() {
    for kernel_ns in [STEP, MS, 20 * MS] {
        let tenants = || vec![Tenant::new(25, kernel_ns), Tenant::new(75, kernel_ns)];
        assert_near(&simulate(tenants(), true), &[0.25, 0.75]);
    }
}

#[test]
fn without_clock_page_both_pay_for_all_time() {
    let shares = simulate(vec![Tenant::new(25, MS), Tenant::new(75, MS)], false);
    assert!(shares[0] < 0.20 && shares[1] < 0.70, "{shares:.3?}");
}
