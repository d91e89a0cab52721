//! What every node can hold: one small record a card, fed by watches, read without waiting.
//!
//! ```text
//! GpuNode ──report──▶ books ──node──▶ table ──view──▶ question ──▶ who fits, and how well
//! Pod ─────demand────▶  ▲ promise, settle                └─▶ board, for pods that take a search
//! ```
//!
//! The books are behind one lock for whoever changes them; readers take a view of the table, which never changes and which
//! they hold without a lock. No API object is kept.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, LockResult, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use divvy_api::annotation::Planned;
use divvy_api::gpunode::GpuNode;
use divvy_placement::{Grounds, Mix, NoPlan, NodeScore, plan};

use crate::appraiser::Appraiser;
use crate::bar::Bar;
use crate::board::{Asked, Boards, Rating, Until};
use crate::books::{Books, Touched};
use crate::demand::{Demand, Policies, Reading};
use crate::headline::Headlines;
use crate::learned::Learned;
use crate::node::Node;
use crate::outcome::{Outcome, Outcomes};
use crate::pod::PodView;
use crate::promise::{Promise, Source};
use crate::question::Question;
use crate::report::Unusable;
use crate::table::{Table, View};

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
    table: RwLock<Table>,
    pub(crate) boards: Boards,
    /// Locked by itself.
    pub(crate) appraiser: Mutex<Appraiser>,
    reading: Arc<Reading>,
    terms: Terms,
}

/// Most nodes of one answer whose reasons are told card by card. Among more, nearly each would have one of its own, and
/// an event of kube-scheduler ends after 1 024 characters.
const DETAILED: usize = 32;

/// Nodes that are asked in advance while a scheduler may wait for the lock, …
const ASKED_AT_ONCE: usize = 64;
/// … and those that are looked at further.
const LOOKED_AT_ONCE: usize = 2;

/// Nodes that were asked for, and what they answered.
#[derive(Debug, Default)]
pub struct Ranking {
    /// Where the pod fits, in the order of the names.
    pub fitting: Vec<(Asked, NodeScore)>,
    /// Where it doesn't, as far as that was found out; all such nodes if it fits nowhere.
    pub failing: Vec<Asked>,
    /// Positions of names that aren't known; a name that comes twice may be there twice.
    pub unknown: Vec<usize>,
}

