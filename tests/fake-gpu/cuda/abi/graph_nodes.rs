//! Nodes of graphs.

use std::ffi::{c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMSET_NODE_PARAMS,
};

use super::launch::kernel;
use super::moves::rows_3d;
use super::types::{AllocationParameters, Copy3d, NodeParameters};
use super::{Entry, functions, write};
use crate::codes::Code;
use crate::driver::Driver;
use crate::driver::graph::{Fill, Kernel, Node, NodeKind};
use crate::driver::work::HostCall;

/// Where a node goes: its handle, its graph, and what it comes after.
struct Place {
    node: *mut usize,
    graph: usize,
    dependencies: *const usize,
    count: usize,
}

/// # Safety
/// The place's pointers are null or valid for what they are for.
unsafe fn add(me: Entry, place: &Place, kind: impl FnOnce(&mut Driver) -> Result<NodeKind, Code>) -> Result<(), Code> {
    let mut driver = me.driver()?;
    // SAFETY: the caller's.
    unsafe {
        let dependencies = write::list(place.dependencies, place.count)?;
        let kind = kind(&mut driver)?;
        let made = driver.add_node(place.graph, dependencies, kind)?;
        write::value(place.node, made)
    }
}

/// # Safety
/// The place's pointers are null or valid for what they are for, `given` for reads and writes.
unsafe fn add_allocation(me: Entry, place: &Place, given: *mut AllocationParameters) -> Result<(), Code> {
    let mut driver = me.driver()?;
    // SAFETY: the caller's.
    unsafe {
        let mut wanted = write::read(given.cast_const())?;
        let dependencies = write::list(place.dependencies, place.count)?;
        let device = usize::try_from(wanted.pool.location.id).map_err(|_negative| Code::INVALID_VALUE)?;
        let (made, address) = driver.add_allocation(place.graph, dependencies, (device, wanted.size as u64))?;
        wanted.address = address;
        write::value(given, wanted)?;
        write::value(place.node, made)
    }
}

