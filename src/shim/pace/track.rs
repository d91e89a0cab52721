//! What of a stream is known: when its work began, and what of it is done.
//!
//! Marks are events that the program's own threads record behind launches. Nobody else records anything: who only watches
//! asks whether marks were reached, and a stream that has none after its last launches whether it is empty.

use core::ptr;

use divvy_region::Estimate;

use super::card::Card;
use super::stream::{Relaxed, Stream};
use super::work::{Batch, Work};
use crate::cuda::{CUevent, CUresult, ERROR_DEINITIALIZED, ERROR_NOT_READY, EVENT_DEFAULT, SUCCESS};
use crate::driver::cuda::{cuEventCreate, cuEventDestroy_v2, cuEventQuery, cuEventRecord};
use crate::process::Process;

/// Marks of one stream at a time. When all are on their way, the newest moves on.
const MARKS: usize = 6;
/// How far marks are apart at least, ns: recording one costs a microsecond or two.
const APART_NS: u64 = 200_000;
/// As long as a stream was left alone before it is asked whether it is empty.
const ALONE_NS: u64 = 500_000;

/// The state of a stream.
pub(super) struct Track {
    /// Of the card, in the limits file.
    pub(super) card: usize,
    marks: [Mark; MARKS],
    /// Which of them is the next to be reached.
    head: usize,
    ahead: usize,
    /// Launched behind the last mark.
    loose: Batch,
    state: State,
    launches: u64,
    launched_ns: u64,
    /// A thread of the program's waits for all that was launched.
    is_waited_for: bool,
    marked_ns: u64,
    /// The next mark wasn't reached at this moment.
    pending_ns: u64,
    dated_ns: u64,
}

#[derive(Clone, Copy)]
struct Mark {
    event: CUevent,
    recorded_ns: u64,
    batch: Batch,
    /// It is before work, not behind it.
    is_first: bool,
}

/// When work ended that is found to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Somebody has waited for it.
    Now,
    /// Nobody saw it.
    Sometime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Work was launched at this moment; a mark before it tells when the card comes to it.
    Awaited(u64),
    /// It is busy, and paid for up to this moment.
    Busy(u64),
}

// SAFETY: an event is a handle, which any thread may use.
unsafe impl Send for Mark {}

const UNMADE: CUevent = ptr::null_mut();

// === impl Track ===

