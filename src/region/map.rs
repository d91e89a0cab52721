//! A clock page in the daemon's memory.

use core::ffi::c_int;
use core::ptr;

use crate::clock::{Busy, DriverMemory, Page, Writer};
use crate::layout::LINE;

#[cfg(test)]
mod tests;

/// Bytes of a clock page's file: a page of memory on every machine that has smaller ones than this.
pub const PAGE: usize = 4096;

/// A card's clock page, mapped to be written.
#[derive(Debug)]
pub struct ClockPage {
    base: *mut libc::c_void,
    /// Looks into the mapping, and so never leaves here.
    writer: Writer<'static>,
}

// === impl ClockPage ===

impl ClockPage {
    /// Maps the first page of an open file and begins to write there, or goes on with what an earlier daemon left. The
    /// descriptor may be closed afterwards.
    ///
    /// The file must be the daemon's own, so that nobody can cut it short: that would end the process by SIGBUS.
    ///
    /// # Errors
    /// An error number: `EINVAL` where the file is shorter than [`PAGE`] or is no regular file, else what the system says.
    #[expect(unsafe_code, reason = "this is where the daemon's page is mapped")]
    pub fn map(file: c_int, now_ns: u64) -> Result<Self, c_int> {
        // SAFETY: all zeros are a stat, and fstat writes nothing else.
        let status = unsafe {
            let mut status = core::mem::zeroed::<libc::stat>();
            if libc::fstat(file, &raw mut status) != 0 {
                return Err(error_number());
            }
            status
        };
        let length = u64::try_from(status.st_size).unwrap_or(0);
        if status.st_mode & libc::S_IFMT != libc::S_IFREG || length < PAGE as u64 {
            return Err(libc::EINVAL);
        }
        // SAFETY: the system chooses the address, so nothing that was mapped before is touched.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(error_number());
        }
        // SAFETY: PAGE bytes are mapped from there, readable and writable, until `drop`, which the page's only user does
        // not outlive: it is a field of this. All who write a clock page do so atomically.
        match unsafe { Page::blank(base.cast_const().cast(), LINE) } {
            Ok(page) => Ok(Self { base, writer: Writer::new(page, now_ns) }),
            Err(_misaligned) => {
                // SAFETY: nothing looks into it.
                unsafe { libc::munmap(base, PAGE) };
                Err(libc::EINVAL)
            }
        }
    }

    /// As [`Writer::set_driver_memory`].
    pub fn set_driver_memory(&mut self, memory: DriverMemory) {
        self.writer.set_driver_memory(memory);
    }

    /// As [`Writer::publish`].
    pub fn publish(&mut self, now_ns: u64, busy: Busy) {
        self.writer.publish(now_ns, busy);
    }
}

impl Drop for ClockPage {
    #[expect(unsafe_code, reason = "what was mapped is unmapped")]
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and the writer that looks into it goes with this.
        unsafe { libc::munmap(self.base, PAGE) };
    }
}

// SAFETY: the mapping belongs to the process, not to a thread, and the page is made of atomics.
#[expect(unsafe_code, reason = "a pointer keeps it from being so by itself")]
unsafe impl Send for ClockPage {}

#[expect(unsafe_code, reason = "the C library keeps it behind a pointer")]
fn error_number() -> c_int {
    // SAFETY: it points to this thread's own number.
    unsafe { *libc::__errno_location() }
}
