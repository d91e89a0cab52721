//! Calls of the kernel, as few as are needed, made directly: the C library's own would change `errno`, and naming them would
//! tie the library to one version of it.

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("libdivvy.so is written for aarch64 and x86_64: others need a file in sys and one in linker");

#[cfg_attr(target_arch = "aarch64", path = "sys/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "sys/x86_64.rs")]
mod arch;

use core::ffi::CStr;
use core::num::NonZeroUsize;
use core::ptr;
use core::sync::atomic::AtomicU32;

use arch::{Call, call};

/// `errno` of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// An open file, closed at the end.
#[derive(Debug)]
pub(crate) struct File(i32);

/// What is wanted of `struct stat`.
struct Stat {
    device: u64,
    inode: u64,
    size: u64,
    changed: [u64; 2],
}

const AT_FDCWD: usize = -100_isize as usize;
const O_RDWR: usize = 2;
const O_CLOEXEC: usize = 0o2_000_000;
const F_DUPFD_CLOEXEC: usize = 1030;
const F_SETLK: usize = 6;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;
const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;
const SIGABRT: usize = 6;
const PR_SET_NAME: usize = 15;
const SIG_SETMASK: usize = 2;
/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;
pub(crate) const CLOCK_MONOTONIC: i32 = 1;
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EINTR: i32 = 4;

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

/// What tells one file in a place from the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    changed: [u64; 2],
}

// === impl Timespec ===

impl Timespec {
    fn of_ns(nanoseconds: u64) -> Self {
        Self { seconds: (nanoseconds / SECOND) as i64, nanoseconds: (nanoseconds % SECOND) as i64 }
    }

    pub(crate) fn as_ns(&self) -> u64 {
        (self.seconds as u64).wrapping_mul(SECOND).wrapping_add(self.nanoseconds as u64)
    }

    /// `CLOCK_MONOTONIC`, by a call of the kernel: [`crate::time`] is faster.
    pub(crate) fn now() -> Self {
        let mut time = Self::default();
        let arguments = [CLOCK_MONOTONIC as usize, ptr::from_mut(&mut time).addr(), 0, 0, 0, 0];
        // SAFETY: a time is written to a time.
        let _done = unsafe { call(Call::ClockGetTime, arguments) };
        time
    }
}

// === impl Identity ===

impl Identity {
    /// In one word.
    pub(crate) fn folded(self) -> u64 {
        let Self { device, inode, changed: [seconds, nanoseconds] } = self;
        [inode, seconds, nanoseconds].into_iter().fold(device, |all, next| all.rotate_left(21).wrapping_mul(31) ^ next)
    }
}

// === impl Errno ===

impl Errno {
    pub(crate) const NOT_FOUND: Self = Self(ENOENT);
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            ENOENT => f.write_str("no such file or directory"),
            12 => f.write_str("not enough memory or address space"),
            13 => f.write_str("permission denied"),
            23 | 24 => f.write_str("too many open files"),
            other => write!(f, "error {other}"),
        }
    }
}

/// Of an open file.
fn stat(descriptor: i32) -> Result<Stat, Errno> {
    let mut stat = [0_u64; 18];
    // SAFETY: `struct stat` has 144 bytes on x86_64 and 128 on aarch64.
    let done = unsafe { call(Call::Fstat, [descriptor as usize, stat.as_mut_ptr().addr(), 0, 0, 0, 0]) };
    checked(done)?;
    // Device, inode, four words that differ, size, block size, blocks, three times: what is
    // taken stands in the same place on both (`arch/x86/include/uapi/asm/stat.h`, `include/uapi/asm-generic/stat.h`).
    Ok(Stat { device: stat[0], inode: stat[1], size: stat[6], changed: [stat[13], stat[14]] })
}

fn checked(returned: isize) -> Result<usize, Errno> {
    match usize::try_from(returned) {
        Ok(value) => Ok(value),
        Err(_) => Err(Errno(-returned as i32)),
    }
}

