//! What the API server noted of the daemon's writes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::files::Files;

/// Writes by what was written (`patch nodes/status`) and the status code of the answer.
pub type Writes = BTreeMap<(String, u16), u64>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    object_ref: Object,
    response_status: Option<Status>,
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

/// What is noted: writes of the daemon's account.
pub fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "Metadata",
                "users": ["system:serviceaccount:divvy-system:divvy-node"],
                "verbs": ["create", "update", "patch", "delete"],
            },
            {"level": "None"},
        ],
    })
}

/// Where it is noted.
pub fn path(files: &Files) -> PathBuf {
    files.at("audit.log")
}

/// All of them until now.
pub fn writes(files: &Files) -> anyhow::Result<Writes> {
    let text = std::fs::read_to_string(path(files)).context("reading the audit log")?;
    // The last line may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut writes = Writes::new();
    for line in whole.lines() {
        let event: Event = serde_json::from_str(line).with_context(|| format!("audit log: {line}"))?;
        let Object { resource, subresource } = event.object_ref;
        let parts = subresource.map_or(resource.clone(), |subresource| format!("{resource}/{subresource}"));
        let code = event.response_status.map_or(0, |status| status.code);
        *writes.entry((format!("{} {parts}", event.verb), code)).or_default() += 1;
    }
    Ok(writes)
}

/// Those of `after` that aren't in `before`.
pub fn since(before: &Writes, after: Writes) -> Writes {
    let earlier = |what: &(String, u16)| before.get(what).copied().unwrap_or_default();
    let new = after.into_iter().map(|(what, count)| (what.clone(), count.saturating_sub(earlier(&what))));
    new.filter(|(_, count)| *count > 0).collect()
}
