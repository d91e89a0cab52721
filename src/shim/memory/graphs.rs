//! Memory of graphs: what the driver takes of the card for each node of an executable graph, and what graphs allocate when they
//! run. A card keeps that apart, for all graphs of a process, and graphs that don't run at the same time may share it: what
//! it costs is what the card has reserved for them.
//!
//! That grows at a graph's first launch, but for no more than its allocations come to, and these are known when it is made
//! executable. There they are reserved, so that no launch takes what isn't there.

use core::ffi::{c_char, c_int, c_ulonglong, c_void};
use core::ptr;
use core::slice;

use divvy_region::layout::CARDS;

use crate::cuda::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUgraph, CUgraphExec, CUgraphNode, CUresult, ERROR_OUT_OF_MEMORY,
    GRAPH_RESERVED, NODE_ALLOCATION, NODE_GRAPH, SUCCESS,
};
use crate::driver::cuda::{
    cuCtxGetDevice, cuDeviceGetGraphMemAttribute, cuDeviceGraphMemTrim, cuGraphChildGraphNodeGetGraph, cuGraphGetNodes,
    cuGraphMemAllocNodeGetParams, cuGraphNodeGetType,
};
use crate::driver::current_context;
use crate::lock::Lock;
use crate::pace;
use crate::process;
use crate::sys;

use super::quota::Quota;
use super::resources::{Kind, RESOURCES, Resource};

/// What the graphs of this process cost a card.
#[derive(Clone, Copy)]
struct Graphs {
    /// What executable graphs may allocate, in bytes.
    needed: u64,
    /// What the driver takes for their nodes, in bytes.
    nodes: u64,
    /// What is charged: both, or the nodes and what the card has reserved if that is more.
    charged: u64,
    device: CUdevice,
}

/// What a graph takes, by card.
struct Needs {
    /// What it may allocate.
    bytes: [u64; CARDS],
    /// What the driver takes for its nodes: of the current context's card.
    nodes: [u64; CARDS],
    devices: [CUdevice; CARDS],
}

/// What a graph takes of one card.
#[derive(Clone, Copy)]
struct Need {
    card: usize,
    device: CUdevice,
    /// What it may allocate, in whole granules, as the card reserves.
    bytes: u64,
    /// What the driver takes for its nodes.
    nodes: u64,
}

/// Nodes' handles, in memory that is given back at the end.
struct Nodes {
    handles: *mut CUgraphNode,
    count: usize,
}

static GRAPHS: Lock<[Graphs; CARDS]> = Lock::new([Graphs::NONE; CARDS]);

// === impl Graphs ===

impl Graphs {
    const NONE: Self = Self { needed: 0, nodes: 0, charged: 0, device: 0 };

    fn remove(&mut self, graph: Resource) {
        self.needed = self.needed.saturating_sub(graph.bytes);
        self.nodes = self.nodes.saturating_sub(graph.of);
    }

    /// Charges what is needed or reserved now.
    fn reconcile(&mut self, quota: Quota) {
        let mut reserved = 0_u64;
        // SAFETY: the attribute has 64 bits.
        unsafe { cuDeviceGetGraphMemAttribute(self.device, GRAPH_RESERVED, (&raw mut reserved).cast()) };
        let now = reserved.max(self.needed).saturating_add(self.nodes);
        quota.change(self.charged, now);
        self.charged = now;
    }
}

// === impl Needs ===

impl Needs {
    /// # Safety
    /// A graph.
    unsafe fn of(graph: CUgraph) -> Result<Self, CUresult> {
        let mut needs = Self { bytes: [0; CARDS], nodes: [0; CARDS], devices: [0; CARDS] };
        // SAFETY: the caller's guarantee.
        let count = unsafe { needs.add(graph) }?;
        needs.add_nodes(count);
        Ok(needs)
    }

    /// What the driver takes for so many nodes.
    fn add_nodes(&mut self, count: u64) {
        let mut device: CUdevice = 0;
        // SAFETY: a device is written to a device.
        let is_told = unsafe { cuCtxGetDevice(&raw mut device) } == SUCCESS;
        let Ok(process) = process::this() else { return };
        let Some(card) = is_told.then(|| process.card_of(device)).flatten() else { return };
        if let (Some(bytes), Some(known)) = (self.nodes.get_mut(card), self.devices.get_mut(card)) {
            *bytes = count.saturating_mul(pace::driver_memory(process, card).graph_node_bytes);
            *known = device;
        }
    }

