//! How a watch of the API server is doing.

use kube::runtime::watcher::Event;
use tokio::sync::watch;

/// State of a watch, as it changes. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct WatchState(watch::Sender<State>);

/// State of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Whether all objects have been listed once.
    pub listed: bool,
    /// Why the watch fails now.
    pub problem: Option<String>,
}

// === impl WatchState ===

impl WatchState {
    /// The state now.
    pub fn now(&self) -> State {
        self.0.borrow().clone()
    }

    /// Takes note of an event that has been applied. Init isn't an answer yet: it comes after each failure.
    pub fn applied<K>(&self, event: &Event<K>) {
        if !matches!(event, Event::Init) {
            let is_listed = matches!(event, Event::InitDone);
            self.change(|state| State { listed: state.listed || is_listed, problem: None });
        }
    }

    /// Takes note of a failure.
    pub fn failed(&self, problem: String) {
        self.change(|state| State { problem: Some(problem), ..state.clone() });
    }

    fn change(&self, next: impl FnOnce(&State) -> State) {
        self.0.send_if_modified(|state| {
            let next = next(state);
            std::mem::replace(state, next) != *state
        });
    }
}
