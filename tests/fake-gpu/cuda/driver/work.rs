//! What streams do.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fake_card::Meeting;

/// What an event's marker takes. It has to have the card, as a kernel has.
const MARKER: u64 = 1;

/// What a kernel takes that writes a flag, or fails, in nanoseconds.
const WRITE: u64 = 1000;

pub(crate) enum Work {
    /// Kernels that do nothing but take the card's time: one, or those of a graph.
    Run(Run),
    Kernel(Task),
    /// An event: the moment at which it is reached goes where this says.
    Mark(Arc<AtomicU64>),
    /// Nothing, once it is its turn.
    Join,
    /// A function of the program's.
    Host(HostCall),
    /// Work on another card, by its number.
    Wait {
        device: usize,
        ticket: u64,
    },
    /// `cuStreamWaitValue`: the stream waits without having the card.
    Await(Flag),
    /// `cuStreamWriteValue`.
    Write(Write),
}

/// Something that takes the card's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Nanoseconds.
    pub(crate) lasts: u64,
    pub(crate) kernels: u64,
    pub(crate) launches: u64,
}

/// A kernel that depends on others, or that others depend on.
#[derive(Clone, Copy)]
pub(crate) enum Task {
    /// Has the card until memory says so.
    Spin(Flag),
    Write(Write),
    /// Has the card until its like of other processes or cards run, and for so many nanoseconds then.
    Meet(Meeting, u64),
    /// Reads where nothing is: an error of this context.
    Fault(usize),
}

/// What memory has to say. The address is where the bytes really are.
#[derive(Clone, Copy)]
pub(crate) struct Flag {
    pub(crate) address: u64,
    pub(crate) value: u64,
    pub(crate) is_long: bool,
    pub(crate) test: Test,
}

/// `CUstreamWaitValue_flags`.
#[derive(Clone, Copy)]
pub(crate) enum Test {
    /// At least the value, as numbers that wrap around.
    Reached,
    Equal,
    AnyBit,
    NotAll,
}

/// A value that goes to memory. The address is where the bytes really are.
#[derive(Clone, Copy)]
pub(crate) struct Write {
    pub(crate) address: u64,
    pub(crate) value: u64,
    pub(crate) is_long: bool,
}

/// A function of the program's.
#[derive(Clone, Copy)]
pub(crate) enum HostCall {
    Function {
        function: unsafe extern "C" fn(*mut c_void),
        data: usize,
    },
    /// The form of `cuStreamAddCallback`.
    Callback {
        function: unsafe extern "C" fn(usize, u32, *mut c_void),
        stream: usize,
        data: usize,
    },
}

// === impl Work ===

impl Work {
    /// Kernels and launches.
    pub(super) fn counts(&self) -> (u64, u64) {
        match self {
            Self::Run(run) => (run.kernels, run.launches),
            Self::Kernel(_) => (1, 1),
            _ => (0, 0),
        }
    }

    /// Nanoseconds of the card that it takes; `None`: that depends on something else.
    pub(super) fn lasts(&self) -> Option<u64> {
        match self {
            Self::Run(run) => Some(run.lasts.max(MARKER)),
            Self::Kernel(Task::Write(_) | Task::Fault(_)) => Some(WRITE),
            Self::Mark(_) => Some(MARKER),
            Self::Join | Self::Write(_) => Some(0),
            Self::Kernel(Task::Spin(_) | Task::Meet(..)) | Self::Host(_) | Self::Wait { .. } | Self::Await(_) => None,
        }
    }
}

// === impl Flag ===

impl Flag {
    /// Whether memory says so now.
    pub(super) fn is_set(&self) -> bool {
        let Self { address, value, is_long, test } = *self;
        let found =
            if is_long { long(address).load(Ordering::SeqCst) } else { short(address).load(Ordering::SeqCst).into() };
        match test {
            Test::Reached if is_long => found.wrapping_sub(value).cast_signed() >= 0,
            Test::Reached => (found as u32).wrapping_sub(value as u32).cast_signed() >= 0,
            Test::Equal => found == value,
            Test::AnyBit => found & value != 0,
            Test::NotAll => !(found | value) & if is_long { u64::MAX } else { u32::MAX.into() } != 0,
        }
    }
}

// === impl Write ===

impl Write {
    pub(super) fn perform(&self) {
        let Self { address, value, is_long } = *self;
        if is_long {
            long(address).store(value, Ordering::SeqCst);
        } else {
            short(address).store(value as u32, Ordering::SeqCst);
        }
    }
}

/// Memory that the program named to a kernel or a stream; it was checked for alignment then.
fn short(address: u64) -> &'static AtomicU32 {
    // SAFETY: the program's word that these bytes stay while the work is in flight, as for a card; any bytes are a number.
    unsafe { AtomicU32::from_ptr(ptr::with_exposed_provenance_mut(address as usize)) }
}

fn long(address: u64) -> &'static AtomicU64 {
    // SAFETY: as above.
    unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(address as usize)) }
}
