//! Graphs, and what is made of them.

use std::ffi::{c_char, c_uint, c_ulonglong};

use super::types::InstantiateParameters;
use super::{Entry, functions, moves, write};
use crate::codes::Code;
use crate::driver::capture::Target;
use crate::driver::graph::{Exec, Graph, NodeKind};
use crate::driver::make_room;

/// # Safety
/// `exec` is null or valid for writes.
unsafe fn instantiate(me: Entry, exec: *mut usize, graph: usize, flags: u64) -> Result<(), Code> {
    let mut driver = me.driver()?;
    let made = driver.instantiate(graph, flags)?;
    if let Err(full) = driver.place_exec(made) {
        driver.destroy_exec(made)?;
        return Err(full);
    }
    // SAFETY: the caller's.
    unsafe { write::value(exec, made) }
}

fn launch(me: Entry, exec: usize, stream: usize) -> Result<(), Code> {
    let mut state = me.driver()?;
    let stream = state.stream(stream, me.per_thread)?;
    state.execs.get(exec)?;
    if let Target::Captured(id) = state.target(stream)? {
        // What is launched in a capture becomes a part of it, node by node.
        let kinds: Vec<NodeKind> = state.execs.get(exec)?.steps.iter().map(|(_, node)| node.kind.clone()).collect();
        return kinds.into_iter().try_for_each(|kind| state.capture(id, stream, kind).map(|_node| ()));
    }
    state = make_room(state, stream)?;
    state.upload(exec, stream)?;
    state.launch_allocations(exec)?;
    let moved = state.launch_moves(exec)?;
    state.launch_steps(exec, stream)?;
    if moved.is_empty() { Ok(()) } else { moves::of_graph(state, &moved) }
}

/// Puts a graph's nodes in the place of an executable one's, if they are the same in number and kind.
fn update(me: Entry, exec: usize, graph: usize) -> Result<(), Code> {
    let mut driver = me.driver()?;
    let fresh = driver.instantiate(graph, 0)?;
    let Exec { steps, .. } = driver.execs.remove(fresh)?;
    let old = driver.execs.get_mut(exec)?;
    let same = old.steps.len() == steps.len()
        && old
            .steps
            .iter()
            .zip(&steps)
            .all(|((_, old), (_, new))| std::mem::discriminant(&old.kind) == std::mem::discriminant(&new.kind));
    if !same {
        return Err(Code::GRAPH_EXEC_UPDATE_FAILURE);
    }
    old.steps = steps;
    Ok(())
}

functions! {
    [10000 cuGraphCreate](graph: *mut usize, flags: c_uint) = |me| {
        let mut driver = me.driver()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        write::value(graph, driver.graphs.add(Graph::default()))
    };
    [10000 cuGraphDestroy](graph: usize) = |me| {
        let mut driver = me.driver()?;
        if driver.graphs.get(graph).map_err(|_unknown| Code::INVALID_VALUE)?.child {
            return Err(Code::INVALID_VALUE);
        }
        driver.destroy_graph(graph)
    };
    [10000 cuGraphClone](copy: *mut usize, graph: usize) = |me| {
        let cloned = me.driver()?.clone_graph(graph, false)?;
        write::value(copy, cloned)
    };
    // Its first form and its second differ in the log alone.
    [10000 cuGraphInstantiate, 11000 cuGraphInstantiate_v2](
        exec: *mut usize, graph: usize, failed: *mut usize, log: *mut c_char, size: usize
    ) = |me| {
        write::wanted(failed, 0);
        if size > 0 {
            write::wanted(log, 0);
        }
        instantiate(me, exec, graph, 0)
    };
    [11040 cuGraphInstantiateWithFlags](exec: *mut usize, graph: usize, flags: c_ulonglong) = |me| {
        instantiate(me, exec, graph, flags)
    };
    [12000 cuGraphInstantiateWithParams, 12000 cuGraphInstantiateWithParams_ptsz](
        exec: *mut usize, graph: usize, parameters: *mut InstantiateParameters
    ) = |me| {
        let given = write::read(parameters.cast_const())?;
        instantiate(me, exec, graph, given.flags)?;
        write::value(parameters, InstantiateParameters { failed: 0, result: 0, ..given })
    };
    [10000 cuGraphExecDestroy](exec: usize) = |me| me.driver()?.destroy_exec(exec);
    [11010 cuGraphUpload, 11010 cuGraphUpload_ptsz](exec: usize, stream: usize) = |me| {
        let mut driver = me.driver()?;
        let stream = driver.stream(stream, me.per_thread)?;
        driver.upload(exec, stream)
    };
    [10000 cuGraphLaunch, 10000 cuGraphLaunch_ptsz](exec: usize, stream: usize) = |me| launch(me, exec, stream);
    [10020 cuGraphExecUpdate](exec: usize, graph: usize, failed: *mut usize, result: *mut c_uint) = |me| {
        write::wanted(failed, 0);
        let updated = update(me, exec, graph);
        write::wanted(result, c_uint::from(updated.is_err()));
        updated
    };
    [12000 cuGraphExecUpdate_v2](exec: usize, graph: usize, result: *mut [u64; 3]) = |me| {
        let updated = update(me, exec, graph);
        write::wanted(result, [u64::from(updated.is_err()), 0, 0]);
        updated
    };
    [12000 cuGraphExecGetFlags](exec: usize, flags: *mut u64) = |me| {
        write::value(flags, me.driver()?.execs.get(exec)?.flags)
    };
}
