//! The four kinds of patch.

use std::sync::Arc;

use serde_json::{Value, json};

use super::fields::{self, Entry};
use super::object::{self, Object, items, metadata};
use super::shape::Shape;
use super::status::{Answer, Fault, Refusal};
use super::store::Store;
use super::strategic;
use super::target::Target;
use super::write::{Draft, Writer};

/// What a patch is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// RFC 6902.
    Json,
    /// RFC 7396.
    Merge,
    /// Kubernetes' own: lists merge by keys.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// The formats by their media types.
const FORMATS: &[(&str, Format)] = &[
    ("application/json-patch+json", Format::Json),
    ("application/merge-patch+json", Format::Merge),
    ("application/strategic-merge-patch+json", Format::Strategic),
    ("application/apply-patch+yaml", Format::Apply),
];

// === impl Format ===

impl Format {
    /// The format of a Content-Type; custom resources have no strategic merge patch.
    pub(crate) fn of(content_type: &str, custom: bool) -> Answer<Self> {
        let known = FORMATS.iter().filter(|(_, format)| !custom || *format != Self::Strategic);
        let media = content_type.split(';').next().unwrap_or_default().trim();
        known
            .clone()
            .find(|(name, _)| *name == media)
            .map(|(_, format)| *format)
            .ok_or_else(|| Refusal::media_type(&known.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")))
    }
}

/// What becomes of an object by a patch; an apply may make a new one.
pub(crate) fn draft(
    store: &Store,
    target: &Target,
    format: Format,
    body: &Value,
    writer: &Writer,
    force: bool,
) -> Answer<Draft> {
    if format == Format::Apply {
        return apply(store, target, body, writer, force);
    }
    let resource = Arc::clone(&target.resource);
    let changed = |live: &Object| {
        let object = match format {
            Format::Json => json_patch(live, body)?,
            Format::Merge => {
                let mut object = live.clone();
                json_patch::merge(&mut object, body);
                object
            }
            Format::Strategic | Format::Apply => strategic::merge(live.clone(), body, Shape::of(&resource)),
        };
        if object::uid(&object) != object::uid(live) {
            let fault = Fault::invalid("metadata.uid", &object["metadata"]["uid"], "field is immutable");
            return Err(Refusal::invalid(&resource, &target.name, &[fault]));
        }
        Ok(object)
    };
    Draft::update(store, target, writer, changed)
}

fn json_patch(live: &Object, body: &Value) -> Answer<Object> {
    let patch: json_patch::Patch = serde_json::from_value(body.clone())
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    let mut object = live.clone();
    json_patch::patch(&mut object, &patch).map_err(|error| Refusal::unprocessable(&error.to_string()))?;
    Ok(object)
}

fn apply(store: &Store, target: &Target, body: &Value, writer: &Writer, force: bool) -> Answer<Draft> {
    let resource = Arc::clone(&target.resource);
    if writer.manager.is_empty() {
        let fault = Fault::required("fieldManager", "is required for apply patch");
        return Err(Refusal::invalid_options("PatchOptions", &fault));
    }
    if !items(body, "/metadata/managedFields").is_empty() {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    let mut config = body.clone();
    if resource.has("status") && target.subresource.is_empty() {
        object::map(&mut config).remove("status");
    } else if target.subresource == "status" {
        object::map(&mut config)
            .retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    }
    if let Some(field) = resource.undeclared(&config) {
        let of = format!("/{}; {}, Kind={}", target.name, resource.api_version(), resource.kind);
        return Err(Refusal::internal(&format!(
            "failed to create typed patch object ({of}): {field}: field not declared in schema"
        )));
    }
    metadata(&mut config).entry("name").or_insert_with(|| target.name.as_str().into());
    let entry = Entry::new(&writer.manager, "Apply", &target.subresource, body);
    let merge = |live: &Object| {
        fields::apply(live, &config, Shape::of(&resource), entry.clone(), force).map_err(Refusal::apply_conflict)
    };
    let recorded = Writer { recorded: true, ..writer.clone() };
    if target.live(store).is_ok() || !target.subresource.is_empty() {
        return Draft::update(store, target, &recorded, merge);
    }
    Draft::create(store, target, &merge(&json!({}))?, &recorded)
}
