//! Runs beside a line on standard error that says how far they are.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::output::write_stderr;

/// Between two words on a terminal, which they stay on in one line.
const ON_TERMINAL: Duration = Duration::from_millis(200);
/// Between two lines elsewhere.
const IN_LOG: Duration = Duration::from_secs(10);

/// What runs give that count the pods that have come, about `expected` in the end.
pub(super) async fn watched<T: Send + 'static>(
    expected: u64,
    runs: impl FnOnce(&AtomicU64) -> T + Send + 'static,
) -> anyhow::Result<T> {
    let arrived = Arc::new(AtomicU64::default());
    let on_terminal = std::io::stderr().is_terminal();
    let (before, after) = if on_terminal { ("\r", "\x1b[K") } else { ("", "\n") };
    let mut runs = tokio::task::spawn_blocking({
        let arrived = Arc::clone(&arrived);
        move || runs(&arrived)
    });
    let mut ticks = tokio::time::interval(if on_terminal { ON_TERMINAL } else { IN_LOG });
    ticks.tick().await;
    let outcome = loop {
        tokio::select! {
            outcome = &mut runs => break outcome,
            _ = ticks.tick() => {
                let percent = (100 * arrived.load(Ordering::Relaxed) / expected.max(1)).min(99);
                write_stderr(&format!("{before}{percent} % of about {expected} pods{after}"));
            }
        }
    };
    if on_terminal {
        write_stderr("\r\x1b[K");
    }
    Ok(outcome?)
}
