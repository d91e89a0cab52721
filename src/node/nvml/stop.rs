//! How a thread learns that it is no longer wanted.

use std::convert::Infallible;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Kept by whoever wants the thread; letting it go ends the thread.
pub(super) struct StopHandle {
    /// Nothing is ever sent: that it is dropped says it all.
    _held: Sender<Infallible>,
}

/// Kept by the thread.
pub(super) struct StopSignal(Receiver<Infallible>);

/// Both ends.
pub(super) fn pair() -> (StopHandle, StopSignal) {
    let (held, stop) = mpsc::channel();
    (StopHandle { _held: held }, StopSignal(stop))
}

// === impl StopSignal ===

impl StopSignal {
    /// Sleeps; false as soon as the thread is no longer wanted.
    pub(super) fn pause(&self, duration: Duration) -> bool {
        self.0.recv_timeout(duration) == Err(RecvTimeoutError::Timeout)
    }
}
