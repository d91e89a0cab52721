//! Result of checking one link.

use std::fmt;

use serde::Serialize;

use super::Report;
use crate::cluster::Refusal;
use crate::text::plain;

/// One link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Kind of the link, with a name where there may be several: `node node-1`.
    pub link: String,
    /// Whether it holds.
    pub state: State,
    /// The finding, in words.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Whether a link holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The link works.
    Ok,
    /// The link works, but not as it should.
    Warning,
    /// The link is broken.
    Failed,
    /// The state of the link is unknown.
    NotChecked,
}

/// Width of the column of states.
const STATE: usize = 14;
/// Between two columns.
const GAP: usize = 3;

// === impl Check ===

impl Check {
    pub(super) fn ok(link: impl Into<String>, found: impl Into<String>) -> Self {
        Self { link: link.into(), state: State::Ok, found: found.into(), remedy: None }
    }

    pub(super) fn warning(link: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { link: link.into(), state: State::Warning, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn failed(link: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { link: link.into(), state: State::Failed, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// A link that couldn't be read: failed, unless the user lacks the right.
    pub(super) fn unseen(link: impl Into<String>, refused: &Refusal) -> Self {
        let (state, found) = match refused {
            Refusal::Forbidden(message) => (State::NotChecked, format!("missing permission: {message}")),
            other => (State::Failed, other.to_string()),
        };
        Self { link: link.into(), state, found, remedy: None }
    }
}

// === impl State ===

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "FAILED",
            Self::NotChecked => "not checked",
        })
    }
}

// === impl Report ===

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|check| check.link.chars().count()).max().unwrap_or(0) + GAP;
        for Check { link, state, found, remedy } in &self.checks {
            writeln!(f, "{:STATE$}{:width$}{}", state.to_string(), plain(link), plain(found))?;
            remedy.iter().try_for_each(|remedy| writeln!(f, "{:STATE$}{:width$}do: {}", "", "", plain(remedy)))?;
        }
        let count = |state: State| self.checks.iter().filter(|check| check.state == state).count();
        let [failed, warnings, not_checked] = [State::Failed, State::Warning, State::NotChecked].map(count);
        let plural = if warnings == 1 { "" } else { "s" };
        writeln!(f, "\n{failed} failed, {warnings} warning{plural}, {not_checked} not checked")
    }
}
