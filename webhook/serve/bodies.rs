//! Bodies of calls: how large one may be, and how many bytes all calls of a listener hold at a time.
//!
//! What counts is what has arrived, and a body that is slow to arrive gives way to others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{BoxError, Router};
use futures::{StreamExt as _, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};

/// Bytes of each body that wait for nothing: the number of connections bounds what they hold. Reviews of most pods are smaller.
const SMALL: usize = 64 << 10;
/// Time after which a body that hasn't arrived in full is refused if another waits for room. The API server sends one at once.
const SLOW: Duration = Duration::from_secs(1);

/// Most bytes of bodies.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// In one body.
    pub largest: u32,
    /// In all bodies of calls that are under way, beside the first 64 KiB of each and one body that may go beyond; at least
    /// `largest`. Further bytes wait.
    pub in_flight: u32,
}

#[derive(Debug)]
struct Budget {
    /// Bytes.
    free: Arc<Semaphore>,
    /// Held by the one body that may go beyond: without it, bodies that have arrived in part could wait for one another.
    beyond: Arc<Semaphore>,
    /// Bodies that wait for room.
    waiting: watch::Sender<usize>,
}

/// What one call holds of the budget, until it is answered.
#[derive(Default)]
struct Held(Mutex<Vec<OwnedSemaphorePermit>>);

/// A body that is arriving.
struct Arrival {
    body: BodyDataStream,
    begun: Instant,
    bytes: usize,
    /// Whether it may go beyond the budget.
    is_beyond: bool,
    budget: Arc<Budget>,
    held: Arc<Held>,
}

/// Counts one more body that waits.
struct Waiting<'b>(&'b watch::Sender<usize>);

/// Why a body was given up.
#[derive(Debug, thiserror::Error)]
#[error("the body took longer than {SLOW:?} to arrive, and others wait for its room: try again")]
struct Slow;

/// Works on a body of so many bytes. What takes longer than some milliseconds, as a large one may, leaves the thread's other
/// calls to others meanwhile.
pub fn work<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    if bytes > SMALL { tokio::task::block_in_place(work) } else { work() }
}

/// These routes, with these limits.
pub fn limit(router: Router, limits: BodyLimits) -> Router {
    let budget = Arc::new(Budget {
        free: Arc::new(Semaphore::new(limits.in_flight as usize)),
        beyond: Arc::new(Semaphore::new(1)),
        waiting: watch::Sender::default(),
    });
    router.layer(DefaultBodyLimit::max(limits.largest as usize)).layer(from_fn_with_state(budget, admit))
}

async fn admit(State(budget): State<Arc<Budget>>, request: Request, next: Next) -> Response {
    let held = Arc::new(Held::default());
    let of_body = Arc::clone(&held);
    let request = request.map(|body| {
        let body = body.into_data_stream();
        let begun = Instant::now();
        let held = of_body;
        let arrival = Arrival { body, begun, bytes: 0, is_beyond: false, budget, held };
        Body::from_stream(stream::try_unfold(arrival, Arrival::next))
    });
    let response = next.run(request).await;
    drop(held);
    response
}

// === impl Budget ===

impl Budget {
    /// Room for so many bytes, or leave to go beyond the budget.
    async fn permit(&self, bytes: u32) -> Result<OwnedSemaphorePermit, OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_many_owned(bytes) {
            return Ok(permit);
        }
        let _waiting = Waiting::new(&self.waiting);
        tokio::select! {
            permit = Arc::clone(&self.free).acquire_many_owned(bytes) => Ok(permit.expect("nobody closes it")),
            beyond = Arc::clone(&self.beyond).acquire_owned() => Err(beyond.expect("nobody closes it")),
        }
    }

    /// Ends when a body waits for permit, but not before `slow`.
    async fn runs_short(&self, slow: Instant) {
        sleep_until(slow).await;
        let mut waiting = self.waiting.subscribe();
        let _never_fails = waiting.wait_for(|waiting| *waiting > 0).await;
    }
}

// === impl Arrival ===

impl Arrival {
    /// The next bytes, once there is room for them.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, BoxError> {
        let chunk = tokio::select! {
            biased;
            chunk = self.body.next() => chunk.transpose()?,
            () = self.budget.runs_short(self.begun + SLOW) => return Err(Slow.into()),
        };
        let Some(chunk) = chunk else { return Ok(None) };
        let counted = |bytes: usize| bytes.saturating_sub(SMALL);
        let before = counted(self.bytes);
        self.bytes += chunk.len();
        let more = u32::try_from(counted(self.bytes) - before)?;
        if more > 0 && !self.is_beyond {
            let permit = self.budget.permit(more).await;
            self.is_beyond = permit.is_err();
            let (Ok(permit) | Err(permit)) = permit;
            self.held.0.lock().unwrap_or_else(PoisonError::into_inner).push(permit);
        }
        Ok(Some((chunk, self)))
    }
}

// === impl Waiting ===

impl<'b> Waiting<'b> {
    fn new(waiting: &'b watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}
