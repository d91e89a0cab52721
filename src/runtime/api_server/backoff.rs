//! Delay between retries.

use std::time::Duration;

use backon::ExponentialBuilder;
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{self, ExponentialBackoff};

use super::Unanswered;

const FIRST: Duration = Duration::from_secs(1);
/// What needs the API server goes on soon after it is back, and readers find its state within 10 s (invariant I2).
const LONGEST: Duration = Duration::from_secs(4);
/// Longest delay while the API server has more to do than it can, before up to as much again is added at random: 5 000 daemons
/// that each tried again within 4 s would keep it so.
const LONGEST_WHILE_OVERLOADED: Duration = Duration::from_secs(32);

/// Delays that double from failure to failure, 1 s to 4 s, without end.
pub fn backoff() -> ExponentialBackoff {
    builder(LONGEST).into()
}

/// Delays of one request until it succeeds: as [`backoff`], and much longer ones while the API server is overloaded.
pub struct Delays {
    away: ExponentialBackoff,
    overloaded: ExponentialBackoff,
}

fn builder(longest: Duration) -> ExponentialBuilder {
    ExponentialBuilder::default().with_min_delay(FIRST).with_max_delay(longest).with_factor(2.0).without_max_times()
}

// === impl Delays ===

impl Default for Delays {
    fn default() -> Self {
        Self { away: backoff(), overloaded: builder(LONGEST_WHILE_OVERLOADED).with_jitter().into() }
    }
}

impl Delays {
    /// Delay after this failure of a request.
    pub fn after(&mut self, error: &kube::Error) -> Duration {
        let delays = if is_overloaded(error) { &mut self.overloaded } else { &mut self.away };
        delays.next().unwrap_or_default()
    }

    /// Delay after this failure of a watch.
    pub(super) fn after_watch(&mut self, error: &watcher::Error) -> Duration {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => self.after(error),
            watcher::Error::WatchError(status) if is_code_of_overload(status.code) => {
                self.overloaded.next().unwrap_or_default()
            }
            watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => self.away.next().unwrap_or_default(),
        }
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.away.reset();
        self.overloaded.reset();
    }
}

/// Whether the API server has more to do than it can, by its answer or by none within the deadline. One that is away refuses
/// connections, which costs nobody anything.
fn is_overloaded(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => is_code_of_overload(status.code),
        kube::Error::Service(cause) => cause.is::<Unanswered>(),
        _ => false,
    }
}

/// Too many requests, by priority and fairness; and timeouts within the API server.
fn is_code_of_overload(code: u16) -> bool {
    matches!(code, 429 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::api_server::unanswered;

    fn refused(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, ..Status::default() }))
    }

    #[test]
    fn overloaded_api_server_is_asked_ever_more_seldom() {
        let mut delays = Delays::default();
        let after = |delays: &mut Delays, error: &kube::Error| delays.after(error).as_secs_f64();
        let away: Vec<f64> =
            (0..4).map(|_| after(&mut delays, &kube::Error::LinesCodecMaxLineLengthExceeded)).collect();
        assert_eq!(away, [1.0, 2.0, 4.0, 4.0]);
        let errors = [refused(429), refused(503), refused(504), unanswered(Duration::from_secs(5))];
        let mut least = 1.0;
        for error in errors.iter().cycle().take(8) {
            let delay = after(&mut delays, error);
            assert!(delay >= least && delay <= 2.0 * least + 0.1, "{delay} instead of {least} to twice as much");
            least = (2.0 * least).min(32.0);
        }
        delays.reset();
        assert!(after(&mut delays, &errors[0]) < 2.1);
    }

    #[test]
    fn many_clients_do_not_come_back_at_one_moment() {
        let delays: Vec<Duration> = (0..20).map(|_| Delays::default().after(&refused(429))).collect();
        assert!(delays.iter().any(|delay| delay.abs_diff(delays[0]) > Duration::from_millis(50)), "{delays:?}");
    }
}
