//! Score cache: scores of nodes by shape of pod, so that a node is scored again only after it has changed.

use std::collections::HashMap;
use std::sync::Arc;

use divvy_api::annotation::PolicyName;
use divvy_placement::nodes::forecast::MOST_SEVERAL;
use divvy_placement::{ExpectedRequests, NodeScore};
use foldhash::fast::RandomState;

use crate::demand::{Demand, Policies, Shape};
use crate::fit::Query;
use crate::nodes::NodeRef;

/// Scores for the shapes of pods that came lately, at most `MOST_SHAPES`.
#[derive(Debug, Default)]
pub(crate) struct ScoreCache {
    shapes: HashMap<Key, (u64, ShapeScores), RandomState>,
    /// Number of uses so far.
    clock: u64,
}

/// Shape of a pod, and by what nodes are compared for it: pods with one key have the same scores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    shape: Shape,
    cards: PolicyName,
    nodes: PolicyName,
    /// Thousandths of CPU cores that it requests, where losses are compared.
    cpu_milli: Option<u32>,
}

/// What is known of nodes for pods of one shape: of each first whether such a pod may fit, then its best plan, then what the
/// node would lose, as far as somebody has asked and had the time.
#[derive(Debug, Default)]
pub(crate) struct ShapeScores {
    /// Where plans take a search.
    pub(crate) plans: Scores<Rating>,
    /// `None` where the pod doesn't fit.
    pub(crate) losses: Scores<Option<Worth>>,
    /// The forecast by which losses were worked out; 0 if none has been.
    forecast: u64,
    /// A pod of this shape, for which losses are worked out in advance; `None` if that takes searches.
    sample: Option<Arc<Demand>>,
}

/// Scores for one shape by place of the node, each valid for one revision of it.
#[derive(Debug, Default)]
pub(crate) struct Scores<T> {
    /// Revision of the node when it was scored, or 0.
    by_place: Vec<(u64, T)>,
}

/// Score of a node for a pod, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Rating {
    /// Not rated yet.
    #[default]
    Unknown,
    /// The pod doesn't fit.
    Not,
    /// Upper bound: the pod may fit, and no plan scores higher.
    AtBest(NodeScore),
    /// Score of the best plan.
    Is(NodeScore),
}

/// What a node loses to a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worth {
    pub(super) usable: u32,
    /// Thousandths of multi-GPU slots, by kind of several cards.
    pub(super) multi_gpu_slots: [u16; MOST_SEVERAL],
    /// What is left over, cards and CPU alike: the less the better.
    pub(super) leftover: u32,
    /// Percent by which the busiest of the pod's cards is busier than reserved.
    pub(super) busy: u8,
    /// Number of the hardware, and how much of it the pod takes, in thousandths of cards.
    pub(super) taken: (u16, u32),
}

/// Most shapes of pods whose scores are cached. A node takes 64 bytes for its plan and 80 for its loss, and few shapes need
/// both: 24 MiB for 64 shapes and 5 000 nodes.
const MOST_SHAPES: usize = 64;

// === impl Key ===

impl Key {
    /// Key of pods like this one; `None` if chance decides among their plans and nodes, of which no scores are kept.
    pub(crate) fn new(query: &Query<'_>, expected: &ExpectedRequests) -> Option<Self> {
        let Policies { cards, nodes } = &query.policies;
        let looks_ahead = query.looks_ahead(expected);
        let cpu_milli = looks_ahead.then_some(query.demand.requests.cpu_milli);
        let is_kept = looks_ahead || !query.policies.is_random();
        is_kept.then(|| Self { shape: query.demand.shape(), cards: cards.name, nodes: nodes.name, cpu_milli })
    }
}

// === impl ScoreCache ===

impl ScoreCache {
    /// Takes a shape's scores out, to be put back with new ones. A query for the shape meanwhile starts anew.
    pub(crate) fn take(&mut self, key: &Key) -> Option<ShapeScores> {
        self.shapes.remove(key).map(|(_, scores)| scores)
    }

    /// Stores a shape's scores, and evicts those that were used least recently.
    pub(crate) fn put(&mut self, key: Key, scores: ShapeScores) {
        self.clock += 1;
        if self.shapes.len() >= MOST_SHAPES && !self.shapes.contains_key(&key) {
            let oldest = self.shapes.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.shapes.remove(&key));
        }
        self.shapes.insert(key, (self.clock, scores));
    }

    /// Scores of a shape, to be changed; doesn't count as use.
    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut ShapeScores> {
        self.shapes.get_mut(key).map(|(_, scores)| scores)
    }

    /// Pods of all shapes for which losses are worked out in advance.
    pub(crate) fn samples(&self) -> impl Iterator<Item = &Arc<Demand>> {
        self.shapes.values().filter_map(|(_, scores)| scores.sample.as_ref())
    }
}

// === impl ShapeScores ===

impl ShapeScores {
    /// Whether losses have been worked out for this shape before, if only by an earlier forecast.
    pub(super) fn is_known(&self) -> bool {
        self.forecast != 0
    }

    /// Drops losses that were worked out by another forecast than this one.
    pub(super) fn renew(&mut self, forecast: u64, query: &Query<'_>) {
        if self.forecast != forecast {
            self.losses = Scores::default();
            self.forecast = forecast;
        }
        if self.sample.is_none() && !query.takes_a_search() {
            self.sample = Some(Arc::new(query.demand.clone()));
        }
    }
}

// === impl Rating ===

impl Rating {
    /// Score of the best plan, if there is one.
    pub(crate) fn score(self) -> Option<NodeScore> {
        match self {
            Self::Is(score) => Some(score),
            Self::Unknown | Self::Not | Self::AtBest(_) => None,
        }
    }

    /// Whether a search would find nothing new.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Not | Self::Is(_))
    }
}

/// Rating of a node that was searched for the best plan.
impl From<Option<NodeScore>> for Rating {
    fn from(best: Option<NodeScore>) -> Self {
        best.map_or(Self::Not, Self::Is)
    }
}

// === impl Scores ===

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
}

impl Scores<Rating> {
    /// Rating of a node, unless it has changed since.
    pub(crate) fn rating(&self, asked: &NodeRef) -> Rating {
        self.get(*asked).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::SchedulingConfig;
    use crate::fixture::pod;

    fn node(place: u32, revision: u64) -> NodeRef {
        NodeRef { name: 0, place, revision }
    }

    fn key(gib: u64) -> Key {
        let config = SchedulingConfig::default();
        let demand = Demand::read(&pod("a", 1, gib, 0), &config).expect("a request").expect("cards");
        Key::new(&Query::new(&demand, &config), &ExpectedRequests::default()).expect("no policy is random")
    }

    #[test]
    fn score_is_valid_for_one_revision() {
        let mut scores = Scores::default();
        scores.set(node(3, 7), 1);
        assert_eq!([scores.get(node(3, 7)), scores.get(node(3, 8)), scores.get(node(9, 7))], [Some(1), None, None]);
    }

    #[test]
    fn shape_used_least_recently_is_evicted() {
        let (mut cache, most) = (ScoreCache::default(), MOST_SHAPES as u64);
        (0..most).for_each(|gib| cache.put(key(1 + gib), ShapeScores::default()));
        let first = cache.take(&key(1)).expect("kept");
        cache.put(key(1), first);
        cache.put(key(1 + most), ShapeScores::default());
        let is_kept = [1, 2, 3, 1 + most].map(|gib| cache.get_mut(&key(gib)).is_some());
        assert_eq!(is_kept, [true, false, true, true]);
    }
}
