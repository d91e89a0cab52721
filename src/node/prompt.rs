//! Calls that are answered once the Node shows what came of them.
//!
//! The answer to a refused call makes the pod Failed, and its controller creates the next one within milliseconds: by then the
//! Node has to show that there is no room for it. And while the Node shows less than is free, the kubelet, which checks a pod it
//! admits against the Node, has to see what the pods before it hold.

use std::time::Duration;

use tokio::sync::watch;
use tracing::debug;

/// Lets a call wait until the Node shows its result.
#[derive(Clone, Debug)]
pub struct Prompter {
    asked: watch::Sender<u64>,
    shown: watch::Receiver<u64>,
}

/// The publisher's end.
#[derive(Debug)]
pub struct Prompts {
    asked: watch::Receiver<u64>,
    shown: watch::Sender<u64>,
}

/// Longest wait of a call: the kubelet admits no other pod meanwhile.
const LONGEST: Duration = Duration::from_millis(500);

/// Both ends.
pub fn prompts() -> (Prompter, Prompts) {
    let (asked, asked_of) = watch::channel(0);
    let (shown, shown_to) = watch::channel(0);
    (Prompter { asked, shown: shown_to }, Prompts { asked: asked_of, shown })
}

// === impl Prompter ===

impl Prompter {
    /// Returns once the Node shows the present state, or can't be written, or after half a second.
    pub async fn shown(&self) {
        let mut number = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        let mut shown = self.shown.clone();
        let shown = shown.wait_for(|shown| *shown >= number);
        if tokio::time::timeout(LONGEST, shown).await.is_err() {
            debug!("answering a call before the Node shows its result: the API server is slow");
        }
    }
}

// === impl Prompts ===

impl Prompts {
    /// Number of the latest call that waits, once one has come; never without callers.
    pub(crate) async fn next(&mut self) -> u64 {
        match self.asked.changed().await {
            Ok(()) => *self.asked.borrow_and_update(),
            Err(_nobody_calls) => std::future::pending().await,
        }
    }

    /// Whether a call waits that [`Self::next`] hasn't returned.
    pub(crate) fn are_waiting(&self) -> bool {
        self.asked.has_changed().unwrap_or(false)
    }

    /// Ends the wait of that call and of those before it: the Node shows what came of them, or can't be written now.
    pub(crate) fn answer(&self, number: u64) {
        self.shown.send_replace(number);
    }
}
