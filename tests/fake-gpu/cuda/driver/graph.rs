//! Graphs: work that is described once and launched often.

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
        self.flatten(graph, &mut steps)?;
        Ok(self.execs.add(Exec { steps, flags, nodes: None }))
    }

    /// Puts the nodes of an executable graph on the current context's card.
    pub(crate) fn place_exec(&mut self, exec: usize) -> Result<(), Code> {
        let index = self.current()?.device;
        let device = &self.devices[index];
        let bytes = device.card.graph_node_bytes * self.execs.get(exec)?.steps.len() as u64;
        device.charge(bytes)?;
        self.execs.get_mut(exec)?.nodes = Some((index, bytes));
        Ok(())
    }

    fn flatten(&self, graph: usize, steps: &mut Vec<(usize, Node)>) -> Result<(), Code> {
        for handle in &self.graphs.get(graph)?.nodes {
            let node = self.nodes.get(*handle)?;
            if let NodeKind::Child(child) = node.kind {
                self.flatten(child, steps)?;
            } else {
                let (kind, dependencies) = (node.kind.clone(), node.dependencies.clone());
                steps.push((*handle, Node { kind, dependencies, graph: node.graph, enabled: node.enabled }));
            }
        }
        Ok(())
    }

    /// Ends an executable graph. Its memory stays reserved until it is trimmed.
    pub(crate) fn destroy_exec(&mut self, exec: usize) -> Result<(), Code> {
        let Exec { nodes, .. } = self.execs.remove(exec)?;
        if let Some((device, bytes)) = nodes {
            self.devices[device].release(bytes);
        }
        Ok(())
    }

    /// What a launch of a graph queues, in order.
    pub(crate) fn launch_steps(&mut self, exec: usize, stream: usize) -> Result<(), Code> {
        let steps = self.execs.get(exec)?.steps.iter();
        let kinds: Vec<NodeKind> = steps.filter(|(_, node)| node.enabled).map(|(_, node)| node.kind.clone()).collect();
        // A graph is one launch, whatever is in it.
        let mut run = Run { launches: 1, ..Run::default() };
        for kind in kinds {
            match kind {
                NodeKind::Kernel(Kernel { does: Does::Last(lasts), .. }) => {
                    run.lasts = run.lasts.saturating_add(lasts);
                    run.kernels += 1;
                    continue;
                }
                NodeKind::Copy(_)
                | NodeKind::Fill(_)
                | NodeKind::Child(_)
                | NodeKind::Empty
                | NodeKind::Allocate { .. }
                | NodeKind::Free { .. } => continue,
                NodeKind::Kernel(_)
                | NodeKind::Host(_)
                | NodeKind::Wait(_)
                | NodeKind::Record(_)
                | NodeKind::Await(_)
                | NodeKind::Write(_) => {}
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

    /// The bytes that a launch of a graph moves.
    pub(crate) fn launch_moves(&self, exec: usize) -> Result<Vec<NodeKind>, Code> {
        let steps = self.execs.get(exec)?.steps.iter().filter(|(_, node)| node.enabled);
        let moves = steps.filter(|(_, node)| matches!(node.kind, NodeKind::Copy(_) | NodeKind::Fill(_)));
        Ok(moves.map(|(_, node)| node.kind.clone()).collect())
    }
}
