//! Everything that changes, behind one lock, and those who wait for a change.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::StatusCode;
use tokio::sync::watch;

use super::container_log::Logs;
use super::https::Clients;
use super::log::Request;
use super::store::Store;
use super::users::User;

/// What all tasks of one API server share.
pub(crate) struct Core {
    state: Mutex<State>,
    /// Counts changes, for those who wait for one.
    changes: watch::Sender<u64>,
    /// Counts how often all watches were dropped.
    pub(crate) hang_ups: watch::Sender<u64>,
    /// Whether anybody is to answer.
    pub(crate) wanted: watch::Sender<bool>,
    /// Whether the port is open.
    pub(crate) open: watch::Sender<bool>,
    /// Whether answers that are to be late may be given.
    pub(crate) prompt: watch::Sender<bool>,
    /// Connections to webhooks.
    pub(crate) webhooks: Clients,
}

/// Everything that changes.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) store: Store,
    /// By their tokens.
    pub(crate) users: HashMap<String, User>,
    /// Whether roles count.
    pub(crate) guarded: bool,
    /// Where services are, by namespace and name: no network here leads to them.
    pub(crate) services: HashMap<(String, String), Vec<SocketAddr>>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) logs: Logs,
    pub(crate) log: Vec<Request>,
}

/// Requests that will fare ill.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Empty for any.
    pub(crate) verb: String,
    /// Part of the path.
    pub(crate) path: String,
    pub(crate) harm: Harm,
    /// How many more.
    pub(crate) left: usize,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Harm {
    /// Answered with this, and not carried out.
    Refused(StatusCode),
    /// Neither carried out nor answered.
    Swallowed,
    /// Carried out, never answered. What webhooks review is answered all the same.
    Unanswered,
    /// Carried out, and answered later.
    Late,
}

// === impl Core ===

impl Core {
    pub(crate) fn new(state: State) -> Self {
        let (changes, hang_ups) = (watch::Sender::new(0), watch::Sender::new(0));
        let (wanted, open) = (watch::Sender::new(true), watch::Sender::new(true));
        let (prompt, webhooks) = (watch::Sender::new(true), Clients::default());
        Self { state: Mutex::new(state), changes, hang_ups, wanted, open, prompt, webhooks }
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let answer = change(&mut self.lock());
        self.changes.send_modify(|changes| *changes += 1);
        answer
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Opens the port or closes it, and waits until that is done.
    pub(crate) async fn listen(&self, wanted: bool) {
        let mut open = self.open.subscribe();
        self.wanted.send_replace(wanted);
        if open.wait_for(|open| *open == wanted).await.is_err() {
            tracing::debug!("nobody serves any more");
        }
    }

    /// Waits until `look` finds something.
    pub(crate) async fn wait<T>(&self, mut look: impl FnMut(&State) -> Option<T>) -> T {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            if let Some(found) = self.read(&mut look) {
                return found;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// What is to happen to this request, if anything is; counts it.
    pub(crate) fn fault(&mut self, verb: &str, path: &str) -> Option<Harm> {
        let hit = |fault: &&mut Fault| {
            fault.left > 0 && (fault.verb.is_empty() || fault.verb == verb) && path.contains(&fault.path)
        };
        let fault = self.faults.iter_mut().find(hit)?;
        fault.left -= 1;
        let harm = fault.harm;
        self.faults.retain(|fault| fault.left > 0);
        Some(harm)
    }
}
