//! Whether pods like this find cards at all: what admission tells their author, from what is known already.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use divvy_placement::{Card, Held, NodeScore, plan};

use crate::board::Asked;
use crate::index::{Index, unpoisoned};
use crate::node::Node;
use crate::question::Question;

/// What a pod may expect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Whether it fits somewhere now; `None` if that would take too long to tell.
    pub now: Option<bool>,
    /// Whether it would fit somewhere if nobody else were there.
    pub ever: bool,
    /// Nodes where it fits now, the best first.
    pub best: Vec<Arc<str>>,
    /// Nodes that are known.
    pub nodes: usize,
    /// How many of them were asked for reasons, if it fits nowhere.
    pub asked: usize,
    /// If it fits nowhere: why, and how many of a few nodes say so, the most frequent first.
    pub reasons: Vec<(Arc<str>, usize)>,
}

const MOST_NAMED: usize = 5;
/// Nodes that are asked at least, as far as they have changed: so many answer in a fraction of a millisecond. If they
/// know no place for the pod all are asked, before anybody is told that there is none.
const AT_LEAST: usize = 1_000;
/// Nodes that say why.
const SAMPLE: usize = 16;

// === impl Index ===

impl Index {
    /// What a pod may expect. What nodes answered before is used again; a shape of pods that is new costs the most.
    pub fn outlook(&self, question: &Question<'_>) -> Outlook {
        let board = self.boards.of(question);
        let mut board = unpoisoned(board.lock());
        let cordoned = self.cordoned();
        let (mut fitting, mut barred) = (Vec::new(), Vec::new());
        let mut asked = Vec::new();
        for most in [AT_LEAST, usize::MAX] {
            asked = {
                let table = unpoisoned(self.table.read());
                board.look_at_all(&table)
            };
            board.ask(question, most);
            if question.is_slow() {
                board.search(question, &asked, false, |place| unpoisoned(self.table.read()).node(place).cloned());
            }
            let score = |asked: &Asked| Some((*asked, board.rating(asked).score()?));
            (barred, fitting) =
                asked.iter().filter_map(score).partition(|(asked, _)| cordoned.contains(&asked.place()));
            if !fitting.is_empty() {
                break;
            }
        }
        let unknown = !asked.iter().all(|asked| board.rating(asked).is_final());
        drop(board);
        if !fitting.is_empty() {
            let best = self.names(&best_of(fitting));
            return Outlook { now: Some(true), ever: true, best, nodes: asked.len(), ..Outlook::default() };
        }
        let nodes = asked.len();
        let step = (asked.len() / SAMPLE).max(1);
        let sample: Vec<Asked> = asked.into_iter().step_by(step).collect();
        Outlook {
            now: (!unknown).then_some(false),
            ever: self.representatives().iter().any(|node| could_ever(node, question)),
            best: Vec::new(),
            nodes,
            asked: sample.len(),
            reasons: self.grouped_reasons(question, &sample, barred.len()),
        }
    }

    fn names(&self, asked: &[Asked]) -> Vec<Arc<str>> {
        self.take(asked).into_iter().map(|(_, node)| Arc::clone(&node.name)).collect()
    }

    fn grouped_reasons(&self, question: &Question<'_>, sample: &[Asked], cordoned: usize) -> Vec<(Arc<str>, usize)> {
        let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for reason in self.take(sample).iter().filter_map(|(_, node)| node.why_not(question)) {
            *counts.entry(reason).or_default() += 1;
        }
        let mut reasons: Vec<(Arc<str>, usize)> = counts.into_iter().collect();
        if cordoned > 0 {
            reasons.push(("has room, but is cordoned".into(), cordoned));
        }
        reasons.sort_by_key(|(_, count)| Reverse(*count));
        reasons
    }

    /// A node of each kind of hardware.
    fn representatives(&self) -> Vec<Arc<Node>> {
        let table = unpoisoned(self.table.read());
        let mut places: HashMap<u64, u32, foldhash::fast::RandomState> = HashMap::default();
        for (kind, place) in table.kinds() {
            places.entry(kind).or_insert(place);
        }
        places.into_values().filter_map(|place| table.node(place).cloned()).collect()
    }
}

fn best_of(mut fitting: Vec<(Asked, NodeScore)>) -> Vec<Asked> {
    let order = |(asked, score): &(Asked, NodeScore)| (Reverse(*score), asked.place());
    if fitting.len() > MOST_NAMED {
        fitting.select_nth_unstable_by_key(MOST_NAMED, order);
        fitting.truncate(MOST_NAMED);
    }
    fitting.sort_unstable_by_key(order);
    fitting.into_iter().map(|(asked, _)| asked).collect()
}

/// Whether the pod would fit if all of the node's cards were sound and free.
fn could_ever(node: &Node, question: &Question<'_>) -> bool {
    let free =
        |card: &Card| Card { healthy: true, held: Held::default(), free_slots: node.slots_per_card, ..card.clone() };
    let cards: Vec<Card> = node.cards.iter().map(free).collect();
    node.never(question.demand).is_none()
        && plan(&cards, &node.links, &question.demand.request(), &question.policies.cards).is_ok()
}
