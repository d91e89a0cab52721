//! One card, as this process uses it: the time charged, the estimates of launches, and in [`gate`] who may launch.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use divvy_region::accounts::OtherProcesses;
use divvy_region::clock::{DriverMemory, Reading, TIME_SLICE_NS, Turns, Weights};
use divvy_region::layout::CARDS;
use divvy_region::{Estimate, Gate, Share};

use super::charged_time::ChargedTime;
use super::clock::Clock;
use super::duty::Duty;
use super::reference_events::ReferenceEvents;
use super::work::{Batch, Estimates, Work};
use crate::cuda::CUevent;
use crate::lock::Lock;
use crate::process::Process;
use crate::time;

mod gate;

/// This process's cards, by position in the limits file.
static CARDS_OF_PROCESS: [Card; CARDS] = [const { Card::new() }; CARDS];

pub(super) struct Card {
    meter: Lock<Meter>,
    references: Lock<ReferenceEvents>,
    clock: Clock,
    /// The estimate of a kernel, by [`Estimate::kept`].
    kernel: AtomicU64,
    /// The estimate of a MiB of memory that is read or written, in the same way.
    moved: AtomicU64,
    /// Whether a probe is in flight: the first launch of its kind, beside which no other unmeasured work is admitted.
    has_probe: AtomicBool,
    others: OtherProcesses,
    /// The [`Gate`] of the last launch.
    gate: AtomicU8,
    waiting: AtomicU32,
    /// How long none of the work in flight is completed before a launch goes on, ns; 0: [`PATIENCE_NS`].
    patience_ns: AtomicU64,
    /// Batches that were completed.
    completed: AtomicU32,
    /// Streams that have work, as far as is known.
    busy_streams: AtomicU32,
    /// Whether work is in flight that a launch on debt may have ended: what it took tells nothing of its kind.
    has_waited: AtomicBool,
    /// The word that threads at the gate sleep on; it changes when they are woken.
    wakeups: AtomicU32,
}

/// The charged time, and what it costs.
#[derive(Clone, Copy)]
struct Meter {
    turns: Turns,
    charged: ChargedTime,
}

/// The container's share of the card at this moment, and what it follows from.
pub(super) struct Allotment {
    pub(super) share: Share,
    reading: Option<Reading>,
}

// === impl Card ===