impl Track {
    pub(super) const fn new() -> Self {
        let mark = Mark { event: UNMADE, recorded_ns: 0, batch: Batch::new(), is_first: false };
        Self {
            card: 0,
            marks: [mark; MARKS],
            head: 0,
            ahead: 0,
            loose: Batch::new(),
            state: State::Idle,
            launches: 0,
            launched_ns: 0,
            is_waited_for: false,
            marked_ns: 0,
            pending_ns: 0,
            dated_ns: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Whether there is work behind the last mark.
    pub(super) fn is_loose(&self) -> bool {
        !self.loose.is_empty()
    }

    /// What is next to be done has cost so much so far, ns.
    pub(super) fn cost_ns(&self) -> u64 {
        let next = self.marks.get(self.head).filter(|_| self.ahead > 0).map(|mark| &mark.batch);
        next.unwrap_or(&self.loose).cost_ns()
    }

    /// Whether nothing was launched since this moment.
    pub(super) fn was_left_alone_since(&self, ns: u64) -> bool {
        self.launched_ns < ns
    }

    /// A thread of the program's begins to wait for all that was launched so far: how much that is. It looks when it wakes.
    pub(super) fn wait_for(&mut self) -> u64 {
        self.is_waited_for = true;
        self.launches
    }

    /// Whether a thread will look when it is done.
    pub(super) fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// Whether only looks can tell when it is done: nothing of it is marked but its beginning.
    pub(super) fn is_unmarked(&self) -> bool {
        let marks = match self.marks.get(self.head) {
            Some(next) if next.is_first => self.ahead.saturating_sub(1),
            _ => self.ahead,
        };
        marks == 0 && self.is_loose()
    }

    /// How much was launched since the track was made.
    pub(super) fn launches(&self) -> u64 {
        self.launches
    }

    /// Work is about to be launched on an idle stream.
    pub(super) fn begin(&mut self, stream: &Stream, now_ns: u64) {
        self.launched_ns = now_ns;
        if now_ns.saturating_sub(self.marked_ns) >= APART_NS && self.mark(stream, now_ns, true) {
            self.state = State::Awaited(now_ns);
        }
    }

    /// Work was launched that had begun to be so at this moment.
    #[inline]
    pub(super) fn launched(&mut self, stream: &Stream, work: Work, estimate: Estimate, began_ns: u64) {
        if !self.loose.suits(work) {
            self.mark(stream, began_ns, false);
        }
        self.loose.add(work, estimate);
        if self.is_idle() {
            self.state = State::Busy(began_ns);
        }
        self.launches += 1;
        self.launched_ns = began_ns;
        self.is_waited_for = false;
        // What can't be asked later is marked at once.
        if stream.thread != 0 || began_ns.saturating_sub(self.marked_ns) >= APART_NS {
            self.mark(stream, began_ns, false);
        }
    }

    /// Nothing is launched for now: marks what was.
    pub(super) fn pause(&mut self, stream: &Stream, now_ns: u64) {
        if !self.loose.is_empty() {
            self.mark(stream, now_ns, false);
        }
    }

    /// Records a mark behind all that was launched; false if it couldn't be, then that stays unmarked.
    fn mark(&mut self, stream: &Stream, now_ns: u64, is_first: bool) -> bool {
        let is_full = self.ahead >= MARKS;
        if is_full && is_first {
            return false;
        }
        let ahead = if is_full { self.ahead - 1 } else { self.ahead };
        let Some(mark) = self.marks.get_mut((self.head + ahead) % MARKS) else { return false };
        if mark.event == UNMADE {
            let _making = Relaxed::begin();
            // SAFETY: an event is written to an event.
            if unsafe { cuEventCreate(&raw mut mark.event, EVENT_DEFAULT) } != SUCCESS {
                mark.event = UNMADE;
                return false;
            }
        }
        // SAFETY: an event of ours and the stream that the caller launches on, both of the current context.
        if unsafe { cuEventRecord(mark.event, stream.handle()) } != SUCCESS {
            return false;
        }
        mark.recorded_ns = now_ns;
        if is_full {
            mark.batch.join(self.loose);
        } else {
            (mark.batch, mark.is_first) = (self.loose, is_first);
            self.ahead += 1;
        }
        self.loose = Batch::new();
        self.marked_ns = now_ns;
        true
    }

    /// Looks what is done, pays for it, and for what is being done; an error of the driver's if it is of no use any more.
    /// What nobody had seen done `ended` now, or at some time since it was looked at.
    pub(super) fn watch(
        &mut self,
        process: &'static Process,
        stream: &Stream,
        now_ns: u64,
        ended: Ended,
    ) -> Result<(), CUresult> {
        while self.ahead > 0 {
            let Some(mark) = self.marks.get(self.head).copied() else { break };
            // SAFETY: an event of ours, of a context that lives.
            match unsafe { cuEventQuery(mark.event) } {
                SUCCESS => self.reach(process, stream, &mark, now_ns),
                ERROR_NOT_READY => {
                    self.pending_ns = now_ns;
                    self.pay(process, now_ns);
                    return Ok(());
                }
                ERROR_DEINITIALIZED => return Err(ERROR_DEINITIALIZED),
                _ => return Err(self.lose(process, now_ns)),
            }
        }
        if self.is_idle() {
            return Ok(());
        }
        if self.loose.is_empty() {
            self.state = State::Idle;
        } else if now_ns.saturating_sub(self.launched_ns) >= ALONE_NS {
            match stream.is_empty() {
                Some(false) => {
                    self.pending_ns = now_ns;
                    self.pay(process, now_ns);
                }
                Some(true) | None if ended == Ended::Now => self.finish(process, now_ns),
                Some(true) | None => self.finish(process, self.expected_end(now_ns)),
            }
        }
        Ok(())
    }

    /// When what has no mark was done, if it is found to be done now: halfway since it was found not to be; if nobody has
    /// looked yet, as it was estimated.
    fn expected_end(&self, now_ns: u64) -> u64 {
        match self.state {
            State::Busy(paid_ns) if self.pending_ns > self.launched_ns => u64::midpoint(paid_ns, now_ns),
            State::Busy(paid_ns) => paid_ns.saturating_add(self.loose.left_ns()).min(now_ns),
            _ => now_ns,
        }
    }

    /// All that was launched is done, at this moment.
    pub(super) fn finish(&mut self, process: &'static Process, now_ns: u64) {
        self.pay(process, now_ns);
        while self.ahead > 0 {
            let batch = self.marks.get(self.head).map(|mark| mark.batch);
            self.pass();
            self.settle(process, batch.unwrap_or_default());
        }
        let loose = core::mem::take(&mut self.loose);
        self.settle(process, loose);
        self.state = State::Idle;
    }

    /// Its events are gone with the context, or are to go with it.
    pub(super) fn lose_events(&mut self, is_context_alive: bool) {
        for mark in &mut self.marks {
            if mark.event != UNMADE && is_context_alive {
                // SAFETY: an event of ours, which nobody uses any more.
                let _destroyed = unsafe { cuEventDestroy_v2(mark.event) };
            }
            mark.event = UNMADE;
        }
    }

    /// Takes over the events of a stream of the same context, whose work is done.
    pub(super) fn keep_events(&mut self, other: &Self) {
        for (mark, other) in self.marks.iter_mut().zip(&other.marks) {
            mark.event = other.event;
        }
    }

    fn lose(&mut self, process: &'static Process, now_ns: u64) -> CUresult {
        self.finish(process, now_ns);
        self.lose_events(false);
        SUCCESS
    }

    /// The next mark was reached.
    fn reach(&mut self, process: &'static Process, stream: &Stream, mark: &Mark, now_ns: u64) {
        let reached = self.date(stream, mark, now_ns);
        match self.state {
            State::Awaited(launched) if mark.is_first => {
                let begins = |card: &Card| card.begins(process, self.card, launched, reached);
                self.state = State::Busy(Card::of(self.card).map_or(reached, begins));
            }
            _ => self.pay(process, reached),
        }
        let batch = self.marks.get(self.head).map(|mark| mark.batch);
        self.pass();
        self.settle(process, batch.unwrap_or_default());
    }

    /// When a mark was reached.
    fn date(&mut self, stream: &Stream, mark: &Mark, now_ns: u64) -> u64 {
        let not_before = mark.recorded_ns.max(self.pending_ns).max(self.dated_ns).min(now_ns);
        let next = self.marks.get_mut(self.head).zip(Card::of(self.card));
        self.dated_ns =
            next.map_or(now_ns, |(next, card)| card.date(stream.context, &mut next.event, not_before, now_ns));
        self.dated_ns
    }

    fn pass(&mut self) {
        self.head = (self.head + 1) % MARKS;
        self.ahead = self.ahead.saturating_sub(1);
    }

    /// Pays for the time up to this moment, on behalf of what is next to be done.
    fn pay(&mut self, process: &'static Process, to: u64) {
        let State::Busy(from) = self.state else { return };
        if to <= from {
            return;
        }
        self.state = State::Busy(to);
        let next = if self.ahead > 0 { self.marks.get_mut(self.head).map(|mark| &mut mark.batch) } else { None };
        if let Some(card) = Card::of(self.card) {
            card.pay(process, self.card, (from, to), next.unwrap_or(&mut self.loose));
        }
    }

    fn settle(&mut self, process: &'static Process, mut batch: Batch) {
        if batch.is_empty() {
            return;
        }
        if let (Some(card), Some(account)) = (Card::of(self.card), process.account(self.card)) {
            batch.settle(account);
            card.observe(&batch);
        }
    }
}
