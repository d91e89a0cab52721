//! Published nodes by name and by place.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_api::NodeCards;
use divvy_placement::{CardRow, CardTable, ExpectedRequests, Hardware};
use foldhash::fast::RandomState;

use crate::nodes::Node;
use crate::nodes::Unschedulable;

/// The published nodes. A node keeps its place until it is deleted; then another may get it, with another revision.
#[derive(Debug, Default)]
pub(crate) struct Table {
    view: View,
    free: Vec<u32>,
}

/// All nodes at one moment. A view costs a pointer for each page; later changes are written to copies of the pages that are
/// still in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    places: Arc<HashMap<Arc<str>, u32, RandomState>>,
    pages: Vec<Arc<Page>>,
    /// Number of changes so far.
    version: u64,
    hardware: Arc<[Hardware]>,
    /// Number of nodes of which NVLink reaches others.
    in_cliques: usize,
    /// Requests that `least-fragmentation` keeps capacity for.
    expected: Arc<ExpectedRequests>,
}

/// A few nodes side by side, which are copied together.
#[derive(Clone, Debug, Default)]
struct Page {
    /// Version of the view when the page was changed last.
    version: u64,
    entries: Vec<Entry>,
    /// Numbers of the cards; none for a node that takes no pods.
    card_table: CardTable,
}

/// A node that was asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRef {
    /// Which of the names.
    pub name: usize,
    pub(crate) place: u32,
    /// Revision of the node when it was looked up.
    pub(crate) revision: u64,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// Revision of the node; 0 where there is none.
    revision: u64,
    /// Number of the node's kind.
    kind: u64,
    node: Option<Arc<Node>>,
    /// That of the node: a scan for open nodes reads no more than the entries.
    unschedulable: Option<Unschedulable>,
}

const PAGE: usize = 64;

// === impl Table ===

impl Table {
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Takes over the kinds of hardware, which only become more.
    pub(crate) fn know(&mut self, hardware: &[Hardware]) {
        if self.view.hardware.len() < hardware.len() {
            self.view.hardware = hardware.into();
        }
    }

    /// Sets the requests that are expected.
    pub(crate) fn expect(&mut self, expected: ExpectedRequests) {
        self.view.version += 1;
        self.view.expected = Arc::new(expected);
    }

    /// Publishes a node to readers.
    pub(crate) fn publish(&mut self, node: Node, card_table: CardTable) {
        let place = self.view.place(&node.name).unwrap_or_else(|| self.new_place(&node.name));
        self.view.in_cliques += usize::from(node.clique.is_some());
        let (page, at) = self.page(place);
        page.entries[at] = Entry {
            revision: node.revision,
            kind: node.kind(),
            unschedulable: node.unschedulable,
            node: Some(Arc::new(node)),
        };
        page.card_table.put(at, card_table);
    }

    pub(crate) fn withdraw(&mut self, name: &str) {
        let Some(place) = Arc::make_mut(&mut self.view.places).remove(name) else { return };
        let (page, at) = self.page(place);
        page.entries[at] = Entry::default();
        page.card_table.put(at, CardTable::default());
        self.free.push(place);
    }

    /// The page of a place whose node is about to be replaced, and where on it.
    fn page(&mut self, place: u32) -> (&mut Page, usize) {
        let was_in_clique = self.view.node(place).is_some_and(|before| before.clique.is_some());
        self.view.in_cliques -= usize::from(was_in_clique);
        let (page, at) = split(place);
        let page = Arc::make_mut(&mut self.view.pages[page]);
        self.view.version += 1;
        page.version = self.view.version;
        (page, at)
    }

    fn new_place(&mut self, name: &Arc<str>) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            let pages = &mut self.view.pages;
            if pages.last().is_none_or(|page| page.entries.len() == PAGE) {
                pages.push(Arc::default());
            }
            let last = pages.len() - 1;
            let page = Arc::make_mut(&mut pages[last]);
            page.entries.push(Entry::default());
            u32::try_from(last * PAGE + page.entries.len() - 1).expect("fewer nodes than 2^32: each takes kilobytes")
        });
        Arc::make_mut(&mut self.view.places).insert(Arc::clone(name), place);
        place
    }
}

// === impl View ===

impl View {
    pub(crate) fn place(&self, name: &str) -> Option<u32> {
        self.places.get(name).copied()
    }

