//! Score cache: scores of nodes by shape of pod, so that a node is scored again only after it has changed.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

use crate::nodes::NodeRef;

/// Scores for the shapes of pods that came lately, at most `MOST`. `S` is what is kept for a shape.
#[derive(Debug)]
pub(crate) struct ScoreCache<K, S, const MOST: usize> {
    shapes: HashMap<K, (u64, S), RandomState>,
    /// Number of uses so far.
    clock: u64,
}

/// Scores for one shape by place of the node, each valid for one revision of it.
#[derive(Clone, Debug)]
pub(crate) struct Scores<T> {
    /// Revision of the node when it was scored, or 0.
    by_place: Vec<(u64, T)>,
}

// === impl ScoreCache ===

impl<K: Clone + Eq + Hash, S, const MOST: usize> ScoreCache<K, S, MOST> {
    /// Takes a shape's scores out, to be put back with new ones. A query for the shape meanwhile starts anew.
    pub(crate) fn take(&mut self, shape: &K) -> Option<S> {
        self.shapes.remove(shape).map(|(_, scores)| scores)
    }

    /// Stores a shape's scores, and evicts those that were used least recently.
    pub(crate) fn put(&mut self, shape: K, scores: S) {
        self.clock += 1;
        if self.shapes.len() >= MOST && !self.shapes.contains_key(&shape) {
            let oldest = self.shapes.iter().min_by_key(|(_, (used, _))| *used).map(|(shape, _)| shape.clone());
            oldest.and_then(|shape| self.shapes.remove(&shape));
        }
        self.shapes.insert(shape, (self.clock, scores));
    }

    /// Scores of a shape, if there are any.
    pub(crate) fn get(&self, shape: &K) -> Option<&S> {
        self.shapes.get(shape).map(|(_, scores)| scores)
    }

    /// Scores of a shape, to be changed; doesn't count as use.
    pub(crate) fn get_mut(&mut self, shape: &K) -> Option<&mut S> {
        self.shapes.get_mut(shape).map(|(_, scores)| scores)
    }

    /// Scores of all shapes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &S> {
        self.shapes.values().map(|(_, scores)| scores)
    }

    /// Scores of all shapes, to be changed.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.shapes.values_mut().map(|(_, scores)| scores)
    }
}

impl<K, S, const MOST: usize> Default for ScoreCache<K, S, MOST> {
    fn default() -> Self {
        Self { shapes: HashMap::default(), clock: 0 }
    }
}

// === impl Scores ===

impl<T> Default for Scores<T> {
    fn default() -> Self {
        Self { by_place: Vec::new() }
    }
}

impl<T: Copy + Default> Scores<T> {
    /// Score of the node, unless it has changed since.
    pub(crate) fn get(&self, node: NodeRef) -> Option<T> {
        let (revision, score) = self.by_place.get(node.place as usize)?;
        (*revision == node.revision).then_some(*score)
    }

    /// Stores the node's score.
    pub(crate) fn set(&mut self, node: NodeRef, score: T) {
        let at = node.place as usize;
        if self.by_place.len() <= at {
            self.by_place.resize(at + 1, (0, T::default()));
        }
        self.by_place[at] = (node.revision, score);
    }

    /// Removes all scores.
    pub(crate) fn clear(&mut self) {
        self.by_place.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(place: u32, revision: u64) -> NodeRef {
        NodeRef { name: 0, place, revision }
    }

    #[test]
    fn score_is_valid_for_one_revision() {
        let mut scores = Scores::default();
        scores.set(node(3, 7), 1);
        assert_eq!([scores.get(node(3, 7)), scores.get(node(3, 8)), scores.get(node(9, 7))], [Some(1), None, None]);
        scores.clear();
        assert_eq!(scores.get(node(3, 7)), None);
    }

    #[test]
    fn shape_used_least_recently_is_evicted() {
        let mut cache = ScoreCache::<_, _, 2>::default();
        cache.put("a", 1);
        cache.put("b", 2);
        let a = cache.take(&"a").expect("kept");
        cache.put("a", a);
        cache.put("c", 3);
        assert_eq!((cache.get(&"a"), cache.get(&"b"), cache.get(&"c")), (Some(&1), None, Some(&3)));
        assert_eq!(cache.all().count(), 2);
    }
}
