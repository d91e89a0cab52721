//! Authorization of queries: a client that may read the same thing in the API server, by its bearer token.
//!
//! The API server says whose token it is (TokenReview) and whether that user may (SubjectAccessReview). The first answer is
//! kept for a while, the second never.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use divvy_runtime::api_server::errors::describe;
use divvy_runtime::api_server::within_deadline;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

/// Time for which a TokenReview is cached, and so accepted after its token was revoked.
const KEPT: Duration = Duration::from_secs(30);
/// Most cached TokenReviews.
const TOKENS: usize = 1024;

/// Authenticator and authorizer of clients, by the API server.
pub struct Access {
    client: Client,
    known: Mutex<HashMap<[u8; SHA256_OUTPUT_LEN], Known>>,
}

/// Result of an authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed; name of the user.
    Allowed(String),
    /// Missing or invalid token, and why. HTTP 401.
    Unauthenticated(String),
    /// Forbidden to the user, and why. HTTP 403.
    Forbidden(String),
    /// Failed request to the API server, and why. HTTP 503.
    Unavailable(String),
}

/// User of a token, as TokenReview returned it.
#[derive(Debug)]
struct Known {
    user: UserInfo,
    until: Instant,
}

// === impl Access ===

impl Access {
    /// Creates an authorizer that sends reviews through this client.
    pub fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Whether the sender of these headers may do `wish`: `get` `pods` in a namespace, say.
    pub async fn judge(&self, headers: &HeaderMap, wish: ResourceAttributes) -> Verdict {
        let Some(token) = bearer(headers) else {
            return Verdict::Unauthenticated("no bearer token: send one as kubectl does".to_owned());
        };
        let user = match self.user(token).await {
            Ok(user) => user,
            Err(verdict) => return verdict,
        };
        self.ask(user, wish).await
    }

    async fn user(&self, token: &str) -> Result<UserInfo, Verdict> {
        let mut key = [0; SHA256_OUTPUT_LEN];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some(user) = self.known(&key, Instant::now()) {
            return Ok(user);
        }
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews = Api::all(self.client.clone());
        let review = within_deadline(reviews.create(&PostParams::default(), &review)).await;
        let review = review.map_err(|error| Verdict::Unavailable(format!("TokenReview: {}", describe(&error))))?;
        match review.status.unwrap_or_default() {
            TokenReviewStatus { authenticated: Some(true), user: Some(user), .. } => {
                self.keep(key, user.clone(), Instant::now());
                Ok(user)
            }
            TokenReviewStatus { error, .. } => {
                let why = error.filter(|error| !error.is_empty());
                Err(Verdict::Unauthenticated(why.unwrap_or_else(|| "the API server rejected the token".to_owned())))
            }
        }
    }

    async fn ask(&self, user: UserInfo, wish: ResourceAttributes) -> Verdict {
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
        let status = match within_deadline(reviews.create(&PostParams::default(), &review)).await {
            Ok(review) => review.status.unwrap_or_default(),
            Err(error) => return Verdict::Unavailable(format!("SubjectAccessReview: {}", describe(&error))),
        };
        if status.allowed {
            return Verdict::Allowed(name);
        }
        let why = [status.reason, status.evaluation_error].into_iter().flatten().filter(|why| !why.is_empty());
        let why: Vec<String> = [format!("{name} cannot {what}")].into_iter().chain(why).collect();
        Verdict::Forbidden(why.join(": "))
    }

    fn known(&self, key: &[u8; SHA256_OUTPUT_LEN], now: Instant) -> Option<UserInfo> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|known| now < known.until).map(|known| known.user.clone())
    }

    fn keep(&self, key: [u8; SHA256_OUTPUT_LEN], user: UserInfo, now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TOKENS {
            known.retain(|_, known| now < known.until);
        }
        // So many callers within so short a time are asked about each time.
        if known.len() < TOKENS {
            known.insert(key, Known { user, until: now + KEPT });
        }
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
