//! Tasks by name, and how a program ends.

mod watched;

use std::pin::pin;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use tokio::task::JoinSet;
use tracing::{info, warn};

pub(crate) use self::watched::{TaskList, TaskStatus};
use crate::Signals;

/// A program's tasks. One that ends unexpectedly ends the program: better restarted than half alive.
#[derive(Debug, Default)]
pub struct Tasks {
    /// They end when they are told to, and are waited for.
    ending: JoinSet<&'static str>,
    /// Dropped at the end.
    endless: JoinSet<&'static str>,
    list: TaskList,
}

/// Action after a program's tasks have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Exit, after a signal.
    Exit,
    /// Restart with another configuration.
    Start,
}

// === impl Tasks ===

impl Tasks {
    /// Starts a task that ends when it is told to.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.ending.spawn(self.list.watched(name, task));
    }

    /// Starts a task without an end.
    pub fn spawn_endless(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.endless.spawn(self.list.watched(name, task));
    }

    /// All tasks, those to come included.
    pub(crate) fn list(&self) -> TaskList {
        self.list.clone()
    }

    /// Runs until a signal or until `reconfigured`, then tells tasks by `retire` to end, and waits for them; or until a
    /// task fails. A second signal aborts; the first may come while the program is about to restart.
    pub(crate) async fn until_over(
        mut self,
        mut signals: Signals,
        reconfigured: impl Future<Output = ()>,
        retire: impl Future<Output = ()>,
        patience: Duration,
    ) -> anyhow::Result<Next> {
        let mut next = tokio::select! {
            name = signals.next() => {
                info!(signal = name, "stopping");
                Next::Exit
            }
            () = reconfigured => Next::Start,
            failure = self.failure() => return Err(failure),
        };
        let mut end = pin!(async {
            retire.await;
            let ended = async { while self.ending.join_next().await.is_some() {} };
            if tokio::time::timeout(patience, ended).await.is_err() {
                warn!(timeout = ?patience, "tasks didn't end before the timeout");
            }
        });
        loop {
            tokio::select! {
                () = &mut end => return Ok(next),
                name = signals.next() => {
                    ensure!(next == Next::Start, "{name} while stopping: aborted");
                    info!(signal = name, "stopping");
                    next = Next::Exit;
                }
            }
        }
    }

    /// Waits for a task that ends, and describes that as an error.
    async fn failure(&mut self) -> anyhow::Error {
        let ended = tokio::select! {
            Some(ended) = self.ending.join_next() => ended,
            Some(ended) = self.endless.join_next() => ended,
            else => return anyhow!("no task is left"),
        };
        match ended {
            Ok(name) => anyhow!("task {name} ended unexpectedly"),
            Err(error) => anyhow!(error).context("a task panicked"),
        }
    }
}
