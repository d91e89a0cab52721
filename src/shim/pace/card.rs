//! One card, as this process uses it: its gate, what it has paid for, what its launches take.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use divvy_region::books::Others;
use divvy_region::clock::{History, Reading};
use divvy_region::layout::{self, CARDS};
use divvy_region::{Account, Estimate, Gate, Share};

use super::anchor::Anchors;
use super::clock::Clock;
use super::monitor;
use super::paid::Paid;
use super::work::{Batch, Work};
use crate::cuda::CUevent;
use crate::lock::Lock;
use crate::process::Process;
use crate::sys;
use crate::time;

/// Of this process, by the card's position in the limits file.
static OURS: [Card; CARDS] = [const { Card::new() }; CARDS];

/// Those that work was launched on since all rested, a bit each.
static USED: AtomicU64 = AtomicU64::new(0);

/// The longest that a launch sleeps before it looks again. Other processes of the container wake nobody here.
const PATIENCE_NS: u64 = 5_000_000;
/// A shorter sleep isn't worth the call.
const NAP_NS: u64 = 50_000;
/// Nor is a shorter one that is only to see that work is done.
const GLANCE_NS: u64 = 200_000;
/// As long as one who has just come lets those pass who have waited for a hundred times as long.
const COURTESY_NS: u64 = 500_000;
/// For so long at a gate that doesn't open, one looks whether those whose work is in flight still live.
const DOUBT_NS: u64 = 20_000_000;
/// What may be in flight on a card that is ours for as long as others are idle.
const LENT_NS: u64 = 20_000_000;
/// How long the card serves one process before the next: what a launch on a card with another one waits at most.
const TURN_NS: u64 = 2_000_000;

pub(super) struct Card {
    meter: Lock<Meter>,
    anchors: Lock<Anchors>,
    clock: Clock,
    /// What a kernel takes: [`Estimate::kept`].
    kernel: AtomicU64,
    /// Work whose like was never measured is in flight: it goes alone, as it may take a second.
    has_first: AtomicBool,
    others: Others,
    /// What the last launch was told.
    gate: AtomicU8,
    waiting: AtomicU32,
    /// Changes when those who wait may look again.
    turn: AtomicU32,
}

/// What work has cost, and what virtual time was meanwhile.
struct Meter {
    history: History,
    looked_ns: u64,
    paid: Paid,
}

/// How the card is divided just now.
pub(super) struct Terms {
    pub(super) share: Share,
    reading: Option<Reading>,
}

// === impl Terms ===

impl Terms {
    /// What a process of the container has to pay of a time's cost, if so many of its processes are served in turns. The clock
    /// counts containers; the card serves processes, of which the others are taken to have one each.
    fn among(&self, cost_ns: u64, of_ours: u64) -> u64 {
        let tenants = self.tenants();
        let served = tenants.saturating_sub(1).saturating_add(of_ours.max(1));
        u64::try_from(u128::from(cost_ns) * u128::from(tenants) / u128::from(served)).unwrap_or(cost_ns)
    }

    fn tenants(&self) -> u64 {
        self.reading.map_or(1, |reading| u64::from(reading.busy.tenants.max(1)))
    }

    /// How long work may have waited for its turn while others were served.
    fn turns_ns(&self, of_ours: u64) -> u64 {
        self.tenants().saturating_sub(1).saturating_add(of_ours.saturating_sub(1)).saturating_mul(TURN_NS)
    }
}

/// What a launch may do. Who has all of the card because nobody else wants it has it until somebody does, and that one isn't
/// to wait for long: little is in flight at any time.
#[inline]
fn gate(books: &layout::Card, before: Gate, estimate: Estimate, in_flight_ns: u64, share: Share) -> Gate {
    if !share.is_whole() {
        return books.gate(before, estimate.ns(), in_flight_ns, share);
    }
    let most = if before == Gate::Shut { LENT_NS / 2 } else { LENT_NS };
    if in_flight_ns < most { Gate::Open } else { Gate::Shut }
}

/// When time alone would have opened the gate. What is in flight may be cheaper than was estimated, or be done: then whoever
/// pays for it wakes us.
fn refill_ns(books: &layout::Card, estimate: Estimate, in_flight_ns: u64, share: Share) -> u64 {
    let batch = share.batch_ns();
    let wanted = if in_flight_ns == 0 && estimate.ns() >= batch.cast_unsigned() { 1 } else { batch };
    let room = books.balance_ns().saturating_sub_unsigned(in_flight_ns);
    let missing = wanted.saturating_sub(room).max(0).cast_unsigned();
    let by_share = missing.saturating_mul(10_000).checked_div(share.parts().into());
    by_share.filter(|_| !share.is_whole()).unwrap_or(PATIENCE_NS)
}

