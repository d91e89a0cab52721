#![expect(clippy::needless_pass_by_value, reason = "so that json! can stand in the arguments")]

mod copies;
mod costs;
mod dialects;
mod gates;
mod hints;
mod jobs;
mod mutating;
mod pages;
mod properties;
mod rules;
mod selection;
mod validating;
mod variables;
mod wire;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;

/// What is answered, decoded.
#[derive(Debug)]
struct Reply {
    allowed: bool,
    /// "422 Invalid: …"
    status: String,
    patch: Vec<Value>,
    warnings: Vec<String>,
}

fn nothing_known(_: &Demand) -> Option<Feasibility> {
    None
}

fn pod(containers: Value) -> Value {
    json!({ "metadata": { "name": "train" }, "spec": { "containers": containers } })
}

/// A container with these limits, and requests as the API server derives them.
fn container(name: &str, limits: Value) -> Value {
    json!({ "name": name, "resources": { "limits": limits, "requests": limits } })
}

fn question(operation: &str, kind: &str, object: Value, old: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5", "operation": operation, "namespace": "ml", "dryRun": false, "options": null,
            "kind": { "group": "", "version": "v1", "kind": kind },
            "object": object, "oldObject": old,
        },
    })
}

fn reply(body: &[u8]) -> Reply {
    let review: Value = serde_json::from_slice(body).expect("a review");
    assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
    let response = &review["response"];
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let status = &response["status"];
    let patch = response["patch"].as_str().map(|patch| BASE64_STANDARD.decode(patch).expect("base64"));
    assert_eq!(patch.is_some(), response["patchType"] == "JSONPatch");
    Reply {
        allowed: response["allowed"].as_bool().expect("a verdict"),
        status: format!("{} {}: {}", status["code"], text(&status["reason"]), text(&status["message"])),
        patch: patch.map(|patch| serde_json::from_slice(&patch).expect("a patch")).unwrap_or_default(),
        warnings: response["warnings"].as_array().into_iter().flatten().map(text).collect(),
    }
}

fn ask(endpoint: Endpoint, settings: &Settings, question: &Value) -> Reply {
    reply(&review(question.to_string().as_bytes(), endpoint, settings, &nothing_known).body)
}

fn mutate_with(settings: &Settings, pod: &Value) -> Reply {
    ask(Endpoint::Mutate, settings, &question("CREATE", "Pod", pod.clone(), Value::Null))
}

fn mutate_new(pod: &Value) -> Reply {
    mutate_with(&Settings::default(), pod)
}

/// Settings by which variables that say something else than the limits are refused.
fn refusing() -> Settings {
    Settings { conflicting_variables: ConflictingVariables::Refuse, ..Settings::default() }
}

fn hide_new(pod: &Value) -> Reply {
    hide_with(&Settings::default(), pod)
}

fn hide_with(settings: &Settings, pod: &Value) -> Reply {
    ask(Endpoint::Hide, settings, &question("CREATE", "Pod", pod.clone(), Value::Null))
}

fn validate_new(pod: &Value) -> Reply {
    ask(Endpoint::Validate, &Settings::default(), &question("CREATE", "Pod", pod.clone(), Value::Null))
}

fn validate_update(old: &Value, new: &Value) -> Reply {
    ask(Endpoint::Validate, &Settings::default(), &question("UPDATE", "Pod", new.clone(), old.clone()))
}

/// The pod after a patch.
fn apply(pod: &Value, patch: &[Value]) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(patch.into()).expect("a JSON patch");
    let mut pod = pod.clone();
    json_patch::patch(&mut pod, &patch).expect("it applies");
    pod
}

/// One line for each operation whose path holds `part`.
fn lines(operations: &[Value], part: &str) -> String {
    let line = |operation: &Value| {
        let text = |member: &str| operation[member].as_str().expect("a text").to_owned();
        let value = operation.get("value").map(|value| format!(" {value}")).unwrap_or_default();
        format!("{} {}{value}\n", text("op"), text("path"))
    };
    operations.iter().map(line).filter(|line| line.contains(part)).collect()
}

// === impl Reply ===

impl Reply {
    fn operations(&self) -> String {
        assert!(self.allowed, "{}", self.status);
        lines(&self.patch, "")
    }

    fn refusal(&self) -> &str {
        assert!(!self.allowed && self.patch.is_empty());
        &self.status
    }
}
