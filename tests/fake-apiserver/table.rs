//! How answers show objects: whole, by their metadata alone, or as rows of a table.

use serde_json::{Value, json};

use super::object::Object;
use super::resource::Resource;
use super::status::{Answer, Refusal};

/// What a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    Table(Include),
}

/// What a table's rows have besides their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// Everything about a list but its items.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) revision: u64,
    /// Where the next page starts; empty on the last one.
    pub(crate) next: String,
    /// How many items come after this page.
    pub(crate) remaining: usize,
}

// === impl Form ===

impl Form {
    /// The first form of an Accept header that is served here.
    pub(crate) fn accepted(accept: &str, include: &str) -> Answer<Self> {
        if accept.is_empty() {
            return Ok(Self::Whole);
        }
        accept.split(',').find_map(|range| Self::of(range, include)).ok_or_else(Refusal::not_acceptable)
    }

    fn of(range: &str, include: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next()?;
        let mut wanted = parts.filter_map(|part| part.strip_prefix("as="));
        match (media, wanted.next()) {
            ("application/json" | "application/*" | "*/*", None) => Some(Self::Whole),
            ("application/json", Some("Table")) => Some(Self::Table(match include {
                "None" => Include::Nothing,
                "Object" => Include::Object,
                _ => Include::Metadata,
            })),
            ("application/json", Some("PartialObjectMetadata" | "PartialObjectMetadataList")) => Some(Self::Metadata),
            _ => None,
        }
    }

    /// One object.
    pub(crate) fn one(self, resource: &Resource, kept: &Object) -> Value {
        match self {
            Self::Whole => resource.show(kept),
            Self::Metadata => partial(kept),
            Self::Table(include) => {
                let version = &kept["metadata"]["resourceVersion"];
                table(resource, &[kept], include, &json!({ "resourceVersion": version }))
            }
        }
    }

    /// A list.
    pub(crate) fn list(self, resource: &Resource, kept: &[&Object], page: &Page) -> Value {
        let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
        if !page.next.is_empty() {
            metadata["continue"] = page.next.as_str().into();
            metadata["remainingItemCount"] = page.remaining.into();
        }
        let (kind, version, items): (_, _, Vec<Value>) = match self {
            Self::Table(include) => return table(resource, kept, include, &metadata),
            Self::Metadata => (
                "PartialObjectMetadataList".to_owned(),
                "meta.k8s.io/v1".to_owned(),
                kept.iter().map(|object| partial(object)).collect(),
            ),
            Self::Whole => {
                let shown = kept.iter().map(|object| listed(resource, object));
                (format!("{}List", resource.kind), resource.api_version(), shown.collect())
            }
        };
        json!({ "kind": kind, "apiVersion": version, "metadata": metadata, "items": items })
    }
}

/// An item of a list: those of built-in kinds don't repeat what they are.
fn listed(resource: &Resource, kept: &Object) -> Value {
    let mut shown = resource.show(kept);
    if let Some(fields) = shown.as_object_mut().filter(|_| !resource.is_custom()) {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    shown
}

fn partial(kept: &Object) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": kept["metadata"] })
}

fn table(resource: &Resource, kept: &[&Object], include: Include, metadata: &Value) -> Value {
    let columns = resource.columns.iter().map(|column| {
        let format = if column.name == "Name" { "name" } else { "" };
        json!({ "name": column.name, "type": column.kind, "format": format, "description": "", "priority": column.priority })
    });
    let rows = kept.iter().map(|object| {
        let cells: Vec<Value> = resource.columns.iter().map(|column| column.cell(object)).collect();
        let shown = match include {
            Include::Nothing => Value::Null,
            Include::Metadata => partial(object),
            Include::Object => resource.show(object),
        };
        json!({ "cells": cells, "object": shown })
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns.collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>(),
    })
}
