//! Bodies of calls: how large one may be, and how many bytes all calls of a listener hold at a time.

use std::sync::Arc;

use axum::Router;
use axum::body::HttpBody as _;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::sync::Semaphore;

/// Bodies up to this size in bytes wait for nothing: the number of connections bounds what they hold. Reviews of most pods are
/// smaller.
const SMALL: u32 = 64 << 10;

/// Most bytes of bodies.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// In one body.
    pub largest: u32,
    /// In all bodies of calls that are under way, beside the small ones; at least `largest`. Further calls wait.
    pub in_flight: u32,
}

#[derive(Debug)]
struct Budget {
    limits: BodyLimits,
    /// Bytes.
    free: Semaphore,
}

/// These routes, with these limits.
pub fn limit(router: Router, limits: BodyLimits) -> Router {
    let budget = Budget { limits, free: Semaphore::new(limits.in_flight as usize) };
    router.layer(DefaultBodyLimit::max(limits.largest as usize)).layer(from_fn_with_state(Arc::new(budget), admit))
}

async fn admit(State(budget): State<Arc<Budget>>, request: Request, next: Next) -> Response {
    // A body in chunks doesn't say how long it is. Of one that is too long no more than `largest` is read.
    let length = request.body().size_hint().upper().and_then(|length| u32::try_from(length).ok());
    let length = length.unwrap_or(u32::MAX).min(budget.limits.largest);
    let wanted = if length > SMALL { length } else { 0 };
    let _held = budget.free.acquire_many(wanted).await.expect("nobody closes it");
    next.run(request).await
}
