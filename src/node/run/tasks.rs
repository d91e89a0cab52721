//! The daemon's tasks, and the signals that end them.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The daemon's tasks by name. One that ends before it was told to ends the daemon: better restarted than half alive.
#[derive(Default)]
pub(super) struct Tasks(JoinSet<(&'static str, anyhow::Result<()>)>);

/// What follows on the daemon's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: it was told to stop.
    Exit,
    /// It starts anew, with another configuration.
    Start,
}

/// What a task may end with.
pub(super) trait Outcome {
    fn outcome(self) -> anyhow::Result<()>;
}

impl Outcome for () {
    fn outcome(self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Outcome for std::io::Result<()> {
    fn outcome(self) -> anyhow::Result<()> {
        Ok(self?)
    }
}

impl Tasks {
    pub(super) fn spawn<T: Outcome>(&mut self, name: &'static str, task: impl Future<Output = T> + Send + 'static) {
        self.0.spawn(async move { (name, task.await.outcome()) });
    }

    /// Runs until a signal or another configuration, then until `drained`, or until a task fails; then ends all tasks.
    pub(super) async fn until_over(
        mut self,
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
            ended = self.0.join_next() => Err(describe(ended)),
        };
        if next.is_ok() {
            tokio::select! {
                () = drained => {}
                () = tokio::time::sleep(patience) => warn!(timeout = ?patience, "stopping with pods on their way"),
                name = signals.next() => next = Ok(told_again(name, &next)?),
            }
        }
        stop.cancel();
        let ended = async { while self.0.join_next().await.is_some() {} };
        tokio::select! {
            () = ended => {}
            () = tokio::time::sleep(patience) => warn!(timeout = ?patience, "tasks didn't end in time"),
            name = signals.next() => next = Ok(told_again(name, &next)?),
        }
        next
    }
}

/// A second signal aborts; the first may come while the daemon is about to start anew.
fn told_again(name: &'static str, next: &anyhow::Result<Next>) -> anyhow::Result<Next> {
    anyhow::ensure!(matches!(next, Ok(Next::Start)), "{name} while stopping: aborted");
    info!(signal = name, "stopping");
    Ok(Next::Exit)
}

fn describe(ended: Option<Result<(&'static str, anyhow::Result<()>), tokio::task::JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok((name, Err(error)))) => error.context(format!("task {name} failed")),
        Some(Ok((name, Ok(())))) => anyhow::anyhow!("task {name} ended without being told to"),
        Some(Err(error)) => anyhow::anyhow!(error).context("a task broke off"),
        None => anyhow::anyhow!("no task is left"),
    }
}

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! { _ = self.terminate.recv() => "SIGTERM", _ = self.interrupt.recv() => "SIGINT" }
    }
}
