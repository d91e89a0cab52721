//! Parameters of lists and watches, and which of them contradict one another: as `ValidateListOptions` of
//! `k8s.io/apimachinery/pkg/apis/meta/internalversion/validation`.

use std::time::Duration;

use super::status::Refusal;
use crate::store::Version;

/// A list, or a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The only object that is of interest.
    pub name: Option<String>,
    /// Whether the form of Tables has been restricted.
    pub include: Option<String>,
    /// List or watch.
    pub verb: Verb,
}

/// What is asked of the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// All of them, of this version or a newer one.
    List(Option<Version>),
    /// All changes.
    Watch(WatchQuery),
}

/// A watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchQuery {
    /// Where it begins.
    pub start: Start,
    /// Whether versions are sent while nothing changes.
    pub bookmarks: bool,
    /// Longest time, if the client states one.
    pub timeout: Option<Duration>,
    /// Whether nothing but `watch=true` was said, as nvidia-gpu-scheduler's clients do.
    pub is_plain: bool,
}

/// Beginning of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The objects as they are now.
    Objects,
    /// The objects as they are now, this version or a newer one, with a bookmark after them.
    MarkedObjects(Option<Version>),
    /// The changes after this version; after the latest one where none is stated.
    After(Option<Version>),
}

/// Parameters as they are written; the last one of a name counts.
#[derive(Debug, Default)]
struct Parameters {
    watch: Option<bool>,
    resource_version: Option<String>,
    resource_version_match: Option<String>,
    send_initial_events: Option<bool>,
    bookmarks: bool,
    timeout: Option<Duration>,
    fields: String,
    labels: String,
    token: String,
    include: Option<String>,
    /// Whether there was another one than `watch`.
    has_others: bool,
}

// === impl Query ===

impl Query {
    /// Reads a query string.
    pub fn parse(query: &str) -> Result<Self, Refusal> {
        let given = Parameters::read(query)?;
        let name = name(&given.fields)?;
        if !given.labels.is_empty() {
            return Err(Refusal::bad_request("labelSelector: the objects have no labels"));
        }
        if !given.token.is_empty() {
            return Err(Refusal::bad_request("continue: lists are whole, so no token of one is known"));
        }
        let include = given.include.clone();
        let verb = if given.watch == Some(true) { given.watch()? } else { given.list()? };
        Ok(Self { name, include, verb })
    }
}

/// What selects by `metadata.name`, which is the only field.
fn name(fields: &str) -> Result<Option<String>, Refusal> {
    if fields.is_empty() {
        return Ok(None);
    }
    let name = fields.strip_prefix("metadata.name=").map(|name| name.strip_prefix('=').unwrap_or(name));
    let name = name.filter(|name| !name.is_empty() && !name.contains([',', '=', '\\', '!']));
    let refuse = || Refusal::bad_request(format!("fieldSelector {fields:?}: only metadata.name=NAME is supported"));
    name.map(|name| Some(name.to_owned())).ok_or_else(refuse)
}

// === impl Parameters ===

impl Parameters {
    fn read(query: &str) -> Result<Self, Refusal> {
        let mut given = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            given.has_others |= key != "watch";
            match &*key {
                "watch" => given.watch = Some(flag(&value)),
                "resourceVersion" => given.resource_version = some(&value),
                "resourceVersionMatch" => given.resource_version_match = some(&value),
                "sendInitialEvents" => given.send_initial_events = Some(flag(&value)),
                "allowWatchBookmarks" => given.bookmarks = flag(&value),
                "timeoutSeconds" => given.timeout = some(&value).map(|text| seconds(&text)).transpose()?.flatten(),
                "limit" if !value.is_empty() => {
                    let refuse = |error| Refusal::bad_request(format!("limit {value:?}: {error}"));
                    value.parse::<i64>().map_err(refuse)?;
                }
                "fieldSelector" => given.fields = value.into_owned(),
                "labelSelector" => given.labels = value.into_owned(),
                "continue" => given.token = value.into_owned(),
                "includeObject" => given.include = some(&value),
                // Unknown ones are passed over, as everywhere in Kubernetes.
                _ => {}
            }
        }
        Ok(given)
    }

    /// None: any; `0` is that too.
    fn version(&self) -> Result<Option<Version>, Refusal> {
        let Some(text) = self.resource_version.as_deref().filter(|text| *text != "0") else { return Ok(None) };
        text.parse().map(Some).map_err(|error| Refusal::bad_request(format!("resourceVersion {text:?}: {error}")))
    }

    fn list(&self) -> Result<Verb, Refusal> {
        if self.send_initial_events.is_some() {
            return Err(Refusal::invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"));
        }
        match (self.resource_version_match.as_deref(), self.resource_version.as_deref()) {
            (Some(_), None) => {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                return Err(Refusal::invalid(format!("resourceVersionMatch: Forbidden: {why}")));
            }
            (None, _) | (Some("NotOlderThan"), Some(_)) => {}
            // Older states aren't kept.
            (Some("Exact"), Some(_)) => {
                return Err(Refusal::invalid("resourceVersionMatch: Forbidden: Exact isn't supported"));
            }
            (Some(other), Some(_)) => return Err(unknown_match(other)),
        }
        Ok(Verb::List(self.version()?))
    }

    fn watch(&self) -> Result<Verb, Refusal> {
        let version = self.version()?;
        match (self.send_initial_events, self.resource_version_match.as_deref()) {
            (None, Some(_)) => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                return Err(Refusal::invalid(format!("resourceVersionMatch: Forbidden: {why}")));
            }
            (Some(_), None) => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                return Err(Refusal::invalid(format!("resourceVersionMatch: Forbidden: {why}")));
            }
            (Some(_), Some(other)) if other != "NotOlderThan" => return Err(unknown_match(other)),
            _ => {}
        }
        let start = match (self.send_initial_events, version) {
            (Some(true), version) => Start::MarkedObjects(version),
            (None, None) => Start::Objects,
            (_, version) => Start::After(version),
        };
        let (bookmarks, timeout) = (self.bookmarks, self.timeout);
        Ok(Verb::Watch(WatchQuery { start, bookmarks, timeout, is_plain: !self.has_others }))
    }
}

fn unknown_match(text: &str) -> Refusal {
    Refusal::invalid(format!("resourceVersionMatch: Unsupported value: {text:?}: supported values: \"NotOlderThan\""))
}

fn some(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

/// As Kubernetes converts it: what is neither 0 nor false is true.
fn flag(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

/// None: as long as the server allows, which 0 means too.
fn seconds(text: &str) -> Result<Option<Duration>, Refusal> {
    let seconds = text.parse::<i64>();
    let seconds = seconds.map_err(|error| Refusal::bad_request(format!("timeoutSeconds {text:?}: {error}")))?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds.cast_unsigned())))
}

#[cfg(test)]
mod tests;
