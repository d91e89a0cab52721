//! The work of one stream: when it began, and which of it is done.
//!
//! Markers are events that the program's own threads record behind launches. Nothing else is recorded: a poll only asks
//! whether markers were reached, and a stream that has none after its last launches whether it is empty.

use core::ptr;

use divvy_region::Estimate;

use super::card::Card;
use super::duty::Duty;
use super::stream::{Relaxed, Stream};
use super::work::{Batch, Work};
use crate::cuda::{CUevent, ERROR_DEINITIALIZED, ERROR_NOT_READY, EVENT_DEFAULT, SUCCESS};
use crate::driver::cuda::{cuEventCreate, cuEventDestroy_v2, cuEventQuery, cuEventRecord};
use crate::process::Process;

/// Markers of one stream at a time. When all are pending, the newest is recorded again.
const MARKERS: usize = 6;
/// The least time between two groups of markers of a stream, ns: recording one costs a microsecond or two.
const MARKER_INTERVAL_NS: u64 = 300_000;
/// Fewer launches than this aren't marked once a marker is due, for as many intervals at most. How many is as good as drawn:
/// what is the first after some time has come after a gap more often than others.
const SKIPPED_LAUNCHES: u64 = 16;
/// What waits so much longer for the card than its own stream's work took has waited for others' turns.
const WAITED_NS: u64 = 50_000;
/// Who waits longer than that, 25 turns of others, waits for something else than its turn.
const LONGEST_WAIT_NS: u64 = 50_000_000;

/// The state of a stream.
pub(super) struct Track {
    /// The card's position in the limits file.
    pub(super) card: usize,
    markers: [Marker; MARKERS],
    /// The index of the marker to be reached next.
    next: usize,
    /// How many markers were recorded and not reached.
    pending: usize,
    /// Launches behind the last marker.
    unmarked: Batch,
    state: State,
    launches: u64,
    launched_ns: u64,
    /// Whether a thread of the program's waits for all that was launched.
    has_waiter: bool,
    /// When the next marker is due, and how many launches are skipped then.
    due_ns: u64,
    skipped: u64,
    /// Whether the next launch is to be between two markers.
    is_enclosed: bool,
    /// Whether the launch that begins is.
    has_start: bool,
    /// When the last marker was recorded from which to that of the launch before it is a gap like all.
    paired_ns: u64,
    /// The gap before the launch whose start marker was reached last, ns; if it may be one of those between markers.
    gap_ns: Option<u64>,
    duty: Duty,
    /// The last moment at which the next marker wasn't reached.
    pending_ns: u64,
    last_reached_ns: u64,
}

#[derive(Clone, Copy)]
struct Marker {
    event: CUevent,
    recorded_ns: u64,
    batch: Batch,
    /// Whether it is before a launch, not behind one: it tells when the card comes to that.
    is_start: bool,
}

/// When work ended that a poll finds done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completed {
    /// Just now: a thread has waited for it.
    Now,
    /// At some time since the last poll.
    Sometime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Work is there, and charged up to this moment.
    Busy(u64),
}

// SAFETY: an event is a handle, which any thread may use.
unsafe impl Send for Marker {}

const NO_EVENT: CUevent = ptr::null_mut();

// === impl Track ===

