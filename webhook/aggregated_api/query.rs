//! Parameters of lists and watches, and which of them contradict one another: as `ValidateListOptions` of
//! `k8s.io/apimachinery/pkg/apis/meta/internalversion/validation`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::ParseIntError;
use std::time::Duration;

use super::status::StatusError;
use super::store::Version;

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

/// Parameters as they are written; the last one of a name counts. Unknown ones are passed over, as everywhere in Kubernetes.
struct Parameters<'q>(BTreeMap<Cow<'q, str>, Cow<'q, str>>);

// === impl Query ===

impl Query {
    /// Reads a query string.
    pub fn parse(query: &str) -> Result<Self, StatusError> {
        let given = Parameters(form_urlencoded::parse(query.as_bytes()).collect());
        if given.text("labelSelector").is_some() {
            return Err(StatusError::bad_request("labelSelector: the objects have no labels"));
        }
        if given.text("continue").is_some() {
            return Err(StatusError::bad_request("continue: lists are whole, so no token of one is known"));
        }
        given.number("limit")?;
        let timeout = given.number("timeoutSeconds")?;
        let name = given.name()?;
        let include = given.text("includeObject").map(str::to_owned);
        let verb = if given.flag("watch") == Some(true) { given.watch(timeout)? } else { given.list()? };
        Ok(Self { name, include, verb })
    }
}

// === impl Parameters ===

impl Parameters<'_> {
    /// None: absent, or empty.
    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| &**value).filter(|value| !value.is_empty())
    }

    /// As Kubernetes converts it: what is neither 0 nor false is true.
    fn flag(&self, key: &str) -> Option<bool> {
        self.0.get(key).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn number(&self, key: &str) -> Result<Option<i64>, StatusError> {
        let refuse = |text, error| StatusError::bad_request(format!("{key} {text:?}: {error}"));
        self.text(key).map(|text| text.parse().map_err(|error: ParseIntError| refuse(text, error))).transpose()
    }

    /// What selects by `metadata.name`, which is the only field.
    fn name(&self) -> Result<Option<String>, StatusError> {
        let Some(fields) = self.text("fieldSelector") else { return Ok(None) };
        let name = fields.strip_prefix("metadata.name=").map(|name| name.strip_prefix('=').unwrap_or(name));
        let name = name.filter(|name| !name.is_empty() && !name.contains([',', '=', '\\', '!']));
        let why =
            || StatusError::bad_request(format!("fieldSelector {fields:?}: only metadata.name=NAME is supported"));
        name.map(|name| Some(name.to_owned())).ok_or_else(why)
    }

    /// None: any; `0` is that too.
    fn version(&self) -> Result<Option<Version>, StatusError> {
        let Some(text) = self.text("resourceVersion").filter(|text| *text != "0") else { return Ok(None) };
        text.parse().map(Some).map_err(|error| StatusError::bad_request(format!("resourceVersion {text:?}: {error}")))
    }

    fn list(&self) -> Result<Verb, StatusError> {
        if self.flag("sendInitialEvents").is_some() {
            return Err(StatusError::invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"));
        }
        match (self.text("resourceVersionMatch"), self.text("resourceVersion")) {
            (Some(_), None) => {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                return Err(StatusError::invalid(format!("resourceVersionMatch: Forbidden: {why}")));
            }
            (None, _) | (Some("NotOlderThan"), Some(_)) => {}
            // Older states aren't kept.
            (Some("Exact"), Some(_)) => {
                return Err(StatusError::invalid("resourceVersionMatch: Forbidden: Exact isn't supported"));
            }
            (Some(other), Some(_)) => return Err(unknown_match(other)),
        }
        Ok(Verb::List(self.version()?))
    }

    /// `timeout` in seconds.
    fn watch(&self, timeout: Option<i64>) -> Result<Verb, StatusError> {
        let version = self.version()?;
        let initial_events = self.flag("sendInitialEvents");
        match (initial_events, self.text("resourceVersionMatch")) {
            (None, Some(_)) => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                return Err(StatusError::invalid(format!("resourceVersionMatch: Forbidden: {why}")));
            }
            (Some(_), None) => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                return Err(StatusError::invalid(format!("resourceVersionMatch: Forbidden: {why}")));
            }
            (Some(_), Some(other)) if other != "NotOlderThan" => return Err(unknown_match(other)),
            _ => {}
        }
        let start = match (initial_events, version) {
            (Some(true), version) => Start::MarkedObjects(version),
            (None, None) => Start::Objects,
            (_, version) => Start::After(version),
        };
        Ok(Verb::Watch(WatchQuery {
            start,
            bookmarks: self.flag("allowWatchBookmarks") == Some(true),
            // 0 means as long as the server allows.
            timeout: timeout.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.cast_unsigned())),
            is_plain: self.0.keys().all(|key| key == "watch"),
        }))
    }
}

fn unknown_match(text: &str) -> StatusError {
    StatusError::invalid(format!(
        "resourceVersionMatch: Unsupported value: {text:?}: supported values: \"NotOlderThan\""
    ))
}

#[cfg(test)]
mod tests;
