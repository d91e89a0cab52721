//! This process's work on one card.
//!
//! Streams run beside each other: a kernel here is too small to fill the card. What each waits for are its own earlier work
//! and whatever else it was told to wait for.
//!
//! Time is counted in nanoseconds for which the process had the card; [`fake_card`] says when those were. All work that
//! depends on nothing else has its end settled as soon as it is submitted. What waits for memory, for a function of the
//! program's or for another card has none before that has happened, nor has what comes behind it; a kernel that waits so
//! has the card meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fake_card::{FOREVER, Member, Span};

use super::service::Client;
use super::work::{HostCall, Task, Work};

/// Launches of a stream that may wait before the next one blocks.
const DEPTH: usize = 1024;

/// Spans that are remembered, for the dates of what turns out to have happened a while ago.
const REMEMBERED: usize = 1024;

pub(crate) struct Engine {
    pub(crate) member: Member,
    client: Option<Arc<Client>>,
    /// What isn't done.
    open: BTreeMap<u64, Item>,
    /// Those of it whose end is settled: end and ticket.
    ends: BTreeSet<(u64, u64)>,
    /// Those whose turn it is, or will be at a known time, and whose end depends on something else.
    waiting: BTreeSet<u64>,
    /// Launches of each stream that aren't done.
    depths: BTreeMap<usize, usize>,
    spans: VecDeque<Span>,
    submitted: u64,
    /// Contexts whose work has failed.
    faulty: BTreeSet<usize>,
}

/// Work of a stream. Times are nanoseconds of card that the process had.
struct Item {
    stream: usize,
    work: Work,
    /// Not before this.
    from: u64,
    /// Nor before the end of these, which isn't settled.
    behind: Vec<u64>,
    end: Option<u64>,
    /// The function was called.
    is_called: bool,
}

// === impl Engine ===

impl Engine {
    pub(super) fn new(member: Member, client: Option<Arc<Client>>) -> Self {
        Self {
            member,
            client,
            open: BTreeMap::new(),
            ends: BTreeSet::new(),
            waiting: BTreeSet::new(),
            depths: BTreeMap::new(),
            spans: VecDeque::new(),
            submitted: 0,
            faulty: BTreeSet::new(),
        }
    }

    /// Queues work of a stream behind other work of this card; its ticket is done when it is.
    pub(crate) fn submit(&mut self, stream: usize, behind: impl IntoIterator<Item = u64>, work: Work) -> u64 {
        self.submitted += 1;
        let ticket = self.submitted;
        *self.depths.entry(stream).or_default() += 1;
        let (kernels, launches) = work.counts();
        let member = self.member;
        member.demand(kernels, launches, |served| {
            let mut item = Item { stream, work, from: served, behind: Vec::new(), end: None, is_called: false };
            for before in behind {
                match self.open.get(&before).map(|before| before.end) {
                    Some(Some(end)) => item.from = item.from.max(end),
                    Some(None) => item.behind.push(before),
                    None => {}
                }
            }
            self.open.insert(ticket, item);
            self.settle(ticket);
            self.wanted()
        });
        ticket
    }

    /// The ticket of what was submitted last.
    pub(crate) fn last(&self) -> u64 {
        self.submitted
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn is_full(&self, stream: usize) -> bool {
        self.depths.get(&stream).is_some_and(|depth| *depth >= DEPTH)
    }

    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        !self.open.contains_key(&ticket)
    }

    /// Whether that and all that was submitted before is done.
    pub(crate) fn is_all_done(&self, ticket: u64) -> bool {
        self.open.first_key_value().is_none_or(|(first, _)| *first > ticket)
    }

    pub(crate) fn is_faulty(&self, context: usize) -> bool {
        self.faulty.contains(&context)
    }

    /// Forgets a context that has ended.
    pub(crate) fn forget(&mut self, context: usize) {
        self.faulty.remove(&context);
    }

    /// Learns what has run. Whether something goes on that waited.
    pub(crate) fn poll(&mut self) -> bool {
        if self.open.is_empty() {
            return false;
        }
        let Self { member, spans, .. } = self;
        member.ran(|span| match spans.back_mut().filter(|last| last.from == span.from) {
            Some(last) => *last = span,
            None => spans.push_back(span),
        });
        self.spans.drain(..self.spans.len().saturating_sub(REMEMBERED));
        let mut goes_on = false;
        loop {
            self.retire();
            let happened = self.happened();
            if happened.is_empty() {
                break;
            }
            goes_on = true;
            for (ticket, end) in happened {
                self.end(ticket, end);
            }
        }
        if goes_on {
            self.demand();
        }
        goes_on
    }

    /// When to look next for a ticket that isn't done; `None`: that depends on something else than the card.
    pub(crate) fn expected(&self, ticket: u64) -> Option<u64> {
        self.open.get(&ticket)?.end.map(|end| self.member.earliest(end))
    }

    /// When to look next for all of them.
    pub(crate) fn expected_all(&self) -> Option<u64> {
        let (end, _) = self.ends.last().filter(|_| self.waiting.is_empty())?;
        Some(self.member.earliest(*end))
    }

    /// When to look next for room in a stream's queue.
    pub(crate) fn expected_room(&self, stream: usize) -> Option<u64> {
        let first = self.open.values().find(|item| item.stream == stream)?;
        first.end.map(|end| self.member.earliest(end))
    }

