//! What every node answered to pods of one shape, where that takes a search, and at which revision of the node: only
//! nodes that changed since are asked again.

use std::cmp::Reverse;
use std::sync::Mutex;
use std::time::Instant;

use divvy_api::annotation::PolicyName;
use divvy_placement::NodeScore;

use crate::demand::{Policies, Shape};
use crate::fit::Query;
use crate::fit::score_cache::{ScoreCache, Scores};
use crate::snapshot::{NodeRef, View};
use crate::unpoisoned;

/// What a node is worth to a pod.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Rating {
    /// Not asked yet.
    #[default]
    Unknown,
    /// It doesn't fit.
    Not,
    /// It may fit; no plan on this node is worth more.
    AtBest(NodeScore),
    /// The best plan.
    Is(NodeScore),
}

/// When nodes that may have better plans are searched no longer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Each has its plan, or has none.
    AllAreFound,
    /// There is a plan, and a few have been tried for a better one.
    SomeAreFound,
    /// The same, or it is too late.
    Late(Instant),
}

/// Scores of pods that have one answer on every node that takes a search.
pub(crate) type SearchCache = ScoreCache<(Shape, PolicyName, PolicyName), Scores<Rating>, MOST_SHAPES>;

/// 64 bytes a node and shape: 10 MiB for 32 shapes and 5 000 nodes.
const MOST_SHAPES: usize = 32;
/// Searches of one call, as long as one of them finds a plan.
const MOST_SEARCHES: usize = 8;

// === impl Rating ===

impl Rating {
    /// What the best plan is worth, if there is one.
    pub(crate) fn score(self) -> Option<NodeScore> {
        match self {
            Self::Is(score) => Some(score),
            Self::Unknown | Self::Not | Self::AtBest(_) => None,
        }
    }

    /// Whether nothing is left to be found out.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Not | Self::Is(_))
    }
}

// === impl SearchCache ===

impl SearchCache {
    /// Changes the scores of the query's shape, which are taken out of the cache meanwhile. Of pods whose nodes are drawn
    /// none are kept.
    pub(crate) fn with<R>(cache: &Mutex<Self>, query: &Query<'_>, change: impl FnOnce(&mut Scores<Rating>) -> R) -> R {
        let Policies { cards, nodes } = query.policies;
        let key = (query.demand.shape(), cards.name, nodes.name);
        let is_kept = !query.policies.is_random();
        let known = is_kept.then(|| unpoisoned(cache.lock()).take(&key)).flatten();
        let mut scores = known.unwrap_or_default();
        let result = change(&mut scores);
        if is_kept {
            unpoisoned(cache.lock()).put(key, scores);
        }
        result
    }
}

// === impl Scores ===

impl Scores<Rating> {
    /// Asks the nodes that have changed since they last were what they can offer without a search, about `most` of
    /// them. Whether that were all.
    pub(crate) fn ask(&mut self, query: &Query<'_>, view: &View, asked: &[NodeRef], most: usize) -> bool {
        let stale: Vec<NodeRef> = asked.iter().filter(|node| self.get(**node).is_none()).copied().collect();
        // Those that are asked stand all over the cluster, as its parts may be full.
        let step = stale.len().div_ceil(most).max(1);
        for node in stale.iter().step_by(step) {
            self.set(*node, query.at_best(view, node.place).map_or(Rating::Not, Rating::AtBest));
        }
        step == 1
    }

    /// Searches nodes whose bound is as good as the best that is known, the best bounds first; or all of them.
    pub(crate) fn search(&mut self, query: &Query<'_>, view: &View, asked: &[NodeRef], until: Until) {
        let (mut best, mut bounds) = (None, Vec::new());
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
                Until::SomeAreFound => is_enough,
                Until::Late(deadline) => is_enough || Instant::now() >= deadline,
            };
            if is_over {
                break;
            }
            let score = view.node(place).and_then(|node| query.rate(node));
            best = best.max(score);
            self.set(node, score.map_or(Rating::Not, Rating::Is));
        }
    }

    /// What a node is worth, as far as it was asked since it changed.
    pub(crate) fn rating(&self, asked: &NodeRef) -> Rating {
        self.get(*asked).unwrap_or_default()
    }
}
