//! Memory that graphs allocate, as CUDA's programming guide describes it in "Graph memory nodes".
//!
//! A card has a pool for the graphs of a process. Within a graph an allocation may have the memory of another that was freed
//! before it on each path to it. Graphs that are launched in the same stream never run at once, and have the same memory;
//! those of several streams have their own. What a graph doesn't free is its own until somebody frees it. Memory is found at
//! an upload or a launch, when the stream is known, and stays in the pool until that is trimmed of what isn't in use.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Driver;
use super::context::Stream;
use super::graph::{Node, NodeKind};
use super::memory::Kind;
use crate::codes::Code;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE: u64 = 1;

/// What an allocation has of the pool: multiples of this, in bytes.
const GRANULE: u64 = 2 << 20;

/// A card's memory for graphs, in bytes.
#[derive(Default)]
pub(crate) struct GraphMemory {
    /// What the graphs of each stream share.
    streams: BTreeMap<usize, u64>,
    /// What graphs have allocated and nobody has freed.
    kept: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
}

/// What a graph needs of a card.
#[derive(Default)]
struct Need {
    /// For all that it allocates, some of it in turns.
    bytes: u64,
    /// Part of `bytes` that it doesn't free.
    kept: u64,
}

fn granules(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRANULE)
}

// === impl GraphMemory ===

impl GraphMemory {
    pub(super) fn freed(&mut self, size: u64) {
        self.used = self.used.saturating_sub(size);
        self.kept = self.kept.saturating_sub(granules(size));
    }

    fn allocated(&mut self, size: u64) {
        self.kept += granules(size);
        self.used += size;
        self.used_high = self.used_high.max(self.used);
    }
}

// === impl Need ===

impl Need {
    fn of(steps: &[(usize, Node)], card: usize) -> Self {
        let mut need = Self::default();
        if !steps.iter().any(|(_, node)| matches!(node.kind, NodeKind::Allocate { .. })) {
            return need;
        }
        let mut before: HashMap<usize, HashSet<usize>> = HashMap::new();
        let (mut held, mut free): (HashMap<u64, u64>, Vec<(usize, u64)>) = (HashMap::new(), Vec::new());
        for (handle, node) in steps {
            let mut all: HashSet<usize> = node.dependencies.iter().copied().collect();
            for dependency in &node.dependencies {
                all.extend(before.get(dependency).into_iter().flatten());
            }
            match node.kind {
                NodeKind::Allocate { address, size, device } if device == card => {
                    let mut wanted = granules(size);
                    held.insert(address, wanted);
                    for (_, room) in free.iter_mut().filter(|(by, _)| all.contains(by)) {
                        let taken = wanted.min(*room);
                        (wanted, *room) = (wanted - taken, *room - taken);
                    }
                    need.bytes += wanted;
                }
                NodeKind::Free { address } => free.extend(held.remove(&address).map(|bytes| (*handle, bytes))),
                _ => {}
            }
            before.insert(*handle, all);
        }
        need.kept = held.values().sum();
        need
    }
}

// === impl Driver ===

impl Driver {
    /// Finds memory for a graph that is to be launched in a stream.
    pub(crate) fn upload(&mut self, exec: usize, stream: usize) -> Result<(), Code> {
        for index in 0..self.devices.len() {
            let state = self.execs.get(exec)?;
            let Need { bytes, kept } = Need::of(&state.steps, index);
            if bytes == 0 {
                continue;
            }
            // It allocates the same again, after that was freed.
            let again = state.steps.iter().filter_map(|(_, node)| match node.kind {
                NodeKind::Allocate { address, size, device } if device == index => {
                    let is_live = |kind: &Kind| *kind == Kind::Graph { live: true };
                    self.memory.find(address).filter(|(_, block)| is_live(&block.kind)).map(|_| granules(size))
                }
                _ => None,
            });
            let again: u64 = again.sum();
            let device = &mut self.devices[index];
            let memory = &device.graph_memory;
            let shared = memory.streams.get(&stream).copied().unwrap_or(0).max(bytes - kept);
            let others: u64 =
                memory.streams.iter().filter(|(other, _)| **other != stream).map(|(_, bytes)| bytes).sum();
            let wanted = (others + shared + memory.kept.saturating_sub(again) + kept).max(memory.reserved);
            device.charge(wanted - memory.reserved)?;
            let memory = &mut device.graph_memory;
            memory.streams.insert(stream, shared);
            (memory.reserved, memory.reserved_high) = (wanted, memory.reserved_high.max(wanted));
        }
        Ok(())
    }

    /// `cuDeviceGraphMemTrim`: what neither a graph that is launched nor an allocation uses is the card's again.
    pub(crate) fn trim_graphs(&mut self, ordinal: i32) -> Result<(), Code> {
        self.device(ordinal)?;
        let is_busy = |stream: &Stream| !self.devices[stream.device].engine.is_done(stream.last);
        let busy = self.streams.iter().filter(|(_, stream)| is_busy(stream));
        let busy: HashSet<usize> = busy.map(|(stream, _)| stream).collect();
        let device = self.device_mut(ordinal)?;
        let memory = &mut device.graph_memory;
        memory.streams.retain(|stream, _| busy.contains(stream));
        let keep = (memory.streams.values().sum::<u64>() + memory.kept).min(memory.reserved);
        let given = memory.reserved - keep;
        memory.reserved = keep;
        device.release(given);
        Ok(())
    }

    /// What a launch of a graph does with memory.
    pub(crate) fn launch_allocations(&mut self, exec: usize) -> Result<(), Code> {
        let state = self.execs.get(exec)?;
        let again = state.flags & AUTO_FREE != 0;
        let kinds: Vec<NodeKind> = state.steps.iter().map(|(_, node)| node.kind.clone()).collect();
        for kind in kinds {
            match kind {
                NodeKind::Allocate { address, size, device } => {
                    let block = self.memory.get_mut(address).ok_or(Code::INVALID_VALUE)?;
                    let was_live =
                        std::mem::replace(&mut block.kind, Kind::Graph { live: true }) == Kind::Graph { live: true };
                    if was_live && !again {
                        return Err(Code::INVALID_VALUE);
                    }
                    if !was_live {
                        self.devices[device].graph_memory.allocated(size);
                    }
                }
                NodeKind::Free { address } => self.free_block(address)?,
                _ => {}
            }
        }
        Ok(())
    }
}
