//! The log: filter, format and output.

mod control;

use std::io::IsTerminal as _;

use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt, reload};

pub use self::control::{FilterInEffect, LogControl};

/// What is logged, in the syntax of `tracing_subscriber::filter::Targets`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogFilter {
    text: String,
    targets: Targets,
}

/// How it is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Readable text.
    #[default]
    Plain,
    /// A JSON object per line.
    Json,
}

/// What the targets of Divvy's own crates begin with.
const OWN: &str = "divvy";

/// Logs a lasting problem once.
#[derive(Debug, Default)]
pub struct WarnOnce(String);

/// Logs to stderr from now on. Returns what changes the filter of the running program.
pub fn init(filter: &LogFilter, format: LogFormat) -> LogControl {
    // By default a line that can't be written is complained about with `eprintln!`, which panics where stderr is broken.
    let layer = fmt::layer::<Registry>()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false);
    let layer = match format {
        LogFormat::Plain => layer.with_target(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let (targets, handle) = reload::Layer::new(filter.targets());
    tracing_subscriber::registry().with(layer.with_filter(targets)).init();
    LogControl::new(filter.clone(), handle)
}

// === impl LogFilter ===

impl LogFilter {
    /// The filter as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The filter itself. A level without a target is that of Divvy's own crates: libraries log every failure of theirs,
    /// whatever becomes of it. Their lines are shown where the filter names them or asks for more than `info` of everything.
    pub fn targets(&self) -> Targets {
        let targets = self.targets.clone();
        match self.targets.default_level() {
            Some(level) if level <= LevelFilter::INFO => {
                let own = Targets::new().with_target(OWN, level).with_default(LevelFilter::OFF);
                own.with_targets(targets.iter())
            }
            _ => targets,
        }
    }
}

impl Default for LogFilter {
    fn default() -> Self {
        Self { text: "info".to_owned(), targets: Targets::new().with_default(LevelFilter::INFO) }
    }
}

impl From<LogFilter> for String {
    fn from(filter: LogFilter) -> Self {
        filter.text
    }
}

impl TryFrom<String> for LogFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const ALLOWED: &str =
            "expected levels (off, error, warn, info, debug, trace) by target, such as info,divvy=debug";
        let targets: Targets = text.parse().map_err(|error| format!("\"{text}\": {error}: {ALLOWED}"))?;
        // A lone word is a target to the parser: "inof" would silence everything else.
        let word = |part: &str| part.chars().all(char::is_alphanumeric);
        match text.split(',').find(|part| word(part) && part.parse::<LevelFilter>().is_err()) {
            Some(part) => Err(format!("\"{part}\" is not a level: {ALLOWED}")),
            None => Ok(Self { text, targets }),
        }
    }
}

// === impl WarnOnce ===

impl WarnOnce {
    /// Logs a warning, unless it is the last one again.
    pub fn warn(&mut self, text: String) {
        if text != self.0 {
            tracing::warn!("{text}");
            self.0 = text;
        }
    }

    /// The problem that lasts.
    pub fn current(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|text| !text.is_empty())
    }

    /// Ends the problem: the next one is logged, even if it is the same.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn level_without_target_is_that_of_divvys_crates() {
        let shows = |filter: &str, target: &str, level: Level| {
            let filter = LogFilter::try_from(filter.to_owned()).expect("a filter");
            filter.targets().would_enable(target, &level)
        };
        let library = "kube_client::client::builder";
        for (filter, own, of_library) in [
            ("info", Some(Level::INFO), None),
            ("error", Some(Level::ERROR), None),
            ("info,divvy_node=debug", Some(Level::DEBUG), None),
            ("info,divvy=debug", Some(Level::DEBUG), None),
            ("warn,kube_client=error", Some(Level::WARN), Some(Level::ERROR)),
            ("divvy=debug", Some(Level::DEBUG), None),
            ("debug", Some(Level::DEBUG), Some(Level::DEBUG)),
            ("off", None, None),
        ] {
            let most = |target| {
                let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
                levels.into_iter().find(|level| shows(filter, target, *level))
            };
            assert_eq!((most("divvy_node::run"), most(library)), (own, of_library), "{filter}");
        }
    }
}
