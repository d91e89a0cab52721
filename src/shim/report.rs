//! What people are told, on standard error: little, and nothing twice.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::sys;
use crate::text::Text;

/// Something that is said once by a process.
pub(crate) struct Once(AtomicBool);

// === impl Once ===

impl Once {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(crate) fn say(&self, arguments: fmt::Arguments<'_>) {
        if !self.0.swap(true, Ordering::Relaxed) {
            say(arguments);
        }
    }
}

/// One line.
pub(crate) fn say(arguments: fmt::Arguments<'_>) {
    sys::write_error(Text::<512>::of(format_args!("libdivvy: {arguments}\n")).as_bytes());
}
