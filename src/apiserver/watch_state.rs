//! How a watch of the API server is doing.

use futures::{Stream, StreamExt as _};
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

    /// Has each event applied, and takes note of it afterwards, and of failures.
    pub async fn follow<K>(
        &self,
        events: impl Stream<Item = Result<Event<K>, String>>,
        mut apply: impl FnMut(&Event<K>),
    ) {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Err(problem) => self.change(|state| State { problem: Some(problem), ..state.clone() }),
                Ok(event) => {
                    apply(&event);
                    self.applied(&event);
                }
            }
        }
    }

    /// Init isn't an answer yet: it comes after each failure.
    fn applied<K>(&self, event: &Event<K>) {
        if !matches!(event, Event::Init) {
            let is_listed = matches!(event, Event::InitDone);
            self.change(|state| State { listed: state.listed || is_listed, problem: None });
        }
    }

    fn change(&self, next: impl FnOnce(&State) -> State) {
        self.0.send_if_modified(|state| {
            let next = next(state);
            std::mem::replace(state, next) != *state
        });
    }
}
