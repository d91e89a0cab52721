//! The webhook's tasks, and the signals that end them.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tracing::{info, warn};

/// The webhook's tasks by name. One that ends before it was told to ends the webhook: better restarted than half alive.
#[derive(Default)]
pub(super) struct Tasks {
    /// Dropped at the end.
    endless: JoinSet<Ended>,
    /// They end when they are told to, and are waited for.
    last: JoinSet<Ended>,
}

/// The name of a task.
type Ended = &'static str;

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

// === impl Tasks ===

impl Tasks {
    /// A task without an end.
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.endless.spawn(async move {
            task.await;
            name
        });
    }

    /// A task that ends its work when it is told to.
    pub(super) fn spawn_last(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.last.spawn(async move {
            task.await;
            name
        });
    }

    /// Runs until a signal, then tells tasks by `retire` to end and waits for them; or until a task fails.
    pub(super) async fn until_over(
        mut self,
        mut signals: Signals,
        retire: impl Future<Output = ()>,
        patience: Duration,
    ) -> anyhow::Result<()> {
        tokio::select! {
            name = signals.next() => info!(signal = name, "stopping"),
            ended = self.endless.join_next() => return Err(describe(ended)),
            ended = self.last.join_next() => return Err(describe(ended)),
        }
        let end = async {
            retire.await;
            let ended = async { while self.last.join_next().await.is_some() {} };
            if tokio::time::timeout(patience, ended).await.is_err() {
                warn!(timeout = ?patience, "stopped with calls on their way");
            }
        };
        tokio::select! {
            () = end => Ok(()),
            name = signals.next() => anyhow::bail!("{name} while stopping: aborted"),
        }
    }
}

fn describe(ended: Option<Result<Ended, JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok(name)) => anyhow::anyhow!("task {name} ended without being told to"),
        Some(Err(error)) => anyhow::anyhow!(error).context("a task broke off"),
        None => anyhow::anyhow!("no task is left"),
    }
}

// === impl Signals ===

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! { _ = self.terminate.recv() => "SIGTERM", _ = self.interrupt.recv() => "SIGINT" }
    }
}
