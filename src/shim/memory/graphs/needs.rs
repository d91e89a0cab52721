//! What a graph takes of the cards, before it is made executable.

use core::ffi::c_int;
use core::ptr;

use divvy_region::layout::CARDS;

use crate::cuda::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUgraph, CUgraphNode, CUresult, NODE_ALLOCATION, NODE_FREE,
    NODE_GRAPH, SUCCESS,
};
use crate::driver::cuda::{
    cuCtxGetDevice, cuGraphChildGraphNodeGetGraph, cuGraphMemAllocNodeGetParams, cuGraphMemFreeNodeGetParams,
    cuGraphNodeGetType,
};
use crate::pace;
use crate::process;

use super::order::{Nodes, Scratch};

/// What a card reserves for graphs at once.
const GRANULE: u64 = 2 << 20;

/// What an executable graph takes beside its nodes, in bytes: measured on an H100 with driver 580, 50 graphs of 10, 100 and 1000
/// kernels (docs/isolation.md).
const GRAPH: u64 = 112 << 10;

/// What a graph takes, by card.
pub(super) struct Needs {
    /// The most that it has allocated at once.
    bytes: [u64; CARDS],
    /// Whether it leaves memory allocated.
    keeps: [bool; CARDS],
    /// What the driver takes for it and its nodes: of the current context's card.
    nodes: [u64; CARDS],
    devices: [CUdevice; CARDS],
}

/// What a graph takes of one card.
#[derive(Clone, Copy)]
pub(super) struct Need {
    pub(super) card: usize,
    pub(super) device: CUdevice,
    /// The most that it has allocated at once, in whole granules, as the card reserves.
    pub(super) bytes: u64,
    pub(super) keeps: bool,
    pub(super) nodes: u64,
}

/// What a graph has allocated when it has come to a node, on all paths to it.
struct Walk<'a> {
    needs: &'a mut Needs,
    live: [u64; CARDS],
    /// Freed, but not before all that is still to come.
    freed: [u64; CARDS],
    most: [u64; CARDS],
    allocations: Scratch<Allocation>,
    made: usize,
}

#[derive(Clone, Copy)]
struct Allocation {
    address: CUdeviceptr,
    bytes: u64,
    card: usize,
    is_live: bool,
}

// === impl Needs ===

impl Needs {
    /// # Safety
    /// A graph.
    pub(super) unsafe fn read(graph: CUgraph) -> Result<Self, CUresult> {
        let mut needs = Self { bytes: [0; CARDS], keeps: [false; CARDS], nodes: [0; CARDS], devices: [0; CARDS] };
        // SAFETY: the caller's guarantee.
        let count = unsafe { needs.add(graph) }?;
        needs.add_nodes(count);
        Ok(needs)
    }

    pub(super) fn by_card(&self) -> impl Iterator<Item = Need> {
        let amounts = self.bytes.iter().zip(&self.nodes);
        let all =
            amounts.zip(self.keeps.iter().zip(&self.devices)).enumerate().map(|(card, (amounts, (keeps, device)))| {
                let (bytes, nodes) = amounts;
                let bytes = bytes.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX);
                Need { card, device: *device, bytes, keeps: *keeps, nodes: *nodes }
            });
        all.filter(|need| need.bytes > 0 || need.nodes > 0)
    }

    /// What the driver takes for so many nodes.
    fn add_nodes(&mut self, count: u64) {
        let mut device: CUdevice = 0;
        // SAFETY: a device is written to a device.
        let is_told = unsafe { cuCtxGetDevice(&raw mut device) } == SUCCESS;
        let Ok(process) = process::this() else { return };
        let Some(card) = is_told.then(|| process.card_of(device)).flatten() else { return };
        if let (Some(bytes), Some(known)) = (self.nodes.get_mut(card), self.devices.get_mut(card)) {
            let node = pace::driver_memory(process, card).graph_node_bytes;
            // Where nothing is known of nodes, nothing is charged.
            let graph = if node == 0 { 0 } else { GRAPH };
            *bytes = count.saturating_mul(node).saturating_add(graph);
            *known = device;
        }
    }

    /// Adds what a graph allocates, and counts its nodes. What its children allocate comes on top of that.
    ///
    /// # Safety
    /// A graph.
    unsafe fn add(&mut self, graph: CUgraph) -> Result<u64, CUresult> {
        // SAFETY: the caller's guarantee.
        let nodes = unsafe { Nodes::read(graph) }?;
        let mut count = nodes.handles().len() as u64;
        let mut allocations = 0;
        for node in nodes.handles() {
            match kind_of(*node) {
                NODE_ALLOCATION => allocations += 1,
                NODE_GRAPH => {
                    let mut child: CUgraph = ptr::null_mut();
                    // SAFETY: a node of the graph; a graph is written to a graph, and then is one.
                    unsafe {
                        if cuGraphChildGraphNodeGetGraph(*node, &raw mut child) == SUCCESS {
                            count += self.add(child)?;
                        }
                    }
                }
                _ => {}
            }
        }
        if allocations > 0 {
            let mut walk = Walk::new(self, Scratch::with_length(allocations)?);
            // SAFETY: the caller's guarantee.
            unsafe { nodes.in_order(graph, |node, is_after_all| walk.visit(node, is_after_all)) }?;
            walk.end();
        }
        Ok(count)
    }
}

