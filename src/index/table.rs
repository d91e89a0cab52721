//! Nodes by name and by place: what readers hold for the microseconds of a lookup.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::node::Node;

/// The published nodes. A node keeps its place until it is deleted; then another may get it, with another revision.
#[derive(Debug, Default)]
pub(crate) struct Table {
    places: HashMap<Arc<str>, u32, RandomState>,
    /// By place; 0 where there is none. Apart from the nodes, so that a lookup that finds nothing changed reads little.
    revisions: Vec<u64>,
    nodes: Vec<Option<Arc<Node>>>,
    /// Numbers of the kinds of hardware, by place.
    kinds: Vec<u64>,
    free: Vec<u32>,
}

// === impl Table ===

impl Table {
    pub(crate) fn place(&self, name: &str) -> Option<u32> {
        self.places.get(name).copied()
    }

    pub(crate) fn node(&self, place: u32) -> Option<&Arc<Node>> {
        self.nodes.get(place as usize)?.as_ref()
    }

    pub(crate) fn revisions(&self) -> &[u64] {
        &self.revisions
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.iter().flatten()
    }

    /// Kinds of hardware, each with the place of a node.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (u64, u32)> {
        let places = self.kinds.iter().copied().zip(0..);
        places.zip(&self.revisions).filter(|(_, revision)| **revision > 0).map(|(kind, _)| kind)
    }

    /// Shows the node to readers; `kind` is that of its hardware.
    pub(crate) fn publish(&mut self, node: Arc<Node>, kind: u64) {
        let place = self.places.get(&node.name).copied().unwrap_or_else(|| self.new_place(&node.name));
        self.revisions[place as usize] = node.revision;
        self.kinds[place as usize] = kind;
        self.nodes[place as usize] = Some(node);
    }

    pub(crate) fn withdraw(&mut self, name: &str) {
        let Some(place) = self.places.remove(name) else { return };
        self.revisions[place as usize] = 0;
        self.nodes[place as usize] = None;
        self.free.push(place);
    }

    fn new_place(&mut self, name: &Arc<str>) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.revisions.push(0);
            self.nodes.push(None);
            self.kinds.push(0);
            u32::try_from(self.nodes.len() - 1).expect("fewer nodes than 2^32: each takes kilobytes")
        });
        self.places.insert(Arc::clone(name), place);
        place
    }
}