/// Why a pod doesn't fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the names.
    pub name: usize,
    /// Card by card, or in a few words where many nodes are asked.
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
        Self { books, table: RwLock::default(), boards: Boards::default(), appraiser: Mutex::default(), reading, terms }
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

    /// A Node object was added or changed: it keeps pods away or doesn't, and has so many thousandths of CPU cores for
    /// them, as far as it says.
    pub fn apply_machine(&self, name: &str, bar: Option<Bar>, allocatable_cpu: Option<u32>) {
        self.change(|books| books.machine(name, allocatable_cpu));
        unpoisoned(self.table.write()).apply_machine(name, bar);
    }

    /// A Node object was deleted.
    pub fn delete_machine(&self, name: &str) {
        self.change(|books| books.machine(name, None));
        unpoisoned(self.table.write()).delete_machine(name);
    }

    /// Forgets Node objects that aren't among these, which are all that there are; from now on a node without one is gone.
    pub fn keep_machines(&self, names: &HashSet<String>) {
        self.change(|books| books.keep_machines(names));
        unpoisoned(self.table.write()).keep_machines(names);
    }

    /// Forgets nodes that aren't among these, which are all that there are.
    pub fn keep_nodes(&self, names: &HashSet<String>) {
        let known: Vec<Arc<str>> = unpoisoned(self.books.lock()).nodes().cloned().collect();
        known.iter().filter(|name| !names.contains(&***name)).for_each(|name| self.delete_node(name));
    }

    /// A pod was added or changed. Now and then those that have come change what is [expected](Self::expected).
    pub fn apply_pod(&self, pod: &PodView, now: Instant) {
        let expected = {
            let mut books = unpoisoned(self.books.lock());
            self.publish(&mut books, |books| books.pod(pod, now));
            books.expected.take()
        };
        if let Some(mix) = expected {
            self.expect(mix);
        }
    }

    /// From now on a list of pods is read beside the watch. Pods that the watch ends meanwhile stay ended.
    pub fn begin_list(&self) {
        unpoisoned(self.books.lock()).read_list(true);
    }

    /// That list shows this pod.
    pub fn apply_listed(&self, pod: &PodView, now: Instant) {
        self.change(|books| books.listed_pod(pod, now));
    }

    /// The list is read, or is given up.
    pub fn end_list(&self) {
        unpoisoned(self.books.lock()).read_list(false);
    }

    /// A pod was deleted.
    pub fn delete_pod(&self, uid: &str) {
        self.change(|books| books.end(uid, Some(Outcome::Ended)));
    }

    /// `least-fragmentation` keeps room for these requests from now on.
    pub fn expect(&self, mix: Mix) {
        unpoisoned(self.appraiser.lock()).expect(mix.into());
    }

    /// Asks nodes what they are worth to pods as have come before, where they have changed or other requests are expected
    /// since, so that the scheduler needn't wait for it. It takes up to a microsecond for each node and kind of pod; others
    /// are let through on the way.
    pub fn ask_in_advance(&self) {
        let view = self.view();
        let samples = unpoisoned(self.appraiser.lock()).samples(&view);
        if samples.is_empty() {
            return;
        }
        let nodes: Vec<Asked> = view.all().collect();
        for sample in samples {
            let policies = sample.policies(&self.reading);
            let question = Question::new(&sample, &policies);
            for some in nodes.chunks(ASKED_AT_ONCE) {
                unpoisoned(self.appraiser.lock()).ask(&question, &view, some);
            }
            let promising = unpoisoned(self.appraiser.lock()).promising(&question, &nodes);
            for some in promising.chunks(LOOKED_AT_ONCE) {
                unpoisoned(self.appraiser.lock()).look_further(&question, &view, some);
            }
        }
    }

    /// What was learned from the pods that have come; `None` as long as they are few.
    pub fn learned(&self) -> Option<Learned> {
        unpoisoned(self.books.lock()).learner.learned()
    }

    /// Goes on from what somebody else has learned.
    pub fn restore(&self, learned: Learned) {
        unpoisoned(self.books.lock()).learner.restore(&learned);
        self.expect(Mix { requests: learned.requests });
    }

    /// What is kept in the cluster has this revision now. It may be behind what has been learned here.
    pub fn kept(&self, revision: u64) {
        unpoisoned(self.books.lock()).learner.revision = revision;
    }

    /// What is expected.
    pub fn expected(&self) -> Arc<Mix> {
        Arc::clone(unpoisoned(self.appraiser.lock()).mix())
    }

    /// The revision of what is kept in the cluster, and how many pods were counted.
    pub fn learned_from(&self) -> (u64, u64) {
        let learner = &unpoisoned(self.books.lock()).learner;
        (learner.revision, learner.pods())
    }

    /// Pods that are known and haven't ended, by UID.
    pub fn pods(&self) -> HashSet<Arc<str>> {
        unpoisoned(self.books.lock()).pods().cloned().collect()
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
        let view = self.view();
        view.node(view.place(name)?).cloned()
    }

    /// All nodes, as they stand at one moment.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.view().nodes().cloned().collect()
    }

    /// Where a pod fits among nodes that are asked for by name, and how well. Each node comes once. Where not `all` are
    /// wanted, nodes whose plans are worse than others' may be left out.
    pub fn rank(&self, question: &Question<'_>, names: &[&str], all: bool) -> Ranking {
        let mut ranking = Ranking::default();
        let own = unpoisoned(self.books.lock()).promise_of(&question.demand.uid).map(|own| own.planned.node.clone());
        let view = self.view();
        let asked = view.look_up(names, |name| ranking.unknown.push(name));
        let own = own.and_then(|name| view.place(&name));
        let looks_ahead = question.looks_ahead(&self.expected());
        let appraised = |asked: &[Asked]| unpoisoned(self.appraiser.lock()).rank(question, &view, (asked, all), own);
        if looks_ahead && !question.takes_a_search() {
            ranking.fitting = appraised(&asked);
            if ranking.fitting.is_empty() {
                ranking.failing = asked;
            }
            return ranking;
        }
        if question.is_slow() {
            let board = self.boards.of(question);
            let mut board = unpoisoned(board.lock());
            board.ask(question, &view, &asked, usize::MAX);
            board.search(question, &view, &asked, if all { Until::AllAreFound } else { Until::SomeAreFound });
            ranking.sort(asked, |asked, _| match view.node(asked.place).filter(|_| own == Some(asked.place)) {
                Some(node) => question.rate_without_itself(node).map_or(Rating::Not, Rating::Is),
                None => board.rating(asked),
            });
        } else {
            ranking.sort(asked, |asked, best| {
                let score = match view.node(asked.place).filter(|_| own == Some(asked.place)) {
                    Some(node) => question.rate_without_itself(node),
                    None => question.rate_quickly(&view, asked.place, best.filter(|_| !all)),
                };
                score.map_or(Rating::Not, Rating::Is)
            });
            if !all && !ranking.fitting.is_empty() {
                ranking.failing.clear(); // some are only worse
            }
        }
        if looks_ahead {
            let found: Vec<Asked> = ranking.fitting.iter().map(|(asked, _)| *asked).collect();
            ranking.fitting = appraised(&found);
        }
        ranking
    }

    /// What these nodes, where the pod fits, are worth by what is expected; `None` if nothing is, or the policy doesn't
    /// look ahead. It is worked out anew: who explains doesn't keep the scheduler waiting.
    pub(crate) fn foresee(
        &self,
        question: &Question<'_>,
        view: &View,
        fitting: &[Asked],
    ) -> Option<Vec<(Asked, NodeScore)>> {
        let mix = Some(self.expected()).filter(|mix| question.looks_ahead(mix))?;
        let own = unpoisoned(self.books.lock()).promise_of(&question.demand.uid).map(|own| own.planned.node.clone());
        let mut appraiser = Appraiser::default();
        appraiser.expect(mix);
        Some(appraiser.rank(question, view, (fitting, true), own.and_then(|name| view.place(&name))))
    }

    /// Why the pod doesn't fit on these nodes, which are gone or have been asked.
    pub fn refusals(&self, question: &Question<'_>, asked: &[Asked]) -> Vec<Refusal> {
        let view = self.view();
        if asked.len() > DETAILED {
            let mut headlines = Headlines::default();
            let why_not = |asked: &Asked, node: &Node| headlines.why_not(question, &view, (asked.place, node));
            return refused(question, &view, asked, why_not);
        }
        let board = self.boards.of(question);
        let mut board = unpoisoned(board.lock());
        refused(question, &view, asked, |asked, node| board.why_not(question, asked, node))
    }

    /// All nodes, as they stand at one moment.
    pub(crate) fn view(&self) -> View {
        unpoisoned(self.table.read()).view().clone()
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
        let Policies { cards: policy, .. } = demand.policies(&self.reading);
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
        let nodes = touched.iter().filter_map(|name| books.node(name)).map(|node| {
            let cards = if node.closed.is_none() { &*node.cards } else { &[] };
            let grounds = Grounds::of(cards, &node.links);
            (node, grounds)
        });
        let nodes: Vec<(Node, Grounds)> = nodes.collect();
        if nodes.is_empty() {
            return;
        }
        let mut table = unpoisoned(self.table.write());
        table.know(books.hardware());
        for (node, grounds) in nodes {
            table.publish(node, grounds);
        }
    }
}

