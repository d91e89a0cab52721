//! How long the kubelet is given until its response begins.
//!
//! The kubelet encodes all its pods before it sends a byte, so where tenants have made them large it is late and not dead:
//! 100 pods of 8 MB take it seconds. A question that isn't answered in time fails, but it is listened to further, and later
//! ones are given what this one took.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// Longest wait for a response to begin: the kubelet admits no other pod meanwhile.
const LONGEST: Duration = Duration::from_secs(15);

/// Deadline that follows the kubelet.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    /// Deadline of a kubelet that is quick.
    least: Duration,
    /// Milliseconds; twice what the last response took.
    now: Arc<AtomicU64>,
    /// Taken while a late response is listened to.
    late: Arc<Semaphore>,
}

// === impl Patience ===

impl Patience {
    /// Waits so long at first, and never shorter.
    pub(super) fn new(least: Duration) -> Self {
        Self { least, now: Arc::default(), late: Arc::new(Semaphore::new(1)) }
    }

    /// What `response` comes to within the deadline, which is returned otherwise.
    pub(super) async fn wait<T: Send, E: Send>(
        &self,
        deadline: Duration,
        response: impl Future<Output = Result<T, E>> + Send + Unpin + 'static,
    ) -> Result<Result<T, E>, Duration> {
        let started = Instant::now();
        let mut response = response;
        let answer = tokio::time::timeout(deadline, &mut response).await;
        match &answer {
            Ok(Ok(_)) => self.took(started.elapsed()),
            Ok(Err(_)) => {}
            Err(_) => self.listen(started, response),
        }
        answer.map_err(|_elapsed| deadline)
    }

    /// Deadline by what the last response took.
    pub(super) fn now(&self) -> Duration {
        Duration::from_millis(self.now.load(Ordering::Relaxed)).clamp(self.least, self.longest())
    }

    /// Deadline for a response that nothing can replace.
    pub(super) fn longest(&self) -> Duration {
        LONGEST.max(self.least)
    }

    fn took(&self, elapsed: Duration) {
        let twice = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).saturating_mul(2);
        self.now.store(twice, Ordering::Relaxed);
    }

    /// Listens to one late response at a time.
    fn listen<T: Send, E: Send>(
        &self,
        started: Instant,
        response: impl Future<Output = Result<T, E>> + Send + 'static,
    ) {
        let Ok(place) = Arc::clone(&self.late).try_acquire_owned() else { return };
        let patience = self.clone();
        tokio::spawn(async move {
            if let Ok(Ok(_)) = tokio::time::timeout(LONGEST, response).await {
                patience.took(started.elapsed());
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Response = Result<(), ()>;

    fn after(time: Duration) -> impl Future<Output = Response> + Send + Unpin + 'static {
        Box::pin(async move {
            tokio::time::sleep(time).await;
            Ok(())
        })
    }

    async fn wait(
        patience: &Patience,
        response: impl Future<Output = Response> + Send + Unpin + 'static,
    ) -> Result<Response, Duration> {
        patience.wait(patience.now(), response).await
    }

    #[tokio::test]
    async fn late_response_fails_and_the_next_one_is_waited_for() {
        let patience = Patience::new(Duration::from_millis(100));
        let late = Duration::from_millis(300);
        assert_eq!(wait(&patience, after(late)).await, Err(Duration::from_millis(100)));
        while patience.now() < late {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(wait(&patience, after(late)).await, Ok(Ok(())));
        assert_eq!(wait(&patience, after(Duration::ZERO)).await, Ok(Ok(())));
        assert_eq!(patience.now(), Duration::from_millis(100), "it is quick again");
    }

    #[tokio::test]
    async fn response_that_never_comes_is_not_waited_for_longer() {
        let patience = Patience::new(Duration::from_millis(10));
        for _ in 0..5 {
            let never = Box::pin(std::future::pending::<Response>());
            assert_eq!(wait(&patience, never).await, Err(Duration::from_millis(10)));
        }
    }
}
