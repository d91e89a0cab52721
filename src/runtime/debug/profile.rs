//! `/debug/pprof/profile`: where the process spends CPU time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use nix::errno::Errno;
use nix::sys::signal::{Signal, raise};
use pprof::protos::Message as _;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Deserialize)]
pub(super) struct ProfileQuery {
    #[serde(default = "usual")]
    seconds: u64,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("profiling: {0}")]
    Profiler(#[from] pprof::Error),
    #[error("profiling: raising SIGPROF: {0}")]
    Signal(#[from] Errno),
    #[error("profiling: {0}")]
    Panicked(#[from] JoinError),
}

/// Samples a second of CPU time, as Go takes them, but out of step with what happens every hundredth of a second.
const FREQUENCY: i32 = 99;
/// Longest profile in seconds.
const LONGEST: u64 = 120;
/// Folder for samples that have no place in memory. A container's root may be read-only; this is mounted into every one.
const SHARED_MEMORY: &str = "/dev/shm";

fn usual() -> u64 {
    10
}

/// Answers with a profile of the seconds to come. One is taken at a time.
pub(super) async fn profile(
    State((one, stop)): State<(Arc<Semaphore>, CancellationToken)>,
    Query(ProfileQuery { seconds }): Query<ProfileQuery>,
) -> Response {
    if !(1..=LONGEST).contains(&seconds) {
        let why = format!("seconds={seconds}: expected 1 to {LONGEST}\n");
        return (StatusCode::BAD_REQUEST, why).into_response();
    }
    let Ok(permit) = one.try_acquire_owned() else {
        return (StatusCode::CONFLICT, "another profile is being taken: ask again later\n").into_response();
    };
    match taken(Duration::from_secs(seconds), &stop, permit).await {
        Ok(profile) => ([(header::CONTENT_TYPE, "application/octet-stream")], profile).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn taken(time: Duration, stop: &CancellationToken, permit: OwnedSemaphorePermit) -> Result<Vec<u8>, Failed> {
    let guard = spawn_blocking(begun).await??;
    tokio::select! { () = tokio::time::sleep(time) => {}, () = stop.cancelled() => {} }
    let report = move || {
        let profile = guard.report().build()?.pprof()?;
        drop((guard, permit));
        Ok(profile.encode_to_vec())
    };
    spawn_blocking(report).await?
}

/// Begins to sample. While the guard lives a timer sends SIGPROF, which ends a program that doesn't handle it: so it must be gone
/// before the process executes another one.
fn begun() -> Result<ProfilerGuard<'static>, Failed> {
    if Path::new(SHARED_MEMORY).is_dir() {
        // Refused if it has been set before.
        drop(tempfile::env::override_temp_dir(Path::new(SHARED_MEMORY)));
    }
    let guard = ProfilerGuardBuilder::default().frequency(FREQUENCY).build()?;
    // The first sample reads the tables of all libraries and allocates: here, where this thread isn't in the allocator.
    raise(Signal::SIGPROF)?;
    Ok(guard)
}
