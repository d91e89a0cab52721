//! A failure that lasts or comes and goes, logged at growing distance.

use std::time::{Duration, Instant};

/// One failure: which of its occurrences are logged.
///
/// The first one is, later ones after [`DISTANCES`], and the end if the beginning was. A failure that comes back before it has
/// been away for as long as the present distance goes on where it was: one that comes and goes is logged as rarely as one that lasts.
#[derive(Debug)]
pub(crate) struct Outage {
    /// The first failure.
    since: Instant,
    failures: u64,
    /// The last failure, or the end.
    last: Instant,
    has_ended: bool,
    /// Whether a failure was logged after the last logged end.
    is_logged: bool,
    /// When a cause that was logged before is logged again, and the place of the next distance.
    quiet_until: Instant,
    step: usize,
    causes: Vec<String>,
}

/// Time from a logged failure to the next one, again and again the last of these.
const DISTANCES: [Duration; 3] = [Duration::from_secs(10), Duration::from_secs(60), Duration::from_secs(600)];
/// Most causes that are logged as soon as they occur; further ones may be variations of one text.
const CAUSES: usize = 4;

// === impl Outage ===

impl Outage {
    /// An outage whose first failure is still to be counted.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            failures: 0,
            last: now,
            has_ended: false,
            is_logged: false,
            quiet_until: now,
            step: 0,
            causes: Vec::new(),
        }
    }

    /// Counts a failure. Returns what to add to its log line, or `None` if it isn't to be logged.
    pub(crate) fn failed(&mut self, cause: &str, now: Instant) -> Option<String> {
        if self.has_ended && now >= self.last + self.distance() {
            *self = Self::new(now);
        }
        (self.has_ended, self.last) = (false, now);
        self.failures += 1;
        let is_new = self.causes.len() < CAUSES && !self.causes.iter().any(|known| known == cause);
        if now < self.quiet_until && !is_new {
            return None;
        }
        if now >= self.quiet_until {
            self.quiet_until = now + DISTANCES[self.step.min(DISTANCES.len() - 1)];
            self.step += 1;
        }
        if is_new {
            self.causes.push(cause.to_owned());
        }
        self.is_logged = true;
        let lasted = seconds(now - self.since);
        Some(if self.failures == 1 { String::new() } else { format!(" ({} failures in {lasted})", self.failures) })
    }

    /// Ends it. Returns how long it lasted in all, if the end is to be logged.
    pub(crate) fn ended(&mut self, now: Instant) -> Option<String> {
        if !self.has_ended {
            (self.has_ended, self.last) = (true, now);
        }
        std::mem::take(&mut self.is_logged).then(|| seconds(now - self.since))
    }

    /// Whether what happened is too long ago to matter: what was asked isn't asked any more, or succeeds.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.last + 2 * DISTANCES[DISTANCES.len() - 1]
    }

    /// Time between the last logged failure and the next.
    fn distance(&self) -> Duration {
        DISTANCES[self.step.saturating_sub(1).min(DISTANCES.len() - 1)]
    }
}

/// As people write it, to the second.
pub(crate) fn seconds(time: Duration) -> String {
    let whole = Duration::from_secs(time.as_secs());
    if whole.is_zero() { format!("{}ms", time.as_millis()) } else { humantime::format_duration(whole).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which a failure in every second of `times` is logged, with what is added.
    fn logged(outage: &mut Outage, start: Instant, times: impl Iterator<Item = u64>) -> Vec<(u64, String)> {
        times.filter_map(|at| Some((at, outage.failed("refused", start + Duration::from_secs(at))?))).collect()
    }

    #[test]
    fn lasting_failure_is_logged_at_growing_distance() {
        let start = Instant::now();
        let mut outage = Outage::new(start);
        let logged = logged(&mut outage, start, 0..1900);
        let times: Vec<u64> = logged.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 10, 70, 670, 1270, 1870]);
        assert_eq!((&*logged[0].1, &*logged[2].1), ("", " (71 failures in 1m 10s)"));
        let end = start + Duration::from_secs(1900);
        assert_eq!(outage.ended(end).as_deref(), Some("31m 40s"));
        assert_eq!(outage.ended(end), None, "once");
    }

    #[test]
    fn another_cause_is_logged_at_once_but_not_every_one() {
        let start = Instant::now();
        let mut outage = Outage::new(start);
        let mut logs = |cause: &str, at| outage.failed(cause, start + Duration::from_secs(at)).is_some();
        assert!(logs("refused", 0) && logs("timeout", 1) && !logs("refused", 2) && !logs("timeout", 3));
        let numbered = (0..100).filter(|number| logs(&format!("error {number}"), 4)).count();
        assert_eq!(numbered, CAUSES - 2);
    }

    #[test]
    fn failure_that_comes_and_goes_is_logged_as_rarely() {
        let start = Instant::now();
        let mut outage = Outage::new(start);
        let mut lines = 0;
        for at in (0..600).step_by(2).map(Duration::from_secs) {
            lines += u32::from(outage.failed("timeout", start + at).is_some());
            lines += u32::from(outage.ended(start + at + Duration::from_secs(1)).is_some());
        }
        assert_eq!(lines, 6, "at 0, 10 and 70 s, and an end after each");
    }

    #[test]
    fn failure_after_a_long_success_is_a_new_one() {
        let start = Instant::now();
        let mut outage = Outage::new(start);
        assert_eq!(logged(&mut outage, start, 0..30).len(), 2);
        outage.ended(start + Duration::from_secs(30));
        assert_eq!(logged(&mut outage, start, 60..61), [], "away for 30 s, where the next line is due after 60");
        outage.ended(start + Duration::from_secs(61));
        assert_eq!(logged(&mut outage, start, 121..122), [(121, String::new())]);
        assert!(
            !outage.is_over(start + Duration::from_secs(1320)) && outage.is_over(start + Duration::from_secs(1321))
        );
    }
}
