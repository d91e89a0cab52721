//! Lists and events in the form that the client accepts.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};

use super::accept::{Form, Include};
use super::objects::{API_VERSION, ServedKind};
use super::status::StatusError;
use super::store::{Change, Event, Listing, Object, Version};

/// An annotation that says: what comes now is no longer the beginning.
const END_OF_BEGINNING: &str = "k8s.io/initial-events-end";

// === impl Form ===

impl Form {
    /// JSON of a list.
    pub fn list(self, kind: ServedKind, listing: &Listing) -> serde_json::Result<Vec<u8>> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct List<'a> {
            kind: String,
            api_version: &'a str,
            metadata: Value,
            items: Vec<&'a Object>,
        }
        let metadata = json!({ "resourceVersion": listing.version.to_string() });
        match self {
            Self::Tables(include) => {
                serde_json::to_vec(&table(kind, true, &metadata, listing.objects.iter().map(|it| row(it, include))))
            }
            Self::Objects | Self::Legacy => {
                let items = listing.objects.iter().map(|object| &**object).collect();
                let kind = format!("{}List", kind.as_str());
                serde_json::to_vec(&List { kind, api_version: API_VERSION, metadata, items })
            }
        }
    }

    /// An object.
    pub fn object(self, object: &Object, is_first: bool) -> Value {
        match self {
            Self::Tables(include) => {
                let metadata = json!({ "resourceVersion": object.version.to_string() });
                table(object.kind, is_first, &metadata, std::iter::once(row(object, include)))
            }
            Self::Objects | Self::Legacy => json!(object),
        }
    }

    /// A line of a watch. Only the first Table says what its columns are.
    pub fn event(self, event: &Event, is_first: bool) -> Value {
        let object = self.object(&event.object, is_first);
        if self == Self::Legacy {
            let what = if event.change == Change::Deleted { "DELETED" } else { "SYNCED" };
            return json!({ "Type": what, "Object": object });
        }
        let what = match event.change {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        };
        json!({ "type": what, "object": object })
    }

    /// A line that states a version.
    pub fn bookmark(self, kind: ServedKind, version: Version, ends_beginning: bool) -> Value {
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if ends_beginning {
            metadata["annotations"] = json!({ END_OF_BEGINNING: "true" });
        }
        let object = match self {
            Self::Tables(_) => table(kind, false, &metadata, std::iter::empty()),
            Self::Objects | Self::Legacy => {
                json!({ "kind": kind.as_str(), "apiVersion": API_VERSION, "metadata": metadata })
            }
        };
        json!({ "type": "BOOKMARK", "object": object })
    }

    /// The last line of a watch that can't go on. nvidia-gpu-scheduler's form has none: its watch just ends.
    pub fn error(self, error: &StatusError) -> Option<Value> {
        (self != Self::Legacy).then(|| json!({ "type": "ERROR", "object": error.json() }))
    }
}

fn table(kind: ServedKind, has_columns: bool, metadata: &Value, rows: impl Iterator<Item = Value>) -> Value {
    let columns = if has_columns { columns(kind) } else { json!([]) };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns,
        "rows": rows.collect::<Vec<_>>(),
    })
}

/// Names, types and descriptions of the columns; those of priority 1 are shown with `-o wide`.
fn columns(kind: ServedKind) -> Value {
    let columns: &[_] = match kind {
        ServedKind::PodResource => &[
            ("Name", "name", 0, "namespace and name of the pod"),
            ("Namespace", "", 0, "namespace of the pod"),
            ("Pod", "", 0, "name of the pod"),
            ("Node", "", 0, "node of the GPUs"),
            ("GPUs", "", 0, "GPUs that the pod holds shares of"),
            ("Model", "", 0, "models of the GPUs"),
            ("IDs", "", 1, "UUIDs of the GPUs"),
        ],
        ServedKind::GpuInfo => &[
            ("Name", "name", 0, "name of the node"),
            ("Healthy", "", 0, "whether the node's daemon is ready"),
            ("GPUs", "", 0, "GPUs of the node"),
            ("Busy", "", 0, "GPUs of which a container holds a share"),
            ("Model", "", 0, "models of the GPUs"),
            ("Reported", "", 1, "when the node's report was written"),
        ],
    };
    columns.iter().map(|(name, format, priority, description)| column(name, format, *priority, description)).collect()
}

fn column(name: &str, format: &str, priority: u32, description: &str) -> Value {
    let kind = if matches!(name, "GPUs" | "Busy") { "integer" } else { "string" };
    json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority })
}

fn row(object: &Object, include: Include) -> Value {
    let mut row = json!({ "cells": cells(object) });
    match include {
        Include::None => {}
        Include::Metadata => {
            let kind = "PartialObjectMetadata";
            let version = "meta.k8s.io/v1";
            row["object"] = json!({ "kind": kind, "apiVersion": version, "metadata": object.metadata() });
        }
        Include::Object => row["object"] = json!(object),
    }
    row
}

fn cells(object: &Object) -> Value {
    let spec = object.spec();
    match object.kind {
        ServedKind::PodResource => {
            let containers = spec["containers_device"].as_array().into_iter().flatten();
            let devices: Vec<&Value> =
                containers.flat_map(|it| it["device_info"].as_array().into_iter().flatten()).collect();
            let set = |key| devices.iter().filter_map(|device| device[key].as_str()).collect::<BTreeSet<_>>();
            let ids = set("device_id");
            json!([
                object.name,
                spec["pod_namespace"],
                spec["pod_name"],
                join(set("device_node")),
                ids.len(),
                join(models(&devices)),
                join(ids),
            ])
        }
        ServedKind::GpuInfo => {
            let devices: Vec<&Value> =
                spec["device_infos"].as_object().into_iter().flatten().map(|(_, device)| device).collect();
            let busy = spec["device_busy"].as_array().map_or(0, Vec::len);
            let health = object.status()["node_health"].clone();
            json!([
                object.name,
                health,
                devices.len(),
                busy,
                join(models(&devices)),
                spec["report_time"].as_str().unwrap_or("")
            ])
        }
    }
}

/// Models of GPUs; of those that their node doesn't report, nobody knows them.
fn models<'a>(devices: &[&'a Value]) -> BTreeSet<&'a str> {
    devices.iter().map(|device| device["device_model"].as_str().unwrap_or("<not reported>")).collect()
}

fn join(texts: BTreeSet<&str>) -> String {
    texts.into_iter().collect::<Vec<_>>().join(",")
}
