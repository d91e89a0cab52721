//! `/debug/threads`: what the process does now.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tokio::runtime::{Handle, RuntimeMetrics};

use super::Debug;
use crate::tasks::TaskStatus;

/// What the process does at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Activity {
    threads: Vec<Thread>,
    runtime: Runtime,
    /// Those that have a name; connections and calls under way have none.
    tasks: Vec<TaskStatus>,
}

/// A thread, as proc(5) shows it.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    id: u64,
    name: String,
    /// R: runs, S: sleeps, D: waits and can't be interrupted; proc(5) has the others.
    state: Option<char>,
    cpu_seconds: Option<f64>,
    /// Time for which it could have run, and other threads did.
    queued_seconds: Option<f64>,
    /// Function of the kernel that it waits in.
    waits_in: Option<String>,
}

/// Counts of the async runtime.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Runtime {
    /// Tasks that haven't ended, without a name too.
    tasks: usize,
    /// Tasks that wait for a worker, beside those that a worker has in its own queue.
    queued: usize,
    workers: Vec<Worker>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Worker {
    busy_seconds: f64,
    /// Times that it had nothing to do.
    parked: u64,
}

pub(super) async fn show(State(debug): State<Debug>) -> Json<Activity> {
    let threads = threads(Path::new("/proc/self/task")).unwrap_or_default();
    Json(Activity { threads, runtime: Runtime::new(&Handle::current().metrics()), tasks: debug.tasks.now() })
}

/// The threads that have a folder here, in the order of their IDs.
fn threads(folder: &Path) -> io::Result<Vec<Thread>> {
    let ids = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut ids: Vec<u64> = ids.collect();
    ids.sort_unstable();
    Ok(ids.into_iter().map(|id| Thread::read(id, &folder.join(id.to_string()))).collect())
}

// === impl Thread ===

impl Thread {
    /// What can be read: it may have ended, and some kernels don't show all.
    fn read(id: u64, folder: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        // The name may contain what separates the fields.
        let state = text("stat").and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
        let times = text("schedstat").unwrap_or_default();
        let mut times = times.split(' ').map(|time| Some(Duration::from_nanos(time.parse().ok()?).as_secs_f64()));
        let waits_in = text("wchan").map(|name| name.trim().to_owned());
        Self {
            id,
            name: text("comm").unwrap_or_default().trim_end().to_owned(),
            state,
            cpu_seconds: times.next().flatten(),
            queued_seconds: times.next().flatten(),
            waits_in: waits_in.filter(|name| !matches!(name.as_str(), "" | "0")),
        }
    }
}

// === impl Runtime ===

impl Runtime {
    fn new(metrics: &RuntimeMetrics) -> Self {
        let worker = |worker| Worker {
            busy_seconds: metrics.worker_total_busy_duration(worker).as_secs_f64(),
            parked: metrics.worker_park_count(worker),
        };
        Self {
            tasks: metrics.num_alive_tasks(),
            queued: metrics.global_queue_depth(),
            workers: (0..metrics.num_workers()).map(worker).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_waits_is_shown_with_name_and_state() {
        let (ends, end) = std::sync::mpsc::channel::<()>();
        let waiter = std::thread::Builder::new().name("a) R (b".to_owned()).spawn(move || end.recv().is_err());
        let waiter = waiter.expect("a thread");
        let found = || {
            let all = threads(Path::new("/proc/self/task")).expect("procfs");
            all.into_iter().find(|thread| thread.name == "a) R (b" && thread.state == Some('S'))
        };
        let thread = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            found()
        });
        let thread = thread.expect("it sleeps");
        assert!(thread.cpu_seconds.is_some_and(|seconds| seconds < 10.0), "{thread:?}");
        drop(ends);
        assert!(waiter.join().expect("no panic"));
    }
}