/// # Safety
/// `given` is null or valid for reads.
unsafe fn kernel_node(driver: &mut Driver, given: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Result<Kernel, Code> {
    // SAFETY: the caller's.
    let given = unsafe { write::read(given) }?;
    let grid = [given.gridDimX, given.gridDimY, given.gridDimZ];
    let block = [given.blockDimX, given.blockDimY, given.blockDimZ];
    // SAFETY: the caller's.
    unsafe { kernel(driver, given.func.addr(), (grid, block), given.sharedMemBytes, given.kernelParams) }
}

/// Reads the second form, with a kernel in the place of the function if there is none.
///
/// # Safety
/// `given` is null or valid for reads.
unsafe fn kernel_node_2(driver: &mut Driver, given: *const CUDA_KERNEL_NODE_PARAMS_v2) -> Result<Kernel, Code> {
    // SAFETY: the caller's.
    let given = unsafe { write::read(given) }?;
    let function = if given.func.is_null() { given.kern.addr() } else { given.func.addr() };
    let grid = [given.gridDimX, given.gridDimY, given.gridDimZ];
    let block = [given.blockDimX, given.blockDimY, given.blockDimZ];
    // SAFETY: the caller's.
    unsafe { kernel(driver, function, (grid, block), given.sharedMemBytes, given.kernelParams) }
}

/// # Safety
/// `given` is null or valid for reads.
unsafe fn fill(given: *const CUDA_MEMSET_NODE_PARAMS) -> Result<NodeKind, Code> {
    // SAFETY: the caller's.
    let CUDA_MEMSET_NODE_PARAMS { dst: to, pitch, value, elementSize: element, width, height } =
        unsafe { write::read(given) }?;
    let (pitch, width, height) = (pitch as u64, width as u64, height as u64);
    Ok(NodeKind::Fill(Fill { to, pitch, value, element, width, height }))
}

/// # Safety
/// `given` is null or valid for reads.
unsafe fn host(given: *const CUDA_HOST_NODE_PARAMS) -> Result<NodeKind, Code> {
    // SAFETY: the caller's.
    let given = unsafe { write::read(given) }?;
    let function = given.fn_.ok_or(Code::INVALID_VALUE)?;
    Ok(NodeKind::Host(HostCall::Function { function, data: given.userData.expose_provenance() }))
}

/// A node of the form that has one function for all kinds.
///
/// # Safety
/// The place's pointers are null or valid for what they are for, `given` for reads and writes.
unsafe fn add_any(me: Entry, place: &Place, given: *mut NodeParameters) -> Result<(), Code> {
    // SAFETY: the caller's; the body begins with the structure that the kind says.
    unsafe {
        let kind = write::read(given.cast_const())?.kind;
        let body = (&raw mut (*given).body).cast::<u64>();
        let first = body.read_unaligned() as usize;
        match kind {
            0 => add(me, place, |driver| Ok(NodeKind::Kernel(kernel_node_2(driver, body.cast())?))),
            // Flags and a context come before the copy.
            1 => add(me, place, |driver| rows_3d(driver, body.add(2).cast_const().cast())),
            2 => add(me, place, |_| fill(body.cast_const().cast())),
            3 => add(me, place, |_| host(body.cast_const().cast())),
            4 => add(me, place, |driver| Ok(NodeKind::Child(driver.clone_graph(first, true)?))),
            5 => add(me, place, |_| Ok(NodeKind::Empty)),
            6 => add(me, place, |_| Ok(NodeKind::Wait(first))),
            7 => add(me, place, |_| Ok(NodeKind::Record(first))),
            10 => add_allocation(me, place, body.cast()),
            11 => add(me, place, |_| Ok(NodeKind::Free { address: first as u64 })),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}

/// Changes a node of an executable graph.
fn change(
    me: Entry,
    exec: usize,
    node: usize,
    kind: impl FnOnce(&mut Driver) -> Result<NodeKind, Code>,
) -> Result<(), Code> {
    let mut driver = me.driver()?;
    let kind = kind(&mut driver)?;
    step(&mut driver, exec, node)?.kind = kind;
    Ok(())
}

fn step(driver: &mut Driver, exec: usize, node: usize) -> Result<&mut Node, Code> {
    let steps = &mut driver.execs.get_mut(exec)?.steps;
    steps.iter_mut().find(|(handle, _)| *handle == node).map(|(_, node)| node).ok_or(Code::INVALID_VALUE)
}

/// `CUgraphNodeType`.
fn number(kind: &NodeKind) -> c_uint {
    match kind {
        NodeKind::Kernel(_) => 0,
        NodeKind::Copy(_) => 1,
        NodeKind::Fill(_) => 2,
        NodeKind::Host(_) => 3,
        NodeKind::Child(_) => 4,
        NodeKind::Empty => 5,
        NodeKind::Wait(_) => 6,
        NodeKind::Record(_) => 7,
        NodeKind::Allocate { .. } => 10,
        NodeKind::Free { .. } => 11,
        NodeKind::Await(_) | NodeKind::Write(_) => 12,
    }
}

fn kernel_of(driver: &Driver, node: usize) -> Result<CUDA_KERNEL_NODE_PARAMS_v2, Code> {
    match driver.nodes.get(node)?.kind {
        NodeKind::Kernel(Kernel { function, grid, block, shared, .. }) => Ok(CUDA_KERNEL_NODE_PARAMS_v2 {
            func: ptr::without_provenance_mut(function),
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared,
            kernelParams: ptr::null_mut(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        }),
        _ => Err(Code::INVALID_VALUE),
    }
}

functions! {
    [10000 cuGraphAddKernelNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize,
        given: *const CUDA_KERNEL_NODE_PARAMS_v1
    ) = |me| add(me, &Place { node, graph, dependencies, count }, |driver| {
        Ok(NodeKind::Kernel(kernel_node(driver, given)?))
    });
    [12000 cuGraphAddKernelNode_v2](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize,
        given: *const CUDA_KERNEL_NODE_PARAMS_v2
    ) = |me| add(me, &Place { node, graph, dependencies, count }, |driver| {
        Ok(NodeKind::Kernel(kernel_node_2(driver, given)?))
    });
    [10000 cuGraphAddMemcpyNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, copy: *const Copy3d, _context: usize
    ) = |me| add(me, &Place { node, graph, dependencies, count }, |driver| rows_3d(driver, copy));
    [10000 cuGraphAddMemsetNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, given: *const CUDA_MEMSET_NODE_PARAMS,
        _context: usize
    ) = |me| add(me, &Place { node, graph, dependencies, count }, |_| fill(given));
    [10000 cuGraphAddHostNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, given: *const CUDA_HOST_NODE_PARAMS
    ) = |me| add(me, &Place { node, graph, dependencies, count }, |_| host(given));
    [10000 cuGraphAddChildGraphNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, child: usize
    ) = |me| add(me, &Place { node, graph, dependencies, count }, |driver| {
        Ok(NodeKind::Child(driver.clone_graph(child, true)?))
    });
    [10000 cuGraphAddEmptyNode](node: *mut usize, graph: usize, dependencies: *const usize, count: usize) = |me| {
        add(me, &Place { node, graph, dependencies, count }, |_| Ok(NodeKind::Empty))
    };
    [11010 cuGraphAddEventRecordNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, event: usize
    ) = |me| add(me, &Place { node, graph, dependencies, count }, |driver| {
        driver.events.get(event).map(|_| NodeKind::Record(event))
    });
    [11010 cuGraphAddEventWaitNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, event: usize
    ) = |me| add(me, &Place { node, graph, dependencies, count }, |driver| {
        driver.events.get(event).map(|_| NodeKind::Wait(event))
    });
    [11040 cuGraphAddMemAllocNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, given: *mut AllocationParameters
    ) = |me| add_allocation(me, &Place { node, graph, dependencies, count }, given);
    [11040 cuGraphAddMemFreeNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, address: u64
    ) = |me| add(me, &Place { node, graph, dependencies, count }, |_| Ok(NodeKind::Free { address }));
    [12020 cuGraphAddNode](
        node: *mut usize, graph: usize, dependencies: *const usize, count: usize, given: *mut NodeParameters
    ) = |me| add_any(me, &Place { node, graph, dependencies, count }, given);
    [12030 cuGraphAddNode_v2](
        node: *mut usize, graph: usize, dependencies: *const usize, _edges: *const c_void, count: usize,
        given: *mut NodeParameters
    ) = |me| add_any(me, &Place { node, graph, dependencies, count }, given);
    [10000 cuGraphKernelNodeGetParams](node: usize, to: *mut CUDA_KERNEL_NODE_PARAMS_v1) = |me| {
        // The second form begins with the first.
        let whole = kernel_of(&*me.driver()?, node)?;
        write::value(to, (&raw const whole).cast::<CUDA_KERNEL_NODE_PARAMS_v1>().read())
    };
    [12000 cuGraphKernelNodeGetParams_v2](node: usize, to: *mut CUDA_KERNEL_NODE_PARAMS_v2) = |me| {
        write::value(to, kernel_of(&*me.driver()?, node)?)
    };
    [10000 cuGraphKernelNodeSetParams](node: usize, given: *const CUDA_KERNEL_NODE_PARAMS_v1) = |me| {
        let mut driver = me.driver()?;
        let kernel = kernel_node(&mut driver, given)?;
        driver.nodes.get_mut(node)?.kind = NodeKind::Kernel(kernel);
        Ok(())
    };
    [12000 cuGraphKernelNodeSetParams_v2](node: usize, given: *const CUDA_KERNEL_NODE_PARAMS_v2) = |me| {
        let mut driver = me.driver()?;
        let kernel = kernel_node_2(&mut driver, given)?;
        driver.nodes.get_mut(node)?.kind = NodeKind::Kernel(kernel);
        Ok(())
    };
    [10010 cuGraphExecKernelNodeSetParams](exec: usize, node: usize, given: *const CUDA_KERNEL_NODE_PARAMS_v1) = |me| {
        change(me, exec, node, |driver| Ok(NodeKind::Kernel(kernel_node(driver, given)?)))
    };
    [12000 cuGraphExecKernelNodeSetParams_v2](
        exec: usize, node: usize, given: *const CUDA_KERNEL_NODE_PARAMS_v2
    ) = |me| change(me, exec, node, |driver| Ok(NodeKind::Kernel(kernel_node_2(driver, given)?)));
    [10020 cuGraphExecMemcpyNodeSetParams](exec: usize, node: usize, copy: *const Copy3d, _context: usize) = |me| {
        change(me, exec, node, |driver| rows_3d(driver, copy))
    };
    [10020 cuGraphExecMemsetNodeSetParams](
        exec: usize, node: usize, given: *const CUDA_MEMSET_NODE_PARAMS, _context: usize
    ) = |me| change(me, exec, node, |_| fill(given));
    [10020 cuGraphExecHostNodeSetParams](exec: usize, node: usize, given: *const CUDA_HOST_NODE_PARAMS) = |me| {
        change(me, exec, node, |_| host(given))
    };
    [11060 cuGraphNodeSetEnabled](exec: usize, node: usize, enabled: c_uint) = |me| {
        step(&mut *me.driver()?, exec, node)?.enabled = enabled != 0;
        Ok(())
    };
    [11060 cuGraphNodeGetEnabled](exec: usize, node: usize, enabled: *mut c_uint) = |me| {
        let is_enabled = step(&mut *me.driver()?, exec, node)?.enabled;
        write::value(enabled, c_uint::from(is_enabled))
    };
    [10000 cuGraphNodeGetType](node: usize, kind: *mut c_uint) = |me| {
        write::value(kind, number(&me.driver()?.nodes.get(node)?.kind))
    };
    [10000 cuGraphChildGraphNodeGetGraph](node: usize, graph: *mut usize) = |me| {
        match me.driver()?.nodes.get(node)?.kind {
            NodeKind::Child(child) => write::value(graph, child),
            _ => Err(Code::INVALID_VALUE),
        }
    };
    [11040 cuGraphMemAllocNodeGetParams](node: usize, to: *mut AllocationParameters) = |me| {
        match me.driver()?.nodes.get(node)?.kind {
            NodeKind::Allocate { address, size, device } => {
                let mut given: AllocationParameters = std::mem::zeroed();
                (given.address, given.size) = (address, size as usize);
                given.pool.location.kind = 1;
                given.pool.location.id = i32::try_from(device).unwrap_or(0);
                write::value(to, given)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    };
    [11040 cuGraphMemFreeNodeGetParams](node: usize, to: *mut u64) = |me| {
        match me.driver()?.nodes.get(node)?.kind {
            NodeKind::Free { address } => write::value(to, address),
            _ => Err(Code::INVALID_VALUE),
        }
    };
    [10000 cuGraphGetNodes](graph: usize, nodes: *mut usize, count: *mut usize) = |me| {
        write::all(nodes, count, &me.driver()?.graphs.get(graph)?.nodes)
    };
    [10000 cuGraphGetRootNodes](graph: usize, nodes: *mut usize, count: *mut usize) = |me| {
        let driver = me.driver()?;
        let all = driver.graphs.get(graph)?.nodes.iter().copied();
        let roots = all.filter(|node| driver.nodes.get(*node).is_ok_and(|node| node.dependencies.is_empty()));
        write::all(nodes, count, &roots.collect::<Vec<_>>())
    };
    [10000 cuGraphNodeGetDependencies](node: usize, dependencies: *mut usize, count: *mut usize) = |me| {
        write::all(dependencies, count, &me.driver()?.nodes.get(node)?.dependencies)
    };
    [10000 cuGraphGetEdges](graph: usize, from: *mut usize, to: *mut usize, count: *mut usize) = |me| {
        let driver = me.driver()?;
        let all = driver.graphs.get(graph)?.nodes.iter();
        let edges: Vec<(usize, usize)> = all
            .filter_map(|node| Some((*node, driver.nodes.get(*node).ok()?)))
            .flat_map(|(to, node)| node.dependencies.iter().map(move |from| (*from, to)))
            .collect();
        let (starts, ends): (Vec<usize>, Vec<usize>) = edges.into_iter().unzip();
        let mut room = write::read(count.cast_const())?;
        write::all(to, &raw mut room, &ends)?;
        write::all(from, count, &starts)
    };
    [10000 cuGraphAddDependencies](graph: usize, from: *const usize, to: *const usize, count: usize) = |me| {
        let mut driver = me.driver()?;
        for (from, to) in write::list(from, count)?.into_iter().zip(write::list(to, count)?) {
            if driver.nodes.get(from)?.graph != graph || driver.nodes.get(to)?.graph != graph {
                return Err(Code::INVALID_VALUE);
            }
            driver.nodes.get_mut(to)?.dependencies.push(from);
        }
        Ok(())
    };
    [10000 cuGraphDestroyNode](node: usize) = |me| {
        let mut driver = me.driver()?;
        let graph = driver.nodes.remove(node)?.graph;
        driver.graphs.get_mut(graph)?.nodes.retain(|other| *other != node);
        for (_, other) in driver.nodes.iter_mut() {
            other.dependencies.retain(|dependency| *dependency != node);
        }
        Ok(())
    };
}