impl Track {
    pub(super) const fn new() -> Self {
        let marker = Marker { event: NO_EVENT, recorded_ns: 0, batch: Batch::new(), is_start: false };
        Self {
            card: 0,
            markers: [marker; MARKERS],
            next: 0,
            pending: 0,
            unmarked: Batch::new(),
            state: State::Idle,
            launches: 0,
            launched_ns: 0,
            has_waiter: false,
            due_ns: 0,
            skipped: 0,
            is_enclosed: false,
            has_start: false,
            paired_ns: 0,
            gap_ns: None,
            duty: Duty::new(),
            pending_ns: 0,
            last_reached_ns: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Whether there is work behind the last marker.
    pub(super) fn has_unmarked(&self) -> bool {
        !self.unmarked.is_empty()
    }

    /// What is next to be done has cost so much so far, ns.
    pub(super) fn cost_ns(&self) -> u64 {
        let front = self.next_marker().map(|marker| &marker.batch);
        front.unwrap_or(&self.unmarked).cost_ns()
    }

    /// Whether nothing was launched since this moment.
    pub(super) fn is_unchanged_since(&self, ns: u64) -> bool {
        self.launched_ns < ns
    }

    /// Notes that a thread of the program's waits for all launches so far, and polls when it wakes; how many they are.
    pub(super) fn begin_wait(&mut self) -> u64 {
        self.has_waiter = true;
        self.launches
    }

    /// Whether a thread will look when it is done.
    pub(super) fn has_waiter(&self) -> bool {
        self.has_waiter
    }

    /// Whether only looks can tell when it is done: nothing of it is marked but its beginning.
    pub(super) fn is_unmarked(&self) -> bool {
        let markers = match self.markers.get(self.next) {
            Some(next) if next.is_start => self.pending.saturating_sub(1),
            _ => self.pending,
        };
        markers == 0 && self.has_unmarked()
    }

    /// How much was launched since the track was made.
    pub(super) fn launches(&self) -> u64 {
        self.launches
    }

    /// Work is about to be launched behind which a marker is the last, or nothing.
    pub(super) fn begin(&mut self, stream: &Stream, now_ns: u64) {
        if self.has_unmarked() {
            return; // by another thread, just now
        }
        self.launched_ns = now_ns;
        let is_paired = self.is_enclosed;
        if (is_paired || self.is_due(now_ns)) && self.record_marker(stream, now_ns, true) {
            self.has_start = true;
            self.paired_ns = if is_paired { now_ns } else { self.paired_ns };
        }
    }

    /// Work was launched that had begun to be so at this moment.
    #[inline]
    pub(super) fn launched(&mut self, stream: &Stream, work: Work, estimate: Estimate, began_ns: u64) {
        if !self.unmarked.accepts(work, began_ns) {
            self.record_marker(stream, began_ns, false);
        }
        self.unmarked.add(work, estimate, began_ns);
        if self.is_idle() {
            self.state = State::Busy(began_ns);
        }
        self.launches += 1;
        self.launched_ns = began_ns;
        self.has_waiter = false;
        // What can't be asked later is marked at once.
        if stream.thread != 0 || self.has_start || self.is_due(began_ns) && !self.is_skipped(began_ns) {
            // In a thread's own stream every launch is marked, and every second would be as if drawn.
            let is_drawn = stream.thread == 0 && !self.has_start;
            let is_enclosed = self.record_marker(stream, began_ns, false) && is_drawn;
            (self.is_enclosed, self.has_start) = (is_enclosed, false);
        }
    }

    /// Whether a launch isn't marked although a marker is due.
    fn is_skipped(&mut self, now_ns: u64) -> bool {
        let is_skipped = self.skipped > 0 && now_ns.saturating_sub(self.due_ns) < SKIPPED_LAUNCHES * MARKER_INTERVAL_NS;
        self.skipped = self.skipped.saturating_sub(1);
        is_skipped
    }

    /// Whether a marker is due. One that is due after the longest interval was set by a clock that was set back.
    fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns || self.due_ns - now_ns > 2 * MARKER_INTERVAL_NS
    }

    /// Records a marker behind what was launched, before the program is held back.
    pub(super) fn mark_rest(&mut self, stream: &Stream, now_ns: u64) {
        // How long it is held back isn't how long it would have left the card alone.
        self.is_enclosed = false;
        if !self.unmarked.is_empty() {
            self.record_marker(stream, now_ns, false);
        }
    }

    /// Records a marker behind all that was launched; false if it couldn't be, then that stays unmarked.
    fn record_marker(&mut self, stream: &Stream, now_ns: u64, is_start: bool) -> bool {
        let is_full = self.pending >= MARKERS;
        if is_full && is_start {
            return false;
        }
        let ahead = if is_full { self.pending - 1 } else { self.pending };
        let Some(marker) = self.markers.get_mut((self.next + ahead) % MARKERS) else { return false };
        if marker.event == NO_EVENT {
            let _making = Relaxed::begin();
            // SAFETY: an event is written to an event.
            if unsafe { cuEventCreate(&raw mut marker.event, EVENT_DEFAULT) } != SUCCESS {
                marker.event = NO_EVENT;
                return false;
            }
        }
        // SAFETY: an event of ours and the stream that the caller launches on, both of the current context.
        if unsafe { cuEventRecord(marker.event, stream.handle()) } != SUCCESS {
            return false;
        }
        marker.recorded_ns = now_ns;
        if is_full {
            marker.batch.merge(self.unmarked);
            marker.is_start = false;
        } else {
            (marker.batch, marker.is_start) = (self.unmarked, is_start);
            self.pending += 1;
        }
        self.unmarked = Batch::new();
        self.due_ns = now_ns.saturating_add(MARKER_INTERVAL_NS);
        self.skipped = now_ns / 7 % SKIPPED_LAUNCHES;
        true
    }

    /// Looks what is done, charges for it, and for what is being done; false if the driver was deinitialised. Work that is
    /// found done ended now, or at some time since the last poll, as `completed` says. Any other error ends all work of its
    /// context.
    pub(super) fn poll(
        &mut self,
        process: &'static Process,
        stream: &Stream,
        now_ns: u64,
        completed: Completed,
    ) -> bool {
        // A context that another thread has for itself, as a green one, may be refused: what is asked says more then.
        let _current = stream.enter();
        while self.pending > 0 {
            let Some(marker) = self.next_marker().copied() else { break };
            // SAFETY: an event of ours, of a context that lives.
            match unsafe { cuEventQuery(marker.event) } {
                SUCCESS => self.pass_marker(process, stream, &marker, now_ns),
                ERROR_NOT_READY => {
                    self.pending_ns = now_ns;
                    self.charge(process, now_ns);
                    return true;
                }
                ERROR_DEINITIALIZED => return false,
                _ => {
                    self.fail(process, now_ns);
                    return true;
                }
            }
        }
        if self.is_idle() {
            return true;
        }
        if self.unmarked.is_empty() {
            self.state = State::Idle;
        } else {
            match stream.is_empty() {
                Some(false) => {
                    self.pending_ns = now_ns;
                    self.charge(process, now_ns);
                }
                Some(true) | None if completed == Completed::Now => self.finish(process, now_ns),
                Some(true) | None => self.finish(process, self.expected_end(now_ns)),
            }
        }
        true
    }

    /// When what has no marker was done, if it is found to be done now: halfway since it was found not to be; if nobody has
    /// looked yet, as it was estimated.
    fn expected_end(&self, now_ns: u64) -> u64 {
        let State::Busy(charged_ns) = self.state else { return now_ns };
        let from = charged_ns.max(self.unmarked.first_ns());
        if self.pending_ns > self.launched_ns {
            return u64::midpoint(from, now_ns);
        }
        from.saturating_add(self.unmarked.remaining_ns()).min(now_ns)
    }

    /// All that was launched is done, at this moment.
    pub(super) fn finish(&mut self, process: &'static Process, now_ns: u64) {
        if self.next_marker().is_some_and(|next| next.is_start) {
            self.pop_marker();
            if let State::Busy(from) = self.state {
                self.state = State::Busy(from.max(self.pending_ns));
            }
        }
        self.charge(process, now_ns);
        while self.pending > 0 {
            let batch = self.markers.get(self.next).map(|marker| marker.batch);
            self.pop_marker();
            self.complete(process, batch.unwrap_or_default());
        }
        let unmarked = core::mem::take(&mut self.unmarked);
        self.complete(process, unmarked);
        self.state = State::Idle;
    }

    /// Forgets the events, which are gone with their context or are to be destroyed.
    pub(super) fn lose_events(&mut self, is_context_alive: bool) {
        for marker in &mut self.markers {
            if marker.event != NO_EVENT && is_context_alive {
                // SAFETY: an event of ours, which nobody uses any more.
                let _destroyed = unsafe { cuEventDestroy_v2(marker.event) };
            }
            marker.event = NO_EVENT;
        }
    }

    /// Takes over the events of a stream of the same context, whose work is done.
    pub(super) fn keep_events(&mut self, other: &Self) {
        for (marker, other) in self.markers.iter_mut().zip(&other.markers) {
            marker.event = other.event;
        }
    }

    fn fail(&mut self, process: &'static Process, now_ns: u64) {
        self.finish(process, now_ns);
        self.lose_events(false);
    }

    /// Passes the next marker, which was reached.
    fn pass_marker(&mut self, process: &'static Process, stream: &Stream, marker: &Marker, now_ns: u64) {
        let before = self.last_reached_ns;
        let reached = self.reached_at(stream, marker, now_ns);
        if marker.is_start {
            self.begin_work(marker.recorded_ns, before, reached);
        } else {
            self.charge(process, reached);
        }
        let batch = self.next_marker().map(|marker| marker.batch).unwrap_or_default();
        self.pop_marker();
        if let Some(gap_ns) = self.gap_ns.take_if(|_| !marker.is_start)
            && batch.launches() == 1
        {
            let busy_ns = reached.saturating_sub(before);
            self.duty.observe(busy_ns, busy_ns.saturating_add(gap_ns));
        }
        self.complete(process, batch);
    }

    /// The card has come to a launch, which began to be one at this moment; what was before it in the stream was done
    /// earlier.
    fn begin_work(&mut self, launched_ns: u64, before_ns: u64, reached_ns: u64) {
        if !self.is_idle() {
            self.state = State::Busy(reached_ns);
        }
        // Longer gaps are between batches, which aren't charged for them.
        let gap_ns = launched_ns.saturating_sub(before_ns);
        self.gap_ns = (launched_ns == self.paired_ns && gap_ns < MARKER_INTERVAL_NS).then_some(gap_ns);
        let has_waited = reached_ns.saturating_sub(launched_ns.max(before_ns)) > WAITED_NS;
        if let Some(card) = Card::of(self.card).filter(|_| has_waited) {
            card.begin_slice();
        }
    }

    /// When a marker was reached.
    fn reached_at(&mut self, stream: &Stream, marker: &Marker, now_ns: u64) -> u64 {
        let not_before = marker.recorded_ns.max(self.pending_ns).max(self.last_reached_ns).min(now_ns);
        let front = self.markers.get_mut(self.next).zip(Card::of(self.card));
        self.last_reached_ns =
            front.map_or(now_ns, |(next, card)| card.reached_at(stream.context, &mut next.event, not_before, now_ns));
        self.last_reached_ns
    }

    /// The marker to be reached next.
    fn next_marker(&self) -> Option<&Marker> {
        self.markers.get(self.next).filter(|_| self.pending > 0)
    }

    fn pop_marker(&mut self) {
        self.next = (self.next + 1) % MARKERS;
        self.pending = self.pending.saturating_sub(1);
    }

    /// Charges the time up to this moment to the work that is to be done next, from its first launch on.
    fn charge(&mut self, process: &'static Process, to: u64) {
        let State::Busy(from) = self.state else { return };
        if to <= from {
            return;
        }
        if let Some(start) = self.next_marker().filter(|next| next.is_start) {
            // It waits for its turn; or for what isn't the card's, and then others are served as if it had no work.
            if to.saturating_sub(start.recorded_ns) > LONGEST_WAIT_NS
                && let Some(account) = process.account(self.card)
            {
                let behind = (self.next + 1) % MARKERS;
                let waiting =
                    if self.pending > 1 { self.markers.get_mut(behind).map(|marker| &mut marker.batch) } else { None };
                waiting.unwrap_or(&mut self.unmarked).expect_no_more(account);
            }
            return;
        }
        self.state = State::Busy(to);
        let front =
            if self.pending > 0 { self.markers.get_mut(self.next).map(|marker| &mut marker.batch) } else { None };
        let front = front.unwrap_or(&mut self.unmarked);
        let from = from.max(front.first_ns());
        if let Some(card) = Card::of(self.card).filter(|_| from < to) {
            card.charge(process, self.card, (from, to), front, &self.duty);
        }
    }

    fn complete(&mut self, process: &'static Process, mut batch: Batch) {
        if batch.is_empty() {
            return;
        }
        if let (Some(card), Some(account)) = (Card::of(self.card), process.account(self.card)) {
            batch.complete(account);
            card.observe(&batch);
        }
    }
}
