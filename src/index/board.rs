//! What every node answered to pods of one shape, and at which revision of the node: only nodes that changed since are
//! asked again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use divvy_contract::annotation::PolicyName;
use divvy_placement::NodeScore;

use crate::demand::{Policies, Shape};
use crate::index::unpoisoned;
use crate::node::Node;
use crate::question::Question;
use crate::table::Table;

/// Answers by place of the node.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// Of the node when it was asked; 0 if it never was.
    revisions: Vec<u64>,
    ratings: Vec<Rating>,
    /// Why the pod doesn't fit, by place, as far as somebody wanted to know; of the same revision.
    reasons: HashMap<u32, (u64, Arc<str>), foldhash::fast::RandomState>,
    /// The round in which the place was last looked up, so that a name that comes twice counts once.
    marks: Vec<u64>,
    round: u64,
    /// Nodes that have changed since they were asked.
    stale: Vec<(u32, Arc<Node>)>,
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

/// A board takes 72 bytes a node, and 200 more if it is asked for reasons: 11 to 40 MiB for 32 of them and 5 000 nodes.
const MOST_BOARDS: usize = 32;
/// Searches of one call, as long as one of them finds a plan.
const MOST_SEARCHES: usize = 8;

/// A node that was asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Which of the names.
    pub name: usize,
    pub(crate) place: u32,
    /// Of the node when it was looked up.
    revision: u64,
}

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

// === impl Asked ===

impl Asked {
    /// A number that the node keeps as long as it exists.
    pub fn place(&self) -> u32 {
        self.place
    }
}

// === impl Boards ===

impl Boards {
    pub(crate) fn of(&self, question: &Question<'_>) -> Arc<Mutex<Board>> {
        let Policies { cards, nodes } = question.policies;
        if question.policies.is_random() {
            return Arc::default();
        }
        let mut kept = unpoisoned(self.kept.lock());
        kept.clock += 1;
        let now = kept.clock;
        let key = (question.demand.shape(), cards.name, nodes.name);
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
    /// Finds nodes by name. Each comes once; `unknown` hears of names that aren't known.
    pub(crate) fn look_up(&mut self, table: &Table, names: &[&str], mut unknown: impl FnMut(usize)) -> Vec<Asked> {
        self.begin(table);
        let mut asked = Vec::with_capacity(names.len());
        for (name, text) in names.iter().enumerate() {
            match table.place(text) {
                Some(place) => asked.extend(self.look_at(table, name, place)),
                None => unknown(name),
            }
        }
        asked
    }

    /// All nodes, numbered by place.
    pub(crate) fn look_at_all(&mut self, table: &Table) -> Vec<Asked> {
        self.begin(table);
        let places = table.revisions().iter().enumerate().filter(|(_, revision)| **revision > 0);
        places.filter_map(|(at, _)| self.look_at(table, at, u32::try_from(at).ok()?)).collect()
    }

    fn begin(&mut self, table: &Table) {
        let places = table.revisions().len();
        if self.revisions.len() < places {
            self.revisions.resize(places, 0);
            self.ratings.resize_with(places, Rating::default);
            self.marks.resize(places, 0);
        }
        self.round += 1;
        self.stale.clear();
    }

    fn look_at(&mut self, table: &Table, name: usize, place: u32) -> Option<Asked> {
        let at = place as usize;
        let revision = table.revisions()[at];
        if self.marks[at] == self.round {
            return None;
        }
        self.marks[at] = self.round;
        if self.revisions[at] != revision
            && let Some(node) = table.node(place)
        {
            self.stale.push((place, Arc::clone(node)));
        }
        Some(Asked { name, place, revision })
    }

    /// Asks the nodes that have changed since they last were, `most` of them, as far as that takes no search.
    pub(crate) fn ask(&mut self, question: &Question<'_>, most: usize) {
        let mut stale = std::mem::take(&mut self.stale);
        for (place, node) in stale.drain(..).take(most) {
            let rating = if question.is_slow() {
                question.at_best(&node).map_or(Rating::Not, Rating::AtBest)
            } else {
                question.rate(&node).map_or(Rating::Not, Rating::Is)
            };
            self.revisions[place as usize] = node.revision;
            self.ratings[place as usize] = rating;
        }
        self.stale = stale;
    }

    /// Searches nodes whose bound is as good as the best that is known, the best bounds first; or all of them.
    pub(crate) fn search(
        &mut self,
        question: &Question<'_>,
        asked: &[Asked],
        all: bool,
        node: impl Fn(u32) -> Option<Arc<Node>>,
    ) {
        let (mut best, mut bounds) = (None, Vec::new());
        for asked in asked {
            match &self.ratings[asked.place as usize] {
                Rating::Is(score) => best = best.max(Some(*score)),
                Rating::AtBest(bound) => bounds.push((Reverse(*bound), asked.place, asked.revision)),
                Rating::Not | Rating::Unknown => {}
            }
        }
        bounds.sort_unstable();
        for (searches, (Reverse(bound), place, revision)) in bounds.into_iter().enumerate() {
            let is_hopeless = best.is_some_and(|best| bound < best && !bound.is_as_good_as(&best));
            if !all && (is_hopeless || (searches >= MOST_SEARCHES && best.is_some())) {
                break;
            }
            let Some(node) = node(place).filter(|node| node.revision == revision) else { continue };
            let score = question.rate(&node);
            best = best.max(score);
            self.ratings[place as usize] = score.map_or(Rating::Not, Rating::Is);
        }
    }

    /// Why the pod doesn't fit on a node; `None` if it does.
    pub(crate) fn why_not(&mut self, question: &Question<'_>, asked: &Asked, node: &Node) -> Option<Arc<str>> {
        if let Some((revision, reason)) = self.reasons.get(&asked.place)
            && *revision == node.revision
        {
            return Some(Arc::clone(reason));
        }
        let reason = node.why_not(question)?;
        self.reasons.insert(asked.place, (node.revision, Arc::clone(&reason)));
        Some(reason)
    }

    /// What a node is worth, as far as it was asked since it changed.
    pub(crate) fn rating(&self, asked: &Asked) -> Rating {
        let at = asked.place as usize;
        if self.revisions[at] == asked.revision { self.ratings[at] } else { Rating::Unknown }
    }
}
