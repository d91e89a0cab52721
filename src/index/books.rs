//! What the index knows, and the only place that changes it: reports of nodes, pods, and promises on top of the reports.

mod nomination;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use divvy_api::Tier;
use divvy_api::annotation::{self, Planned};
use divvy_api::gpunode::GpuNode;
use divvy_api::names::annotation::PLANNED;
use divvy_api::pod::PodSum;
use divvy_placement::{Hardware, Links, Mix, Taken};

use crate::common::Common;
use crate::demand::{Demand, Reading};
use crate::index::Terms;
use crate::learner::Learner;
use crate::node::{Holder, Node, hold};
use crate::outcome::{Outcome, Outcomes};
use crate::pod::PodView;
use crate::promise::{Promise, Source};
use crate::report::{Report, Reported, Unusable};
use crate::room::Rooms;

/// The state behind the published nodes.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) reading: Arc<Reading>,
    terms: Terms,
    reports: HashMap<Arc<str>, Result<Report, Unusable>>,
    /// Pods that ask for cards, by UID.
    pods: HashMap<Arc<str>, Pod>,
    /// UIDs of pods with a promise, by node.
    promised: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Pods that have ended since somebody began to read a list of pods, which may show them still.
    ended: Option<BTreeSet<Arc<str>>>,
    common: Common,
    rooms: Rooms,
    pub(crate) learner: Learner,
    /// What is expected from now on, until it is taken.
    pub(crate) expected: Option<Mix>,
    pub(crate) outcomes: Outcomes,
    revision: u64,
}

/// A pod that asks for cards and hasn't ended.
#[derive(Debug)]
struct Pod {
    priority: i32,
    state: State,
}

/// How far a pod has come.
#[derive(Debug)]
enum State {
    /// Not bound, as far as is known.
    Waiting(Arc<Demand>),
    /// Bound or about to be, and not in its node's ledger.
    Promised(Box<Promise>),
    /// Its node's affair.
    Settled,
}

/// Nodes that have to be published anew.
pub(crate) type Touched = BTreeSet<Arc<str>>;

// === impl Books ===

impl Books {
    pub(crate) fn new(reading: Arc<Reading>, terms: Terms) -> Self {
        Self {
            reading,
            terms,
            reports: HashMap::new(),
            pods: HashMap::new(),
            promised: HashMap::new(),
            ended: None,
            common: Common::default(),
            rooms: Rooms::default(),
            learner: Learner::default(),
            expected: None,
            outcomes: Outcomes::default(),
            revision: 0,
        }
    }

    /// Takes over what a node reports.
    pub(crate) fn report(&mut self, name: &str, node: Result<&GpuNode, Unusable>) -> Touched {
        let report = node.and_then(|node| Report::read(node, &self.reading, &mut self.common));
        let name: Arc<str> = self.reports.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        self.reports.insert(Arc::clone(&name), report);
        let promised: Vec<Arc<str>> = self.promised.get(&name).into_iter().flatten().cloned().collect();
        for uid in &promised {
            self.settle(uid, &name);
        }
        self.keep_rooms(&name, &promised);
        [name].into()
    }

    /// Takes over what a machine has for pods, in thousandths of CPU cores.
    pub(crate) fn machine(&mut self, name: &str, allocatable_cpu: Option<u32>) -> Touched {
        let has_changed = self.rooms.machine(name, allocatable_cpu);
        self.known_node(name).filter(|_| has_changed).into_iter().collect()
    }

    /// There are no other machines than these.
    pub(crate) fn keep_machines(&mut self, names: &HashSet<String>) -> Touched {
        let gone = self.rooms.machines().filter(|name| !names.contains(*name));
        let gone: Vec<String> = gone.cloned().collect();
        gone.iter().flat_map(|name| self.machine(name, None)).collect()
    }

    /// Kinds of cards, by number.
    pub(crate) fn hardware(&self) -> &[Hardware] {
        self.common.hardware()
    }

    pub(crate) fn forget_node(&mut self, name: &str) {
        self.reports.remove(name);
    }

    /// A list of pods is read from now on, or no longer.
    pub(crate) fn read_list(&mut self, is_read: bool) {
        self.ended = is_read.then(BTreeSet::new);
    }

