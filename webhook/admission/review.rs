//! `AdmissionReview` of `admission.k8s.io/v1`: what the API server sends, and what it is answered.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::patch::Patch;
use super::refusal::Refusal;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// What the API server asks, about an object of which `O` is what is read. All else is skipped.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct Request<O> {
    /// Names the question; the answer repeats it.
    pub(super) uid: String,
    pub(super) kind: ReviewedKind,
    /// `ephemeralcontainers` and the like.
    sub_resource: Option<String>,
    pub(super) operation: Operation,
    namespace: Option<String>,
    /// As it is to be stored, up to now.
    pub(super) object: Option<O>,
    /// As it is stored.
    pub(super) old_object: Option<O>,
}

/// The object's type; its version is the one that the webhook configuration asks for.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct ReviewedKind {
    pub(super) kind: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// What is answered to a request.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Empty: allowed.
    pub(super) refusals: Vec<Refusal>,
    pub(super) patch: Patch,
    pub(super) warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Query<O> {
    api_version: Option<String>,
    kind: Option<String>,
    request: Option<Request<O>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(flatten)]
    patch: Option<EncodedPatch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// `metav1.Status`, of which the API server shows code, reason and message.
#[derive(Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EncodedPatch {
    patch: String,
    patch_type: &'static str,
}

/// Reads a review; what is wrong with it is a [`Refusal::Malformed`] that names the field.
pub(super) fn decode<O: DeserializeOwned>(body: &[u8]) -> Result<Request<O>, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let question: Query<O> = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = match error.path().to_string().as_str() {
            "." | "?" => KIND.to_owned(), // the whole, or a field whose name has no end
            field => field.to_owned(),
        };
        Refusal::malformed(field, error.into_inner())
    })?;
    json.end().map_err(|error| Refusal::malformed(KIND, error))?;
    let Query { api_version, kind, request } = question;
    let is = |field: &str, found: Option<String>, expected: &str| match found {
        Some(text) if text == expected => Ok(()),
        Some(text) => Err(Refusal::malformed(field, format!("\"{text}\" is unknown: expected {expected}"))),
        None => Err(Refusal::malformed(field, format!("is missing: expected {expected}"))),
    };
    is("kind", kind, KIND)?;
    is("apiVersion", api_version, API_VERSION)?;
    request.ok_or_else(|| Refusal::malformed("request", "is missing"))
}

/// The UID of a review that is otherwise useless; the API server shows an answer only if it bears the question's UID.
pub(super) fn uid(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Named {
        uid: String,
    }
    #[derive(Deserialize)]
    struct Query {
        request: Named,
    }
    serde_json::from_slice(body).map(|question: Query| question.request.uid).unwrap_or_default()
}

// === impl Request ===

impl<O> Request<O> {
    pub(super) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn sub_resource(&self) -> &str {
        self.sub_resource.as_deref().unwrap_or_default()
    }
}

// === impl Answer ===

impl Answer {
    pub(super) fn refused(refusals: Vec<Refusal>) -> Self {
        Self { refusals, ..Self::default() }
    }

    /// One word for it.
    pub(super) fn verdict(&self) -> &'static str {
        match (self.refusals.first(), self.warnings.is_empty()) {
            (Some(Refusal::Malformed { .. }), _) => "malformed",
            (Some(_), _) => "refused",
            (None, false) => "warned",
            (None, true) => "allowed",
        }
    }

    /// The review to send back.
    pub(super) fn encode(self, uid: &str) -> Vec<u8> {
        let Self { refusals, patch, warnings } = self;
        let status = refusals.first().map(|first| {
            let (code, reason) = first.status();
            let mut texts: Vec<String> = refusals.iter().take(MOST_REFUSALS).map(Refusal::to_string).collect();
            if let Some(more @ 1..) = refusals.len().checked_sub(MOST_REFUSALS) {
                texts.push(format!("and {more} more"));
            }
            Status { code, reason, message: texts.join("; ") }
        });
        let allowed = status.is_none();
        let patch = (allowed && !patch.is_empty()).then(|| {
            let operations = serde_json::to_vec(&patch).expect("paths and JSON values always serialise");
            EncodedPatch { patch: BASE64_STANDARD.encode(operations), patch_type: "JSONPatch" }
        });
        let response = Response { uid, allowed, status, patch, warnings: legible(warnings) };
        let review = Review { api_version: API_VERSION, kind: KIND, response };
        serde_json::to_vec(&review).expect("texts and numbers always serialise")
    }
}

/// Refusals that are told of one object.
const MOST_REFUSALS: usize = 32;
/// Most characters of one warning, and of all; the API server cuts or drops what goes beyond
/// (`apiserver/pkg/endpoints/filters/warning.go`).
const LONGEST: usize = 256;
const LONGEST_TOGETHER: usize = 4096;

/// Warnings as HTTP headers can carry them: control characters would make the API server drop the whole text.
fn legible(warnings: Vec<String>) -> Vec<String> {
    let mut left = LONGEST_TOGETHER;
    let fits = |text: &String| {
        left = left.saturating_sub(text.chars().count());
        left > 0
    };
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let cut = |text: String| match text.char_indices().nth(LONGEST) {
        None => text.chars().map(printable).collect(),
        Some(_) => text.chars().take(LONGEST - 1).map(printable).chain(['…']).collect::<String>(),
    };
    warnings.into_iter().map(cut).take_while(fits).collect()
}
