//! Who leads, as one candidate sees it. Pure: told what the Lease says and what the clock of this machine says.
//!
//! Why two candidates never lead at one time: a leader counts from the moment *before* it sent the renewal that was accepted,
//! and leads for `renew_deadline`. A follower counts from the moment *after* it first saw that renewal, and waits for
//! `duration`, which is longer. Each uses its own clock for one stretch of time, so clocks may differ, but must run at
//! about the same pace: by the defaults one may run half as fast again as the other.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{Candidate, Leader};

/// What a Lease says, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acquire {
    /// Empty: nobody.
    pub(super) holder: String,
    pub(super) address: Option<SocketAddr>,
    /// How long others must wait.
    pub(super) duration: Duration,
    /// `resourceVersion`: every write is a sign of life, and no clock but our own is ever looked at.
    pub(super) version: String,
}

/// One candidate's view.
#[derive(Debug)]
pub(super) struct Election {
    us: Candidate,
    seen: Option<Seen>,
    held: Option<Held>,
    /// Times that we came to lead.
    terms: u64,
}

/// What the Lease said last; `None`: there was none.
#[derive(Debug)]
struct Seen {
    acquire: Option<Acquire>,
    /// Since when it has said so, as far as we know.
    since: Instant,
    /// Nobody was ever seen to hold it.
    fresh: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    until: Instant,
    term: u64,
}

// === impl Acquire ===

impl Acquire {
    /// A holder that gives up takes its address along. A name that was deleted by hand leaves the address behind, and the
    /// holder, who doesn't know of it, may go on for a while.
    fn is_given_up(&self) -> bool {
        self.holder.is_empty() && self.address.is_none()
    }

    /// A name that was written by hand stands beside an address that isn't this candidate's.
    pub(super) fn is_of(&self, candidate: &Candidate) -> bool {
        self.holder == candidate.identity && self.address == Some(candidate.address)
    }
}

// === impl Election ===

impl Election {
    pub(super) fn new(us: Candidate) -> Self {
        Self { us, seen: None, held: None, terms: 0 }
    }

    /// Takes in what the Lease says, in an answer that has arrived by `now`.
    pub(super) fn observe(&mut self, acquire: Option<Acquire>, now: Instant) {
        if let Some(acquire) = &acquire
            && !acquire.holder.is_empty()
            && !acquire.is_of(&self.us)
        {
            self.held = None;
        }
        match &self.seen {
            Some(seen) if seen.acquire == acquire => {}
            before => {
                let fresh = acquire.is_none() && before.as_ref().is_none_or(|before| before.fresh);
                self.seen = Some(Seen { acquire, since: now, fresh });
            }
        }
    }

    /// Whether the Lease may be acquired, or is to be renewed.
    pub(super) fn may_acquire(&self, now: Instant) -> bool {
        let Some(seen) = &self.seen else { return false };
        let at_once = match &seen.acquire {
            None => seen.fresh || self.leads(now),
            Some(acquire) => acquire.is_given_up() || acquire.is_of(&self.us) || self.leads(now),
        };
        at_once || self.expires(seen) <= now
    }

    /// A acquire of ours, sent at `sent`, was accepted.
    pub(super) fn accepted(&mut self, acquire: Acquire, sent: Instant, now: Instant) {
        self.seen = Some(Seen { acquire: Some(acquire), since: now, fresh: false });
        let until = sent + self.us.timing.renew_deadline;
        if until <= now {
            self.held = None;
            return;
        }
        let term = match self.held {
            Some(held) if now < held.until => held.term,
            _ => {
                self.terms += 1;
                self.terms
            }
        };
        self.held = Some(Held { until, term });
    }

    /// We stop leading, and forget what we saw: it is ours no longer.
    pub(super) fn give_up(&mut self) {
        (self.held, self.seen) = (None, None);
    }

    /// Who leads.
    pub(super) fn leader(&self, now: Instant) -> Leader {
        if let Some(Held { until, term }) = self.held
            && now < until
        {
            return Leader::Us { term, until };
        }
        match self.seen.as_ref().map(|seen| (seen, &seen.acquire)) {
            Some((seen, Some(Acquire { holder, address: Some(address), .. })))
                if now < self.expires(seen) && !holder.is_empty() && *address != self.us.address =>
            {
                Leader::Other { identity: holder.clone(), address: *address }
            }
            _ => Leader::Nobody,
        }
    }

    /// When the answer of `leader` changes although nothing is heard.
    pub(super) fn changes_at(&self, now: Instant) -> Option<Instant> {
        match self.leader(now) {
            Leader::Us { until, .. } => Some(until),
            Leader::Other { .. } => self.seen.as_ref().map(|seen| self.expires(seen)),
            Leader::Nobody => None,
        }
    }

    fn leads(&self, now: Instant) -> bool {
        self.held.is_some_and(|held| now < held.until)
    }

    /// When a acquire that isn't renewed is over: the holder's promise counts, but ours too, and none that is absurd.
    fn expires(&self, seen: &Seen) -> Instant {
        let ours = self.us.timing.duration;
        seen.since + seen.acquire.as_ref().map_or(ours, |acquire| acquire.duration.clamp(ours, ours * 10))
    }
}

#[cfg(test)]
mod tests;
