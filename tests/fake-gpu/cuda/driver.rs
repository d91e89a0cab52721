//! The library's state: one for the process, behind one lock.

pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod engine;
pub(crate) mod graph;
mod graph_memory;
pub(crate) mod ipc;
pub(crate) mod memory;
pub(crate) mod pool;
mod service;
mod start;
mod sync;
mod table;
mod ticker;
pub(crate) mod vmm;
pub(crate) mod work;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fake_card::Meeting;

use crate::codes::Code;
use crate::machine::{CardDescription, Machine};
use capture::{Capture, CaptureMode};
use context::{Context, Event, Function, Module, Stream};
use engine::Engine;
use graph::{Exec, Graph, Node};
use graph_memory::GraphMemory;
use memory::Memory;
use pool::Pool;
pub(crate) use start::{initialise, machine};
pub(crate) use sync::{finish, finish_all, make_room, sleep_until};
use table::Table;
use vmm::Virtual;

pub(crate) struct Driver {
    pub(crate) machine: &'static Machine,
    /// Those that are visible, by ordinal.
    pub(crate) devices: Vec<Device>,
    pub(crate) memory: Memory,
    pub(crate) virtual_memory: Virtual,
    pub(crate) contexts: Table<Context>,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<Function>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) nodes: Table<Node>,
    pub(crate) execs: Table<Exec>,
    pub(crate) pools: Table<Pool>,
    pub(crate) arrays: Table<memory::Array>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    /// By group and rank.
    meetings: BTreeMap<(u64, u32), Meeting>,
    next_id: u64,
    /// The ticker sleeps until it is called.
    dozing: bool,
}

/// A card of this process.
pub(crate) struct Device {
    pub(crate) card: &'static CardDescription,
    pub(crate) engine: Engine,
    service: service::OnCard,
    pub(crate) primary: Primary,
    pub(crate) default_pool: usize,
    pub(crate) pool: usize,
    pub(crate) graph_memory: GraphMemory,
}

/// A card's primary context.
#[derive(Default)]
pub(crate) struct Primary {
    /// Stays the same while the process lives.
    pub(crate) context: Option<usize>,
    pub(crate) users: u32,
    pub(crate) flags: u32,
}

static DRIVER: OnceLock<Mutex<Driver>> = OnceLock::new();

/// Set in the child of a fork: the driver of its parent isn't the child's.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Something has gone on that isn't the card's doing.
static CHANGED: Condvar = Condvar::new();

/// The state, for a process that has called `cuInit`.
pub(crate) fn driver() -> Result<MutexGuard<'static, Driver>, Code> {
    let driver = DRIVER.get().filter(|_| !FORKED.load(Relaxed)).ok_or(Code::NOT_INITIALIZED)?;
    Ok(driver.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The state, for the ticker, which can come before [`initialise`] has stored it.
fn wait_for_driver() -> MutexGuard<'static, Driver> {
    DRIVER.wait().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for [`CHANGED`], or until `pause` is over.
fn wait_on(driver: MutexGuard<'static, Driver>, pause: Option<Duration>) -> MutexGuard<'static, Driver> {
    match pause {
        Some(pause) => CHANGED.wait_timeout(driver, pause).unwrap_or_else(PoisonError::into_inner).0,
        None => CHANGED.wait(driver).unwrap_or_else(PoisonError::into_inner),
    }
}

// === impl Driver ===

impl Driver {
    pub(crate) fn device(&self, ordinal: i32) -> Result<&Device, Code> {
        usize::try_from(ordinal).ok().and_then(|index| self.devices.get(index)).ok_or(Code::INVALID_DEVICE)
    }

    pub(crate) fn device_mut(&mut self, ordinal: i32) -> Result<&mut Device, Code> {
        usize::try_from(ordinal).ok().and_then(|index| self.devices.get_mut(index)).ok_or(Code::INVALID_DEVICE)
    }

    /// A number that nothing else of this process has.
    pub(crate) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A call that a capture somewhere may not allow.
    pub(crate) fn unsafe_call(&mut self) -> Result<(), Code> {
        let allowed = capture::thread_mode() == CaptureMode::Relaxed || !self.forbid();
        if allowed { Ok(()) } else { Err(Code::STREAM_CAPTURE_UNSUPPORTED) }
    }
}

// === impl Device ===

impl Device {
    /// Bytes that processes can hold.
    pub(crate) fn capacity(&self) -> u64 {
        self.card.memory_total.saturating_sub(self.card.memory_used)
    }

    /// Bytes that are free now.
    pub(crate) fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.engine.member.card().memory_used()).min(self.service.room(self))
    }

    pub(crate) fn charge(&self, bytes: u64) -> Result<(), Code> {
        if bytes > self.service.room(self) {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.engine.member.charge(bytes, self.capacity()).map_err(|_full| Code::OUT_OF_MEMORY)
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.engine.member.release(bytes);
    }

    /// Brings managed bytes to the card, as far as it has room, and says how many.
    pub(crate) fn charge_managed(&self, bytes: u64) -> u64 {
        self.engine.member.charge_managed(bytes.min(self.service.room(self)), self.capacity())
    }
}
