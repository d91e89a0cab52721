//! Stop handles for threads.

use std::convert::Infallible;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Stop handle: dropping it ends the thread.
pub(super) struct StopHandle {
    /// Type of the messages, of which none is ever sent: the thread ends when the sender is dropped.
    _held: Sender<Infallible>,
}

/// Receiver of the thread that ends.
pub(super) struct StopSignal(Receiver<Infallible>);

/// Makes a stop handle and its receiver.
pub(super) fn pair() -> (StopHandle, StopSignal) {
    let (held, stop) = mpsc::channel();
    (StopHandle { _held: held }, StopSignal(stop))
}

// === impl StopSignal ===

impl StopSignal {
    /// Sleeps; false as soon as the thread should end.
    pub(super) fn pause(&self, duration: Duration) -> bool {
        self.0.recv_timeout(duration) == Err(RecvTimeoutError::Timeout)
    }
}
