//! What every node can hold: one small record a card, fed by watches, read without waiting.
//!
//! ```text
//! GpuNode ──report──▶ books ──node──▶ table ──look_up──▶ board ──▶ who fits, and how well
//! Pod ─────demand────▶  ▲ promise, settle                  (one a shape of pods; asks only nodes that changed)
//! ```
//!
//! The books are behind one lock for whoever changes them; readers take nodes that are never changed, from a table that
//! is locked for the microseconds of a lookup. No API object is kept.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, LockResult, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use divvy_contract::annotation::Planned;
use divvy_contract::gpunode::GpuNode;
use divvy_placement::{NoPlan, NodeScore, plan};

use crate::board::{Asked, Boards, Rating};
use crate::books::{Books, Touched};
use crate::demand::{Demand, Policies, Reading};
use crate::node::Node;
use crate::outcome::{Outcome, Outcomes};
use crate::pod::PodView;
use crate::promise::{Promise, Source};
use crate::question::Question;
use crate::report::Unusable;
use crate::table::Table;

/// How long promises live of which nothing is heard.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// From a plan to the API server's word that the pod is bound.
    pub bound_within: Duration,
    /// From there to the node's report.
    pub reported_within: Duration,
}

/// Shared by all who ask and all who report.
#[derive(Debug)]
pub struct Index {
    /// Locked before the table, never after.
    books: Mutex<Books>,
    pub(crate) table: RwLock<Table>,
    pub(crate) boards: Boards,
    /// Nodes whose Node object says `unschedulable`.
    cordoned: RwLock<BTreeSet<String>>,
    reading: Arc<Reading>,
    terms: Terms,
}

/// Nodes that were asked for, and what they answered.
#[derive(Debug, Default)]
pub struct Ranking {
    /// Where the pod fits, in the order of the names.
    pub fitting: Vec<(Asked, NodeScore)>,
    /// Where it doesn't.
    pub failing: Vec<Asked>,
    /// Positions of names that aren't known; a name that comes twice may be there twice.
    pub unknown: Vec<usize>,
}

/// Why a pod doesn't fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the names.
    pub name: usize,
    /// Card by card.
    pub reason: Arc<str>,
    /// It would fit if the pods of lower priority were gone.
    pub by_eviction: bool,
}

/// Why a pod gets no promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpromised {
    /// Nothing was heard of the node.
    #[error("node {0} has no GpuNode: divvy-node doesn't run there, or hasn't reported yet")]
    UnknownNode(String),
    /// The node takes no such pods.
    #[error("node {node}: {reason}")]
    Refused {
        /// The node.
        node: String,
        /// Its words.
        reason: Arc<str>,
    },
    /// The pod is bound already.
    #[error("the pod is bound to node {0} already")]
    Bound(String),
    /// The pod has been given cards already.
    #[error("the pod has been given cards already")]
    Settled,
    /// No cards.
    #[error("node {node}: {source}")]
    NoPlan {
        /// The node.
        node: String,
        /// What placement says.
        source: NoPlan,
    },
}

// === impl Terms ===

impl Default for Terms {
    fn default() -> Self {
        Self { bound_within: Duration::from_secs(30), reported_within: Duration::from_secs(600) }
    }
}

// === impl Index ===

impl Index {
    /// An index that knows nothing.
    pub fn new(reading: Reading, terms: Terms) -> Self {
        let reading = Arc::new(reading);
        let books = Mutex::new(Books::new(Arc::clone(&reading), terms));
        let (table, boards, cordoned) = (RwLock::default(), Boards::default(), RwLock::default());
        Self { books, table, boards, cordoned, reading, terms }
    }

    /// How pods are read and compared.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// A node's report was added or changed.
    pub fn apply_node(&self, name: &str, node: &GpuNode) {
        self.change(|books| books.report(name, Ok(node)));
    }

    /// A node's report was added or changed and can't be decoded. The node takes no pods until it can.
    pub fn apply_unreadable(&self, name: &str, problem: &str) {
        self.change(|books| books.report(name, Err(Unusable::Unreadable(problem.to_owned()))));
    }

    /// A node's report was deleted.
    pub fn delete_node(&self, name: &str) {
        let mut books = unpoisoned(self.books.lock());
        books.forget_node(name);
        unpoisoned(self.table.write()).withdraw(name);
    }

