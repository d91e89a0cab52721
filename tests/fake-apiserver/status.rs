//! Refusals in the API's own form and words (apimachinery `pkg/api/errors`).

use std::borrow::Cow;
use std::fmt;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::resource::Resource;

/// A `v1.Status` that says no.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The HTTP status.
    pub code: StatusCode,
    /// One word for it, such as `AlreadyExists`.
    pub reason: Cow<'static, str>,
    message: String,
    details: Value,
}

pub(crate) type Answer<T> = Result<T, Refusal>;

/// Which field is wrong, how, and in which words.
pub(crate) struct Fault {
    pub(crate) field: String,
    reason: &'static str,
    message: String,
}

// === impl Fault ===

impl Fault {
    pub(crate) fn required(field: &str, message: &str) -> Self {
        Self { field: field.to_owned(), reason: "FieldValueRequired", message: format!("Required value: {message}") }
    }

    pub(crate) fn invalid(field: &str, value: &Value, message: &str) -> Self {
        let message = format!("Invalid value: {value}: {message}");
        Self { field: field.to_owned(), reason: "FieldValueInvalid", message }
    }

    pub(crate) fn duplicate(field: &str, value: &str) -> Self {
        let message = format!("Duplicate value: {value:?}");
        Self { field: field.to_owned(), reason: "FieldValueDuplicate", message }
    }

    pub(crate) fn forbidden(field: &str, message: &str) -> Self {
        Self { field: field.to_owned(), reason: "FieldValueForbidden", message: format!("Forbidden: {message}") }
    }
}

