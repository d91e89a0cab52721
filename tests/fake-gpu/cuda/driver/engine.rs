//! This process's queue to one card.
//!
//! All streams share it: work of one process never overlaps, and runs in the order in which it was submitted. So one number
//! says what is done: all up to it.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use fake_card::Member;

use super::service::Client;

/// Launches that may wait before the next one blocks.
pub(super) const DEPTH: usize = 1024;

/// What an event's marker takes. It has to have the card, as a kernel has.
const MARKER: u64 = 1;

pub(crate) struct Engine {
    pub(crate) member: Member,
    client: Option<Arc<Client>>,
    /// Submitted to the card and not known to be done.
    queue: VecDeque<Item>,
    /// Waits for something other than the card, with all that came after it.
    gated: VecDeque<(u64, Work)>,
    submitted: u64,
    completed: u64,
}

pub(crate) enum Work {
    Run(Run),
    /// An event: the moment at which it is reached goes where this says.
    Mark(Arc<AtomicU64>),
    /// A function of the program's, which what follows waits for.
    Host(HostCall),
    /// Work on another card, by its number.
    Wait {
        device: usize,
        ticket: u64,
    },
}

/// Something that takes the card's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Nanoseconds.
    pub(crate) lasts: u64,
    pub(crate) kernels: u64,
    pub(crate) launches: u64,
}

/// A function of the program's.
#[derive(Clone, Copy)]
pub(crate) enum HostCall {
    Function {
        function: unsafe extern "C" fn(*mut c_void),
        data: usize,
    },
    /// The form of `cuStreamAddCallback`.
    Callback {
        function: unsafe extern "C" fn(usize, u32, *mut c_void),
        stream: usize,
        data: usize,
    },
}

struct Item {
    ticket: u64,
    /// The process's nanoseconds of work up to its end.
    end: u64,
    mark: Option<Arc<AtomicU64>>,
}

/// What the queue waits for.
pub(crate) enum Gate {
    Open,
    /// A function can be called; it is completed by [`Engine::pass`].
    Call(HostCall),
    Wait {
        device: usize,
        ticket: u64,
    },
    /// The card, until about this moment.
    Card(u64),
}

// === impl Engine ===

impl Engine {
    pub(super) fn new(member: Member, client: Option<Arc<Client>>) -> Self {
        Self { member, client, queue: VecDeque::new(), gated: VecDeque::new(), submitted: 0, completed: 0 }
    }

    /// Queues work; its ticket is done when it is.
    pub(crate) fn submit(&mut self, work: Work) -> u64 {
        self.submitted += 1;
        let ticket = self.submitted;
        if self.gated.is_empty() && matches!(work, Work::Run(_) | Work::Mark(_)) {
            self.push(ticket, work);
        } else {
            self.gated.push_back((ticket, work));
        }
        ticket
    }

    /// The ticket of all that was submitted.
    pub(crate) fn last(&self) -> u64 {
        self.submitted
    }

    pub(crate) fn is_gated(&self) -> bool {
        !self.gated.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.completed == self.submitted
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() + self.gated.len() >= DEPTH
    }

    /// Learns what has run.
    pub(crate) fn poll(&mut self) {
        let Self { member, queue, completed, .. } = self;
        if queue.is_empty() {
            return;
        }
        member.ran(|span| {
            while let Some(item) = queue.front().filter(|item| item.end <= span.to) {
                *completed = item.ticket;
                if let Some(mark) = &item.mark {
                    mark.store(span.reached(item.end), Relaxed);
                }
                queue.pop_front();
            }
        });
    }

    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        self.completed >= ticket
    }

    /// When to look next for a ticket that isn't done; `None`: it isn't with the card yet.
    pub(crate) fn expected(&self, ticket: u64) -> Option<u64> {
        let position = self.queue.partition_point(|item| item.ticket < ticket);
        self.queue.get(position).map(|item| self.member.earliest(item.end))
    }

    /// When to look next for room in the queue.
    pub(crate) fn expected_room(&self) -> Option<u64> {
        self.queue.front().map(|item| self.member.earliest(item.end))
    }

    /// What has to happen before gated work can go on.
    pub(crate) fn gate(&self) -> Gate {
        match self.gated.front() {
            Some((ticket, _)) if !self.is_done(ticket - 1) => Gate::Card(self.expected(ticket - 1).unwrap_or(0)),
            Some((_, Work::Host(call))) => Gate::Call(*call),
            Some((_, Work::Wait { device, ticket })) => Gate::Wait { device: *device, ticket: *ticket },
            None | Some((_, Work::Run(_) | Work::Mark(_))) => Gate::Open,
        }
    }

    /// The first gate is passed, and all up to the next goes to the card.
    pub(crate) fn pass(&mut self) {
        if let Some((ticket, Work::Host(_) | Work::Wait { .. })) = self.gated.pop_front() {
            self.completed = ticket;
        }
        while self.gated.front().is_some_and(|(_, work)| matches!(work, Work::Run(_) | Work::Mark(_))) {
            if let Some((ticket, work)) = self.gated.pop_front() {
                self.push(ticket, work);
            }
        }
    }

    fn push(&mut self, ticket: u64, work: Work) {
        let (run, mark) = match work {
            Work::Run(run) => (run, None),
            Work::Mark(mark) => (Run { lasts: MARKER, ..Run::default() }, Some(mark)),
            Work::Host(_) | Work::Wait { .. } => return,
        };
        // Nothing is done without having had the card.
        let lasts = self.client.as_ref().map_or(run.lasts, |client| client.stretched(run.lasts));
        let end = self.member.submit(lasts.max(MARKER), run.kernels, run.launches);
        self.queue.push_back(Item { ticket, end, mark });
    }
}