    /// Whether a node is cordoned. That is between the scheduler and the pod, so the extender doesn't care; nobody is told
    /// that there is room on one.
    pub fn cordon(&self, name: &str, is_cordoned: bool) {
        let mut cordoned = unpoisoned(self.cordoned.write());
        if is_cordoned {
            cordoned.insert(name.to_owned());
        } else {
            cordoned.remove(name);
        }
    }

    /// Forgets cordons of nodes that aren't among these, which are all that there are.
    pub fn keep_cordons(&self, names: &HashSet<String>) {
        unpoisoned(self.cordoned.write()).retain(|name| names.contains(name));
    }

    /// Forgets nodes that aren't among these, which are all that there are.
    pub fn keep_nodes(&self, names: &HashSet<String>) {
        let known: Vec<Arc<str>> = unpoisoned(self.books.lock()).nodes().cloned().collect();
        known.iter().filter(|name| !names.contains(&***name)).for_each(|name| self.delete_node(name));
    }

    /// A pod was added or changed.
    pub fn apply_pod(&self, pod: &PodView, now: Instant) {
        self.change(|books| books.pod(pod, now));
    }

    /// A pod was deleted.
    pub fn delete_pod(&self, uid: &str) {
        self.change(|books| books.end(uid, Some(Outcome::Refused)));
    }

    /// Forgets pods that aren't among these UIDs, which are all that there are.
    pub fn keep_pods(&self, uids: &HashSet<String>) {
        let known: Vec<Arc<str>> = unpoisoned(self.books.lock()).pods().cloned().collect();
        known.iter().filter(|uid| !uids.contains(&***uid)).for_each(|uid| self.delete_pod(uid));
    }

    /// Pods that wait for a node.
    pub fn waiting(&self) -> Vec<Arc<Demand>> {
        unpoisoned(self.books.lock()).waiting().cloned().collect()
    }

    /// Gives up promises of which nothing was heard in time.
    pub fn expire(&self, now: Instant) {
        self.change(|books| books.expire(now));
    }

    /// How promises came out.
    pub fn outcomes(&self) -> Outcomes {
        unpoisoned(self.books.lock()).outcomes
    }

    /// Pods with a promise, by UID, with their node.
    pub fn promised(&self) -> Vec<(Arc<str>, String)> {
        unpoisoned(self.books.lock()).promises().map(|(uid, promise)| (uid, promise.planned.node.clone())).collect()
    }

    /// What a pod asks for that isn't on a node yet.
    pub fn demand(&self, uid: &str) -> Option<Arc<Demand>> {
        unpoisoned(self.books.lock()).demand(uid).cloned()
    }