    /// Takes over a pod of that list, unless it is known to have ended since.
    pub(crate) fn listed_pod(&mut self, pod: &PodView, now: Instant) -> Touched {
        let has_ended = self.ended.as_ref().is_some_and(|ended| ended.contains(pod.uid.as_str()));
        if has_ended { Touched::new() } else { self.pod(pod, now) }
    }

    /// Takes over a pod as the API server has it.
    pub(crate) fn pod(&mut self, pod: &PodView, now: Instant) -> Touched {
        if pod.ended {
            return self.end(&pod.uid, Some(Outcome::Ended));
        }
        let Ok(Some(demand)) = Demand::of(pod, &self.reading) else {
            let mut touched = self.forget(&pod.uid, None);
            let uid = pod.uid.as_str().into();
            touched.extend(pod.node.iter().flat_map(|node| self.move_in(&uid, node, pod.cpu_milli)));
            return touched;
        };
        let uid = Arc::clone(&demand.uid);
        let mut touched = Touched::new();
        touched.extend(pod.node.iter().flat_map(|node| self.move_in(&uid, node, pod.cpu_milli)));
        let before = self.pods.get(&uid).map(|pod| pod.priority);
        if before.is_none() {
            self.expected = self.learner.learn(&demand).or_else(|| self.expected.take());
        }
        if let (Some(node), true) = (&pod.node, before != Some(demand.priority)) {
            touched.extend(self.known_node(node));
        }
        self.pods
            .entry(Arc::clone(&uid))
            .and_modify(|known| known.priority = demand.priority)
            .or_insert_with(|| Pod { priority: demand.priority, state: State::Waiting(Arc::new(demand.clone())) });
        match &pod.node {
            Some(node) => touched.extend(self.bound(&uid, node, pod, demand, now)),
            None => touched.extend(self.unbound(&uid, pod.nominated.as_deref(), demand, now)),
        }
        touched
    }

    fn bound(&mut self, uid: &Arc<str>, node: &str, pod: &PodView, demand: Demand, now: Instant) -> Touched {
        let mut touched = Touched::new();
        let deadline = now + self.terms.reported_within;
        let planned = || pod.annotations.get(PLANNED).and_then(|text| annotation::decode::<Planned>(text).ok());
        let state = self.pods.get_mut(uid).map(|pod| &mut pod.state);
        match state {
            Some(State::Promised(promise)) if promise.is_told() && promise.planned.node == node => {
                if !promise.bound {
                    (promise.bound, promise.deadline) = (true, deadline);
                }
            }
            Some(state @ (State::Promised(_) | State::Waiting(_))) => {
                let before = std::mem::replace(state, State::Settled);
                if let State::Promised(elsewhere) = before {
                    touched.extend(self.unlist(uid, &elsewhere.planned.node));
                }
                if let Some(planned) = planned().filter(|planned| planned.node == node) {
                    let promise =
                        Promise { demand: Arc::new(demand), planned, source: Source::Read, bound: true, deadline };
                    touched.extend(self.promise(uid, promise));
                }
            }
            Some(State::Settled) | None => {}
        }
        touched.extend(self.settle(uid, node));
        touched
    }

    /// The pod is gone.
    pub(crate) fn end(&mut self, uid: &str, outcome: Option<Outcome>) -> Touched {
        if let Some(ended) = &mut self.ended {
            ended.insert(uid.into());
        }
        let mut touched = self.forget(uid, outcome);
        touched.extend(self.move_out(uid));
        touched
    }

    /// The pod requests CPU of a node from now on.
    fn move_in(&mut self, uid: &Arc<str>, node: &str, cpu_milli: u32) -> Touched {
        let nodes = self.rooms.come(uid, node, cpu_milli);
        nodes.iter().filter_map(|node| self.known_node(node)).collect()
    }

    fn move_out(&mut self, uid: &str) -> Option<Arc<str>> {
        self.rooms.go(uid).and_then(|node| self.known_node(&node))
    }

    /// The pod holds no cards, and never will.
    fn forget(&mut self, uid: &str, outcome: Option<Outcome>) -> Touched {
        let Some((uid, pod)) = self.pods.remove_entry(uid) else { return Touched::new() };
        let State::Promised(promise) = pod.state else { return Touched::new() };
        outcome.filter(|_| promise.source == Source::Made).into_iter().for_each(|outcome| self.outcomes.count(outcome));
        self.unlist(&uid, &promise.planned.node)
    }

