//! Files of manifests, and the pods in them.

use std::io;
use std::path::Path;

use anyhow::anyhow;
use serde_json::Value;

use crate::text::first_line;

/// Text of a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    if path == Path::new("-") { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) }
}

/// Objects of a text of one or more documents.
pub(crate) fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    serde_saphyr::from_multiple(text).map_err(|error| anyhow!(first_line(&error)))
}

/// The object itself, if it is a pod, or its template: in its spec, or, a CronJob's, in that of its job.
pub(crate) fn template(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Pod" => Some(object),
        "CronJob" => object.pointer("/spec/jobTemplate/spec/template"),
        _ => object.pointer("/spec/template").filter(|template| template["spec"]["containers"].is_array()),
    }
}