// === impl Walk ===

impl<'a> Walk<'a> {
    fn new(needs: &'a mut Needs, allocations: Scratch<Allocation>) -> Self {
        Self { needs, live: [0; CARDS], freed: [0; CARDS], most: [0; CARDS], allocations, made: 0 }
    }

    /// Comes to a node. `is_after_all`: it depends on all nodes that were visited before.
    fn visit(&mut self, node: CUgraphNode, is_after_all: bool) {
        if is_after_all {
            for (live, freed) in self.live.iter_mut().zip(&mut self.freed) {
                *live = live.saturating_sub(core::mem::take(freed));
            }
        }
        match kind_of(node) {
            NODE_ALLOCATION => self.allocate(node),
            NODE_FREE => self.free(node),
            _ => {}
        }
    }

    fn allocate(&mut self, node: CUgraphNode) {
        let mut parameters = CUDA_MEM_ALLOC_NODE_PARAMS::NOTHING;
        // SAFETY: it is a node that allocates.
        if unsafe { cuGraphMemAllocNodeGetParams(node, &raw mut parameters) } != SUCCESS {
            return;
        }
        let Some(device) = parameters.pool.location.device() else { return };
        let Some(card) = process::this().ok().and_then(|process| process.card_of(device)) else { return };
        let bytes = (parameters.bytes as u64).checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX);
        if let Some(place) = self.allocations.items_mut().get_mut(self.made) {
            *place = Allocation { address: parameters.address, bytes, card, is_live: true };
            self.made += 1;
        }
        if let (Some(live), Some(most)) = (self.live.get_mut(card), self.most.get_mut(card)) {
            *live = live.saturating_add(bytes);
            *most = (*most).max(*live);
        }
        if let Some(known) = self.needs.devices.get_mut(card) {
            *known = device;
        }
    }

    /// Notes what is freed; another graph's memory isn't known, nor needed.
    fn free(&mut self, node: CUgraphNode) {
        let mut address: CUdeviceptr = 0;
        // SAFETY: it is a node that frees; an address is written to an address.
        let told = unsafe { cuGraphMemFreeNodeGetParams(node, &raw mut address) };
        // The last one most often.
        let mut made = self.allocations.items_mut().iter_mut().take(self.made).rev();
        let found = made.find(|made| made.is_live && made.address == address).filter(|_| told == SUCCESS);
        if let Some(Allocation { bytes, card, is_live, .. }) = found {
            *is_live = false;
            if let Some(freed) = self.freed.get_mut(*card) {
                *freed = freed.saturating_add(*bytes);
            }
        }
    }

    fn end(mut self) {
        for (bytes, most) in self.needs.bytes.iter_mut().zip(self.most) {
            *bytes = bytes.saturating_add(most);
        }
        for left in self.allocations.items_mut().iter().take(self.made).filter(|made| made.is_live) {
            if let Some(keeps) = self.needs.keeps.get_mut(left.card) {
                *keeps = true;
            }
        }
    }
}

fn kind_of(node: CUgraphNode) -> c_int {
    let mut kind: c_int = -1;
    // SAFETY: a node of a graph; a number is written to a number.
    unsafe { cuGraphNodeGetType(node, &raw mut kind) };
    kind
}
