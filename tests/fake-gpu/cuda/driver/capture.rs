//! Streams that record a graph instead of working.

use std::cell::Cell;
use std::thread::{self, ThreadId};

use super::Driver;
use super::context::{Record, current};
use super::graph::{Graph, NodeKind};
use super::work::Work;
use crate::codes::Code;

/// `CUstreamCaptureMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureMode {
    Global,
    ThreadLocal,
    Relaxed,
}

/// A capture sequence.
pub(crate) struct Capture {
    mode: CaptureMode,
    thread: ThreadId,
    origin: usize,
    pub(crate) graph: usize,
    /// The graph was given, and is not to be destroyed with the capture.
    given: bool,
    pub(crate) invalid: bool,
}

/// What a call about a stream means just now.
pub(crate) enum Target {
    /// Work of the card.
    Live,
    /// A node of this capture.
    Captured(u64),
}

thread_local! {
    static MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

/// This thread's mode.
pub(crate) fn thread_mode() -> CaptureMode {
    MODE.get()
}

/// Sets this thread's mode and returns the one before.
pub(crate) fn exchange_mode(mode: CaptureMode) -> CaptureMode {
    MODE.replace(mode)
}

// === impl CaptureMode ===

impl CaptureMode {
    pub(crate) fn from_number(number: u32) -> Result<Self, Code> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed].get(number as usize).copied().ok_or(Code::INVALID_VALUE)
    }
}

// === impl Driver ===

impl Driver {
    /// Invalidates the captures that forbid this thread an unsafe call; whether there was one. A thread's own captures
    /// forbid it unless they are relaxed, those of others if they are global and so is the thread's mode.
    pub(super) fn forbid(&mut self) -> bool {
        let (me, global) = (thread::current().id(), thread_mode() == CaptureMode::Global);
        let mut forbidden = false;
        for capture in self.captures.values_mut() {
            let own = capture.thread == me && capture.mode != CaptureMode::Relaxed;
            let others = global && capture.mode == CaptureMode::Global;
            if own || others {
                capture.invalid = true;
                forbidden = true;
            }
        }
        forbidden
    }

