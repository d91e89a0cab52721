//! Refusals, as Kubernetes' clients understand them: `Status` objects.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::store::Expired;

/// Why a request has no other answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusError {
    /// HTTP status code.
    pub code: StatusCode,
    /// What people read.
    pub message: String,
}

// === impl StatusError ===

impl StatusError {
    /// A refusal with this code.
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A parameter that can't be read.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Parameters that contradict one another.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    /// Too many watches or lists at a time.
    pub fn too_many(most: usize, what: &str) -> Self {
        let message = format!("there are {most} {what} already: please try again later");
        Self::new(StatusCode::TOO_MANY_REQUESTS, message)
    }

    /// The object.
    pub fn json(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason(), "code": self.code.as_u16(),
        })
    }

    /// Kubernetes' word for the code (`StatusReason` of `k8s.io/apimachinery/pkg/apis/meta/v1`).
    fn reason(&self) -> &'static str {
        match self.code {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
            StatusCode::GONE => "Expired",
            StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            _ => "InternalError",
        }
    }
}

impl From<Expired> for StatusError {
    fn from(expired: Expired) -> Self {
        Self::new(StatusCode::GONE, expired.to_string())
    }
}

impl IntoResponse for StatusError {
    fn into_response(self) -> Response {
        let mut response = (self.code, axum::Json(self.json())).into_response();
        if matches!(self.code, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