    /// Adds what a graph may allocate, and counts its nodes.
    ///
    /// # Safety
    /// A graph.
    unsafe fn add(&mut self, graph: CUgraph) -> Result<u64, CUresult> {
        // SAFETY: the caller's guarantee.
        let nodes = unsafe { Nodes::of(graph) }?;
        let mut count = nodes.handles().len() as u64;
        for node in nodes.handles() {
            let mut kind: c_int = 0;
            // SAFETY: a node of the graph; what is asked for is written to what is like it.
            unsafe {
                cuGraphNodeGetType(*node, &raw mut kind);
                if kind == NODE_ALLOCATION {
                    self.add_allocation(*node);
                } else if kind == NODE_GRAPH {
                    let mut child: CUgraph = ptr::null_mut();
                    if cuGraphChildGraphNodeGetGraph(*node, &raw mut child) == SUCCESS {
                        count += self.add(child)?;
                    }
                }
            }
        }
        Ok(count)
    }

    /// # Safety
    /// A node that allocates.
    unsafe fn add_allocation(&mut self, node: CUgraphNode) {
        let mut parameters = CUDA_MEM_ALLOC_NODE_PARAMS::NOTHING;
        // SAFETY: the caller's guarantee.
        if unsafe { cuGraphMemAllocNodeGetParams(node, &raw mut parameters) } != SUCCESS {
            return;
        }
        let Some(device) = parameters.pool.location.device() else { return };
        let Some(card) = process::this().ok().and_then(|process| process.card_of(device)) else { return };
        if let (Some(bytes), Some(known)) = (self.bytes.get_mut(card), self.devices.get_mut(card)) {
            *bytes = bytes.saturating_add(parameters.bytes as u64);
            *known = device;
        }
    }

    fn by_card(&self) -> impl Iterator<Item = Need> {
        let all = self.bytes.iter().zip(&self.nodes).zip(&self.devices).enumerate();
        let need = |(card, ((bytes, nodes), device)): (usize, ((&u64, &u64), &CUdevice))| {
            let bytes = bytes.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX);
            Need { card, device: *device, bytes, nodes: *nodes }
        };
        all.map(need).filter(|need| need.bytes > 0 || need.nodes > 0)
    }
}

/// What a card reserves for graphs at once.
const GRANULE: u64 = 2 << 20;

// === impl Nodes ===

impl Nodes {
    /// # Safety
    /// A graph.
    unsafe fn of(graph: CUgraph) -> Result<Self, CUresult> {
        let mut count = 0;
        // SAFETY: the caller's guarantee; without room for handles it is the number that is asked for.
        let result = unsafe { cuGraphGetNodes(graph, ptr::null_mut(), &raw mut count) };
        if result != SUCCESS {
            return Err(result);
        }
        if count == 0 {
            return Ok(Self { handles: ptr::null_mut(), count });
        }
        let bytes = count.checked_mul(size_of::<CUgraphNode>()).ok_or(ERROR_OUT_OF_MEMORY)?;
        let nodes = Self { handles: sys::memory(bytes).ok_or(ERROR_OUT_OF_MEMORY)?.cast(), count };
        // SAFETY: there is room for so many handles.
        match unsafe { cuGraphGetNodes(graph, nodes.handles, &raw mut count) } {
            SUCCESS => Ok(nodes),
            error => Err(error),
        }
    }

    fn handles(&self) -> &[CUgraphNode] {
        if self.handles.is_null() {
            return &[];
        }
        // SAFETY: so many handles have room there, and what wasn't written is null.
        unsafe { slice::from_raw_parts(self.handles, self.count) }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if !self.handles.is_null() {
            // SAFETY: it was mapped with this length, and nobody has it but us.
            unsafe { sys::unmap(self.handles.cast(), self.count * size_of::<CUgraphNode>()) };
        }
    }
}

/// `cuGraphInstantiateWithFlags`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn instantiate(
    real: unsafe extern "C" fn(*mut CUgraphExec, CUgraph, c_ulonglong) -> CUresult,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    unsafe { instantiate_for(exec, graph, |exec| real(exec, graph, flags)) }
}

/// `cuGraphInstantiate` and `cuGraphInstantiate_v2`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn instantiate_with_log(
    real: unsafe extern "C" fn(*mut CUgraphExec, CUgraph, *mut CUgraphNode, *mut c_char, usize) -> CUresult,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    length: usize,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    unsafe { instantiate_for(exec, graph, |exec| real(exec, graph, node, log, length)) }
}

