//! Authorization of queries: a client that may read the same thing in the API server, by its bearer token.
//!
//! The API server says whose token it is (TokenReview) and whether that user may (SubjectAccessReview). No answer is
//! kept: it is people who ask.

use divvy_runtime::api_server::errors::describe;
use divvy_runtime::api_server::within_deadline;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

/// Authenticator and authorizer of clients, by the API server.
pub struct Access {
    client: Client,
}

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
}

// === impl Access ===

impl Access {
    /// Creates an authorizer that sends reviews through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Lets the sender of these headers pass if it may do all of `wishes`: `get` `pods` in a namespace, say.
    pub async fn check(&self, headers: &HeaderMap, wishes: Vec<ResourceAttributes>) -> Result<(), Denied> {
        let missing = || Denied::Unauthenticated("no bearer token: send one as kubectl does".to_owned());
        let user = self.authenticate(bearer(headers).ok_or_else(missing)?).await?;
        for wish in wishes {
            self.authorize(user.clone(), wish).await?;
        }
        Ok(())
    }

    async fn authenticate(&self, token: &str) -> Result<UserInfo, Denied> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews = Api::all(self.client.clone());
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
