//! The container's accounting region in this process's memory, and this process's slot in it.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use divvy_region::layout::{self, InvalidRegion, Region};
use divvy_region::{Account, Locks, Owner};

use super::paths;
use crate::linker;
use crate::lock::Lock;
use crate::sys::{self, Errno, File};
use crate::text::Text;

/// A process's slot of the region.
pub(super) struct RegionSlot {
    region: Region<'static>,
    /// Whose locks say that this process lives. It is opened once: closing any descriptor of a file lifts all of them.
    descriptor: AtomicI32,
    /// One more than the slot; 0: none is claimed.
    slot: AtomicU32,
    /// Threads that claim or reap take turns here: locks are a process's.
    claiming: Lock<()>,
}

/// Why the accounting region can't be used.
#[derive(Debug)]
pub(super) enum OpenError {
    Io(Errno),
    InvalidRegion(InvalidRegion),
    /// A region for another number of GPUs than the limits.
    Cards,
}

// === impl RegionSlot ===

impl RegionSlot {
    pub(super) fn open(cards: usize) -> Result<Self, OpenError> {
        let file = File::open_to_write(paths::REGION).map_err(OpenError::Io)?;
        let length = usize::try_from(file.length().map_err(OpenError::Io)?).unwrap_or(usize::MAX);
        let length = length.min(layout::size(layout::CARDS));
        if length == 0 {
            return Err(OpenError::InvalidRegion(InvalidRegion::Short { length, needed: layout::LINE })); // it can't be mapped
        }
        let file = file.moved_up();
        let base = file.map(length, true).map_err(OpenError::Io)?;
        // SAFETY: so many bytes are mapped, for ever. Who cuts the file short is in this container, and ends its own.
        let region = unsafe { Region::new(base, length) }.map_err(OpenError::InvalidRegion)?;
        if region.cards() != cards {
            return Err(OpenError::Cards);
        }
        forget_in_children();
        Ok(Self { region, descriptor: AtomicI32::new(file.kept()), slot: AtomicU32::new(0), claiming: Lock::new(()) })
    }

    pub(super) fn region(&self) -> Region<'static> {
        self.region
    }

    pub(super) fn account(&'static self, card: usize) -> Option<Account<'static>> {
        let slot = match self.slot.load(Ordering::Acquire) {
            0 => self.claim()?,
            slot => slot as usize - 1,
        };
        self.region.accounts(card)?.account(slot)
    }

    fn claim(&self) -> Option<usize> {
        let _claiming = self.claiming.lock();
        if let Some(slot) = self.slot.load(Ordering::Acquire).checked_sub(1) {
            return Some(slot as usize);
        }
        let slot = self.region.claim(self, &owner()).ok()?;
        self.slot.store(slot as u32 + 1, Ordering::Release);
        Some(slot)
    }

    pub(super) fn reap(&self) -> usize {
        let _claiming = self.claiming.lock();
        let own = self.slot.load(Ordering::Acquire).checked_sub(1);
        self.region.reap(self, own.map(|slot| slot as usize))
    }

    /// In a child that fork made: nothing here is its own.
    pub(super) fn forget(&self) {
        self.slot.store(0, Ordering::Release);
        drop(self.claiming.reset());
    }
}

impl Locks for RegionSlot {
    fn try_lock(&self, slot: usize) -> bool {
        sys::lock_byte(self.descriptor.load(Ordering::Relaxed), slot, true)
    }

    fn unlock(&self, slot: usize) {
        sys::lock_byte(self.descriptor.load(Ordering::Relaxed), slot, false);
    }

    fn is_alive(&self, pid: u32, started: u64) -> bool {
        match start_of(pid) {
            // Who had no /proc to look into didn't know its own start.
            Ok(found) => found == started || started == 0,
            // Gone, hidden, or there is no /proc here; whatever else keeps us from looking is no proof of death.
            Err(Errno::NOT_FOUND) => !sys::is_gone(pid),
            Err(_) => true,
        }
    }
}

fn owner() -> Owner {
    let pid = sys::process_id();
    let mut comm = [0; 16];
    if let Ok(file) = File::open(c"/proc/self/comm")
        && let Ok(length) = file.read(&mut comm)
        && let Some(end) = comm.get_mut(length.saturating_sub(1))
    {
        *end = 0; // a line break
    }
    Owner { pid, started: start_of(pid).unwrap_or(0), nonce: sys::random(), comm }
}

/// When a process started: field 22 of its `stat`. The name before the third field may hold anything.
fn start_of(pid: u32) -> Result<u64, Errno> {
    let mut stat = [0; 1024];
    let length = File::open(Text::<32>::formatted(format_args!("/proc/{pid}/stat")).as_c())?.read(&mut stat)?;
    let stat = stat.get(..length).unwrap_or_default();
    let after_name = stat.iter().rposition(|byte| *byte == b')').map_or(0, |end| end + 2);
    let mut fields = stat.get(after_name..).unwrap_or_default().split(|byte| *byte == b' ');
    let field = fields.nth(19).and_then(|field| core::str::from_utf8(field).ok());
    field.and_then(|ticks| ticks.parse().ok()).ok_or(Errno::NOT_FOUND)
}

/// Has children that fork makes forget their parent's slot. glibc's `pthread_atfork` calls this with the caller's handle.
fn forget_in_children() {
    type Handler = Option<unsafe extern "C" fn()>;
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const ()) -> i32;
    let register = linker::of_libc(c"__register_atfork");
    if register == 0 {
        return;
    }
    // SAFETY: glibc's function of this name, which musl lacks, has these arguments.
    let register: Register = unsafe { core::mem::transmute(core::ptr::with_exposed_provenance::<()>(register)) };
    // SAFETY: the handler stays where it is, as this library is never unloaded.
    unsafe { register(None, None, Some(in_child), core::ptr::null()) };
}

unsafe extern "C" fn in_child() {
    super::forked();
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::InvalidRegion(unfit) => write!(f, "{unfit}"),
            Self::Cards => f.write_str("for another number of GPUs than the limits"),
        }
    }
}
