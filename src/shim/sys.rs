//! System calls, made directly by rustix: those of the C library would change `errno`, and naming them would tie this
//! library to one version of it. Made here is what rustix lacks or does otherwise: locks of single bytes, masks of signals,
//! and the clock, for which rustix would look through the kernel's own library.

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("libdivvy.so is written for aarch64 and x86_64: others need a file in sys, linker and hooks/entry");

#[cfg_attr(target_arch = "aarch64", path = "sys/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "sys/x86_64.rs")]
mod arch;

use core::ffi::CStr;
use core::fmt;
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

use rustix::fd::{BorrowedFd, IntoRawFd as _, OwnedFd};
use rustix::fs::{self, Mode, OFlags, Stat};
use rustix::io;
use rustix::mm::{self, MapFlags, ProtFlags};
use rustix::process::{self, Pid, Signal};
use rustix::rand::{self, GetRandomFlags};
use rustix::thread::{self, futex};

use arch::{Call, call};

/// The error number of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(io::Errno);

/// An open file, closed when dropped.
#[derive(Debug)]
pub(crate) struct File(OwnedFd);

const F_SETLK: usize = 6;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;
const SIG_SETMASK: usize = 2;
pub(crate) const CLOCK_MONOTONIC: i32 = 1;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// The lowest descriptor for files that stay open, out of the way of programs that number their own.
const LOWEST_KEPT: i32 = 700;

/// `struct timespec` of 64-bit Linux.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// `struct flock` of 64-bit Linux.
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    pid: i32,
}

// === impl Timespec ===

impl Timespec {
    pub(crate) fn as_ns(&self) -> u64 {
        (self.seconds as u64).wrapping_mul(NS_PER_SECOND).wrapping_add(self.nanoseconds as u64)
    }

    /// `CLOCK_MONOTONIC`, by a system call: slower than the C library's `clock_gettime`.
    pub(crate) fn now() -> Self {
        let mut time = Self::default();
        let arguments = [CLOCK_MONOTONIC as usize, ptr::from_mut(&mut time).addr(), 0, 0];
        // SAFETY: a time is written to a time.
        let _done = unsafe { call(Call::ClockGetTime, arguments) };
        time
    }
}

fn timespec(nanoseconds: u64) -> thread::Timespec {
    thread::Timespec::try_from(Duration::from_nanos(nanoseconds)).unwrap_or_default()
}

// === impl Errno ===

impl Errno {
    pub(crate) const NOT_FOUND: Self = Self(io::Errno::NOENT);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            io::Errno::NOENT => f.write_str("no such file or directory"),
            io::Errno::NOMEM => f.write_str("not enough memory or address space"),
            io::Errno::ACCESS => f.write_str("permission denied"),
            io::Errno::NFILE | io::Errno::MFILE => f.write_str("too many open files"),
            other => write!(f, "error {}", other.raw_os_error()),
        }
    }
}

// === impl File ===

impl File {
    pub(crate) fn open(path: &CStr) -> Result<Self, Errno> {
        Self::open_with(path, OFlags::RDONLY)
    }

    pub(crate) fn open_to_write(path: &CStr) -> Result<Self, Errno> {
        Self::open_with(path, OFlags::RDWR)
    }

    fn open_with(path: &CStr, flags: OFlags) -> Result<Self, Errno> {
        fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(Self).map_err(Errno)
    }

    /// Fills the buffer from the beginning of the file, as far as that goes; the number of bytes read.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut filled = 0;
        loop {
            let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) else { return Ok(filled) };
            match io::retry_on_intr(|| io::read(&self.0, &mut *rest)) {
                Ok(0) => return Ok(filled),
                Ok(more) => filled += more,
                Err(error) => return Err(Errno(error)),
            }
        }
    }

    fn stat(&self) -> Result<Stat, Errno> {
        fs::fstat(&self.0).map_err(Errno)
    }

    /// Bytes in the file.
    pub(crate) fn length(&self) -> Result<u64, Errno> {
        Ok(self.stat()?.st_size as u64)
    }

    /// Moves the descriptor out of the way of programs that number their own.
    pub(crate) fn moved_up(self) -> Self {
        io::fcntl_dupfd_cloexec(&self.0, LOWEST_KEPT).map_or(self, Self)
    }

    /// Keeps the file open for ever; its descriptor.
    pub(crate) fn kept(self) -> i32 {
        self.0.into_raw_fd()
    }

    /// Maps the first bytes, for ever.
    pub(crate) fn map(&self, length: usize, writable: bool) -> Result<*mut u8, Errno> {
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a mapping where the kernel likes it overlaps nothing.
        let mapped = unsafe { mm::mmap(ptr::null_mut(), length, access, MapFlags::SHARED, &self.0, 0) };
        mapped.map(<*mut _>::cast).map_err(Errno)
    }
}

