//! What the API server noted of the daemon's writes, and of bindings.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::files::Files;

/// Writes by what was written (`patch nodes/status`) and the status code of the answer.
pub type Writes = BTreeMap<(String, u16), u64>;

const DAEMON: &str = "system:serviceaccount:divvy-system:divvy-node";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    user: User,
    object_ref: Object,
    stage_timestamp: Timestamp,
    response_status: Option<Status>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Object {
    resource: String,
    subresource: Option<String>,
}

#[derive(Deserialize)]
struct Status {
    code: u16,
}

/// What is noted: writes of the daemon's account, and bindings.
pub fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "Metadata",
                "users": [DAEMON],
                "verbs": ["create", "update", "patch", "delete"],
            },
            {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]},
            {"level": "None"},
        ],
    })
}

/// Where it is noted.
pub fn path(files: &Files) -> PathBuf {
    files.at("audit.log")
}

/// When pods were bound until now, in seconds of an epoch.
pub fn bindings(files: &Files) -> anyhow::Result<Vec<f64>> {
    let is_binding = |event: &Event| {
        event.object_ref.subresource.as_deref() == Some("binding")
            && event.response_status.as_ref().is_some_and(|status| status.code == 201)
    };
    let events = events(files)?.into_iter().filter(is_binding);
    Ok(events.map(|event| event.stage_timestamp.as_duration().as_secs_f64()).collect())
}

/// All of the daemon's until now.
pub fn writes(files: &Files) -> anyhow::Result<Writes> {
    let mut writes = Writes::new();
    for event in events(files)?.into_iter().filter(|event| event.user.username == DAEMON) {
        let Object { resource, subresource } = event.object_ref;
        let parts = subresource.map_or(resource.clone(), |subresource| format!("{resource}/{subresource}"));
        let code = event.response_status.map_or(0, |status| status.code);
        *writes.entry((format!("{} {parts}", event.verb), code)).or_default() += 1;
    }
    Ok(writes)
}

fn events(files: &Files) -> anyhow::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path(files)).context("reading the audit log")?;
    // The last line may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).with_context(|| format!("audit log: {line}"))).collect()
}

/// Those of `after` that aren't in `before`.
pub fn since(before: &Writes, after: Writes) -> Writes {
    let earlier = |what: &(String, u16)| before.get(what).copied().unwrap_or_default();
    let new = after.into_iter().map(|(what, count)| (what.clone(), count.saturating_sub(earlier(&what))));
    new.filter(|(_, count)| *count > 0).collect()
}