    /// The node of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Node>> {
        self.node(self.place(name)?)
    }

    pub(crate) fn node(&self, place: u32) -> Option<&Arc<Node>> {
        self.entry(place)?.node.as_ref()
    }

    /// Numbers of the node's cards.
    pub(crate) fn card_row(&self, place: u32) -> Option<CardRow<'_>> {
        let (page, at) = split(place);
        self.pages.get(page)?.card_table.at(at)
    }

    /// The cards of a node that has [numbers](Self::card_row).
    pub(crate) fn node_cards(&self, place: u32) -> &NodeCards {
        &self.node(place).expect("numbers of cards are published with their node").state.node
    }

    /// Whether NVLink reaches several nodes somewhere.
    pub(crate) fn has_cliques(&self) -> bool {
        self.in_cliques > 0
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// All nodes, numbered in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = NodeRef> {
        self.entries().map(|(asked, _)| asked)
    }

    /// Nodes that are schedulable.
    pub(crate) fn open(&self) -> impl Iterator<Item = NodeRef> {
        self.entries().filter(|(_, unschedulable)| unschedulable.is_none()).map(|(asked, _)| asked)
    }

    /// Nodes that are unschedulable.
    pub(crate) fn unschedulable_nodes(&self) -> impl Iterator<Item = (NodeRef, Unschedulable)> {
        self.entries().filter_map(|(asked, unschedulable)| Some((asked, unschedulable?)))
    }

    fn entries(&self) -> impl Iterator<Item = (NodeRef, Option<Unschedulable>)> {
        let entries = (0..).zip(self.pages.iter().flat_map(|page| &page.entries));
        let all = entries.filter(|(_, entry)| entry.node.is_some());
        all.enumerate()
            .map(|(name, (place, entry))| (NodeRef { name, place, revision: entry.revision }, entry.unschedulable))
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.pages.iter().flat_map(|page| &page.entries).filter_map(|entry| entry.node.as_ref())
    }

    /// Number that grows with every change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Number of places.
    pub(crate) fn places(&self) -> usize {
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * PAGE + last.entries.len())
    }

    /// All places on pages that have changed since the view had this version, with the revision of the node that stands
    /// there; 0 where there is none.
    pub(crate) fn changed_since(&self, version: u64) -> impl Iterator<Item = (usize, u64, Option<&Arc<Node>>)> {
        // Usually nothing has: not even a look at each page then, of which a cluster of 50 000 nodes has 800.
        let pages = if version < self.version { &self.pages[..] } else { &[] };
        let pages = pages.iter().enumerate().filter(move |(_, page)| page.version > version);
        pages.flat_map(|(number, page)| {
            let entries = page.entries.iter().enumerate();
            entries.map(move |(at, entry)| (number * PAGE + at, entry.revision, entry.node.as_ref()))
        })
    }

    /// Requests that are expected.
    pub(crate) fn expected(&self) -> &Arc<ExpectedRequests> {
        &self.expected
    }

    /// Kinds of cards, by number.
    pub(crate) fn hardware(&self) -> &[Hardware] {
        &self.hardware
    }

    /// Nodes with the numbers of their kinds of hardware.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (u64, &Arc<Node>)> {
        let entries = self.pages.iter().flat_map(|page| &page.entries);
        entries.filter_map(|entry| Some((entry.kind, entry.node.as_ref()?)))
    }

    /// Finds nodes by name. Each comes once; `unknown` is called for names that aren't known.
    pub(crate) fn look_up(&self, names: &[&str], mut unknown: impl FnMut(usize)) -> Vec<NodeRef> {
        let mut seen = vec![false; self.pages.len() * PAGE];
        let mut asked = Vec::with_capacity(names.len());
        for (name, text) in names.iter().enumerate() {
            match self.place(text).and_then(|place| Some((place, self.entry(place)?))) {
                Some((place, _)) if std::mem::replace(&mut seen[place as usize], true) => {}
                Some((place, entry)) => asked.push(NodeRef { name, place, revision: entry.revision }),
                None => unknown(name),
            }
        }
        asked
    }

    fn entry(&self, place: u32) -> Option<&Entry> {
        let (page, at) = split(place);
        self.pages.get(page)?.entries.get(at)
    }
}

// === impl NodeRef ===

impl NodeRef {
    /// Number that the node keeps as long as it exists.
    pub fn place(&self) -> u32 {
        self.place
    }
}

/// The page of a place, and where on it.
fn split(place: u32) -> (usize, usize) {
    (place as usize / PAGE, place as usize % PAGE)
}