/// A number that differs between two files that were at this path one after the other, and between two versions of one.
pub(crate) fn version(path: &CStr) -> Result<u64, Errno> {
    let Stat { st_dev, st_ino, st_ctime, st_ctime_nsec, .. } = File::open(path)?.stat()?;
    let words = [st_ino, st_ctime as u64, st_ctime_nsec];
    Ok(words.into_iter().fold(st_dev, |all, next| all.rotate_left(21).wrapping_mul(31) ^ next))
}

/// Sets or lifts this process's lock of one byte (`fcntl(F_SETLK)`); false if another process has it.
pub(crate) fn lock_byte(descriptor: i32, byte: usize, is_wanted: bool) -> bool {
    let kind = if is_wanted { F_WRLCK } else { F_UNLCK };
    let lock = Flock { kind, whence: 0, start: byte as i64, length: 1, pid: 0 };
    // SAFETY: the kernel reads a lock, which this is.
    let locked = unsafe { call(Call::Fcntl, [descriptor as usize, F_SETLK, ptr::from_ref(&lock).addr(), 0]) };
    locked == 0
}

/// Zeroed memory, which costs nothing until it is touched.
pub(crate) fn memory(length: usize) -> Option<*mut u8> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a mapping where the kernel likes it overlaps nothing.
    unsafe { mm::mmap_anonymous(ptr::null_mut(), length, access, flags) }.ok().map(<*mut _>::cast)
}

/// Gives memory back.
///
/// # Safety
/// It is [`memory`] of this length that nobody uses any more.
pub(crate) unsafe fn unmap(memory: *mut u8, length: usize) {
    // SAFETY: the caller's guarantee.
    let _unmapped = unsafe { mm::munmap(memory.cast(), length) };
}

/// This process, as its own PID namespace numbers it.
pub(crate) fn process_id() -> u32 {
    process::getpid().as_raw_nonzero().get() as u32
}

/// Whether there is no process of this number, not even one that may not be signalled.
pub(crate) fn is_gone(pid: u32) -> bool {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid != 0 && known.is_none_or(|pid| process::test_kill_process(pid) == Err(io::Errno::SRCH))
}

/// Random bits.
pub(crate) fn random() -> u64 {
    let mut bits = [0; 8];
    let _filled = rand::getrandom(&mut bits, GetRandomFlags::NONBLOCK);
    u64::from_ne_bytes(bits)
}

/// Sleeps for so long, or shorter.
pub(crate) fn sleep(nanoseconds: u64) {
    let _slept = thread::nanosleep(&timespec(nanoseconds));
}

/// Sleeps as long as the word has this value, until it is [woken](wake), and no longer than so many nanoseconds.
pub(crate) fn wait(word: &AtomicU32, value: u32, nanoseconds: u64) {
    let _woken = futex::wait(word, futex::Flags::PRIVATE, value, Some(&timespec(nanoseconds)));
}

/// Wakes all who wait for the word to change.
pub(crate) fn wake(word: &AtomicU32) {
    let _woken = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Names the calling thread, for those who look at the process.
pub(crate) fn name_thread(name: &CStr) {
    let _named = thread::set_name(name);
}

/// Signals of a thread, a bit each.
pub(crate) struct Signals(u64);

/// Lets no signal reach this thread, nor those that it makes.
pub(crate) fn block_signals() -> Signals {
    exchange_signals(u64::MAX)
}

/// Lets those reach it again that did before.
pub(crate) fn restore_signals(Signals(before): Signals) {
    exchange_signals(before);
}

fn exchange_signals(blocked: u64) -> Signals {
    let mut before = 0_u64;
    let new = ptr::from_ref(&blocked).addr();
    let old = ptr::from_mut(&mut before).addr();
    // SAFETY: the kernel reads eight bytes of signals, and writes eight.
    let _done = unsafe { call(Call::SigProcMask, [SIG_SETMASK, new, old, 8]) };
    Signals(before)
}

/// A number that tells the calling thread from all others that live.
pub(crate) fn thread() -> usize {
    arch::thread()
}

/// Writes to standard error, as far as that goes at once.
pub(crate) fn write_error(text: &[u8]) {
    // SAFETY: it is used for one call, in which the kernel finds whether a program has closed it.
    let standard_error = unsafe { BorrowedFd::borrow_raw(2) };
    let _written = io::write(standard_error, text);
}

/// Ends the process.
#[cfg_attr(not(panic = "abort"), expect(dead_code, reason = "only a panic ends it"))]
pub(crate) fn abort() -> ! {
    loop {
        let _sent = process::kill_process(process::getpid(), Signal::ABORT);
    }
}
