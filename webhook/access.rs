//! Authorization of queries: a client that may read the same thing in the API server, by its bearer token.
//!
//! The API server says whose token it is (TokenReview) and whether that user may (SubjectAccessReview). No answer is
//! kept: it is people who ask. A stranger who tries token after token is answered without asking the API server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use divvy_runtime::api_server::errors::describe;
use divvy_runtime::api_server::within_deadline;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;

/// Authenticator and authorizer of clients, by the API server.
pub struct Access {
    client: Client,
    rejected: Mutex<HashMap<IpAddr, Rejected>>,
    /// TokenReviews under way.
    reviews: Semaphore,
}

/// Tokens of one address that the API server has rejected.
#[derive(Debug)]
struct Rejected {
    since: Instant,
    tokens: u32,
}

/// Most tokens of one address that may be rejected within [`REJECTED_WITHIN`].
const MOST_REJECTED: u32 = 10;
/// An address that has reached the limit may try again so long after its first rejected token.
const REJECTED_WITHIN: Duration = Duration::from_secs(60);
/// Most addresses that are remembered. Beyond it the oldest is forgotten.
const MOST_ADDRESSES: usize = 4096;
/// Most TokenReviews at a time, so that strangers at many addresses don't use up what the API server grants us.
const MOST_REVIEWS: usize = 8;

/// Why a client may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Missing or invalid token, and why. HTTP 401.
    #[error("{0}")]
    Unauthenticated(String),
    /// Forbidden to the user, and why. HTTP 403.
    #[error("{0}")]
    Forbidden(String),
    /// Failed request to the API server, and why. HTTP 503.
    #[error("{0}")]
    Unavailable(String),
    /// Too many rejected tokens from the client's address. HTTP 429.
    #[error("the API server has rejected {MOST_REJECTED} tokens from this address: try again in a minute")]
    TooMany,
}

// === impl Access ===

impl Access {
    /// Creates an authorizer that sends reviews through this client.
    pub fn new(client: Client) -> Self {
        Self { client, rejected: Mutex::default(), reviews: Semaphore::new(MOST_REVIEWS) }
    }

    /// Lets the sender of these headers pass if it may do all of `wishes`: `get` `pods` in a namespace, say.
    pub async fn check(
        &self,
        sender: IpAddr,
        headers: &HeaderMap,
        wishes: Vec<ResourceAttributes>,
    ) -> Result<(), Denied> {
        let missing = || Denied::Unauthenticated("no bearer token: send one as kubectl does".to_owned());
        let token = bearer(headers).ok_or_else(missing)?;
        if self.has_tried_enough(sender, Instant::now()) {
            return Err(Denied::TooMany);
        }
        let user = self.authenticate(token).await.inspect_err(|denied| {
            if matches!(denied, Denied::Unauthenticated(_)) {
                self.reject(sender, Instant::now());
            }
        })?;
        for wish in wishes {
            self.authorize(user.clone(), wish).await?;
        }
        Ok(())
    }

    async fn authenticate(&self, token: &str) -> Result<UserInfo, Denied> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews = Api::all(self.client.clone());
        let _one_of_few = self.reviews.acquire().await.expect("nobody closes it");
        let review = within_deadline(reviews.create(&PostParams::default(), &review)).await;
        let review = review.map_err(|error| Denied::Unavailable(format!("TokenReview: {}", describe(&error))))?;
        match review.status.unwrap_or_default() {
            TokenReviewStatus { authenticated: Some(true), user: Some(user), .. } => Ok(user),
            TokenReviewStatus { error, .. } => {
                let why = error.filter(|error| !error.is_empty());
                Err(Denied::Unauthenticated(why.unwrap_or_else(|| "the API server rejected the token".to_owned())))
            }
        }
    }

    fn has_tried_enough(&self, sender: IpAddr, now: Instant) -> bool {
        let rejected = self.rejected();
        rejected.get(&sender).is_some_and(|of| of.tokens >= MOST_REJECTED && now < of.since + REJECTED_WITHIN)
    }

    fn reject(&self, sender: IpAddr, now: Instant) {
        let mut rejected = self.rejected();
        if rejected.len() >= MOST_ADDRESSES && !rejected.contains_key(&sender) {
            let oldest = rejected.iter().min_by_key(|(_, of)| of.since).map(|(address, _)| *address);
            oldest.and_then(|address| rejected.remove(&address));
        }
        let of = rejected.entry(sender).or_insert(Rejected { since: now, tokens: 0 });
        if now >= of.since + REJECTED_WITHIN {
            *of = Rejected { since: now, tokens: 0 };
        }
        of.tokens += 1;
    }

    fn rejected(&self) -> MutexGuard<'_, HashMap<IpAddr, Rejected>> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn authorize(&self, user: UserInfo, wish: ResourceAttributes) -> Result<(), Denied> {
        let name = user.username.unwrap_or_default();
        let what = in_words(&wish);
        let spec = SubjectAccessReviewSpec {
            user: Some(name.clone()),
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            resource_attributes: Some(wish),
            non_resource_attributes: None,
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews = Api::all(self.client.clone());
        let review = within_deadline(reviews.create(&PostParams::default(), &review)).await;
        let review =
            review.map_err(|error| Denied::Unavailable(format!("SubjectAccessReview: {}", describe(&error))))?;
        let status = review.status.unwrap_or_default();
        if status.allowed {
            return Ok(());
        }
        let why = [status.reason, status.evaluation_error].into_iter().flatten().filter(|why| !why.is_empty());
        let why: Vec<String> = [format!("{name} cannot {what}")].into_iter().chain(why).collect();
        Err(Denied::Forbidden(why.join(": ")))
    }
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750 §2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// As kubectl says it: `get pods in namespace a`.
fn in_words(wish: &ResourceAttributes) -> String {
    let text = |part: &Option<String>| part.clone().filter(|part| !part.is_empty());
    let resource = [text(&wish.resource), text(&wish.group)].into_iter().flatten().collect::<Vec<_>>().join(".");
    let place = text(&wish.namespace).map(|namespace| format!("in namespace {namespace}"));
    let parts = [text(&wish.verb), Some(resource), text(&wish.name), place];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
