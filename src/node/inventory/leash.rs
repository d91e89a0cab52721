//! How a thread learns that it is no longer wanted.

use std::convert::Infallible;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Kept by whoever wants the thread; letting it go ends the thread.
pub(super) struct Holder {
    /// Nothing is ever sent: that it is dropped says it all.
    _held: Sender<Infallible>,
}

/// Kept by the thread.
pub(super) struct Leash(Receiver<Infallible>);

/// Both ends.
pub(super) fn leash() -> (Holder, Leash) {
    let (held, leash) = mpsc::channel();
    (Holder { _held: held }, Leash(leash))
}

// === impl Leash ===

impl Leash {
    /// Sleeps; false as soon as the thread is no longer wanted.
    pub(super) fn pause(&self, duration: Duration) -> bool {
        self.0.recv_timeout(duration) == Err(RecvTimeoutError::Timeout)
    }
}
