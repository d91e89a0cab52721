//! What was found out: a table for people as it goes, and a file of JSON lines.

use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Where findings go.
#[derive(Default)]
pub(crate) struct Report {
    lines: Option<File>,
    good: usize,
    failed: usize,
}

/// A figure and what it must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finding {
    pub(crate) measured: f64,
    /// Between rounds, from the least to the greatest.
    pub(crate) spread: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) mark: Mark,
}

/// What a figure must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// For information only.
    Anything,
    Exactly(f64),
    AtMost(f64),
    AtLeast(f64),
    /// So much, give or take so much.
    Near(f64, f64),
    /// Both ends included.
    Between(f64, f64),
}

// === impl Report ===

impl Report {
    /// Into a directory, if one is given, which is made.
    pub(crate) fn new(directory: Option<&Path>) -> Result<Self> {
        let open = |directory: &Path| {
            fs::create_dir_all(directory).and_then(|()| File::create(directory.join("results.jsonl")))
        };
        let opened = directory.map(|to| open(to).with_context(|| format!("{}", to.display()))).transpose()?;
        Ok(Self { lines: opened, ..Self::default() })
    }

    /// Says something about what follows.
    pub(crate) fn say(&mut self, what: &str, text: &str) -> Result<()> {
        println!("{what:<8} {text}");
        self.keep(&json!({ "about": what, "is": text }))
    }

    /// Begins a part of the table.
    pub(crate) fn part(&mut self, title: &str) -> Result<()> {
        println!("\n{title:<66} {:>14} {:>10}  {:<18}", "measured", "spread", "expected");
        self.keep(&json!({ "part": title }))
    }

    /// Keeps a measurement: it is written at once, so that a run that is interrupted leaves what it has measured.
    pub(crate) fn keep(&mut self, measurement: &Value) -> Result<()> {
        match &mut self.lines {
            Some(lines) => Ok(writeln!(lines, "{measurement}")?),
            None => Ok(()),
        }
    }

    /// A line of the table.
    pub(crate) fn find(&mut self, what: &str, finding: Finding) -> Result<()> {
        let Finding { measured, spread, unit, mark } = finding;
        let holds = mark.holds(measured);
        let verdict = match (mark, holds) {
            (Mark::Anything, _) => "",
            (_, true) => "ok",
            (_, false) => "FAILED",
        };
        let number = |value: f64| format!("{} {unit}", plain(value));
        let (figure, apart) = (number(measured), spread.map(plain).unwrap_or_default());
        println!("{what:<66} {figure:>14} {apart:>10}  {:<18} {verdict}", mark.to_string());
        self.count(mark, holds);
        self.keep(&json!({
            "row": what, "measured": measured, "spread": spread, "unit": unit, "mark": mark.to_string(), "verdict": verdict,
        }))
    }

    /// A line of the table for what couldn't be measured: it counts as failed.
    pub(crate) fn broken(&mut self, what: &str, why: &str) -> Result<()> {
        println!("{what:<66} {why}  FAILED");
        self.failed += 1;
        self.keep(&json!({ "row": what, "error": why, "verdict": "FAILED" }))
    }

    /// A line of the table for what doesn't exist here.
    pub(crate) fn absent(&mut self, what: &str, why: &str) -> Result<()> {
        println!("{what:<66} {why}");
        self.keep(&json!({ "row": what, "absent": why }))
    }

    fn count(&mut self, mark: Mark, holds: bool) {
        match (mark, holds) {
            (Mark::Anything, _) => {}
            (_, true) => self.good += 1,
            (_, false) => self.failed += 1,
        }
    }

    /// Ends the table, and says whether everything held.
    pub(crate) fn close(mut self) -> Result<bool> {
        let text = format!("{} checks passed, {} failed", self.good, self.failed);
        println!();
        self.say("result", &text)?;
        io::stdout().flush()?;
        Ok(self.failed == 0)
    }
}

/// A number with as many digits as say something.
fn plain(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0 + 0.0; // which makes −0 a 0
    let digits = usize::from(value.abs() < 1000.0 && rounded.fract() != 0.0);
    format!("{rounded:.digits$}")
}

// === impl Mark ===

impl Mark {
    pub(crate) fn holds(self, measured: f64) -> bool {
        match self {
            Self::Anything => true,
            // Counted things, which a float holds exactly.
            Self::Exactly(wanted) => (measured - wanted).abs() < 0.5,
            Self::AtMost(most) => measured <= most,
            Self::AtLeast(least) => measured >= least,
            Self::Near(wanted, by) => (measured - wanted).abs() <= by,
            Self::Between(least, most) => (least..=most).contains(&measured),
        }
    }
}

impl Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Anything => Ok(()),
            Self::Exactly(wanted) => write!(f, "= {}", plain(wanted)),
            Self::AtMost(most) => write!(f, "<= {}", plain(most)),
            Self::AtLeast(least) => write!(f, ">= {}", plain(least)),
            Self::Near(wanted, by) => write!(f, "{} +- {}", plain(wanted), plain(by)),
            Self::Between(least, most) => write!(f, "{} to {}", plain(least), plain(most)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_at_its_ends_and_not_beyond() {
        let ends =
            [Mark::AtMost(3.0), Mark::AtLeast(3.0), Mark::Near(2.0, 1.0), Mark::Between(1.0, 3.0), Mark::Exactly(3.0)];
        assert!(ends.into_iter().all(|mark| mark.holds(3.0)));
        assert!(ends.into_iter().filter(|mark| mark.holds(4.0)).all(|mark| matches!(mark, Mark::AtLeast(_))));
        assert!(ends.into_iter().filter(|mark| mark.holds(0.5)).all(|mark| matches!(mark, Mark::AtMost(_))));
    }

    #[test]
    fn a_figure_that_is_no_number_holds_nothing() {
        let marks =
            [Mark::AtMost(3.0), Mark::AtLeast(3.0), Mark::Near(2.0, 1.0), Mark::Between(1.0, 3.0), Mark::Exactly(3.0)];
        assert!(!marks.into_iter().any(|mark| mark.holds(f64::NAN)));
    }

    #[test]
    fn numbers_have_one_digit_where_it_says_something() {
        assert_eq!([0.04, 0.25, 12.0, 1234.6].map(plain), ["0", "0.3", "12", "1235"]);
    }
}
