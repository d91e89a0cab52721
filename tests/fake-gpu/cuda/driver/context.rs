//! Contexts, and what lives in them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fake_card::Meeting;

use super::Driver;
use super::memory::Kind;
use super::work::Work;
use crate::codes::Code;

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) id: u64,
    /// The default stream, and that of per-thread callers, which all threads share.
    pub(crate) legacy: usize,
    pub(crate) per_thread: usize,
    /// Who is attached to it beside its maker.
    pub(crate) users: u32,
    /// `CUlimit` to value.
    pub(crate) limits: BTreeMap<u32, usize>,
}

pub(crate) struct Stream {
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) id: u64,
    /// The ticket of what was last submitted.
    pub(crate) last: u64,
    /// The capture that it is part of, and the nodes that the next one depends on.
    pub(crate) capture: Option<u64>,
    pub(crate) frontier: Vec<usize>,
}

pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) flags: u32,
    pub(crate) record: Option<Record>,
    /// The last record was in a capture: its number, and the nodes that it stands for.
    pub(crate) captured: Option<(u64, Vec<usize>)>,
}

/// A record of an event.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) device: usize,
    pub(crate) ticket: u64,
    /// When it was reached; 0: not yet.
    pub(crate) at: Arc<AtomicU64>,
}

pub(crate) struct Module {
    pub(crate) context: usize,
    pub(crate) functions: BTreeMap<CString, usize>,
    /// A module of a library is the library's.
    pub(crate) library: bool,
    /// Bytes that it takes of a card, by its number, since a function of it was launched there.
    pub(crate) loaded: Option<(usize, u64)>,
}

pub(crate) struct Function {
    pub(crate) module: usize,
    pub(crate) name: CString,
    /// `CUfunction_attribute` to what was set.
    pub(crate) attributes: BTreeMap<u32, i32>,
}

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The stack of this thread's contexts.
pub(crate) fn stack<T>(with: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    STACK.with_borrow_mut(with)
}

/// The handle on top of the stack; 0: none.
pub(crate) fn current() -> usize {
    stack(|stack| stack.last().copied()).unwrap_or(0)
}

// === impl Stream ===

impl Stream {
    /// Whether it and the default stream wait for each other (no `CU_STREAM_NON_BLOCKING`).
    pub(super) fn is_blocking(&self) -> bool {
        self.flags & 1 == 0
    }
}

// === impl Driver ===

impl Driver {
    /// The current context.
    pub(crate) fn current(&self) -> Result<&Context, Code> {
        match current() {
            0 => Err(Code::INVALID_CONTEXT),
            handle => {
                self.check(handle)?;
                self.contexts.get(handle).map_err(|_gone| Code::CONTEXT_IS_DESTROYED)
            }
        }
    }

    /// Fails for a context whose work has failed: no call about it succeeds any more.
    pub(crate) fn check(&self, context: usize) -> Result<(), Code> {
        let Ok(Context { device, .. }) = self.contexts.get(context) else { return Ok(()) };
        if self.devices[*device].engine.is_faulty(context) { Err(Code::ILLEGAL_ADDRESS) } else { Ok(()) }
    }

    pub(crate) fn create_context(&mut self, ordinal: i32, flags: u32) -> Result<usize, Code> {
        let device = self.device(ordinal)?;
        device.service.open()?;
        device.charge(device.card.context_bytes)?;
        let device = usize::try_from(ordinal).map_err(|_negative| Code::INVALID_DEVICE)?;
        let id = self.id();
        let context = self.contexts.add(Context {
            device,
            flags,
            id,
            legacy: 0,
            per_thread: 0,
            users: 0,
            limits: BTreeMap::new(),
        });
        let (legacy, per_thread) = (self.add_stream(context, device, 0, 0), self.add_stream(context, device, 1, 0));
        let made = self.contexts.get_mut(context)?;
        (made.legacy, made.per_thread) = (legacy, per_thread);
        Ok(context)
    }

    /// Takes a context away, with all that it holds.
    pub(crate) fn destroy_context(&mut self, handle: usize) -> Result<(), Code> {
        let context = self.contexts.remove(handle).map_err(|_unknown| Code::INVALID_CONTEXT)?;
        self.free_all_of(handle)?;
        let of_it = |table: Vec<(usize, usize)>| table.into_iter().filter(move |(_, owner)| *owner == handle);
        for (stream, _) in of_it(self.streams.iter().map(|(key, stream)| (key, stream.context)).collect()) {
            drop(self.streams.remove(stream));
        }
        for (event, _) in of_it(self.events.iter().map(|(key, event)| (key, event.context)).collect()) {
            drop(self.events.remove(event));
        }
        for (module, _) in of_it(self.modules.iter().map(|(key, module)| (key, module.context)).collect()) {
            self.unload(module)?;
        }
        let device = &mut self.devices[context.device];
        device.engine.forget(handle);
        device.release(device.card.context_bytes);
        Ok(())
    }

