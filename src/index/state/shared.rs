//! Values that many nodes share, kept once: 5 000 equal nodes have one table of links.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use divvy_api::{Card, Links, NodeCards};
use divvy_placement::Hardware;

/// Models, namespaces, kinds of cards and tables of links.
#[derive(Debug, Default)]
pub(crate) struct SharedValues {
    models: HashSet<Arc<str>>,
    namespaces: HashSet<Arc<str>>,
    links: HashSet<Arc<Links>>,
    /// Kinds of cards, by number. None is removed.
    hardware: Vec<Hardware>,
    /// Cards of each kind that nodes report, by the same number.
    cards: Vec<usize>,
}

/// More kinds of cards than any cluster has: a node that reports another kind every second mustn't fill the memory. None makes
/// room for another, as with each new kind all nodes are scored anew, and a node could demand that for ever.
const MOST_HARDWARE: usize = 1024;

// === impl SharedValues ===

impl SharedValues {
    pub(crate) fn model(&mut self, name: &str) -> Arc<str> {
        shared(&mut self.models, name, |name| name.into())
    }

    pub(crate) fn namespace(&mut self, name: &str) -> Arc<str> {
        shared(&mut self.namespaces, name, |name| name.into())
    }

    /// Number of the card's kind of hardware. Beyond the limit all have one number, which is that of no kind: nothing is forecast
    /// for them.
    pub(crate) fn hardware_of(&mut self, card: &Card, node: &NodeCards) -> u16 {
        let wanted = Hardware::new(card, node);
        let known = self.hardware.iter().position(|known| *known == wanted);
        let at = known.unwrap_or_else(|| {
            let next = self.hardware.len();
            if next < MOST_HARDWARE {
                self.hardware.push(wanted);
                self.cards.push(0);
            }
            next
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    /// All kinds of cards.
    pub(crate) fn hardware(&self) -> &[Hardware] {
        &self.hardware
    }

    /// Kinds of the cards that nodes report now.
    pub(crate) fn present(&self) -> impl Iterator<Item = &Hardware> {
        self.hardware.iter().zip(&self.cards).filter(|(_, cards)| **cards > 0).map(|(kind, _)| kind)
    }

    /// Counts the cards of a report, by the numbers of their kinds.
    pub(crate) fn add(&mut self, kinds: &[u16]) {
        self.change(kinds, |cards| cards + 1);
    }

    /// Takes the cards of a former report out of the count.
    pub(crate) fn remove(&mut self, kinds: &[u16]) {
        self.change(kinds, |cards| cards.saturating_sub(1));
    }

    fn change(&mut self, kinds: &[u16], change: impl Fn(usize) -> usize) {
        for kind in kinds {
            if let Some(cards) = self.cards.get_mut(usize::from(*kind)) {
                *cards = change(*cards);
            }
        }
    }

    /// The table of links that is kept already, or this one.
    pub(crate) fn links(&mut self, links: &Arc<Links>) -> Arc<Links> {
        shared(&mut self.links, &**links, |_| Arc::clone(links))
    }
}

/// The value that is kept already, or a new one; those that nobody has any more go.
fn shared<T, Q>(values: &mut HashSet<Arc<T>>, value: &Q, own: impl FnOnce(&Q) -> Arc<T>) -> Arc<T>
where
    T: Eq + Hash + ?Sized,
    Q: Eq + Hash + ?Sized,
    Arc<T>: Borrow<Q>,
{
    if let Some(known) = values.get(value) {
        return Arc::clone(known);
    }
    values.retain(|known| Arc::strong_count(known) > 1);
    let owned = own(value);
    values.insert(Arc::clone(&owned));
    owned
}
