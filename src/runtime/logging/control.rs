//! The filter of a running program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::{Registry, reload};

use super::LogFilter;

/// The log's filter, which can be replaced until the next restart. Clones control the same one.
#[derive(Clone, Debug)]
pub struct LogControl {
    configured: LogFilter,
    handle: Handle<Targets, Registry>,
    in_effect: Arc<Mutex<FilterInEffect>>,
}

/// The filter now.
#[derive(Clone, Debug)]
pub struct FilterInEffect {
    /// The filter.
    pub filter: LogFilter,
    /// When the configured one is in effect again; `None`: after the next restart.
    pub until: Option<Instant>,
    /// Number of the change that it came with, from 0.
    change: u64,
}

// === impl LogControl ===

impl LogControl {
    pub(super) fn new(configured: LogFilter, handle: Handle<Targets, Registry>) -> Self {
        let in_effect = FilterInEffect { filter: configured.clone(), until: None, change: 0 };
        Self { configured, handle, in_effect: Arc::new(Mutex::new(in_effect)) }
    }

    /// The filter that a restart brings back.
    pub fn configured(&self) -> &LogFilter {
        &self.configured
    }

    /// The filter now.
    pub fn in_effect(&self) -> FilterInEffect {
        self.lock().clone()
    }

    /// Replaces the filter, for some time or until the next restart. Runs on a tokio runtime.
    pub fn set(&self, filter: LogFilter, time: Option<Duration>) -> Result<(), reload::Error> {
        let mut in_effect = self.lock();
        self.replace(&mut in_effect, filter, time.map(|time| Instant::now() + time))?;
        if let Some(time) = time {
            let control = self.clone();
            let change = in_effect.change;
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                let mut in_effect = control.lock();
                if in_effect.change == change
                    && let Err(error) = control.replace(&mut in_effect, control.configured.clone(), None)
                {
                    tracing::warn!(%error, "the configured log filter can't be set again");
                }
            });
        }
        Ok(())
    }

    fn replace(
        &self,
        in_effect: &mut FilterInEffect,
        filter: LogFilter,
        until: Option<Instant>,
    ) -> Result<(), reload::Error> {
        // Whatever the two filters let through, the line between them is logged.
        self.handle.reload(LogFilter::default().targets())?;
        tracing::info!(from = in_effect.filter.as_str(), to = filter.as_str(), "log filter changed");
        self.handle.reload(filter.targets())?;
        *in_effect = FilterInEffect { filter, until, change: in_effect.change + 1 };
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, FilterInEffect> {
        self.in_effect.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
