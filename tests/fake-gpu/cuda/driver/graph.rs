//! Graphs: work that is described once and launched often.

use std::collections::BTreeMap;

use super::Driver;
use super::context::Record;
use super::memory::{Block, Kind};
use super::work::{Flag, HostCall, Run, Task, Work, Write};
use crate::codes::Code;

#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<usize>,
    /// Part of another graph.
    pub(crate) child: bool,
}

pub(crate) struct Node {
    pub(crate) graph: usize,
    pub(crate) dependencies: Vec<usize>,
    pub(crate) kind: NodeKind,
    pub(crate) enabled: bool,
}

#[derive(Clone)]
pub(crate) enum NodeKind {
    Kernel(Kernel),
    Copy(Vec<Copy>),
    Fill(Fill),
    Host(HostCall),
    Child(usize),
    Empty,
    Wait(usize),
    Record(usize),
    Await(Flag),
    Write(Write),
    Allocate { address: u64, size: u64, device: usize },
    Free { address: u64 },
}

/// A kernel's launch.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) does: Does,
}

/// What a kernel does.
#[derive(Clone, Copy)]
pub(crate) enum Does {
    /// Takes so many nanoseconds.
    Last(u64),
    Task(Task),
}

/// A row of a copy.
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) length: u64,
}

/// A memset: so many rows, each so far from the last, of so many elements.
#[derive(Clone, Copy)]
pub(crate) struct Fill {
    pub(crate) to: u64,
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    pub(crate) element: u32,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// A graph that can be launched.
pub(crate) struct Exec {
    /// The graph's nodes as they were, children's instead of the children, each with its handle.
    pub(crate) steps: Vec<(usize, Node)>,
    pub(crate) flags: u64,
    /// The card that keeps its nodes, and how many bytes those take.
    nodes: Option<(usize, u64)>,
}

// === impl Driver ===

impl Driver {
    pub(crate) fn add_node(&mut self, graph: usize, dependencies: Vec<usize>, kind: NodeKind) -> Result<usize, Code> {
        for dependency in &dependencies {
            if self.nodes.get(*dependency).map_err(|_unknown| Code::INVALID_VALUE)?.graph != graph {
                return Err(Code::INVALID_VALUE);
            }
        }
        self.graphs.get(graph)?;
        let node = self.nodes.add(Node { graph, dependencies, kind, enabled: true });
        self.graphs.get_mut(graph)?.nodes.push(node);
        Ok(node)
    }

    /// An allocation node, whose address is settled at once.
    pub(crate) fn add_allocation(
        &mut self,
        graph: usize,
        dependencies: Vec<usize>,
        (device, size): (usize, u64),
    ) -> Result<(usize, u64), Code> {
        if size == 0 || device >= self.devices.len() {
            return Err(Code::INVALID_VALUE);
        }
        let context = super::context::current();
        let block = Block { size, charged: 0, device, context, kind: Kind::Graph { live: false }, id: 0 };
        let address = self.place(size, block)?;
        let node = self.add_node(graph, dependencies, NodeKind::Allocate { address, size, device })?;
        Ok((node, address))
    }

    pub(crate) fn destroy_graph(&mut self, graph: usize) -> Result<(), Code> {
        for node in self.graphs.remove(graph)?.nodes {
            if let Ok(Node { kind: NodeKind::Child(child), .. }) = self.nodes.remove(node) {
                self.destroy_graph(child)?;
            }
        }
        Ok(())
    }

    /// A copy of a graph, with the same nodes in the same order under handles of their own.
    pub(crate) fn clone_graph(&mut self, graph: usize, child: bool) -> Result<usize, Code> {
        let originals = self.graphs.get(graph)?.nodes.clone();
        let copy = self.graphs.add(Graph { nodes: Vec::new(), child });
        let mut copies: Vec<usize> = Vec::new();
        for original in &originals {
            let node = self.nodes.get(*original)?;
            let (kind, enabled) = (node.kind.clone(), node.enabled);
            let position = |wanted: &usize| originals.iter().position(|other| other == wanted);
            let dependencies = node.dependencies.iter().filter_map(position);
            let dependencies = dependencies.filter_map(|index| copies.get(index).copied()).collect();
            let kind = match kind {
                NodeKind::Child(child) => NodeKind::Child(self.clone_graph(child, true)?),
                other => other,
            };
            let node = self.add_node(copy, dependencies, kind)?;
            self.nodes.get_mut(node)?.enabled = enabled;
            copies.push(node);
        }
        Ok(copy)
    }

    pub(crate) fn instantiate(&mut self, graph: usize, flags: u64) -> Result<usize, Code> {
        let mut steps = Vec::new();
        self.flatten(graph, &[], &mut steps)?;
        Ok(self.execs.add(Exec { steps, flags, nodes: None }))
    }

    /// Puts the nodes of an executable graph on the current context's card.
    pub(crate) fn place_exec(&mut self, exec: usize) -> Result<(), Code> {
        let index = self.current()?.device;
        let device = &self.devices[index];
        let card = &device.card;
        let bytes = card.graph_bytes + card.graph_node_bytes * self.execs.get(exec)?.steps.len() as u64;
        device.charge(bytes)?;
        self.execs.get_mut(exec)?.nodes = Some((index, bytes));
        Ok(())
    }

