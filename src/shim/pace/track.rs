//! The work of one stream: when it began, and which of it is done.
//!
//! Markers are events that the program's own threads record behind launches. Nothing else is recorded: a poll only asks
//! whether markers were reached, and a stream that has none after its last launches whether it is empty.

use divvy_region::Estimate;

use super::card::Card;
use super::draw::Draw;
use super::duty::Duty;
use super::stream::Stream;
use super::work::{Batch, Work};
use crate::cuda::{ERROR_DEINITIALIZED, ERROR_NOT_READY, SUCCESS};
use crate::driver::cuda::cuEventQuery;
use crate::process::Process;
use markers::{Marker, MarkerKind, Markers};

mod markers;

/// Time after the last marker at which one is put before the next launch, if nothing was launched meanwhile, ns: recording one
/// costs a microsecond or two.
const MARKER_INTERVAL_NS: u64 = 300_000;
/// Time after the last marker at which a launch is marked although it isn't drawn, ns.
const LONGEST_UNMARKED_NS: u64 = 16 * MARKER_INTERVAL_NS;
/// How long nothing was launched before a stream without pending markers is queried, ns: what is done by then is charged by
/// estimate.
const QUERY_AFTER_NS: u64 = 500_000;
/// What waits so much longer for the card than its own stream's work took has waited for others' turns.
const WAITED_NS: u64 = 50_000;
/// Who waits longer than that, 25 turns of others, waits for something else than its turn.
const LONGEST_WAIT_NS: u64 = 50_000_000;

