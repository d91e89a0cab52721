//! What the API server noted of the daemon's writes, and of bindings.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
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

/// Bindings, as the API server notes them.
#[derive(Debug)]
pub struct Bindings {
    log: PathBuf,
    /// Bytes that were read.
    read: u64,
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
    parsed(whole(&text))
}

/// The last line may be half written.
fn whole(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}

fn parsed(lines: &str) -> anyhow::Result<Vec<Event>> {
    lines.lines().map(|line| serde_json::from_str(line).with_context(|| format!("audit log: {line}"))).collect()
}

/// Those of `after` that aren't in `before`.
pub fn since(before: &Writes, after: Writes) -> Writes {
    let earlier = |what: &(String, u16)| before.get(what).copied().unwrap_or_default();
    let new = after.into_iter().map(|(what, count)| (what.clone(), count.saturating_sub(earlier(&what))));
    new.filter(|(_, count)| *count > 0).collect()
}

// === impl Bindings ===

impl Bindings {
    /// Those from now on.
    pub fn from_now_on(files: &Files) -> anyhow::Result<Self> {
        let log = path(files);
        let read = std::fs::metadata(&log).context("looking at the audit log")?.len();
        Ok(Self { log, read })
    }

    /// When pods were bound since the last look, in seconds of an epoch. To ask the API server which pods wait would cost it
    /// more than a binding does.
    pub fn new_ones(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut log = File::open(&self.log).context("opening the audit log")?;
        log.seek(SeekFrom::Start(self.read)).context("reading the audit log")?;
        let mut text = String::new();
        log.read_to_string(&mut text).context("reading the audit log")?;
        let lines = whole(&text);
        self.read += u64::try_from(lines.len())?;
        let is_binding = |event: &Event| {
            event.object_ref.subresource.as_deref() == Some("binding")
                && event.response_status.as_ref().is_some_and(|status| status.code == 201)
        };
        let events = parsed(lines)?.into_iter().filter(is_binding);
        Ok(events.map(|event| event.stage_timestamp.as_duration().as_secs_f64()).collect())
    }
}
