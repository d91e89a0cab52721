//! A definition of `GpuNode` that is older than the daemon: the API server drops the fields that it doesn't know.

use std::time::{Duration, Instant};

use divvy_api::gpunode::GpuNodeStatus;
use divvy_runtime::logging::WarnOnce;
use serde_json::Value;

/// The definition may have been replaced: so often it is seen.
const TRIED_AGAIN: Duration = Duration::from_secs(60);

/// What was written last and didn't come back whole.
#[derive(Debug, Default)]
pub(super) struct Pruned {
    /// As written, as kept, and when.
    last: Option<(GpuNodeStatus, GpuNodeStatus, Instant)>,
    warning: WarnOnce,
}

// === impl Pruned ===

impl Pruned {
    /// Whether the API server shows what it made of this very status a moment ago: then writing it again changes nothing.
    pub(super) fn explains(&self, status: &GpuNodeStatus, shown: Option<&GpuNodeStatus>) -> bool {
        self.last
            .as_ref()
            .is_some_and(|(written, kept, at)| written == status && shown == Some(kept) && at.elapsed() < TRIED_AGAIN)
    }

    /// Takes note of what became of a status, and says so.
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