    pub(crate) fn begin_capture(&mut self, stream: usize, mode: CaptureMode, into: Option<usize>) -> Result<(), Code> {
        let state = self.streams.get(stream)?;
        if state.capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        if self.contexts.get(state.context)?.legacy == stream {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let graph = into.unwrap_or_else(|| self.graphs.add(Graph::default()));
        let id = self.id();
        let (thread, given) = (thread::current().id(), into.is_some());
        self.captures.insert(id, Capture { mode, thread, origin: stream, graph, given, invalid: false });
        let state = self.streams.get_mut(stream)?;
        (state.capture, state.frontier) = (Some(id), Vec::new());
        Ok(())
    }

    /// Ends a capture; its graph.
    pub(crate) fn end_capture(&mut self, stream: usize) -> Result<usize, Code> {
        let id = self.streams.get(stream)?.capture.ok_or(Code::ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(Code::ILLEGAL_STATE)?;
        if capture.origin != stream {
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != CaptureMode::Relaxed && capture.thread != thread::current().id() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let (graph, given, invalid) = (capture.graph, capture.given, capture.invalid);
        let unjoined = !invalid && !self.is_joined(graph, stream)?;
        self.captures.remove(&id);
        for (_, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.capture == Some(id)) {
            stream.capture = None;
            stream.frontier.clear();
        }
        if !invalid && !unjoined {
            return Ok(graph);
        }
        if !given {
            self.destroy_graph(graph)?;
        }
        Err(if invalid { Code::STREAM_CAPTURE_INVALIDATED } else { Code::STREAM_CAPTURE_UNJOINED })
    }

    /// Whether the origin has waited for all nodes that nothing follows.
    fn is_joined(&self, graph: usize, origin: usize) -> Result<bool, Code> {
        let frontier = &self.streams.get(origin)?.frontier;
        let nodes = &self.graphs.get(graph)?.nodes;
        let followed = |node: usize| {
            nodes.iter().any(|other| self.nodes.get(*other).is_ok_and(|other| other.dependencies.contains(&node)))
        };
        Ok(nodes.iter().all(|node| frontier.contains(node) || followed(*node)))
    }

    /// Whether a call about a stream is live work or becomes a node. In an invalid capture it fails.
    pub(crate) fn target(&mut self, stream: usize) -> Result<Target, Code> {
        let state = self.streams.get(stream)?;
        let Some(id) = state.capture else {
            return if self.is_implicit(stream) { Err(Code::STREAM_CAPTURE_IMPLICIT) } else { Ok(Target::Live) };
        };
        match self.captures.get(&id) {
            Some(capture) if capture.invalid => Err(Code::STREAM_CAPTURE_INVALIDATED),
            Some(_) => Ok(Target::Captured(id)),
            None => Ok(Target::Live),
        }
    }

    /// Work in the default stream would make it wait for capturing streams: that invalidates their captures.
    fn is_implicit(&mut self, stream: usize) -> bool {
        if self.captures.is_empty() || self.current().is_ok_and(|context| context.legacy != stream) {
            return false;
        }
        let blocking = self.streams.iter().filter(|(_, other)| other.flags & 1 == 0 && other.context == current());
        let captures: Vec<u64> = blocking.filter_map(|(_, other)| other.capture).collect();
        for id in &captures {
            if let Some(capture) = self.captures.get_mut(id) {
                capture.invalid = true;
            }
        }
        !captures.is_empty()
    }

    /// Makes a call invalidate the capture of a stream, which can't wait.
    pub(crate) fn refuse_captured(&mut self, stream: usize) -> Result<(), Code> {
        match self.streams.get(stream)?.capture.and_then(|id| self.captures.get_mut(&id)) {
            Some(capture) => {
                capture.invalid = true;
                Err(Code::STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    /// Adds a node after all that the stream has captured.
    pub(crate) fn capture(&mut self, id: u64, stream: usize, kind: NodeKind) -> Result<usize, Code> {
        let graph = self.captures.get(&id).ok_or(Code::ILLEGAL_STATE)?.graph;
        let before = self.streams.get(stream)?.frontier.clone();
        let node = self.add_node(graph, before, kind)?;
        self.streams.get_mut(stream)?.frontier = vec![node];
        Ok(node)
    }

    /// Work of a stream: of the card now, or a node.
    pub(crate) fn submit_or_capture(&mut self, stream: usize, work: Work, kind: NodeKind) -> Result<(), Code> {
        match self.target(stream)? {
            Target::Live => self.submit(stream, work).map(|_ticket| ()),
            Target::Captured(id) => self.capture(id, stream, kind).map(|_node| ()),
        }
    }

    pub(crate) fn record_event(&mut self, event: usize, stream: usize) -> Result<(), Code> {
        match self.target(stream)? {
            Target::Live => self.record(event, stream),
            Target::Captured(id) => {
                let frontier = self.streams.get(stream)?.frontier.clone();
                let event = self.events.get_mut(event)?;
                (event.captured, event.record) = (Some((id, frontier)), None);
                Ok(())
            }
        }
    }

    /// `cuStreamWaitEvent`: by waiting for an event of a capture a stream becomes part of it.
    pub(crate) fn wait_event(&mut self, stream: usize, event: usize) -> Result<(), Code> {
        let event = self.events.get(event)?;
        let (record, captured): (Option<Record>, _) = (event.record.clone(), event.captured.clone());
        match (captured, self.streams.get(stream)?.capture) {
            (Some((id, nodes)), before) => {
                if !self.captures.contains_key(&id) || before.is_some_and(|before| before != id) {
                    return Err(Code::STREAM_CAPTURE_MERGE);
                }
                let state = self.streams.get_mut(stream)?;
                state.capture = Some(id);
                state.frontier.extend(nodes);
                state.frontier.sort_unstable();
                state.frontier.dedup();
                Ok(())
            }
            // What was recorded outside can't be waited for inside.
            (None, Some(id)) if record.is_some() => {
                self.captures.get_mut(&id).ok_or(Code::ILLEGAL_STATE)?.invalid = true;
                Err(Code::STREAM_CAPTURE_UNSUPPORTED)
            }
            (None, _) => record.map_or(Ok(()), |record| self.wait_for(stream, &record)),
        }
    }
}
