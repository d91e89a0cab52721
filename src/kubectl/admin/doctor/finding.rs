//! Results of the checks.

use std::fmt;

use serde::Serialize;

use super::DoctorReport;
use crate::cluster::Refusal;
use crate::text::plain;

/// What a check found of one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Kind of the link, with a name where there may be several: `node node-1`.
    pub link: String,
    /// How it is.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// How a link is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
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

// === impl Verdict ===

impl Verdict {
    pub(super) fn ok(found: impl Into<String>) -> Self {
        Self { state: State::Ok, found: found.into(), remedy: None }
    }

    pub(super) fn warning(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Warning, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn failed(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Failed, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// A link that couldn't be read is broken, unless the user lacks the right.
    pub(super) fn unseen(refused: &Refusal) -> Self {
        let (state, found) = match refused {
            Refusal::Forbidden(message) => (State::NotChecked, format!("missing permission: {message}")),
            other => (State::Failed, other.to_string()),
        };
        Self { state, found, remedy: None }
    }

    /// The verdict as a finding about a link.
    pub(super) fn about(self, link: impl Into<String>) -> Finding {
        Finding { link: link.into(), verdict: self }
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

// === impl DoctorReport ===

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|finding| finding.link.chars().count()).max().unwrap_or(0) + GAP;
        for Finding { link, verdict: Verdict { state, found, remedy } } in &self.checks {
            writeln!(f, "{:STATE$}{:width$}{}", state.to_string(), plain(link), plain(found))?;
            remedy.iter().try_for_each(|remedy| writeln!(f, "{:STATE$}{:width$}do: {}", "", "", plain(remedy)))?;
        }
        let count = |state: State| self.checks.iter().filter(|finding| finding.verdict.state == state).count();
        let [failed, warnings, not_checked] = [State::Failed, State::Warning, State::NotChecked].map(count);
        let plural = if warnings == 1 { "" } else { "s" };
        writeln!(f, "\n{failed} failed, {warnings} warning{plural}, {not_checked} not checked")
    }
}