    /// A function whose turn it is, by its ticket. It is handed out once.
    pub(crate) fn call(&mut self) -> Option<(u64, HostCall)> {
        let served = self.served();
        let turn = |ticket: &u64| {
            let item = self.open.get(ticket).filter(|item| item.from <= served && !item.is_called)?;
            let Work::Host(call) = item.work else { return None };
            Some((*ticket, call))
        };
        let (ticket, call) = self.waiting.iter().find_map(turn)?;
        self.open.get_mut(&ticket)?.is_called = true;
        Some((ticket, call))
    }

    /// What waits for another card: own ticket, that card and its ticket.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (u64, usize, u64)> {
        self.waiting.iter().filter_map(|ticket| match self.open.get(ticket)?.work {
            Work::Wait { device, ticket: other } => Some((*ticket, device, other)),
            _ => None,
        })
    }

    /// What a ticket waited for has happened.
    pub(crate) fn pass(&mut self, ticket: u64) {
        if let Some(item) = self.open.get(&ticket) {
            let end = item.from.max(self.served());
            self.end(ticket, end);
            self.retire();
            self.demand();
        }
    }

    /// Whether something waits that nobody tells when it goes on.
    pub(crate) fn must_look(&self) -> bool {
        self.waiting.iter().filter_map(|ticket| self.open.get(ticket)).any(|item| !item.is_called)
    }

    /// Nanoseconds of card that the process had, as far as it has looked.
    fn served(&self) -> u64 {
        self.spans.back().map_or(0, |last| last.to)
    }

    /// Until when the process wants the card.
    fn wanted(&self) -> u64 {
        let spins = |ticket: &u64| self.open.get(ticket).is_some_and(|item| matches!(item.work, Work::Kernel(_)));
        if self.waiting.iter().any(spins) { FOREVER } else { self.ends.last().map_or(0, |(end, _)| *end) }
    }

    fn demand(&mut self) {
        self.member.demand(0, 0, |_served| self.wanted());
    }

    /// Settles the end of what waits for the end of nothing else, if that can be done yet.
    fn settle(&mut self, ticket: u64) {
        let Some(item) = self.open.get(&ticket).filter(|item| item.behind.is_empty()) else { return };
        match item.work.lasts() {
            // Nothing is done without having had the card.
            Some(lasts) => {
                let lasts = self.client.as_ref().map_or(lasts, |client| client.stretched(lasts));
                self.end(ticket, item.from.saturating_add(lasts));
            }
            None => drop(self.waiting.insert(ticket)),
        }
    }

    /// Settles an end, and what depended on that.
    fn end(&mut self, ticket: u64, end: u64) {
        let Some(item) = self.open.get_mut(&ticket) else { return };
        item.end = Some(end);
        self.ends.insert((end, ticket));
        self.waiting.remove(&ticket);
        let mut free = Vec::new();
        for (follower, item) in self.open.range_mut(ticket + 1..).filter(|(_, item)| item.behind.contains(&ticket)) {
            item.behind.retain(|before| *before != ticket);
            item.from = item.from.max(end);
            free.push(*follower);
        }
        for follower in free {
            self.settle(follower);
        }
    }

    /// Ends what was to end by now.
    fn retire(&mut self) {
        let served = self.served();
        while let Some((end, ticket)) = self.ends.first().copied().filter(|(end, _)| *end <= served) {
            self.ends.pop_first();
            let Some(item) = self.open.remove(&ticket) else { continue };
            if let Some(depth) = self.depths.get_mut(&item.stream) {
                *depth -= 1;
                if *depth == 0 {
                    self.depths.remove(&item.stream);
                }
            }
            match item.work {
                Work::Mark(mark) => mark.store(self.date(end - 1).map_or(0, |at| at + 1), Relaxed),
                Work::Kernel(Task::Write(write)) | Work::Write(write) => write.perform(),
                Work::Kernel(Task::Fault(context)) => drop(self.faulty.insert(context)),
                _ => {}
            }
        }
    }

    /// What waited in vain until now, and when it ends.
    fn happened(&self) -> Vec<(u64, u64)> {
        let served = self.served();
        let end = |ticket: &u64| {
            let item = self.open.get(ticket)?;
            match &item.work {
                Work::Await(flag) => (item.from <= served && flag.is_set()).then_some(served),
                Work::Kernel(Task::Spin(flag)) => (item.from < served && flag.is_set()).then_some(served),
                Work::Kernel(Task::Meet(meeting, lasts)) => {
                    meeting.arrive(self.date(item.from)?);
                    Some(self.had_by(meeting.met()?).max(item.from).saturating_add(*lasts))
                }
                _ => None,
            }
        };
        self.waiting.iter().filter_map(|ticket| Some((*ticket, end(ticket)?))).collect()
    }

    /// The moment from which on a nanosecond of card ran; `None`: it hasn't yet.
    fn date(&self, nanosecond: u64) -> Option<u64> {
        let span = self.spans.get(self.spans.partition_point(|span| span.to <= nanosecond))?;
        Some(span.reached(nanosecond))
    }

    /// How much of the card the process had had at a moment.
    fn had_by(&self, moment: u64) -> u64 {
        match self.spans.partition_point(|span| span.at <= moment).checked_sub(1).and_then(|last| self.spans.get(last))
        {
            Some(span) => span.from.saturating_add(moment - span.at).min(span.to),
            None => 0,
        }
    }
}
