//! What a program's tasks do: how often each runs, and how long.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Tasks in the order in which they were started. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskList(Arc<Mutex<Vec<Arc<Watched>>>>);

/// A task at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskStatus {
    /// Name of the task.
    pub name: &'static str,
    /// Times that it was woken and has run.
    pub polls: u64,
    /// Time for which it has run.
    pub busy_seconds: f64,
    /// Whether it runs now; otherwise it waits.
    pub runs: bool,
    /// Time for which that has been so.
    pub since_seconds: f64,
}

#[derive(Debug)]
struct Watched {
    name: &'static str,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    polls: u64,
    busy: Duration,
    runs: bool,
    since: Instant,
}

// === impl TaskList ===

impl TaskList {
    /// Every task's status.
    pub(crate) fn now(&self) -> Vec<TaskStatus> {
        let now = Instant::now();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|task| task.status(now)).collect()
    }

    /// A task that is on the list from now on; its output is its name.
    pub(super) fn watched(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = &'static str> + Send + 'static {
        let counts = Counts { polls: 0, busy: Duration::ZERO, runs: false, since: Instant::now() };
        let watched = Arc::new(Watched { name, counts: Mutex::new(counts) });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&watched));
        async move {
            let mut task = pin!(task);
            poll_fn(|context| {
                watched.turn();
                let polled = task.as_mut().poll(context);
                watched.turn();
                polled
            })
            .await;
            name
        }
    }
}

// === impl Watched ===

impl Watched {
    /// Notes that the task begins or ends to run.
    fn turn(&self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Counts { polls, busy, runs, since } = &mut *counts;
        if *runs {
            *busy += now - *since;
        } else {
            *polls += 1;
        }
        (*runs, *since) = (!*runs, now);
    }

    fn status(&self, now: Instant) -> TaskStatus {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        TaskStatus {
            name: self.name,
            polls: counts.polls,
            busy_seconds: counts.busy.as_secs_f64(),
            runs: counts.runs,
            since_seconds: now.saturating_duration_since(counts.since).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn list_tells_how_often_and_how_long_each_task_ran() {
        let list = TaskList::default();
        let busy = list.watched("busy", async {
            std::thread::sleep(Duration::from_millis(30));
            tokio::task::yield_now().await;
        });
        let _idle = tokio::spawn(list.watched("idle", pending()));
        assert_eq!(busy.await, "busy");
        tokio::task::yield_now().await;
        let [busy, idle] = &list.now()[..] else { unreachable!("two tasks") };
        assert_eq!((busy.name, busy.polls, busy.runs), ("busy", 2, false));
        assert!(busy.busy_seconds >= 0.03, "{busy:?}");
        assert_eq!((idle.name, idle.polls, idle.runs), ("idle", 1, false));
    }
}
