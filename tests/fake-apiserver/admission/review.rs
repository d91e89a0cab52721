//! `AdmissionReview` of `admission.k8s.io/v1`, as the API server writes and reads it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::object::{self, items, text};
use super::super::target::Target;
use super::super::users::User;
use super::super::write::Draft;
use super::hook::operation;

/// What a webhook is asked.
#[derive(Debug)]
pub(super) struct Question {
    uid: String,
    pub(super) object: Value,
    /// Null for a new object.
    pub(super) old_object: Value,
    /// All else.
    pub(super) request: Value,
}

/// What it answered.
#[derive(Debug)]
pub(super) struct Reply {
    /// The `v1.Status` of a refusal.
    pub(super) denial: Option<Value>,
    pub(super) patch: Option<json_patch::Patch>,
    pub(super) warnings: Vec<String>,
}

// === impl Question ===

impl Question {
    pub(super) fn new(draft: &Draft, user: &User) -> Self {
        let Target { resource, namespace, name, subresource } = &draft.target;
        let (group, version) = (&resource.group, &resource.version);
        let uid = Uuid::new_v4().to_string();
        let kind = json!({ "group": group, "version": version, "kind": resource.kind });
        let plural = json!({ "group": group, "version": version, "resource": resource.plural });
        let options = if draft.live.is_some() { "UpdateOptions" } else { "CreateOptions" };
        let mut options = json!({ "kind": options, "apiVersion": "meta.k8s.io/v1" });
        if !draft.writer.manager.is_empty() {
            options["fieldManager"] = draft.writer.manager.as_str().into();
        }
        if draft.writer.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        let mut request = json!({
            "uid": uid, "kind": kind, "resource": plural, "requestKind": kind, "requestResource": plural,
            "operation": operation(draft), "userInfo": user.info(), "dryRun": draft.writer.dry_run, "options": options,
        });
        // A name that the server is going to make up isn't known yet.
        let name = if name.is_empty() { object::name(&draft.object) } else { name };
        let namespace = if resource.namespaced { namespace } else { "" };
        let named = [("name", name), ("namespace", namespace), ("subResource", subresource)];
        for (field, text) in named.into_iter().chain([("requestSubResource", subresource.as_str())]) {
            if !text.is_empty() {
                request[field] = text.into();
            }
        }
        let old_object = draft.live.as_ref().map(|live| resource.show(live)).unwrap_or_default();
        Self { uid, object: draft.shown(), old_object, request }
    }

    /// What match conditions can name.
    pub(super) fn variables(&self) -> [(&'static str, &Value); 3] {
        [("object", &self.object), ("oldObject", &self.old_object), ("request", &self.request)]
    }

    /// The review to send.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut request = self.request.clone();
        request["object"] = self.object.clone();
        request["oldObject"] = self.old_object.clone();
        let review = json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request });
        review.to_string().into_bytes()
    }

    /// Reads the review that came back (`VerifyAdmissionResponse`).
    pub(super) fn decode(&self, body: &[u8], mutating: bool) -> Result<Reply, String> {
        let review: Value =
            serde_json::from_slice(body).map_err(|error| format!("couldn't decode the answer: {error}"))?;
        let Some(response) = review.get("response").and_then(Value::as_object) else {
            return Err("webhook response was absent".to_owned());
        };
        let uid = response.get("uid").and_then(Value::as_str).unwrap_or_default();
        if uid != self.uid {
            return Err(format!("expected response.uid={:?}, got {uid:?}", self.uid));
        }
        let (version, kind) = (text(&review, "/apiVersion"), text(&review, "/kind"));
        if (version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {version}, Kind={kind}"
            ));
        }
        let patch = patch(response, mutating)?;
        let denied = response.get("allowed") != Some(&Value::Bool(true));
        let denial = denied.then(|| response.get("status").cloned().unwrap_or_default());
        let warnings =
            items(&review, "/response/warnings").iter().filter_map(Value::as_str).map(String::from).collect();
        Ok(Reply { denial, patch, warnings })
    }
}

fn patch(response: &Map<String, Value>, mutating: bool) -> Result<Option<json_patch::Patch>, String> {
    let patch = response.get("patch").and_then(Value::as_str).filter(|patch| !patch.is_empty());
    let kind = response.get("patchType").and_then(Value::as_str);
    match (patch, kind) {
        (Some(_), _) if !mutating => Err("validating webhook may not return response.patch".to_owned()),
        (_, Some(_)) if !mutating => Err("validating webhook may not return response.patchType".to_owned()),
        (Some(_), None) => Err("webhook returned response.patch but not response.patchType".to_owned()),
        (None, Some(_)) => Err("webhook returned response.patchType but not response.patch".to_owned()),
        (Some(encoded), Some("JSONPatch")) => {
            let patch =
                BASE64_STANDARD.decode(encoded).map_err(|error| format!("couldn't decode the patch: {error}"))?;
            let patch: json_patch::Patch =
                serde_json::from_slice(&patch).map_err(|error| format!("couldn't decode the patch: {error}"))?;
            Ok(Some(patch).filter(|patch| !patch.is_empty()))
        }
        (Some(_), Some(kind)) => Err(format!("unsupported patch type {kind:?}")),
        (None, None) => Ok(None),
    }
}
