//! Log lines on standard error: few, and none twice.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::sys;
use crate::text::Text;

/// A line that a process logs only the first time.
pub(crate) struct LogOnce(AtomicBool);

// === impl LogOnce ===

impl LogOnce {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(crate) fn log(&self, arguments: fmt::Arguments<'_>) {
        if !self.0.swap(true, Ordering::Relaxed) {
            line(arguments);
        }
    }
}

/// Logs one line.
pub(crate) fn line(arguments: fmt::Arguments<'_>) {
    sys::write_error(Text::<512>::formatted(format_args!("libdivvy: {arguments}\n")).as_bytes());
}