    /// What a pod asks for, if it waits or has a promise that isn't kept yet.
    pub(crate) fn demand(&self, uid: &str) -> Option<&Arc<Demand>> {
        match &self.pods.get(uid)?.state {
            State::Waiting(demand) => Some(demand),
            State::Promised(promise) => Some(&promise.demand),
            State::Settled => None,
        }
    }

    pub(crate) fn promise_of(&self, uid: &str) -> Option<&Promise> {
        match &self.pods.get(uid)?.state {
            State::Promised(promise) => Some(promise),
            State::Waiting(_) | State::Settled => None,
        }
    }

    /// Pods that aren't bound, as far as is known.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Arc<Demand>> {
        self.pods.values().filter_map(|pod| match &pod.state {
            State::Waiting(demand) => Some(demand),
            State::Promised(_) | State::Settled => None,
        })
    }

    /// Pods that haven't ended: those that ask for cards, and all that are on nodes.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pods.keys().chain(self.rooms.tenants())
    }

    /// Nodes that have reported.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.reports.keys()
    }

    /// What pods were told.
    pub(crate) fn promises(&self) -> impl Iterator<Item = (Arc<str>, &Promise)> {
        let all = self.promised.values().flatten();
        all.filter_map(|uid| Some((Arc::clone(uid), self.promise_of(uid).filter(|promise| promise.is_told())?)))
    }

    /// Whether the pod has been seen on a node.
    pub(crate) fn is_settled(&self, uid: &str) -> bool {
        matches!(self.pods.get(uid), Some(Pod { state: State::Settled, .. }))
    }

    pub(crate) fn promise(&mut self, uid: &Arc<str>, promise: Promise) -> Touched {
        let node = self.known_node(&promise.planned.node).unwrap_or_else(|| promise.planned.node.as_str().into());
        let priority = promise.demand.priority;
        let mut touched = self.move_in(uid, &node, promise.demand.cpu_milli);
        self.promised.entry(Arc::clone(&node)).or_default().insert(Arc::clone(uid));
        self.pods.insert(Arc::clone(uid), Pod { priority, state: State::Promised(Box::new(promise)) });
        touched.insert(node);
        touched
    }

    /// The API server took the binding.
    pub(crate) fn committed(&mut self, uid: &str, now: Instant) {
        let deadline = now + self.terms.reported_within;
        if let Some(Pod { state: State::Promised(promise), .. }) = self.pods.get_mut(uid)
            && !promise.bound
        {
            (promise.bound, promise.deadline) = (true, deadline);
        }
    }

    /// The binding failed; unless the pod is bound after all, it waits again.
    pub(crate) fn failed(&mut self, uid: &str) -> Touched {
        let Some(promise) = self.promise_of(uid).filter(|promise| !promise.bound) else { return Touched::new() };
        let (demand, node) = (Arc::clone(&promise.demand), promise.planned.node.clone());
        let uid = Arc::clone(&demand.uid);
        self.pods.insert(Arc::clone(&uid), Pod { priority: demand.priority, state: State::Waiting(demand) });
        self.move_out(&uid);
        self.unlist(&uid, &node)
    }

    /// Gives up promises of which nothing was heard.
    pub(crate) fn expire(&mut self, now: Instant) -> Touched {
        let mut touched = Touched::new();
        let promised: Vec<Arc<str>> = self.promised.values().flatten().cloned().collect();
        for uid in promised {
            let Some(promise) = self.promise_of(&uid).filter(|promise| promise.deadline <= now) else { continue };
            let (node, demand) = (promise.planned.node.clone(), Arc::clone(&promise.demand));
            let (source, priority) = (promise.source, demand.priority);
            let state = if promise.bound { State::Settled } else { State::Waiting(demand) };
            if matches!(state, State::Waiting(_)) {
                self.move_out(&uid);
            }
            self.pods.insert(Arc::clone(&uid), Pod { priority, state });
            if source == Source::Made {
                self.outcomes.count(Outcome::Expired);
            }
            touched.extend(self.unlist(&uid, &node));
        }
        touched
    }

    /// Ends a promise that the node's ledger shows in full.
    fn settle(&mut self, uid: &Arc<str>, node: &str) -> Touched {
        let Some(promise) = self.promise_of(uid) else { return Touched::new() };
        let Some(Ok(report)) = self.reports.get(node) else { return Touched::new() };
        let in_full = |shown: &&Reported| shown.containers >= promise.demand.claiming();
        let Some(shown) = report.pod(uid).filter(in_full) else { return Touched::new() };
        let is_kept = shown.on.iter().all(|taken| promise.names(&report.cards[taken.card].id));
        let outcome = if is_kept { Outcome::Kept } else { Outcome::Moved };
        if promise.source == Source::Made {
            self.outcomes.count(outcome);
        }
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.state = State::Settled;
        }
        self.unlist(uid, node)
    }

    fn unlist(&mut self, uid: &Arc<str>, node: &str) -> Touched {
        if let Some((node, mut promised)) = self.promised.remove_entry(node) {
            promised.remove(uid);
            if !promised.is_empty() {
                self.promised.insert(Arc::clone(&node), promised);
            }
        }
        self.known_node(node).into_iter().collect()
    }

    fn known_node(&self, name: &str) -> Option<Arc<str>> {
        self.reports.get_key_value(name).map(|(name, _)| Arc::clone(name))
    }

    /// The node as readers are to see it; `None` if there is none.
    pub(crate) fn node(&mut self, name: &Arc<str>) -> Option<Node> {
        self.revision += 1;
        let (revision, slots_per_card) = (self.revision, self.reading.slots_per_card);
        let report = match self.reports.get(name)? {
            Ok(report) => report,
            Err(unusable) => return Some(unusable_node(name, unusable, revision)),
        };
        let holders = self.holders(name, report);
        let mut cards: Box<[_]> = report.cards.clone().into();
        hold(&mut cards, holders.iter().flat_map(|holder| holder.on.iter().copied()));
        Some(Node {
            name: Arc::clone(name),
            revision,
            cards,
            ailments: Arc::clone(&report.ailments),
            links: Arc::clone(&report.links),
            holders,
            closed: report.closed.clone(),
            tier: report.tier,
            cpu_milli: self.rooms.free(name),
            hardware: Arc::clone(&report.hardware),
            ledger_revision: report.ledger_revision,
            slots_per_card,
        })
    }

    /// The pods of the ledger and those with a promise. A pod that the ledger shows in part may still get all that it was
    /// promised: it takes whichever is more.
    fn holders(&self, name: &Arc<str>, report: &Report) -> Box<[Holder]> {
        let mut promised: BTreeMap<&Arc<str>, Vec<Taken>> = BTreeMap::new();
        for uid in self.promised.get(name).into_iter().flatten() {
            let takes = self.promise_of(uid).and_then(|promise| promise.takes(&report.cards));
            promised.insert(uid, takes.unwrap_or_default());
        }
        let holder = |uid: &Arc<str>, on| Holder {
            uid: Arc::clone(uid),
            priority: self.pods.get(uid).map_or(i32::MAX, |pod| pod.priority),
            is_nominated: self.promise_of(uid).is_some_and(|promise| !promise.is_told()),
            on,
        };
        let in_ledger = report.pods.iter().map(|Reported { uid, on, .. }| {
            let on = promised.remove(uid).map_or_else(|| on.clone(), |promised| either(on, &promised));
            holder(uid, on)
        });
        let mut holders: Vec<Holder> = in_ledger.collect();
        let rest = promised.into_iter().filter(|(_, on)| !on.is_empty());
        holders.extend(rest.map(|(uid, on)| holder(uid, on.into())));
        holders.into()
    }
}

fn unusable_node(name: &Arc<str>, unusable: &Unusable, revision: u64) -> Node {
    let links = Arc::new(Links::default());
    Node {
        name: Arc::clone(name),
        revision,
        cards: Box::default(),
        ailments: Arc::default(),
        links,
        holders: Box::default(),
        closed: Some(unusable.to_string().into()),
        tier: Tier::default(),
        cpu_milli: None,
        hardware: Arc::default(),
        ledger_revision: 0,
        slots_per_card: 0,
    }
}

/// Card by card the more of both.
fn either(one: &[Taken], other: &[Taken]) -> Box<[Taken]> {
    let mut taken: BTreeMap<usize, Taken> = one.iter().map(|taken| (taken.card, *taken)).collect();
    for more in other {
        let known = taken.entry(more.card).or_insert(*more);
        (known.share, known.slots) = (known.share.max(more.share), known.slots.max(more.slots));
    }
    taken.into_values().collect()
}
