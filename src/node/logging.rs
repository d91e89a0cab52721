//! Where the daemon's own words go.

use tracing_subscriber::EnvFilter;

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

    /// The problem is over; the same one will be said again.
    pub fn over(&mut self) {
        self.0.clear();
    }
}

/// Logs to stderr as configured.
pub fn init(config: &Config) {
    let filter = EnvFilter::new(config.log_level.as_str());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // By default a line that can't be written is complained about with `eprintln!`, which panics where stderr is broken.
    let builder = builder.log_internal_errors(false);
    match config.log_format {
        LogFormat::Plain => builder.with_target(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
