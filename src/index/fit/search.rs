//! What every node answered to pods of one shape, where that takes a search, and at which revision of the node: only
//! nodes that changed since are asked again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use divvy_api::annotation::PolicyName;
use divvy_placement::NodeScore;

use crate::cluster::unpoisoned;
use crate::demand::{Policies, Shape};
use crate::fit::Query;
use crate::snapshot::Node;
use crate::snapshot::{NodeRef, View};

/// Answers by place of the node.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// Of the node when it was asked; 0 if it never was.
    revisions: Vec<u64>,
    ratings: Vec<Rating>,
    /// Why the pod doesn't fit, by place, as far as somebody wanted to know; of the same revision.
    reasons: HashMap<u32, (u64, Arc<str>), foldhash::fast::RandomState>,
}

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

/// Boards of the shapes that were asked for lately.
#[derive(Debug, Default)]
pub(crate) struct Boards {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    boards: HashMap<Key, (u64, Arc<Mutex<Board>>), foldhash::fast::RandomState>,
    clock: u64,
}

/// Pods with one key have one board.
type Key = (Shape, PolicyName, PolicyName);

/// A board takes 64 bytes a node, and 200 more if it is asked for reasons: 11 to 40 MiB for 32 of them and 5 000 nodes.
const MOST_BOARDS: usize = 32;
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

// === impl Boards ===

impl Boards {
    pub(crate) fn of(&self, query: &Query<'_>) -> Arc<Mutex<Board>> {
        let Policies { cards, nodes } = query.policies;
        if query.policies.is_random() {
            return Arc::default();
        }
        let mut kept = unpoisoned(self.kept.lock());
        kept.clock += 1;
        let now = kept.clock;
        let key = (query.demand.shape(), cards.name, nodes.name);
        if let Some((used, board)) = kept.boards.get_mut(&key) {
            *used = now;
            return Arc::clone(board);
        }
        if kept.boards.len() >= MOST_BOARDS {
            let oldest = kept.boards.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| kept.boards.remove(&key));
        }
        let board = Arc::default();
        kept.boards.insert(key, (now, Arc::clone(&board)));
        board
    }
}

// === impl Board ===

impl Board {
    /// Asks the nodes that have changed since they last were what they can offer without a search, about `most` of
    /// them. Whether that were all.
    pub(crate) fn ask(&mut self, query: &Query<'_>, view: &View, asked: &[NodeRef], most: usize) -> bool {
        let places = asked.iter().map(|asked| asked.place as usize + 1).max().unwrap_or(0);
        if self.revisions.len() < places {
            self.revisions.resize(places, 0);
            self.ratings.resize(places, Rating::default());
        }
        let (revisions, ratings) = (&mut self.revisions, &mut self.ratings);
        let is_stale = |asked: &&NodeRef| revisions[asked.place as usize] != asked.revision;
        let stale: Vec<&NodeRef> = asked.iter().filter(is_stale).collect();
        // Those that are asked stand all over the cluster, as its parts may be full.
        let step = stale.len().div_ceil(most).max(1);
        for NodeRef { place, revision, .. } in stale.iter().step_by(step) {
            ratings[*place as usize] = query.at_best(view, *place).map_or(Rating::Not, Rating::AtBest);
            revisions[*place as usize] = *revision;
        }
        step == 1
    }

    /// Searches nodes whose bound is as good as the best that is known, the best bounds first; or all of them.
    pub(crate) fn search(&mut self, query: &Query<'_>, view: &View, asked: &[NodeRef], until: Until) {
        let (mut best, mut bounds) = (None, Vec::new());
        for asked in asked {
            match self.rating(asked) {
                Rating::Is(score) => best = best.max(Some(score)),
                Rating::AtBest(bound) => bounds.push((Reverse(bound), asked.place)),
                Rating::Not | Rating::Unknown => {}
            }
        }
        bounds.sort_unstable();
        for (searches, (Reverse(bound), place)) in bounds.into_iter().enumerate() {
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
            self.ratings[place as usize] = score.map_or(Rating::Not, Rating::Is);
        }
    }

    /// Why the pod doesn't fit on a node; `None` if it does.
    pub(crate) fn why_not(&mut self, query: &Query<'_>, asked: &NodeRef, node: &Node) -> Option<Arc<str>> {
        if let Some((revision, reason)) = self.reasons.get(&asked.place)
            && *revision == node.revision
        {
            return Some(Arc::clone(reason));
        }
        let reason = node.why_not(query)?;
        self.reasons.insert(asked.place, (node.revision, Arc::clone(&reason)));
        Some(reason)
    }

    /// What a node is worth, as far as it was asked since it changed.
    pub(crate) fn rating(&self, asked: &NodeRef) -> Rating {
        let at = asked.place as usize;
        if self.revisions.get(at) == Some(&asked.revision) { self.ratings[at] } else { Rating::Unknown }
    }
}
