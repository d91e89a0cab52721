//! Text in a buffer of its own, for paths and messages.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::str::from_utf8;

/// At most `N` bytes, with a zero byte after them; what goes beyond is left out.
#[derive(Clone, Copy)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

// === impl Text ===

impl<const N: usize> Text<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    /// Formats a text.
    pub(crate) fn formatted(arguments: fmt::Arguments<'_>) -> Self {
        let mut text = Self::new();
        let _always_fits_or_is_cut = text.write_fmt(arguments);
        text
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length.min(N)]
    }

    pub(crate) fn as_str(&self) -> &str {
        from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// As C has it.
    pub(crate) fn as_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = N.saturating_sub(self.length + 1);
        let fits = text.len().min(left);
        for (byte, written) in self.bytes.iter_mut().skip(self.length).zip(&text.as_bytes()[..fits]) {
            *byte = *written;
        }
        self.length += fits;
        Ok(())
    }
}
