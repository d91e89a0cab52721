//! Refusals, as Kubernetes' clients understand them: `Status` objects.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::store::Expired;

/// Why a request has no other answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status code.
    pub code: StatusCode,
    /// Kubernetes' word for it.
    pub reason: &'static str,
    /// What people read.
    pub message: String,
}

// === impl Refusal ===

impl Refusal {
    /// A parameter that can't be read.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { code: StatusCode::BAD_REQUEST, reason: "BadRequest", message: message.into() }
    }

    /// Parameters that contradict one another.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { code: StatusCode::UNPROCESSABLE_ENTITY, reason: "Invalid", message: message.into() }
    }

    /// Nothing of this name.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self { code: StatusCode::NOT_FOUND, reason: "NotFound", message: message.into() }
    }

    /// A verb that isn't served.
    pub fn method() -> Self {
        let message = "the server does not allow this method on the requested resource: it is read-only".to_owned();
        Self { code: StatusCode::METHOD_NOT_ALLOWED, reason: "MethodNotAllowed", message }
    }

    /// No form that the client accepts.
    pub fn not_acceptable() -> Self {
        let message = "only application/json is served, as objects or as=Table;v=v1;g=meta.k8s.io".to_owned();
        Self { code: StatusCode::NOT_ACCEPTABLE, reason: "NotAcceptable", message }
    }

    /// Too many watches or lists at a time.
    pub fn too_many(most: usize, what: &str) -> Self {
        let message = format!("there are {most} {what} already: please try again later");
        Self { code: StatusCode::TOO_MANY_REQUESTS, reason: "TooManyRequests", message }
    }

    /// What isn't to happen.
    pub fn internal(error: &serde_json::Error) -> Self {
        Self { code: StatusCode::INTERNAL_SERVER_ERROR, reason: "InternalError", message: error.to_string() }
    }

    /// Not before the nodes are listed.
    pub fn not_listed() -> Self {
        let message = "the GpuNodes aren't listed yet".to_owned();
        Self { code: StatusCode::SERVICE_UNAVAILABLE, reason: "ServiceUnavailable", message }
    }

    /// The object.
    pub fn json(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "code": self.code.as_u16(),
        })
    }
}

impl From<Expired> for Refusal {
    fn from(expired: Expired) -> Self {
        Self { code: StatusCode::GONE, reason: "Expired", message: expired.to_string() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.code, axum::Json(self.json())).into_response();
        if matches!(self.code, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
