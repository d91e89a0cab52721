//! The nodes of a graph, in an order in which they can run; in memory that is given back at the end.

use core::ptr;
use core::slice;

use crate::cuda::{CUgraph, CUgraphNode, CUresult, ERROR_OUT_OF_MEMORY, SUCCESS};
use crate::driver::cuda::{cuGraphGetEdges, cuGraphGetNodes};
use crate::sys;

/// So many values that begin as zeros, of a type for which these are a value.
pub(super) struct Scratch<T> {
    first: *mut T,
    count: usize,
}

/// The nodes of a graph, by their handles.
pub(super) struct Nodes(Scratch<CUgraphNode>);

/// How nodes depend on one another, by their positions.
struct Edges {
    steps: Scratch<Step>,
    /// The nodes that wait for each node, side by side.
    successors: Scratch<usize>,
}

/// A node among others.
#[derive(Clone, Copy)]
struct Step {
    /// How many it waits for, and for how many of them still.
    waits_for: usize,
    waits: usize,
    /// Where in `successors` those that wait for it begin, and how many they are.
    first: usize,
    count: usize,
}

// === impl Scratch ===

impl<T: Copy> Scratch<T> {
    pub(super) fn with_length(count: usize) -> Result<Self, CUresult> {
        if count == 0 {
            return Ok(Self { first: ptr::null_mut(), count });
        }
        let bytes = count.checked_mul(size_of::<T>()).ok_or(ERROR_OUT_OF_MEMORY)?;
        Ok(Self { first: sys::memory(bytes).ok_or(ERROR_OUT_OF_MEMORY)?.cast(), count })
    }

    fn items(&self) -> &[T] {
        if self.first.is_null() {
            return &[];
        }
        // SAFETY: so many have room there, and nobody else has it.
        unsafe { slice::from_raw_parts(self.first, self.count) }
    }

    pub(super) fn items_mut(&mut self) -> &mut [T] {
        if self.first.is_null() {
            return &mut [];
        }
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.first, self.count) }
    }
}

impl<T> Drop for Scratch<T> {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: it was mapped with this length, and nobody has it but us.
            unsafe { sys::unmap(self.first.cast(), self.count * size_of::<T>()) };
        }
    }
}

// === impl Nodes ===

impl Nodes {
    /// # Safety
    /// A graph.
    pub(super) unsafe fn read(graph: CUgraph) -> Result<Self, CUresult> {
        let mut count = 0;
        // SAFETY: the caller's guarantee; without room for handles it is the number that is asked for.
        recorded(unsafe { cuGraphGetNodes(graph, ptr::null_mut(), &raw mut count) })?;
        let mut nodes = Scratch::with_length(count)?;
        if count > 0 {
            // SAFETY: there is room for so many handles.
            recorded(unsafe { cuGraphGetNodes(graph, nodes.first, &raw mut count) })?;
            nodes.items_mut().sort_unstable_by_key(|node| node.addr());
        }
        Ok(Self(nodes))
    }

    pub(super) fn handles(&self) -> &[CUgraphNode] {
        self.0.items()
    }

    /// Visits the nodes, each after those that it depends on; and says of each whether that is all that were visited before.
    /// Where the driver doesn't tell the edges, as it does of those with data, the order is any, and that isn't said.
    ///
    /// # Safety
    /// The graph that they are of.
    pub(super) unsafe fn in_order(
        &self,
        graph: CUgraph,
        mut visit: impl FnMut(CUgraphNode, bool),
    ) -> Result<(), CUresult> {
        // SAFETY: the caller's guarantee.
        let Some(mut edges) = (unsafe { self.edges(graph) })? else {
            self.handles().iter().for_each(|node| visit(*node, false));
            return Ok(());
        };
        let mut queue = Scratch::with_length(self.handles().len())?;
        let ready = (0..).zip(edges.steps.items()).filter(|(_, step)| step.waits == 0).map(|(at, _)| at);
        let mut ends = queue.items_mut().iter_mut().zip(ready).fold(0, |count, (place, at)| {
            *place = at;
            count + 1
        });
        // Edges from what was visited to what wasn't, and nodes that were visited and that nobody waits for. If all the
        // former lead to a node, and there are none of the latter, each path from what was visited leads there.
        let mut crossing = 0_usize;
        let mut leaves = 0;
        let mut next = 0;
        while next < ends {
            let Some((at, step)) = queue.items().get(next).and_then(|at| Some((*at, *edges.steps.items().get(*at)?)))
            else {
                break;
            };
            next += 1;
            if let Some(node) = self.handles().get(at) {
                visit(*node, leaves == 0 && crossing == step.waits_for);
            }
            crossing = crossing.saturating_sub(step.waits_for).saturating_add(step.count);
            leaves += usize::from(step.count == 0);
            let Edges { steps, successors } = &mut edges;
            for successor in successors.items().iter().skip(step.first).take(step.count) {
                let Some(waiting) = steps.items_mut().get_mut(*successor) else { continue };
                waiting.waits = waiting.waits.saturating_sub(1);
                if waiting.waits == 0
                    && let Some(place) = queue.items_mut().get_mut(ends)
                {
                    *place = *successor;
                    ends += 1;
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// The graph that they are of.
    unsafe fn edges(&self, graph: CUgraph) -> Result<Option<Edges>, CUresult> {
        let mut count = 0;
        // SAFETY: the caller's guarantee; without room for edges it is the number that is asked for.
        if unsafe { cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &raw mut count) } != SUCCESS {
            return Ok(None);
        }
        let from = Scratch::<CUgraphNode>::with_length(count)?;
        let to = Scratch::<CUgraphNode>::with_length(count)?;
        // SAFETY: there is room for so many.
        if count > 0 && unsafe { cuGraphGetEdges(graph, from.first, to.first, &raw mut count) } != SUCCESS {
            return Ok(None);
        }
        let position = |node: &CUgraphNode| self.handles().binary_search_by_key(&node.addr(), |node| node.addr()).ok();
        let pairs =
            || from.items().iter().zip(to.items()).filter_map(|(from, to)| Some((position(from)?, position(to)?)));
        let mut steps = Scratch::<Step>::with_length(self.handles().len())?;
        let mut successors = Scratch::<usize>::with_length(count)?;
        for (from, to) in pairs() {
            if let Some(step) = steps.items_mut().get_mut(from) {
                step.count += 1;
            }
            if let Some(step) = steps.items_mut().get_mut(to) {
                (step.waits_for, step.waits) = (step.waits_for + 1, step.waits + 1);
            }
        }
        let mut first = 0;
        for step in steps.items_mut() {
            step.first = first;
            first += core::mem::take(&mut step.count);
        }
        for (from, to) in pairs() {
            let Some(step) = steps.items_mut().get_mut(from) else { continue };
            if let Some(place) = successors.items_mut().get_mut(step.first + step.count) {
                *place = to;
            }
            step.count += 1;
        }
        Ok(Some(Edges { steps, successors }))
    }
}

fn recorded(result: CUresult) -> Result<(), CUresult> {
    if result == SUCCESS { Ok(()) } else { Err(result) }
}
