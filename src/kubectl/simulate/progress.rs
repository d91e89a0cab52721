//! Runs beside a line on standard error that says how far they are, and Ctrl-C.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use divvy_simulate::Watch;
use divvy_simulate::run::Interrupted;

/// Between two words on a terminal, which they stay on in one line.
const ON_TERMINAL: Duration = Duration::from_millis(200);
/// Between two lines elsewhere.
const IN_LOG: Duration = Duration::from_secs(10);

/// What runs give that `expected` pods come to, about; an error if they are interrupted.
pub(super) async fn watched<T: Send + 'static>(
    expected: u64,
    runs: impl FnOnce(&Watch) -> Result<T, Interrupted> + Send + 'static,
) -> anyhow::Result<T> {
    let watch = Arc::new(Watch::default());
    let on_terminal = std::io::stderr().is_terminal();
    let mut runs = tokio::task::spawn_blocking({
        let watch = Arc::clone(&watch);
        move || runs(&watch)
    });
    let mut ticks = tokio::time::interval(if on_terminal { ON_TERMINAL } else { IN_LOG });
    ticks.tick().await;
    let outcome = loop {
        tokio::select! {
            outcome = &mut runs => break outcome,
            _ = ticks.tick() => say(&watch, expected, on_terminal),
            _ = tokio::signal::ctrl_c() => watch.interrupt(),
        }
    };
    if on_terminal {
        eprint_quietly("\r\x1b[K");
    }
    outcome?.map_err(|Interrupted| anyhow!("error: interrupted after {} of about {expected} pods", watch.pods()))
}

fn say(watch: &Watch, expected: u64, on_terminal: bool) {
    let percent = (100 * watch.pods() / expected.max(1)).min(99);
    let (before, after) = if on_terminal { ("\r", "\x1b[K") } else { ("", "\n") };
    eprint_quietly(&format!("{before}{percent} % of about {expected} pods{after}"));
}

/// Writes to standard error, if it is still open.
fn eprint_quietly(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