/// `cuGraphInstantiateWithParams`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn instantiate_with_parameters(
    real: unsafe extern "C" fn(*mut CUgraphExec, CUgraph, *mut c_void) -> CUresult,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut c_void,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    unsafe { instantiate_for(exec, graph, |exec| real(exec, graph, parameters)) }
}

/// # Safety
/// `exec` is null or valid for a write; `ask` writes a handle where it is told to if it succeeds.
unsafe fn instantiate_for(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    ask: impl FnOnce(*mut CUgraphExec) -> CUresult,
) -> CUresult {
    // SAFETY: the caller's graph; the driver knows one that is none.
    let needs = match unsafe { Needs::of(graph) } {
        Ok(needs) if !exec.is_null() && needs.by_card().next().is_some() => needs,
        Ok(_) | Err(_) => return ask(exec),
    };
    // Released at the end, when all that is to stay is charged otherwise.
    let mut reserved = [const { None }; CARDS];
    for (Need { card, bytes, nodes, .. }, place) in needs.by_card().zip(&mut reserved) {
        match Quota::of_card(card).and_then(|quota| quota.reserve(bytes.saturating_add(nodes))) {
            Ok(here) => *place = Some(here),
            Err(refused) => return refused,
        }
    }
    let mut made: CUgraphExec = ptr::null_mut();
    let result = ask(&raw mut made);
    if result != SUCCESS {
        return result;
    }
    // SAFETY: the caller's, not null.
    unsafe { *exec = made };
    for Need { card, device, bytes, nodes } in needs.by_card() {
        let resource = Resource { bytes, card, context: current_context().addr(), of: nodes };
        let gone = RESOURCES.put(Kind::Graph(card as u8), made.addr() as u64, resource).ok().flatten();
        change(card, |graphs| {
            graphs.device = device;
            if let Some(gone) = gone {
                graphs.remove(gone);
            }
            graphs.needed = graphs.needed.saturating_add(bytes);
            graphs.nodes = graphs.nodes.saturating_add(nodes);
        });
    }
    result
}

/// `cuGraphExecDestroy`. What the card has reserved for it stays so until it is trimmed.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(CUgraphExec) -> CUresult, exec: CUgraphExec) -> CUresult {
    let mut held = [None; CARDS];
    for (card, place) in held.iter_mut().enumerate().filter(|(card, _)| is_known(*card)) {
        *place = RESOURCES.take(Kind::Graph(card as u8), exec.addr() as u64);
    }
    // SAFETY: the caller's argument as it came.
    let result = unsafe { real(exec) };
    for resource in held.into_iter().flatten() {
        if result == SUCCESS {
            change(resource.card, |graphs| graphs.remove(resource));
        } else {
            let _had_a_place = RESOURCES.put(Kind::Graph(resource.card as u8), exec.addr() as u64, resource);
        }
    }
    result
}

/// Forgets the executable graphs of a context that has ended.
pub(super) fn forget_context(context: usize) {
    for card in (0..CARDS).filter(|card| is_known(*card)) {
        let is_of_it = |resource: &Resource| resource.context == context;
        RESOURCES
            .take_all(&[Kind::Graph(card as u8)], is_of_it, |_, graph| change(card, |graphs| graphs.remove(graph)));
    }
}

/// `cuDeviceGraphMemTrim`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn trim(real: unsafe extern "C" fn(CUdevice) -> CUresult, device: CUdevice) -> CUresult {
    // SAFETY: the caller's argument as it came.
    let result = unsafe { real(device) };
    if let Some(card) = process::this().ok().and_then(|process| process.card_of(device))
        && is_known(card)
    {
        change(card, |_| ());
    }
    result
}

/// Gives back what lies idle for graphs on a card.
pub(super) fn give_back(card: usize) {
    if is_known(card) {
        change(card, |graphs| {
            // SAFETY: the ordinal of a card.
            unsafe { cuDeviceGraphMemTrim(graphs.device) };
        });
    }
}

/// Whether graphs have ever needed memory of a card.
fn is_known(card: usize) -> bool {
    GRAPHS.lock().get(card).is_some_and(|graphs| graphs.charged > 0)
}

fn change(card: usize, act: impl FnOnce(&mut Graphs)) {
    let mut all = GRAPHS.lock();
    if let (Some(graphs), Ok(quota)) = (all.get_mut(card), Quota::of_card(card)) {
        act(graphs);
        graphs.reconcile(quota);
    }
}

/// In a child that fork made.
pub(super) fn forget() {
    *GRAPHS.reset() = [Graphs::NONE; CARDS];
}
