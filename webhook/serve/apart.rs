//! Work that would keep a thread from answering others.

use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// Does work of seconds beside the threads that answer all other calls, two of it at a time.
pub(super) async fn apart<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, JoinError> {
    static AT_A_TIME: Semaphore = Semaphore::const_new(2);
    let permit = AT_A_TIME.acquire().await;
    // Once begun it goes on, whether or not somebody still waits for it.
    let work = move || {
        let _permit = permit;
        work()
    };
    spawn_blocking(work).await
}
