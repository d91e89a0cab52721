//! The webhook's tasks, and how they end.

use std::time::Duration;

use divvy_runtime::Signals;
use tracing::{info, warn};

/// The webhook's tasks.
#[derive(Default)]
pub(super) struct Tasks {
    /// Dropped at the end.
    endless: divvy_runtime::Tasks,
    /// They end when they are told to, and are waited for.
    last: divvy_runtime::Tasks,
}

// === impl Tasks ===

impl Tasks {
    /// A task without an end.
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.endless.spawn(name, task);
    }

    /// A task that ends its work when it is told to.
    pub(super) fn spawn_last(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.last.spawn(name, task);
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
            failure = self.endless.failure() => return Err(failure),
            failure = self.last.failure() => return Err(failure),
        }
        let end = async {
            retire.await;
            if tokio::time::timeout(patience, self.last.end()).await.is_err() {
                warn!(timeout = ?patience, "stopping although calls are still running");
            }
        };
        tokio::select! {
            () = end => Ok(()),
            name = signals.next() => anyhow::bail!("{name} while stopping: aborted"),
        }
    }
}