    /// The nodes of a graph, those of its children in their place, behind `before`; and those that nothing is behind.
    fn flatten(&self, graph: usize, before: &[usize], steps: &mut Vec<(usize, Node)>) -> Result<Vec<usize>, Code> {
        let mut ends: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut last: Vec<usize> = Vec::new();
        for handle in &self.graphs.get(graph)?.nodes {
            let node = self.nodes.get(*handle)?;
            let expanded = |before: &usize| ends.get(before).cloned().unwrap_or_else(|| vec![*before]);
            let mut dependencies: Vec<usize> = node.dependencies.iter().flat_map(expanded).collect();
            if dependencies.is_empty() {
                dependencies.extend(before);
            }
            last.retain(|before| !dependencies.contains(before));
            if let NodeKind::Child(child) = node.kind {
                let of_child = self.flatten(child, &dependencies, steps)?;
                let of_child = if of_child.is_empty() { dependencies } else { of_child };
                last.extend(&of_child);
                ends.insert(*handle, of_child);
            } else {
                last.push(*handle);
                let (kind, graph, enabled) = (node.kind.clone(), node.graph, node.enabled);
                steps.push((*handle, Node { graph, dependencies, kind, enabled }));
            }
        }
        Ok(last)
    }

    /// Ends an executable graph. Its memory stays reserved until it is trimmed.
    pub(crate) fn destroy_exec(&mut self, exec: usize) -> Result<(), Code> {
        let Exec { nodes, .. } = self.execs.remove(exec)?;
        if let Some((device, bytes)) = nodes {
            self.devices[device].release(bytes);
        }
        Ok(())
    }

    /// Queues a launch of a graph. Nodes that don't depend on each other run side by side, where all of them only take time;
    /// others run in order.
    pub(crate) fn launch_steps(&mut self, exec: usize, stream: usize) -> Result<(), Code> {
        let steps = &self.execs.get(exec)?.steps;
        if let Some(run) = self.run_of(steps) {
            return self.submit(stream, Work::Run(run)).map(|_ticket| ());
        }
        let steps = steps.iter().filter(|(_, node)| node.enabled);
        let kinds: Vec<NodeKind> = steps.map(|(_, node)| node.kind.clone()).collect();
        // A graph is one launch, whatever is in it.
        let mut run = Run { launches: 1, ..Run::default() };
        for kind in kinds {
            if let Some(lasts) = self.node_time(&kind) {
                run.lasts = run.lasts.saturating_add(lasts);
                run.kernels += u64::from(matches!(kind, NodeKind::Kernel(_)));
                continue;
            }
            self.submit(stream, Work::Run(std::mem::take(&mut run)))?;
            let work = match kind {
                NodeKind::Kernel(Kernel { does: Does::Task(task), .. }) => Work::Kernel(task),
                NodeKind::Host(call) => Work::Host(call),
                NodeKind::Await(flag) => Work::Await(flag),
                NodeKind::Write(write) => Work::Write(write),
                NodeKind::Record(event) => {
                    self.record(event, stream)?;
                    continue;
                }
                NodeKind::Wait(event) => {
                    let record: Option<Record> = self.events.get(event)?.record.clone();
                    record.map_or(Ok(()), |record| self.wait_for(stream, &record))?;
                    continue;
                }
                _ => continue,
            };
            self.submit(stream, work)?;
        }
        self.submit(stream, Work::Run(run)).map(|_ticket| ())
    }

    /// One launch of nodes that only take time, as long as the longest path through them; `None`: one does more.
    fn run_of(&self, steps: &[(usize, Node)]) -> Option<Run> {
        let mut run = Run { launches: 1, ..Run::default() };
        // What comes behind a node was added after it.
        let mut ends: BTreeMap<usize, u64> = BTreeMap::new();
        for (handle, node) in steps {
            // One that is disabled takes no time, and keeps the order of the others.
            let lasts = if node.enabled { self.node_time(&node.kind)? } else { 0 };
            let from = node.dependencies.iter().filter_map(|before| ends.get(before)).max();
            let end = lasts.saturating_add(from.copied().unwrap_or_default());
            ends.insert(*handle, end);
            run.lasts = run.lasts.max(end);
            run.kernels += u64::from(node.enabled && matches!(node.kind, NodeKind::Kernel(_)));
        }
        Some(run)
    }

    /// Nanoseconds that a node takes, if that is all it does.
    fn node_time(&self, kind: &NodeKind) -> Option<u64> {
        match kind {
            NodeKind::Kernel(Kernel { does: Does::Last(lasts), .. }) => Some(*lasts),
            NodeKind::Copy(_) | NodeKind::Fill(_) => Some(self.move_time(kind)),
            NodeKind::Child(_) | NodeKind::Empty | NodeKind::Allocate { .. } | NodeKind::Free { .. } => Some(0),
            NodeKind::Kernel(_)
            | NodeKind::Host(_)
            | NodeKind::Wait(_)
            | NodeKind::Record(_)
            | NodeKind::Await(_)
            | NodeKind::Write(_) => None,
        }
    }

    /// Nanoseconds for which a card is busy with a memset, or a copy within it. What moves to or from the host has engines of
    /// its own.
    pub(crate) fn move_time(&self, kind: &NodeKind) -> u64 {
        let is_ours = |address: u64| self.memory.space.contains(address);
        let bytes = match kind {
            NodeKind::Fill(fill) if is_ours(fill.to) => fill.width * u64::from(fill.element) * fill.height,
            NodeKind::Copy(rows) => {
                rows.iter().filter(|row| is_ours(row.to) && is_ours(row.from)).map(|row| 2 * row.length).sum()
            }
            _ => 0,
        };
        bytes.saturating_mul(1000) / self.machine.bytes_per_us.max(1)
    }

    /// The bytes that a launch of a graph moves.
    pub(crate) fn launch_moves(&self, exec: usize) -> Result<Vec<NodeKind>, Code> {
        let steps = self.execs.get(exec)?.steps.iter().filter(|(_, node)| node.enabled);
        let moves = steps.filter(|(_, node)| matches!(node.kind, NodeKind::Copy(_) | NodeKind::Fill(_)));
        Ok(moves.map(|(_, node)| node.kind.clone()).collect())
    }
}