impl Card {
    const fn new() -> Self {
        Self {
            meter: Lock::new(Meter::new()),
            references: Lock::new(ReferenceEvents::new()),
            clock: Clock::new(),
            kernel: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            has_probe: AtomicBool::new(false),
            others: OtherProcesses::new(),
            gate: AtomicU8::new(Gate::Open as u8),
            waiting: AtomicU32::new(0),
            patience_ns: AtomicU64::new(0),
            completed: AtomicU32::new(0),
            busy_streams: AtomicU32::new(0),
            has_waited: AtomicBool::new(false),
            wakeups: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn at(position: usize) -> Option<&'static Self> {
        CARDS_OF_PROCESS.get(position)
    }

    /// Forgets everything, in a child that fork made.
    pub(super) fn forget_all() {
        for card in &CARDS_OF_PROCESS {
            *card.meter.reset() = Meter::new();
            *card.references.reset() = ReferenceEvents::new();
            card.waiting.store(0, Ordering::Relaxed);
            card.busy_streams.store(0, Ordering::Relaxed);
            card.has_probe.store(false, Ordering::Relaxed);
            card.others.forget();
        }
    }

    /// How the card is divided now.
    #[inline]
    pub(super) fn allotment(&self, process: &Process, position: usize, now_ns: u64) -> Allotment {
        let reading = self.clock.read(process.id(position), now_ns);
        Allotment { share: reading.unwrap_or_default().share(process.entitlement(position), now_ns), reading }
    }

    /// What the driver takes of the card for contexts and graphs.
    pub(super) fn driver_memory(&self, process: &Process, position: usize) -> DriverMemory {
        self.clock.driver_memory(process.id(position), time::now())
    }

    #[inline]
    pub(super) fn estimate(&self, work: Work) -> Estimate {
        work.estimate(self.estimates())
    }

    fn estimates(&self) -> Estimates {
        let [kernel, moved] = [&self.kernel, &self.moved].map(|kept| Estimate::from_kept(kept.load(Ordering::Relaxed)));
        Estimates { kernel, moved }
    }

    /// Withdraws a probe that won't be measured.
    pub(super) fn forget_probe(&self, estimate: Estimate) {
        if estimate.is_unknown() {
            self.has_probe.store(false, Ordering::Relaxed);
        }
    }

    /// How long from now what this process has in flight should take, with others served in turns.
    pub(super) fn remaining_ns(&self, process: &'static Process, position: usize) -> u64 {
        let in_flight_ns = process.account(position).map_or(0, |account| account.in_flight_ns());
        self.meter.lock().turns.stretched_ns(in_flight_ns)
    }

    /// Notes that a launch begins in a stream that has no work.
    pub(super) fn begin(&self, process: &'static Process, position: usize, now_ns: u64) {
        let Some(account) = process.account(position) else { return };
        if self.busy_streams.load(Ordering::Relaxed) == 0 {
            let Weights { own, container } = account.weights();
            let others = Weights { own: 0, container: container.saturating_sub(own) };
            let reading = self.allotment(process, position, now_ns).reading;
            self.meter.lock().turns.begin(now_ns, reading.as_ref(), others);
        }
    }

    /// Notes that the card has come to work that waited for it: others had their turn meanwhile, if they weren't other streams.
    pub(super) fn begin_slice(&self) {
        if self.busy_streams.load(Ordering::Relaxed) <= 1 {
            self.meter.lock().turns.begin_slice();
        }
    }

    /// When an event of a context was reached that has been.
    pub(super) fn reached_at(&self, context: usize, event: &mut CUevent, not_before: u64, not_after: u64) -> u64 {
        self.references.lock().reached_at(context, event, not_before, not_after)
    }

    /// Forgets a context that has ended, and its events with it.
    pub(super) fn forget(context: usize) {
        for card in &CARDS_OF_PROCESS {
            card.references.lock().forget(context);
        }
    }

    /// Notes that one more stream has work, or one less.
    pub(super) fn stream_changed(&self, is_busy: bool) {
        let change = |streams: u32| if is_busy { streams.checked_add(1) } else { streams.checked_sub(1) };
        let _unless_it_is_none = self.busy_streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Charges a time in which a stream was busy, as far as no other stream was charged for it. Gaps within it aren't charged
    /// where no other stream may have filled them.
    pub(super) fn charge(
        &self,
        process: &'static Process,
        position: usize,
        (from, to): (u64, u64),
        batch: &mut Batch,
        duty: &Duty,
    ) {
        let (Some(bucket), Some(account)) = (process.region().card(position), process.account(position)) else {
            return;
        };
        let now_ns = time::now();
        let allotment = self.allotment(process, position, now_ns);
        let weights = account.weights();
        let cost_ns = {
            let mut meter = self.meter.lock();
            let mut time_ns = 0;
            meter.charged.charge(from, to, |from, to| time_ns += to - from);
            if batch.launches() > 1 && self.busy_streams.load(Ordering::Relaxed) <= 1 {
                time_ns -= duty.idle_ns(to.min(batch.last_ns()).saturating_sub(from).min(time_ns));
            }
            meter.turns.sample(now_ns, allotment.reading.as_ref(), weights);
            meter.turns.charge(time_ns)
        };
        bucket.refill(now_ns, allotment.share);
        // Where all of the card is ours, nothing refills the bucket.
        if !allotment.share.is_whole() {
            bucket.debit(cost_ns);
        }
        batch.charge(account, cost_ns);
        if batch.has_overrun() {
            process.region().overran(position, now_ns);
        }
        if batch.is_unforeseen(self.busy_streams.load(Ordering::Relaxed)) {
            // What has taken long takes longer, for all who are served in turns with it.
            batch.expect(account, TIME_SLICE_NS / 2);
        }
    }

    /// Takes into account what a batch that is done has cost.
    pub(super) fn observe(&self, batch: &Batch) {
        self.completed.fetch_add(1, Ordering::Relaxed);
        let _meter = self.meter.lock();
        if !(batch.has_overrun() && self.has_waited.swap(false, Ordering::Relaxed)) {
            let mut known = self.estimates();
            batch.observe(&mut known, time::now());
            self.kernel.store(known.kernel.kept(), Ordering::Relaxed);
            self.moved.store(known.moved.kept(), Ordering::Relaxed);
        }
        if batch.has_probe() {
            self.has_probe.store(false, Ordering::Relaxed);
        }
    }
}

// === impl Meter ===

impl Meter {
    const fn new() -> Self {
        Self { turns: Turns::new(), charged: ChargedTime::new() }
    }
}
