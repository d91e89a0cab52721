//! Whom changes concern.

/// Called at every change by which the planner may find something to do.
pub(crate) struct Waker(Box<dyn Fn() + Send + Sync>);

// === impl Waker ===

impl Waker {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Box::new(wake))
    }

    pub(crate) fn wake(&self) {
        self.0();
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}