// === impl File ===

impl File {
    pub(crate) fn open(path: &CStr) -> Result<Self, Errno> {
        Self::open_with(path, 0)
    }

    pub(crate) fn open_to_write(path: &CStr) -> Result<Self, Errno> {
        Self::open_with(path, O_RDWR)
    }

    fn open_with(path: &CStr, flags: usize) -> Result<Self, Errno> {
        // SAFETY: the path ends with a zero byte, and the kernel only reads it.
        let opened = unsafe { call(Call::OpenAt, [AT_FDCWD, path.as_ptr().addr(), flags | O_CLOEXEC, 0, 0, 0]) };
        checked(opened).map(|descriptor| Self(descriptor as i32))
    }

    /// Fills the buffer from the beginning of the file, as far as that goes; how far.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut filled = 0;
        loop {
            let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) else { return Ok(filled) };
            // SAFETY: the kernel writes `rest.len()` bytes to `rest` at most.
            let read = unsafe { call(Call::Read, [self.0 as usize, rest.as_mut_ptr().addr(), rest.len(), 0, 0, 0]) };
            match checked(read) {
                Ok(0) => return Ok(filled),
                Ok(more) => filled += more,
                Err(Errno(EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes in it.
    pub(crate) fn length(&self) -> Result<u64, Errno> {
        stat(self.0).map(|stat| stat.size)
    }

    /// Which file it is, and when it was changed last.
    pub(crate) fn identity(&self) -> Result<Identity, Errno> {
        let stat = stat(self.0)?;
        Ok(Identity { device: stat.device, inode: stat.inode, changed: stat.changed })
    }

    /// Moves the descriptor out of the way of programs that number their own.
    pub(crate) fn moved_up(self) -> Self {
        // SAFETY: numbers only.
        let moved = unsafe { call(Call::Fcntl, [self.0 as usize, F_DUPFD_CLOEXEC, 700, 0, 0, 0]) };
        match checked(moved) {
            Ok(descriptor) => Self(descriptor as i32),
            Err(_) => self,
        }
    }

    /// Keeps it open for ever; its number.
    pub(crate) fn kept(self) -> i32 {
        core::mem::ManuallyDrop::new(self).0
    }

    /// Maps its first bytes; they stay so for ever.
    pub(crate) fn map(&self, length: usize, writable: bool) -> Result<*mut u8, Errno> {
        let access = if writable { PROT_READ | PROT_WRITE } else { PROT_READ };
        // SAFETY: a mapping where the kernel likes it overlaps nothing.
        let mapped = unsafe { call(Call::Mmap, [0, length, access, MAP_SHARED, self.0 as usize, 0]) };
        checked(mapped).map(ptr::with_exposed_provenance_mut)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours, and nobody uses it any more.
        let _closed = unsafe { call(Call::Close, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Which file stands at this path now.
pub(crate) fn identity(path: &CStr) -> Result<Identity, Errno> {
    File::open(path)?.identity()
}

/// Sets or lifts this process's lock of one byte; false if another process has it.
pub(crate) fn lock_byte(descriptor: i32, byte: usize, is_wanted: bool) -> bool {
    let kind = if is_wanted { F_WRLCK } else { F_UNLCK };
    let lock = Flock { kind, whence: 0, start: byte as i64, length: 1, pid: 0 };
    // SAFETY: the kernel reads a lock, which this is.
    let locked = unsafe { call(Call::Fcntl, [descriptor as usize, F_SETLK, ptr::from_ref(&lock).addr(), 0, 0, 0]) };
    locked == 0
}

/// Zeroed memory of our own, which costs nothing until it is touched.
pub(crate) fn memory(length: usize) -> Option<*mut u8> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a mapping where the kernel likes it overlaps nothing.
    let mapped = unsafe { call(Call::Mmap, [0, length, PROT_READ | PROT_WRITE, flags, usize::MAX, 0]) };
    let address = NonZeroUsize::new(checked(mapped).ok()?)?;
    Some(ptr::with_exposed_provenance_mut(address.get()))
}

/// Gives memory back.
///
/// # Safety
/// It is [`memory`] of this length that nobody uses any more.
pub(crate) unsafe fn unmap(memory: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    let _unmapped = unsafe { call(Call::Munmap, [memory.addr(), length, 0, 0, 0, 0]) };
}

/// This process, as its own PID namespace numbers it.
pub(crate) fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(Call::GetPid, [0; 6]) as u32 }
}

/// Whether there is no process of this number, not even one that may not be looked at.
pub(crate) fn is_gone(process: u32) -> bool {
    // SAFETY: numbers only; 0 is no signal.
    let sent = unsafe { call(Call::Kill, [process as usize, 0, 0, 0, 0, 0]) };
    checked(sent) == Err(Errno(ESRCH))
}

/// Random bits.
pub(crate) fn random() -> u64 {
    let mut bits = 0_u64;
    // SAFETY: eight bytes are written to a number of eight bytes.
    let _filled = unsafe { call(Call::GetRandom, [ptr::from_mut(&mut bits).addr(), 8, 1, 0, 0, 0]) };
    bits
}

/// Sleeps for so long, or shorter.
pub(crate) fn sleep(nanoseconds: u64) {
    let time = Timespec::of_ns(nanoseconds);
    // SAFETY: the kernel reads a time, which this is.
    let _slept = unsafe { call(Call::NanoSleep, [ptr::from_ref(&time).addr(), 0, 0, 0, 0, 0]) };
}

/// Sleeps as long as the word has this value, until it is [woken](wake), and no longer than so many nanoseconds.
pub(crate) fn wait(word: &AtomicU32, value: u32, nanoseconds: u64) {
    let time = Timespec::of_ns(nanoseconds);
    let arguments = [word.as_ptr().addr(), FUTEX_WAIT_PRIVATE, value as usize, ptr::from_ref(&time).addr(), 0, 0];
    // SAFETY: the kernel reads a word and a time, which these are.
    let _woken = unsafe { call(Call::Futex, arguments) };
}

/// Wakes all who wait for the word to change.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the address only names whom to wake.
    let _woken = unsafe { call(Call::Futex, [word.as_ptr().addr(), FUTEX_WAKE_PRIVATE, i32::MAX as usize, 0, 0, 0]) };
}

/// Names the calling thread, for those who look at the process.
pub(crate) fn name_thread(name: &CStr) {
    // SAFETY: the kernel reads the name to its zero byte, and 16 bytes at most.
    let _named = unsafe { call(Call::Prctl, [PR_SET_NAME, name.as_ptr().addr(), 0, 0, 0, 0]) };
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
    let (new, old) = (ptr::from_ref(&blocked).addr(), ptr::from_mut(&mut before).addr());
    // SAFETY: the kernel reads eight bytes of signals, and writes eight.
    let _done = unsafe { call(Call::SigProcMask, [SIG_SETMASK, new, old, 8, 0, 0]) };
    Signals(before)
}

/// What tells the calling thread from all others that live.
pub(crate) fn thread() -> usize {
    arch::thread()
}

/// Writes to standard error, as far as that goes at once.
pub(crate) fn write_error(text: &[u8]) {
    // SAFETY: the kernel reads the text.
    let _written = unsafe { call(Call::Write, [2, text.as_ptr().addr(), text.len(), 0, 0, 0]) };
}

/// Ends the process.
#[cfg_attr(not(panic = "abort"), expect(dead_code, reason = "only a panic ends it"))]
pub(crate) fn abort() -> ! {
    loop {
        // SAFETY: numbers only.
        let _sent = unsafe { call(Call::Kill, [process_id() as usize, SIGABRT, 0, 0, 0, 0]) };
    }
}
