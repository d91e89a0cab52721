//! Memory of graphs: what the driver takes of the card for each node of an executable graph, and what graphs allocate when they
//! run. A card has a pool for the latter, for all graphs of a process: within a graph memory is used again after it was freed,
//! and graphs that don't run at the same time share it ("Graph memory nodes" in CUDA's programming guide). What it costs is
//! what the card has reserved.
//!
//! That grows at a launch or an upload, when the driver knows the stream. But the most that a graph has allocated at once is
//! known when it is made executable: there the card must have room for the largest graph, and for all that leave memory
//! allocated. Before a launch the rest is reserved, for graphs of other streams that may run meanwhile; after it, the driver
//! tells what it has taken.

mod needs;
mod order;
mod pool;

use core::cell::Cell;
use core::ffi::{c_char, c_ulonglong, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use divvy_region::layout::CARDS;

use crate::cuda::{CUdevice, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream, SUCCESS};
use crate::driver::cuda::cuDeviceGraphMemTrim;
use crate::driver::current_context;
use crate::lock::Lock;
use crate::pace::launch;
use crate::process;

use self::needs::{Need, Needs};
use self::pool::{GraphPool, pack, unpack};
use super::quota::{Place, Quota, Reserved};
use super::resources::{Kind, RESOURCES, Resource};

static GRAPHS: Lock<[GraphPool; CARDS]> = Lock::new([GraphPool::NONE; CARDS]);
/// Whether any executable graph ever allocated memory, for those whose launches would otherwise look for nothing.
static ANY: AtomicBool = AtomicBool::new(false);

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
    let needs = match unsafe { Needs::read(graph) } {
        Ok(needs) if !exec.is_null() && needs.by_card().next().is_some() => needs,
        Ok(_) | Err(_) => return ask(exec),
    };
    // Released at the end, when all that is to stay is charged otherwise.
    let mut reserved = [const { None }; CARDS];
    for (need, place) in needs.by_card().zip(&mut reserved) {
        match reserve(need.card, |graphs| graphs.short_of(need).saturating_add(need.nodes)) {
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
    for need in needs.by_card() {
        let Need { card, bytes, keeps, nodes, .. } = need;
        let resource = Resource { bytes, card, context: current_context().addr(), of: pack(nodes, keeps) };
        let gone = RESOURCES.put(Kind::Graph(card as u8), made.addr() as u64, resource).ok().flatten();
        if bytes > 0 {
            ANY.store(true, Ordering::Relaxed);
        }
        change(card, |graphs| {
            if let Some(gone) = gone {
                graphs.remove(gone);
            }
            graphs.add(need);
        });
    }
    result
}

/// Reserves what a card's graphs are short of, if need be after what lies idle for them was given back.
fn reserve(card: usize, short: impl Fn(&GraphPool) -> u64) -> Result<Reserved, CUresult> {
    let quota = Quota::of_card(card)?;
    let short = || GRAPHS.lock().get(card).map_or(0, &short);
    if let Some(reserved) = quota.reserve_in(Place::Card, short()) {
        return Ok(reserved);
    }
    give_back(card);
    quota.reserve(short())
}

/// `cuGraphLaunch`.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn launch<const PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUgraphExec, CUstream) -> CUresult,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    with_memory(exec, stream, || unsafe { launch::graph::<PER_THREAD>(real, exec, stream) })
}

/// `cuGraphUpload`: finds the memory for a launch.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn upload(
    real: unsafe extern "C" fn(CUgraphExec, CUstream) -> CUresult,
    exec: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller's arguments as they came.
    with_memory(exec, stream, || unsafe { real(exec, stream) })
}

/// Has the driver find memory for a graph in a stream, if it is to be had.
#[inline]
fn with_memory(exec: CUgraphExec, stream: CUstream, ask: impl FnOnce() -> CUresult) -> CUresult {
    if ANY.load(Ordering::Relaxed) { with_memory_of(exec, stream, ask) } else { ask() }
}

fn with_memory_of(exec: CUgraphExec, stream: CUstream, ask: impl FnOnce() -> CUresult) -> CUresult {
    let mut reserved = [const { None }; CARDS];
    for (place, card) in reserved.iter_mut().zip(known_cards()) {
        let Some(graph) = RESOURCES.get(Kind::Graph(card as u8), exec.addr() as u64).filter(|graph| graph.bytes > 0)
        else {
            continue;
        };
        // What graphs keep is charged as long as they are there.
        let bytes = if unpack(graph.of).1 { 0 } else { graph.bytes };
        match reserve(card, |graphs| graphs.short_of_launch(stream.addr(), bytes)) {
            Ok(here) => *place = Some((here, bytes)),
            Err(refused) => return refused,
        }
    }
    let result = ask();
    for (reserved, bytes) in reserved.into_iter().flatten() {
        change(reserved.card(), |graphs| {
            if result == SUCCESS && bytes > 0 {
                graphs.launched(stream.addr(), bytes);
            }
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
    for (place, card) in held.iter_mut().zip(known_cards()) {
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
    for card in known_cards() {
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
    let card = process::this().ok().and_then(|process| process.card_of(device)).filter(|card| is_known(*card));
    // SAFETY: the caller's argument as it came.
    let ask = || unsafe { real(device) };
    card.map_or_else(ask, |card| trim_with(card, |_| ask()))
}

/// Gives back what lies idle for graphs on a card.
pub(super) fn give_back(card: usize) {
    if is_known(card) {
        // SAFETY: the ordinal of a card.
        trim_with(card, |device| unsafe { cuDeviceGraphMemTrim(device) });
    }
}

fn trim_with(card: usize, ask: impl FnOnce(CUdevice) -> CUresult) -> CUresult {
    // Before the graphs are locked: graphs of a context that ends are taken out the other way round.
    let largest = largest_of(card);
    let mut result = SUCCESS;
    change(card, |graphs| {
        result = ask(graphs.device);
        graphs.largest = largest;
        graphs.forget_streams();
    });
    result
}

/// What the largest executable graph takes of a card, of those that leave nothing allocated.
fn largest_of(card: usize) -> u64 {
    let largest = Cell::new(0);
    RESOURCES.search(Kind::Graph(card as u8), |_, graph| {
        if !unpack(graph.of).1 {
            largest.set(largest.get().max(graph.bytes));
        }
        false
    });
    largest.get()
}

/// Whether graphs have ever needed memory of a card.
fn is_known(card: usize) -> bool {
    GRAPHS.lock().get(card).is_some_and(|graphs| graphs.charged > 0)
}

/// Those cards. They are looked up at once: each launch of a graph asks.
fn known_cards() -> impl Iterator<Item = usize> {
    let known = GRAPHS.lock().each_ref().map(|graphs| graphs.charged > 0);
    (0..).zip(known).filter(|(_, is_known)| *is_known).map(|(card, _)| card)
}

fn change(card: usize, act: impl FnOnce(&mut GraphPool)) {
    let mut all = GRAPHS.lock();
    if let (Some(graphs), Ok(quota)) = (all.get_mut(card), Quota::of_card(card)) {
        act(graphs);
        graphs.reconcile(quota);
    }
}

/// In a child that fork made.
pub(super) fn forget() {
    *GRAPHS.reset() = [GraphPool::NONE; CARDS];
    ANY.store(false, Ordering::Relaxed);
}
