//! End of the daemon's tasks.

use std::time::Duration;

use divvy_runtime::{Signals, Tasks};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Action after the daemon's tasks have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Exit, after a signal.
    Exit,
    /// Restart with another configuration.
    Start,
}

/// Runs until a signal or another configuration, then until `drained`, or until a task fails; then ends all tasks.
pub(super) async fn until_over(
    mut tasks: Tasks,
    mut signals: Signals,
    reconfigured: impl Future<Output = ()>,
    drained: impl Future<Output = ()>,
    stop: &CancellationToken,
    patience: Duration,
) -> anyhow::Result<Next> {
    let mut next = tokio::select! {
        name = signals.next() => {
            info!(signal = name, "stopping");
            Ok(Next::Exit)
        }
        () = reconfigured => Ok(Next::Start),
        failure = tasks.failure() => Err(failure),
    };
    if next.is_ok() {
        tokio::select! {
            () = drained => {}
            () = tokio::time::sleep(patience) => warn!(timeout = ?patience, "stopping although pods are still waiting for GPUs"),
            name = signals.next() => next = Ok(told_again(name, &next)?),
        }
    }
    stop.cancel();
    tokio::select! {
        () = tasks.end() => {}
        () = tokio::time::sleep(patience) => warn!(timeout = ?patience, "tasks didn't end before the timeout"),
        name = signals.next() => next = Ok(told_again(name, &next)?),
    }
    next
}

/// A second signal aborts; the first may come while the daemon is about to restart.
fn told_again(name: &'static str, next: &anyhow::Result<Next>) -> anyhow::Result<Next> {
    anyhow::ensure!(matches!(next, Ok(Next::Start)), "{name} while stopping: aborted");
    info!(signal = name, "stopping");
    Ok(Next::Exit)
}
