//! Tasks by name.

use std::io;

use anyhow::anyhow;
use tokio::task::{JoinError, JoinSet};

/// A program's tasks. One that ends unexpectedly ends the program: better restarted than half alive.
#[derive(Debug, Default)]
pub struct Tasks(JoinSet<Ended>);

type Ended = (&'static str, anyhow::Result<()>);

/// Result of a task.
pub trait Outcome {
    /// Converts it.
    fn outcome(self) -> anyhow::Result<()>;
}

// === impl Tasks ===

impl Tasks {
    /// Starts a task of this name.
    pub fn spawn<T: Outcome>(&mut self, name: &'static str, task: impl Future<Output = T> + Send + 'static) {
        self.0.spawn(async move { (name, task.await.outcome()) });
    }

    /// Waits for a task that ends, and describes that as an error.
    pub async fn failure(&mut self) -> anyhow::Error {
        describe(self.0.join_next().await)
    }

    /// Waits until all have ended.
    pub async fn end(&mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

fn describe(ended: Option<Result<Ended, JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok((name, Err(error)))) => error.context(format!("task {name} failed")),
        Some(Ok((name, Ok(())))) => anyhow!("task {name} ended unexpectedly"),
        Some(Err(error)) => anyhow!(error).context("a task panicked"),
        None => anyhow!("no task is left"),
    }
}

// === impl Outcome ===

impl Outcome for () {
    fn outcome(self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Outcome for io::Result<()> {
    fn outcome(self) -> anyhow::Result<()> {
        Ok(self?)
    }
}
