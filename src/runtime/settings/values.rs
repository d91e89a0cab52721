//! Time spans as keys have them. Read from text, so that file, flag and variable follow the same rules.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time span from 1 ms to a day, written with units: `250ms`, `1m 30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(Duration);

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

// === impl Period ===

impl Period {
    /// A default in milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// A default in seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The time span.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl TryFrom<String> for Period {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const ALLOWED: &str = "expected 1ms to 24h, such as 250ms, 30s or 5m";
        let period = humantime::parse_duration(&text).map_err(|error| format!("\"{text}\": {error}: {ALLOWED}"))?;
        let legal = (SHORTEST..=LONGEST).contains(&period);
        if legal { Ok(Self(period)) } else { Err(format!("\"{text}\" is out of range: {ALLOWED}")) }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}