// === impl Refusal ===

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), details: json!({}) }
    }

    fn of(mut self, resource: &Resource, name: &str) -> Self {
        self.details = json!({ "name": name, "kind": resource.plural });
        if !resource.group.is_empty() {
            self.details["group"] = resource.group.as_str().into();
        }
        self
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).of(resource, name)
    }

    /// No such path, kind or subresource.
    pub(crate) fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(crate) fn no_method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn media_type(accepted: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).of(resource, name)
    }

    /// Somebody else wrote in between.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, "", name, why)
    }

    /// What a deletion requires isn't so; the object is named by its kind (`rest.BeforeDelete`).
    pub(crate) fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let dot = if resource.group.is_empty() { "" } else { "." };
        let message =
            format!("Operation cannot be fulfilled on {}{dot}{} \"{name}\": {why}", resource.kind, resource.group);
        let mut refusal = Self::new(StatusCode::CONFLICT, "Conflict", message).of(resource, name);
        refusal.details["kind"] = resource.kind.as_str().into();
        refusal
    }

    pub(crate) fn conflict(resource: &Resource, subresource: &str, name: &str, why: &str) -> Self {
        let what = resource.qualified();
        let message = format!("Operation cannot be fulfilled on {what}{subresource} \"{name}\": {why}");
        let mut refusal = Self::new(StatusCode::CONFLICT, "Conflict", message).of(resource, name);
        refusal.details["kind"] = format!("{}{subresource}", resource.plural).into();
        refusal
    }

    /// Other managers own fields that an apply wants otherwise: each with its manager and its path.
    pub(crate) fn apply_conflict(mut conflicts: Vec<(String, String)>) -> Self {
        conflicts.sort();
        let cause = |(manager, path): &(String, String)| json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path });
        let causes: Vec<Value> = conflicts.iter().map(cause).collect();
        let message = match conflicts.as_slice() {
            [(manager, path)] => format!("Apply failed with 1 conflict: conflict with {manager}: {path}"),
            all => {
                let lines = all.chunk_by(|one, next| one.0 == next.0).flat_map(|of_one| {
                    let head = format!("conflicts with {}:", of_one[0].0);
                    std::iter::once(head).chain(of_one.iter().map(|(_, path)| format!("- {path}")))
                });
                format!("Apply failed with {} conflicts: {}", all.len(), lines.collect::<Vec<_>>().join("\n"))
            }
        };
        let details = json!({ "causes": causes });
        Self { details, ..Self::new(StatusCode::CONFLICT, "Conflict", message) }
    }

    pub(crate) fn invalid(resource: &Resource, name: &str, faults: &[Fault]) -> Self {
        let lines: Vec<String> = faults.iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect();
        let lines = if let [line] = lines.as_slice() { line.clone() } else { format!("[{}]", lines.join(", ")) };
        let kind = match resource.group.as_str() {
            "" => resource.kind.clone(),
            group => format!("{}.{group}", resource.kind),
        };
        let message = format!("{kind} \"{name}\" is invalid: {lines}");
        let mut refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).of(resource, name);
        refusal.details["kind"] = resource.kind.as_str().into();
        let cause = |fault: &Fault| json!({ "reason": fault.reason, "message": fault.message, "field": fault.field });
        refusal.details["causes"] = faults.iter().map(cause).collect();
        refusal
    }

    /// A replacement that doesn't say which version it replaces; it is named by its resource.
    pub(crate) fn no_version(resource: &Resource, name: &str) -> Self {
        let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        let message = format!("{} \"{name}\" is invalid: {why}", resource.qualified());
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).of(resource, name)
    }

    /// A patch that doesn't fit the object.
    pub(crate) fn unprocessable(why: &str) -> Self {
        let message = "the server rejected our request due to an error in our request";
        let details = json!({ "causes": [{ "reason": "UnexpectedServerResponse", "message": why }] });
        Self { details, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message) }
    }

    /// Options of a request that don't go together.
    pub(crate) fn invalid_options(kind: &str, fault: &Fault) -> Self {
        let message = format!("{kind}.meta.k8s.io \"\" is invalid: {}: {}", fault.field, fault.message);
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let name_or_all = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let message = format!("{}{name_or_all} is forbidden: {why}", resource.qualified());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).of(resource, name)
    }

    /// The version asked for is no longer known.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// Something that should work didn't.
    pub(crate) fn internal(why: &str) -> Self {
        let details = json!({ "causes": [{ "message": why }] });
        let message = format!("Internal error occurred: {why}");
        Self { details, ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message) }
    }

    /// A webhook said no, with a `v1.Status` of its own (`pkg/admission/plugin/webhook/errors`).
    pub(crate) fn denied(webhook: &str, status: &Value) -> Self {
        let of = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
        let said = of("message").or_else(|| of("reason")).map(|said| format!(": {said}"));
        let message = format!(
            "admission webhook {webhook:?} denied the request{}",
            said.as_deref().unwrap_or(" without explanation")
        );
        let code = status["code"].as_u64().and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        let code = code.filter(|code| code.as_u16() >= 400).unwrap_or(StatusCode::BAD_REQUEST);
        let reason = of("reason").unwrap_or_default().to_owned().into();
        Self { code, reason, message, details: status["details"].clone() }
    }

    /// What a test asked for; the wordings are those of a server in that state.
    pub(crate) fn injected(code: StatusCode) -> Self {
        let (reason, message) = match code {
            StatusCode::CONFLICT => ("Conflict", "Operation cannot be fulfilled: the object has been modified"),
            StatusCode::TOO_MANY_REQUESTS => {
                ("TooManyRequests", "the server has received too many requests and has asked us to try again later")
            }
            StatusCode::FORBIDDEN => ("Forbidden", "forbidden: the test said so"),
            StatusCode::SERVICE_UNAVAILABLE => {
                ("ServiceUnavailable", "the server is currently unable to handle the request")
            }
            _ => ("InternalError", "Internal error occurred: the test said so"),
        };
        let mut refusal = Self::new(code, reason, message);
        if code == StatusCode::TOO_MANY_REQUESTS {
            refusal.details = json!({ "retryAfterSeconds": 1 });
        }
        refusal
    }

    pub(crate) fn to_json(&self) -> Value {
        let Self { code, reason, message, details } = self;
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "code": code.as_u16(),
        });
        if !reason.is_empty() {
            status["reason"] = reason.as_ref().into();
        }
        if details.as_object().is_some_and(|details| !details.is_empty()) {
            status["details"] = details.clone();
        }
        status
    }
}

/// The `v1.Status` of something that went well and left nothing to show.
pub(crate) fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({ "name": name, "kind": resource.plural, "uid": uid });
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}
