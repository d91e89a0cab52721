//! `/debug/log`.

use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::Debug;
use crate::logging::{LogControl, LogFilter};
use crate::outage::seconds;

#[derive(Debug, Deserialize)]
pub(super) struct LogQuery {
    /// How long the filter is to stay.
    #[serde(rename = "for")]
    time: Option<String>,
}

/// Longest time for which a filter is set with a time.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) async fn show(State(debug): State<Debug>) -> String {
    described(&debug.log)
}

/// Answers with what is in effect now, or 400 and the reason.
pub(super) async fn set(
    State(debug): State<Debug>,
    Query(LogQuery { time }): Query<LogQuery>,
    body: String,
) -> Result<String, (StatusCode, String)> {
    let refused = |why: String| (StatusCode::BAD_REQUEST, why + "\n");
    let time = time.map(|text| duration(&text)).transpose().map_err(refused)?;
    let text = body.trim();
    if text.is_empty() {
        return Err(refused("the body is empty: expected a filter such as info,divvy=debug".to_owned()));
    }
    let filter = LogFilter::try_from(text.to_owned()).map_err(refused)?;
    debug.log.set(filter, time).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))?;
    Ok(described(&debug.log))
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("for={text}: {error}"))?;
    if time.is_zero() || time > LONGEST {
        return Err(format!("for={text}: expected a time of up to 24h, such as 10m"));
    }
    Ok(time)
}

/// The filter, and how long it stays if it isn't the configured one.
fn described(log: &LogControl) -> String {
    let now = log.in_effect();
    let configured = log.configured();
    let filter = now.filter.as_str();
    let until = match now.until {
        Some(end) => format!("# for another {}", seconds(end.saturating_duration_since(Instant::now()))),
        None if now.filter == *configured => return format!("{filter}\n"),
        None => "# until the next restart".to_owned(),
    };
    format!("{filter}\n{until}, then {}\n", configured.as_str())
}