    /// The node, as it stands.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        let table = unpoisoned(self.table.read());
        table.node(table.place(name)?).cloned()
    }

    /// All nodes, as they stand at one moment.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        unpoisoned(self.table.read()).nodes().cloned().collect()
    }

    /// Where a pod fits among nodes that are asked for by name, and how well. Each node comes once. Where that takes a
    /// search and not `all` are wanted, nodes that promise less may be left out, if there are others.
    pub fn rank(&self, question: &Question<'_>, names: &[&str], all: bool) -> Ranking {
        let mut ranking = Ranking::default();
        let board = self.boards.of(question);
        let mut board = unpoisoned(board.lock());
        let own = unpoisoned(self.books.lock()).promise_of(&question.demand.uid).map(|own| own.planned.node.clone());
        let (asked, own) = {
            let table = unpoisoned(self.table.read());
            let asked = board.look_up(&table, names, |name| ranking.unknown.push(name));
            let own = own.and_then(|name| table.place(&name));
            (asked, own.and_then(|place| Some((place, Arc::clone(table.node(place)?)))))
        };
        board.ask(question, usize::MAX);
        if question.is_slow() {
            board.search(question, &asked, all, |place| unpoisoned(self.table.read()).node(place).cloned());
        }
        for asked in asked {
            let rating = match &own {
                Some((place, node)) if *place == asked.place => {
                    question.rate_without_itself(node).map_or(Rating::Not, Rating::Is)
                }
                _ => board.rating(&asked),
            };
            match rating {
                Rating::Is(score) => ranking.fitting.push((asked, score)),
                Rating::Not => ranking.failing.push(asked),
                Rating::Unknown | Rating::AtBest(_) => {}
            }
        }
        ranking
    }

    /// Why the pod doesn't fit on these nodes, which are gone or have been asked.
    pub fn refusals(&self, question: &Question<'_>, asked: &[Asked]) -> Vec<Refusal> {
        let board = self.boards.of(question);
        let mut board = unpoisoned(board.lock());
        let nodes = self.take(asked).into_iter();
        let refusal = |(asked, node): (Asked, Arc<Node>)| {
            // What has changed since it was asked fails for now.
            let reason = board.why_not(question, &asked, &node).unwrap_or_else(|| "cards have just become free".into());
            Refusal { name: asked.name, reason, by_eviction: node.may_be_cleared_for(question) }
        };
        nodes.map(refusal).collect()
    }

    /// Places of nodes that are cordoned.
    pub(crate) fn cordoned(&self) -> HashSet<u32> {
        let cordoned = unpoisoned(self.cordoned.read());
        if cordoned.is_empty() {
            return HashSet::new();
        }
        let table = unpoisoned(self.table.read());
        cordoned.iter().filter_map(|name| table.place(name)).collect()
    }

    /// The nodes as they stand now; those that are gone are left out.
    pub(crate) fn take(&self, asked: &[Asked]) -> Vec<(Asked, Arc<Node>)> {
        let table = unpoisoned(self.table.read());
        asked.iter().filter_map(|asked| Some((*asked, Arc::clone(table.node(asked.place)?)))).collect()
    }

    /// Plans the pod on a node and counts the plan as taken until the node shows it. Asked again, it answers the same.
    pub fn promise(&self, demand: &Arc<Demand>, name: &str, now: Instant) -> Result<Planned, Unpromised> {
        let mut books = unpoisoned(self.books.lock());
        if books.is_settled(&demand.uid) {
            return Err(Unpromised::Settled);
        }
        match books.promise_of(&demand.uid) {
            Some(promise) if promise.is_told() && promise.planned.node == name => return Ok(promise.planned.clone()),
            Some(promise) if promise.is_bound() => return Err(Unpromised::Bound(promise.planned.node.clone())),
            Some(_) => self.publish(&mut books, |books| books.failed(&demand.uid)),
            None => {}
        }
        let node = self.node(name).ok_or_else(|| Unpromised::UnknownNode(name.to_owned()))?;
        if let Some(reason) = node.refusal(demand) {
            return Err(Unpromised::Refused { node: name.to_owned(), reason });
        }
        let Policies { cards: policy, .. } = demand.policies(&self.reading.policy);
        let plan = plan(&node.cards, &node.links, &demand.request(), &policy)
            .map_err(|source| Unpromised::NoPlan { node: name.to_owned(), source })?;
        let (deadline, on) = (now + self.terms.bound_within, (&*node.cards, &plan));
        let promise = Promise::new(Source::Made, Arc::clone(demand), name, on, deadline);
        let planned = promise.planned.clone();
        self.publish(&mut books, |books| books.promise(&demand.uid, promise));
        Ok(planned)
    }

    /// The API server took the binding of a promise.
    pub fn committed(&self, uid: &str, now: Instant) {
        unpoisoned(self.books.lock()).committed(uid, now);
    }

    /// It didn't, and the pod isn't bound: the promise is void.
    pub fn failed(&self, uid: &str) {
        self.change(|books| books.failed(uid));
    }

    fn change(&self, change: impl FnOnce(&mut Books) -> Touched) {
        let mut books = unpoisoned(self.books.lock());
        self.publish(&mut books, change);
    }

    /// Changes the books and publishes what changed, before anybody else can change them.
    fn publish(&self, books: &mut Books, change: impl FnOnce(&mut Books) -> Touched) {
        let touched: BTreeSet<Arc<str>> = change(books);
        let nodes = touched.iter().filter_map(|name| books.node(name)).map(|node| (node.kind(), Arc::new(node)));
        let nodes: Vec<(u64, Arc<Node>)> = nodes.collect();
        if nodes.is_empty() {
            return;
        }
        let mut table = unpoisoned(self.table.write());
        for (kind, node) in nodes {
            table.publish(node, kind);
        }
    }
}

/// What a lock guards is never left half changed, so a panic elsewhere is no reason to stop answering.
pub(crate) fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