    /// The same, but what was allocated in it is another's from now on.
    pub(crate) fn leave(&mut self, handle: usize, to: usize) -> Result<(), Code> {
        self.memory.leave(handle, to);
        let arrays = self.arrays.iter_mut().filter(|(_, array)| array.context == handle);
        arrays.for_each(|(_, array)| array.context = to);
        self.destroy_context(handle)
    }

    fn free_all_of(&mut self, context: usize) -> Result<(), Code> {
        let of_it = self.memory.blocks().filter(|(_, block)| block.context == context);
        // Pools and graphs are a card's, and so is what was allocated from them.
        let of_it = of_it.filter(|(_, block)| !matches!(block.kind, Kind::Pool { .. } | Kind::Graph { .. }));
        let bases: Vec<u64> = of_it.map(|(base, _)| base).collect();
        let arrays = self.arrays.iter().filter(|(_, array)| array.context == context);
        let arrays: Vec<usize> = arrays.map(|(handle, _)| handle).collect();
        for array in arrays {
            self.arrays.remove(array)?;
        }
        bases.into_iter().try_for_each(|base| self.free_block(base))
    }

    pub(crate) fn add_stream(&mut self, context: usize, device: usize, flags: u32, priority: i32) -> usize {
        let id = self.id();
        let frontier = Vec::new();
        self.streams.add(Stream { context, device, flags, priority, id, last: 0, capture: None, frontier })
    }

    /// The stream that a call means: a handle, or one of the current context's default streams.
    pub(crate) fn stream(&self, handle: usize, per_thread: bool) -> Result<usize, Code> {
        match (handle, per_thread) {
            (0, true) | (PER_THREAD, _) => Ok(self.current()?.per_thread),
            (0, false) | (LEGACY, _) => Ok(self.current()?.legacy),
            _ => {
                self.check(self.streams.get(handle)?.context)?;
                Ok(handle)
            }
        }
    }

    /// Records an event in a stream that isn't captured.
    pub(crate) fn record(&mut self, event: usize, stream: usize) -> Result<(), Code> {
        let at = Arc::new(AtomicU64::new(0));
        let device = self.streams.get(stream)?.device;
        self.events.get(event)?;
        let ticket = self.submit(stream, Work::Mark(Arc::clone(&at)))?;
        let event = self.events.get_mut(event)?;
        event.record = Some(Record { device, ticket, at });
        event.captured = None;
        Ok(())
    }

    /// Makes a stream that isn't captured wait for an event.
    pub(crate) fn wait_for(&mut self, stream: usize, record: &Record) -> Result<(), Code> {
        let Record { device, ticket, .. } = *record;
        if self.streams.get(stream)?.device == device {
            self.submit_behind(stream, &[ticket], Work::Join)?;
        } else {
            self.submit(stream, Work::Wait { device, ticket })?;
        }
        Ok(())
    }

    /// A rank's part in a meeting of kernels.
    pub(crate) fn meeting(&mut self, group: u64, rank: (u32, u32), number: u64) -> Result<Meeting, Code> {
        let known = match self.meetings.entry((group, rank.0)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let opened = Meeting::open(&self.memory.state, group, rank, number);
                *place.insert(opened.map_err(|_refused| Code::INVALID_VALUE)?)
            }
        };
        Ok(known.numbered(number))
    }

    pub(crate) fn load(&mut self, context: usize, library: bool) -> usize {
        self.modules.add(Module { context, functions: BTreeMap::new(), library, loaded: None })
    }

    pub(crate) fn unload(&mut self, module: usize) -> Result<(), Code> {
        let Module { functions, loaded, .. } = self.modules.remove(module)?;
        for function in functions.into_values() {
            drop(self.functions.remove(function));
        }
        if let Some((device, bytes)) = loaded {
            self.devices[device].release(bytes);
        }
        let globals = self.memory.blocks().filter(|(_, block)| block.kind == Kind::Global { module });
        let globals: Vec<u64> = globals.map(|(base, _)| base).collect();
        globals.into_iter().try_for_each(|base| self.free_block(base))
    }

    /// Loads a module onto a stream's card when the first of its functions is launched (`CUDA_MODULE_LOADING=LAZY`).
    pub(crate) fn load_lazily(&mut self, function: usize, stream: usize) -> Result<(), Code> {
        let (module, device) = (self.functions.get(function)?.module, self.streams.get(stream)?.device);
        if self.modules.get(module)?.loaded.is_none() {
            let bytes = self.devices[device].card.module_bytes;
            self.devices[device].charge(bytes)?;
            self.modules.get_mut(module)?.loaded = Some((device, bytes));
        }
        Ok(())
    }

    /// The function of a module by its name, which any has.
    pub(crate) fn function(&mut self, module: usize, name: CString) -> Result<usize, Code> {
        let known = self.modules.get(module)?.functions.get(&name).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let function = self.functions.add(Function { module, name: name.clone(), attributes: BTreeMap::new() });
        self.modules.get_mut(module)?.functions.insert(name, function);
        Ok(function)
    }
}
