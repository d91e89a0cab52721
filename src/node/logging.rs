//! Where the daemon's own words go.

use std::io::IsTerminal as _;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt};

use crate::config::{Config, LogFormat};

/// A problem that lasts is said once.
#[derive(Debug, Default)]
pub struct Once(String);

impl Once {
    /// Warns, unless these were the last words.
    pub fn warn(&mut self, text: String) {
        if text != self.0 {
            tracing::warn!("{text}");
            self.0 = text;
        }
    }

    /// The problem that lasts.
    pub fn lasting(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|text| !text.is_empty())
    }

    /// The problem is over; the same one will be said again.
    pub fn over(&mut self) {
        self.0.clear();
    }
}

/// Logs to stderr as configured.
pub fn init(config: &Config) {
    // By default a line that can't be written is complained about with `eprintln!`, which panics where stderr is broken.
    let layer = fmt::layer::<Registry>()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false);
    let layer = match config.log_format {
        LogFormat::Plain => layer.with_target(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(config.log_level.targets())).init();
}