// === impl Ranking ===

impl Ranking {
    /// Takes over what each node is worth, which is asked with the best so far.
    fn sort(&mut self, asked: Vec<Asked>, mut rating: impl FnMut(&Asked, Option<&NodeScore>) -> Rating) {
        let mut best = None;
        for asked in asked {
            match rating(&asked, best.as_ref()) {
                Rating::Is(score) => {
                    best = best.max(Some(score));
                    self.fitting.push((asked, score));
                }
                Rating::Not => self.failing.push(asked),
                Rating::Unknown | Rating::AtBest(_) => {}
            }
        }
    }
}

/// Nodes that don't take the pod, each with what it says when it is asked.
fn refused(
    question: &Question<'_>,
    view: &View,
    asked: &[Asked],
    mut why_not: impl FnMut(&Asked, &Node) -> Option<Arc<str>>,
) -> Vec<Refusal> {
    let refusal = |asked: &Asked| {
        let node = view.node(asked.place)?;
        // What has changed since it was asked fails for now.
        let reason = why_not(asked, node).unwrap_or_else(|| "cards have just become free".into());
        Some(Refusal { name: asked.name, reason, by_eviction: node.may_be_cleared_for(question) })
    };
    asked.iter().filter_map(refusal).collect()
}

/// What a lock guards is never left half changed, so a panic elsewhere is no reason to stop answering.
pub(crate) fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
