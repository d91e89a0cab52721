//! Scores of nodes for pods whose plans take a search, cached by shape: only nodes that have changed are searched again.

use std::cmp::Reverse;
use std::time::Instant;

use divvy_api::annotation::PolicyName;
use divvy_placement::NodeScore;

use crate::demand::{Policies, Shape};
use crate::fit::Query;
use crate::fit::score_cache::{ScoreCache, Scores};
use crate::nodes::{NodeRef, View};

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

/// When a search for better plans ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Until each node has its plan, or has none.
    AllAreFound,
    /// Until there is a plan and a few nodes have been tried for a better one, or until this time, but for one node.
    Late(Instant),
}

/// Cached scores of pods whose plans take a search.
pub(crate) type SearchCache = ScoreCache<SearchKey, Scores<Rating>, MOST_SHAPES>;

/// Shape of pods, and the policies for cards and nodes: pods with one key have the same scores.
pub(crate) type SearchKey = (Shape, PolicyName, PolicyName);

/// Most shapes of pods whose scores are cached. A score takes 64 bytes: 10 MiB for 32 shapes and 5 000 nodes.
const MOST_SHAPES: usize = 32;
/// Nodes whose scores are bounded however late it is: a small cluster always has an answer.
const AT_LEAST: usize = 16;
/// Most searches of one call once one of them has found a plan.
const MOST_SEARCHES: usize = 8;

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

// === impl SearchCache ===

impl SearchCache {
    /// Key of the scores of pods like this one; `None` with random policies, of which no scores are kept.
    pub(crate) fn key(query: &Query<'_>) -> Option<SearchKey> {
        let Policies { cards, nodes } = &query.policies;
        (!query.policies.is_random()).then(|| (query.demand.shape(), cards.name, nodes.name))
    }
}

// === impl Scores ===

impl Scores<Rating> {
    /// Bounds the score of nodes that have changed since they were rated, about `most` of them, and after this time no more than a
    /// few. Returns whether those were all.
    pub(crate) fn ask(
        &mut self,
        query: &Query<'_>,
        view: &View,
        asked: &[NodeRef],
        most: usize,
        deadline: Option<Instant>,
    ) -> bool {
        let stale: Vec<NodeRef> = asked.iter().filter(|node| self.get(**node).is_none()).copied().collect();
        // Spread over the cluster, as parts of it may be full.
        let step = stale.len().div_ceil(most).max(1);
        for (number, node) in stale.iter().step_by(step).enumerate() {
            if number >= AT_LEAST && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            self.set(*node, query.at_best(view, node.place).map_or(Rating::Not, Rating::AtBest));
        }
        step == 1
    }

    /// Searches nodes whose bound is as good as the best known score, the best bounds first.
    pub(crate) fn search(&mut self, query: &Query<'_>, view: &View, asked: &[NodeRef], until: Until) {
        let mut best = None;
        let mut bounds = Vec::new();
        for asked in asked {
            match self.rating(asked) {
                Rating::Is(score) => best = best.max(Some(score)),
                Rating::AtBest(bound) => bounds.push((Reverse(bound), asked.place, *asked)),
                Rating::Not | Rating::Unknown => {}
            }
        }
        bounds.sort_unstable_by_key(|(bound, place, _)| (*bound, *place));
        for (searches, (Reverse(bound), place, node)) in bounds.into_iter().enumerate() {
            let is_hopeless = best.is_some_and(|best| bound < best && !bound.is_as_good_as(&best));
            let is_enough = is_hopeless || (searches >= MOST_SEARCHES && best.is_some());
            let is_over = match until {
                Until::AllAreFound => false,
                Until::Late(deadline) => is_enough || (searches > 0 && Instant::now() >= deadline),
            };
            if is_over {
                break;
            }
            let score = view.node(place).and_then(|node| query.rate(node));
            best = best.max(score);
            self.set(node, score.into());
        }
    }

    /// Rating of a node, unless it has changed since.
    pub(crate) fn rating(&self, asked: &NodeRef) -> Rating {
        self.get(*asked).unwrap_or_default()
    }
}