/// The state of a stream.
pub(super) struct Track {
    /// The card's position in the limits file.
    pub(super) card: usize,
    markers: Markers,
    /// Launches behind the last marker.
    unmarked: Batch,
    state: State,
    launches: u64,
    launched_ns: u64,
    /// Whether a thread of the program's waits for all that was launched.
    has_waiter: bool,
    /// When the last marker was recorded.
    marked_ns: u64,
    draw: Draw,
    /// Whether the next launch is to be between two markers.
    is_enclosed: bool,
    /// Whether the launch that begins is.
    has_start: bool,
    /// The gap before the launch whose start marker was reached last, ns; if it is one of those between launches.
    gap_ns: Option<u64>,
    duty: Duty,
    /// The last moment at which the next marker wasn't reached.
    pending_ns: u64,
    last_reached_ns: u64,
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

// === impl Track ===

impl Track {
    pub(super) const fn new() -> Self {
        Self {
            card: 0,
            markers: Markers::new(),
            unmarked: Batch::new(),
            state: State::Idle,
            launches: 0,
            launched_ns: 0,
            has_waiter: false,
            marked_ns: 0,
            draw: Draw::new(),
            is_enclosed: false,
            has_start: false,
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
        let front = self.markers.next().map(|marker| &marker.batch);
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
        self.markers.ends() == 0 && self.has_unmarked()
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
        let kind = if self.is_enclosed { MarkerKind::PairedStart } else { MarkerKind::Start };
        if (self.is_enclosed || self.is_marked_before(now_ns, MARKER_INTERVAL_NS))
            && self.record_marker(stream, now_ns, kind)
        {
            self.has_start = true;
        }
    }

    /// Work was launched that had begun to be so at this moment.
    #[inline]
    pub(super) fn launched(&mut self, stream: &Stream, work: Work, estimate: Estimate, began_ns: u64) {
        if !self.unmarked.accepts(work, began_ns) {
            self.record_marker(stream, began_ns, MarkerKind::End);
        }
        self.unmarked.add(work, estimate, began_ns);
        if self.is_idle() {
            self.state = State::Busy(began_ns);
        }
        self.launches += 1;
        self.launched_ns = began_ns;
        self.has_waiter = false;
        let is_drawn = self.draw.draws(began_ns);
        // What can't be asked later is marked at once.
        let is_marked = stream.thread != 0 || self.has_start || self.is_marked_before(began_ns, LONGEST_UNMARKED_NS);
        if is_drawn || is_marked {
            // In a thread's own stream every launch is marked, and around one in a row no gap is left between two.
            let is_enclosed = self.record_marker(stream, began_ns, MarkerKind::End) && is_drawn && stream.thread == 0;
            (self.is_enclosed, self.has_start) = (is_enclosed, false);
        }
    }

    /// Whether the last marker was recorded so long before this moment, or by a clock that was set back since.
    fn is_marked_before(&self, now_ns: u64, ns: u64) -> bool {
        now_ns.checked_sub(self.marked_ns).is_none_or(|since_ns| since_ns >= ns)
    }

    /// Records a marker behind what was launched, before the program is held back.
    pub(super) fn mark_rest(&mut self, stream: &Stream, now_ns: u64) {
        // How long it is held back isn't how long it would have left the card alone.
        self.is_enclosed = false;
        if !self.unmarked.is_empty() {
            self.record_marker(stream, now_ns, MarkerKind::End);
        }
    }

    /// Records a marker behind all that was launched; false if it couldn't be, then that stays unmarked.
    fn record_marker(&mut self, stream: &Stream, now_ns: u64, kind: MarkerKind) -> bool {
        if !self.markers.record(stream, now_ns, self.unmarked, kind) {
            return false;
        }
        self.unmarked = Batch::new();
        self.marked_ns = now_ns;
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
        while let Some(marker) = self.markers.next().copied() {
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
        } else if now_ns.saturating_sub(self.launched_ns) >= QUERY_AFTER_NS {
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
        if self.markers.is_start_next() {
            self.markers.pop();
            if let State::Busy(from) = self.state {
                self.state = State::Busy(from.max(self.pending_ns));
            }
        }
        self.charge(process, now_ns);
        while let Some(batch) = self.markers.pop() {
            self.complete(process, batch);
        }
        let unmarked = core::mem::take(&mut self.unmarked);
        self.complete(process, unmarked);
        self.state = State::Idle;
    }

    /// As [`Markers::lose_events`].
    pub(super) fn lose_events(&mut self, is_context_alive: bool) {
        self.markers.lose_events(is_context_alive);
    }

    /// As [`Markers::keep_events`].
    pub(super) fn keep_events(&mut self, other: &Self) {
        self.markers.keep_events(&other.markers);
    }

    fn fail(&mut self, process: &'static Process, now_ns: u64) {
        self.finish(process, now_ns);
        self.lose_events(false);
    }

    /// Passes the next marker, which was reached.
    fn pass_marker(&mut self, process: &'static Process, stream: &Stream, marker: &Marker, now_ns: u64) {
        let before = self.last_reached_ns;
        let reached = self.reached_at(stream, marker, now_ns);
        if marker.kind.is_start() {
            self.begin_work(marker, before, reached);
        } else {
            self.charge(process, reached);
        }
        let batch = self.markers.pop().unwrap_or_default();
        if let Some(gap_ns) = self.gap_ns.take_if(|_| !marker.kind.is_start())
            && batch.launches() == 1
        {
            let busy_ns = reached.saturating_sub(before);
            self.duty.observe(busy_ns, busy_ns.saturating_add(gap_ns));
        }
        self.complete(process, batch);
    }

    /// The card has come to the launch behind a marker; what was before that in the stream was done earlier.
    fn begin_work(&mut self, start: &Marker, before_ns: u64, reached_ns: u64) {
        if !self.is_idle() {
            self.state = State::Busy(reached_ns);
        }
        // In longer gaps the stream is found empty, and no batch is charged for them.
        let gap_ns = start.recorded_ns.saturating_sub(before_ns);
        self.gap_ns = (start.kind == MarkerKind::PairedStart && gap_ns < QUERY_AFTER_NS).then_some(gap_ns);
        let has_waited = reached_ns.saturating_sub(start.recorded_ns.max(before_ns)) > WAITED_NS;
        if let Some(card) = Card::at(self.card).filter(|_| has_waited) {
            card.begin_slice();
        }
    }

    /// When a marker was reached.
    fn reached_at(&mut self, stream: &Stream, marker: &Marker, now_ns: u64) -> u64 {
        let not_before = marker.recorded_ns.max(self.pending_ns).max(self.last_reached_ns).min(now_ns);
        let front = self.markers.next_mut().zip(Card::at(self.card));
        self.last_reached_ns =
            front.map_or(now_ns, |(next, card)| card.reached_at(stream.context, &mut next.event, not_before, now_ns));
        self.last_reached_ns
    }

    /// Charges the time up to this moment to the work that is to be done next, from its first launch on.
    fn charge(&mut self, process: &'static Process, to: u64) {
        let State::Busy(from) = self.state else { return };
        if to <= from {
            return;
        }
        if let Some(start) = self.markers.next().filter(|next| next.kind.is_start()) {
            // It waits for its turn; or for what isn't the card's, and then others are served as if it had no work.
            if to.saturating_sub(start.recorded_ns) > LONGEST_WAIT_NS
                && let Some(account) = process.account(self.card)
            {
                let waiting = self.markers.second_mut().map(|marker| &mut marker.batch);
                waiting.unwrap_or(&mut self.unmarked).expect_no_more(account);
            }
            return;
        }
        self.state = State::Busy(to);
        let front = self.markers.next_mut().map(|marker| &mut marker.batch).unwrap_or(&mut self.unmarked);
        let from = from.max(front.first_ns());
        if let Some(card) = Card::at(self.card).filter(|_| from < to) {
            card.charge(process, self.card, (from, to), front, &self.duty);
        }
    }

    fn complete(&mut self, process: &'static Process, mut batch: Batch) {
        if batch.is_empty() {
            return;
        }
        if let (Some(card), Some(account)) = (Card::at(self.card), process.account(self.card)) {
            batch.complete(account);
            card.observe(&batch);
        }
    }
}