/// How much later than it could one tries to pass who came to the gate so long ago: of a container's processes, which all
/// know when it opens, and of which the first to come has all that there is, the one that has waited longest is to be first.
fn courtesy_ns(account: Account<'_>, waited_ns: u64) -> u64 {
    if account.books().has_company() { COURTESY_NS.saturating_sub(waited_ns / 100) } else { 0 }
}

// === impl Card ===

impl Card {
    const fn new() -> Self {
        Self {
            meter: Lock::new(Meter { history: History::new(), looked_ns: 0, paid: Paid::new() }),
            anchors: Lock::new(Anchors::new()),
            clock: Clock::new(),
            kernel: AtomicU64::new(0),
            has_first: AtomicBool::new(false),
            others: Others::new(),
            gate: AtomicU8::new(Gate::Open as u8),
            waiting: AtomicU32::new(0),
            turn: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn of(position: usize) -> Option<&'static Self> {
        OURS.get(position)
    }

    /// In a child that fork made: nobody waits, and nothing was paid.
    pub(super) fn forget_all() {
        for card in &OURS {
            *card.meter.reset() = Meter { history: History::new(), looked_ns: 0, paid: Paid::new() };
            *card.anchors.reset() = Anchors::new();
            card.waiting.store(0, Ordering::Relaxed);
            card.has_first.store(false, Ordering::Relaxed);
            card.others.forget();
        }
    }

    /// How the card is divided now.
    #[inline]
    pub(super) fn terms(&self, process: &Process, position: usize, now_ns: u64) -> Terms {
        let reading = self.clock.read(process.id(position), now_ns);
        Terms { share: reading.unwrap_or_default().share(process.promise(position), now_ns), reading }
    }

    #[inline]
    pub(super) fn estimate(&self, work: Work) -> Estimate {
        work.estimate(self.kernel())
    }

    fn kernel(&self) -> Estimate {
        Estimate::of(self.kernel.load(Ordering::Relaxed))
    }

    /// Whether a launch may go on, with what is in the container's bucket.
    #[inline]
    pub(super) fn is_open(
        &self,
        books: &layout::Card,
        account: Account<'_>,
        estimate: Estimate,
        share: Share,
        now_ns: u64,
    ) -> bool {
        if estimate.is_unknown() && self.has_first.load(Ordering::Relaxed) {
            return false;
        }
        let before = match self.gate.load(Ordering::Relaxed) {
            gate if gate == Gate::Open as u8 => Gate::Open,
            gate if gate == Gate::One as u8 => Gate::One,
            _ => Gate::Shut,
        };
        // Many wait for a gate to open, and see it at once: then all count at once what the others launch.
        let in_flight_ns = match before {
            Gate::Open => self.others.in_flight_ns(account, now_ns, estimate.ns()),
            Gate::One | Gate::Shut => account.books().in_flight_ns(),
        };
        let gate = gate(books, before, estimate, in_flight_ns, share);
        if gate != before {
            self.gate.store(gate as u8, Ordering::Relaxed);
            self.others.forget();
        }
        gate != Gate::Shut && !(estimate.is_unknown() && self.has_first.swap(true, Ordering::Relaxed))
    }

    /// What was let through as the first of its like won't be measured.
    pub(super) fn forget_first(&self, estimate: Estimate) {
        if estimate.is_unknown() {
            self.has_first.store(false, Ordering::Relaxed);
        }
    }

    /// Holds a launch until the gate opens; what it is estimated to take by now.
    #[cold]
    pub(super) fn wait(
        &self,
        process: &'static Process,
        position: usize,
        account: Account<'_>,
        work: Work,
    ) -> Estimate {
        let Some(books) = process.region().card(position) else { return self.estimate(work) };
        let began = time::now();
        let (mut now, mut doubted) = (began, began);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let estimate = loop {
            process.keep_up(now);
            let expected_ns = monitor::attend(process, now);
            let turn = self.turn.load(Ordering::Acquire);
            let share = self.terms(process, position, now).share;
            books.refill(now, share);
            let estimate = self.estimate(work);
            if self.is_open(books, account, estimate, share, now) {
                break estimate;
            }
            let waited = now.saturating_sub(began);
            let pause = if estimate.is_unknown() && self.has_first.load(Ordering::Relaxed) {
                waited / 2 // what goes alone is done soon, or is long
            } else {
                let refill = refill_ns(books, estimate, account.books().in_flight_ns(), share);
                refill.saturating_add(courtesy_ns(account, waited))
            };
            let done_ns = match self.left_ns(process, position, now) {
                0 => u64::MAX,
                left_ns => left_ns.max(expected_ns).max(GLANCE_NS),
            };
            let pause = pause.min(if estimate.is_rough() { GLANCE_NS.max(waited / 2) } else { done_ns });
            monitor::waits_until(now.saturating_add(pause.min(DOUBT_NS)));
            sys::wait(&self.turn, turn, pause.clamp(NAP_NS, PATIENCE_NS));
            now = time::now();
            if now.saturating_sub(doubted) > DOUBT_NS {
                process.reap();
                doubted = now;
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        monitor::waits_no_more();
        books.throttled_ns.add(now.saturating_sub(began));
        estimate
    }

    /// Wakes those who wait, if the gate would open for them.
    pub(super) fn call_waiting(&self, process: &'static Process, position: usize, now_ns: u64) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (Some(books), Some(account)) = (process.region().card(position), process.account(position)) else { return };
        let share = self.terms(process, position, now_ns).share;
        books.refill(now_ns, share);
        if gate(books, Gate::Shut, self.kernel(), account.books().in_flight_ns(), share) != Gate::Shut {
            self.turn.fetch_add(1, Ordering::Release);
            sys::wake(&self.turn);
        }
    }

    /// How long from now what this process has in flight should take, with others served in turns.
    pub(super) fn left_ns(&self, process: &'static Process, position: usize, now_ns: u64) -> u64 {
        let Some(account) = process.account(position) else { return 0 };
        let tenants = self.terms(process, position, now_ns).tenants();
        account.in_flight_ns().saturating_mul(tenants.saturating_mul(account.books().busy().max(1)))
    }

    /// Work begins on a card that did nothing of ours before, or goes on.
    pub(super) fn look(&self, process: &Process, position: usize, now_ns: u64) {
        USED.fetch_or(1 << (position & 63), Ordering::Relaxed);
        let terms = self.terms(process, position, now_ns);
        self.meter.lock().look(&terms, now_ns);
    }

    /// Nothing of ours is in flight: what virtual time was before is of no use any more.
    pub(super) fn rest_all() {
        let used = USED.swap(0, Ordering::Relaxed);
        for (_, card) in (0..).zip(&OURS).filter(|(position, _)| used >> position & 1 == 1) {
            let mut meter = card.meter.lock();
            *meter = Meter { history: History::new(), looked_ns: 0, paid: meter.paid };
        }
    }

    /// When an event of a context was reached that has been.
    pub(super) fn date(&self, context: usize, event: &mut CUevent, not_before: u64, not_after: u64) -> u64 {
        self.anchors.lock().date(context, event, not_before, not_after)
    }

    /// A context has ended, and took its events along.
    pub(super) fn forget(context: usize) {
        for card in &OURS {
            card.anchors.lock().forget(context);
        }
    }

    /// From when on work counts that was launched at one moment and that the card came to at another: as far as it waited
    /// for others' turns, waiting is part of being served in turns. As far as it waited for something else, it isn't.
    pub(super) fn begins(&self, process: &Process, position: usize, launched_ns: u64, reached_ns: u64) -> u64 {
        let ours = process.region().books(position).map_or(1, |books| books.busy());
        let turns_ns = self.terms(process, position, reached_ns).turns_ns(ours);
        launched_ns.max(reached_ns.saturating_sub(turns_ns))
    }

    /// Pays for a time in which a stream of ours was busy, as far as no other stream has paid for it.
    pub(super) fn pay(&self, process: &'static Process, position: usize, (from, to): (u64, u64), batch: &mut Batch) {
        let (Some(books), Some(account)) = (process.region().card(position), process.account(position)) else { return };
        let now_ns = time::now();
        let terms = self.terms(process, position, now_ns);
        let mut cost_ns = 0_u64;
        {
            let mut meter = self.meter.lock();
            meter.look(&terms, now_ns);
            let Meter { history, paid, .. } = &mut *meter;
            paid.pay(from, to, |from, to| cost_ns = cost_ns.saturating_add(history.cost(from, to)));
        }
        cost_ns = terms.among(cost_ns, account.books().busy());
        books.refill(now_ns, terms.share);
        // Where all of the card is ours, nothing refills the bucket.
        if !terms.share.is_whole() {
            books.debit(cost_ns);
        }
        batch.cost(account, cost_ns);
    }

    /// Takes into account what a batch that is done has cost.
    pub(super) fn observe(&self, batch: &Batch) {
        let _meter = self.meter.lock();
        let mut kernel = self.kernel();
        batch.observe(&mut kernel);
        self.kernel.store(kernel.kept(), Ordering::Relaxed);
        if batch.has_first() {
            self.has_first.store(false, Ordering::Relaxed);
        }
    }
}

// === impl Meter ===

impl Meter {
    fn look(&mut self, terms: &Terms, now_ns: u64) {
        if now_ns > self.looked_ns {
            self.history.look(now_ns, terms.reading.as_ref());
            self.looked_ns = now_ns;
        }
    }
}
