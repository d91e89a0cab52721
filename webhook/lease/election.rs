//! Leader election as one candidate sees it. Pure: input are the Lease and this machine's clock.
//!
//! Why two candidates never lead at one time: a leader counts from the moment *before* it sent the renewal that was accepted,
//! and leads for `renew_deadline`. A follower counts from the moment *after* it first saw that renewal, and waits for
//! `duration`, which is longer. Each uses its own clock for one stretch of time, so clocks may differ, but must run at
//! about the same pace: by the defaults one may run half as fast again as the other.

use std::time::{Duration, Instant};

use super::{Candidate, Leader, RELEASED_SECONDS};

/// Fields of the Lease that the election uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acquire {
    /// Name of the holder; empty if there is none.
    pub(super) holder: String,
    /// Time that others wait after the last renewal.
    pub(super) duration: Duration,
    /// `resourceVersion`: every write is a sign of life, and no clock but our own is ever looked at.
    pub(super) version: String,
}

/// Election as one candidate observes it.
#[derive(Debug)]
pub(super) struct Election {
    us: Candidate,
    seen: Option<Seen>,
    held: Option<Held>,
    /// Terms of this candidate so far.
    terms: u64,
    /// Whether this candidate may have written its name into the Lease itself: a container that was restarted finds that of
    /// its predecessor. Once another holder was seen, a name that this candidate didn't try to write was put there by hand.
    has_applied: bool,
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
    /// Whether its holder released it, which shortens the duration. A name that was deleted by hand leaves that as it was,
    /// and the holder, who doesn't know of it, may go on for a while.
    fn is_released(&self) -> bool {
        self.holder.is_empty() && self.duration <= Duration::from_secs(RELEASED_SECONDS.unsigned_abs().into())
    }

    /// Whether this candidate's name stands in it.
    pub(super) fn is_of(&self, identity: &str) -> bool {
        self.holder == identity
    }
}

// === impl Election ===

impl Election {
    pub(super) fn new(us: Candidate) -> Self {
        Self { us, seen: None, held: None, terms: 0, has_applied: true }
    }

    /// Takes in what the Lease says, in an answer that has arrived by `now`.
    pub(super) fn observe(&mut self, acquire: Option<Acquire>, now: Instant) {
        if let Some(acquire) = &acquire
            && !acquire.holder.is_empty()
            && !acquire.is_of(&self.us.identity)
        {
            self.held = None;
            self.has_applied = false;
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
    pub(super) fn may_acquire(&mut self, now: Instant) -> bool {
        let Some(seen) = &self.seen else { return false };
        let at_once = match &seen.acquire {
            None => seen.fresh || self.leads(now),
            Some(acquire) => acquire.is_released() || self.is_ours(acquire) || self.leads(now),
        };
        let may = at_once || self.expires(seen) <= now;
        self.has_applied |= may;
        may
    }

    /// Takes in that this candidate's write, sent at `sent`, was accepted.
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

    /// Ends the term and forgets the Lease.
    pub(super) fn release(&mut self) {
        (self.held, self.seen) = (None, None);
    }

    /// The current leader.
    pub(super) fn leader(&self, now: Instant) -> Leader {
        if let Some(Held { until, term }) = self.held
            && now < until
        {
            return Leader::Us { term, until };
        }
        match self.seen.as_ref().map(|seen| (seen, &seen.acquire)) {
            Some((seen, Some(Acquire { holder, .. })))
                if now < self.expires(seen) && !holder.is_empty() && *holder != self.us.identity =>
            {
                Leader::Other { identity: holder.clone() }
            }
            _ => Leader::Nobody,
        }
    }

    /// When the answer of `leader` changes unless the Lease does.
    pub(super) fn changes_at(&self, now: Instant) -> Option<Instant> {
        match self.leader(now) {
            Leader::Us { until, .. } => Some(until),
            Leader::Other { .. } => self.seen.as_ref().map(|seen| self.expires(seen)),
            Leader::Nobody => None,
        }
    }

    fn is_ours(&self, acquire: &Acquire) -> bool {
        acquire.is_of(&self.us.identity) && self.has_applied
    }

    fn leads(&self, now: Instant) -> bool {
        self.held.is_some_and(|held| now < held.until)
    }

    /// When a Lease that isn't renewed expires: after the holder's duration, but not before our own and not absurdly late.
    fn expires(&self, seen: &Seen) -> Instant {
        let ours = self.us.timing.duration;
        seen.since + seen.acquire.as_ref().map_or(ours, |acquire| acquire.duration.clamp(ours, ours * 10))
    }
}

#[cfg(test)]
mod tests;
