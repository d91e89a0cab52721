//! A definition of `GpuNode` that is older than the daemon: the API server drops the fields that it doesn't know.

use std::time::{Duration, Instant};

use divvy_api::gpunode::GpuNodeStatus;
use divvy_runtime::logging::WarnOnce;
use serde_json::Value;

/// Time after which a pruned status is written again: the definition may have been replaced.
const TRIED_AGAIN: Duration = Duration::from_secs(60);

/// The last written status that the API server pruned.
#[derive(Debug, Default)]
pub(super) struct Pruned {
    /// Status as written, status as stored, and the time of the write.
    last: Option<(GpuNodeStatus, GpuNodeStatus, Instant)>,
    warning: WarnOnce,
}

// === impl Pruned ===

impl Pruned {
    /// Whether the API server pruned this very status a moment ago to what it shows now: writing it again would change nothing.
    pub(super) fn explains(&self, status: &GpuNodeStatus, shown: Option<&GpuNodeStatus>) -> bool {
        self.last
            .as_ref()
            .is_some_and(|(written, kept, at)| written == status && shown == Some(kept) && at.elapsed() < TRIED_AGAIN)
    }

    /// Compares a status with what the API server stored, and logs a difference.
    pub(super) fn compare(&mut self, written: GpuNodeStatus, kept: GpuNodeStatus) {
        // As they are sent: times lose their fractions of a second on the way.
        let [whole, rest] = [&written, &kept].map(|status| serde_json::to_value(status).unwrap_or_default());
        let Some(field) = missing(&whole, &rest) else {
            self.last = None;
            return self.warning.clear();
        };
        self.warning.warn(format!(
            "gpunode: the API server doesn't keep status{field}: the CustomResourceDefinition gpunodes.divvy.dev is of \
             another version than this daemon: apply that of its release"
        ));
        self.last = Some((written, kept, Instant::now()));
    }
}

/// Path of the first field that differs.
fn missing(whole: &Value, rest: &Value) -> Option<String> {
    match (whole, rest) {
        (Value::Object(whole), Value::Object(rest)) => whole.iter().find_map(|(field, value)| {
            let below = missing(value, rest.get(field).unwrap_or(&Value::Null))?;
            Some(format!(".{field}{below}"))
        }),
        (Value::Array(whole), Value::Array(rest)) if whole.len() == rest.len() => {
            let below = whole.iter().zip(rest).find_map(|(whole, rest)| missing(whole, rest))?;
            Some(format!("[]{below}"))
        }
        _ => (whole != rest).then(String::new),
    }
}
