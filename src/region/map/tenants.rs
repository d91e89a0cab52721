//! Tenants' regions in the daemon's memory, which never looks into them itself.
//!
//! A tenant can cut its file short at any time, and who then reads a page that is gone is ended by SIGBUS. The system isn't:
//! where it finds no page to copy from, it stops and says how far it came. So it is the system that copies, by one call from
//! all regions, to a file of the daemon's own.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr;

use super::error_number;

#[cfg(test)]
mod tests;

/// The most parts of one call: the system's own limit, `UIO_MAXIOV`.
pub const AT_ONCE: usize = 1024;

/// A region, mapped to be copied from.
#[derive(Debug)]
pub struct TenantRegion {
    base: *mut c_void,
    length: usize,
}

/// Some bytes of a region.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Part<'a> {
    place: libc::iovec,
    region: PhantomData<&'a TenantRegion>,
}

// === impl TenantRegion ===

impl TenantRegion {
    /// Maps the first `length` bytes of an open file, as many as it may have of them. The descriptor may be closed
    /// afterwards.
    ///
    /// # Errors
    /// An error number, as `mmap` says.
    #[expect(unsafe_code, reason = "this is where regions are mapped")]
    pub fn map(file: c_int, length: usize) -> Result<Self, c_int> {
        // SAFETY: the system chooses the address, so nothing that was mapped before is touched.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file, 0) };
        if base == libc::MAP_FAILED { Err(error_number()) } else { Ok(Self { base, length }) }
    }

    /// Those bytes, as far as they are of the region.
    pub fn part(&self, bytes: Range<usize>) -> Part<'_> {
        let end = bytes.end.min(self.length);
        let start = bytes.start.min(end);
        let place = libc::iovec { iov_base: self.base.wrapping_byte_add(start), iov_len: end - start };
        Part { place, region: PhantomData }
    }
}

impl Drop for TenantRegion {
    #[expect(unsafe_code, reason = "what was mapped is unmapped")]
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no `Part` outlives this.
        unsafe { libc::munmap(self.base, self.length) };
    }
}

// SAFETY: the mapping belongs to the process, not to a thread, and nobody writes there.
#[expect(unsafe_code, reason = "a pointer keeps it from being so by itself")]
unsafe impl Send for TenantRegion {}

// === impl Part ===

impl Part<'_> {
    /// How many bytes it is.
    pub fn length(&self) -> usize {
        self.place.iov_len
    }
}

/// Copies parts, at most [`AT_ONCE`], one behind the other to the beginning of a file, and says how many bytes that were.
/// Where it isn't all of them, the next byte's page is gone.
///
/// # Errors
/// An error number: `EFAULT` where the very first page is gone, else what `pwrite` says of the file.
#[expect(unsafe_code, reason = "the system copies from mapped memory")]
pub fn copy(parts: &[Part<'_>], to: c_int) -> Result<usize, c_int> {
    let count = c_int::try_from(parts.len().min(AT_ONCE)).unwrap_or(0);
    // SAFETY: a part has the layout of its one field, and `count` of them are there. The system only reads where they
    // point to, which is mapped for as long as they live, if not backed by a file any more: then it says so.
    let copied = unsafe { libc::pwritev(to, parts.as_ptr().cast(), count, 0) };
    usize::try_from(copied).map_err(|_negative| error_number())
}
