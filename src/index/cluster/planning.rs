//! Nodes for waiting pods, chosen before their scheduler sees them: by priority, then age, and a pod that finds no room keeps
//! nobody else back.
//!
//! Equal pods wait in one [line](crate::state::Parked). A line that finds no room is left alone until a node has gained what
//! one of its pods could use, so that it costs nothing meanwhile.

use std::collections::{BTreeMap, HashSet};
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::annotation::Planned;
use divvy_api::config::DEFAULT_SCHEDULER;

use super::Index;
use super::preemption::Victim;
use crate::demand::Demand;
use crate::fit::Query;
use crate::nodes::{Node, NodeRef, View};
use crate::pod_group::PodGroupApi;
use crate::ranking::shortlist;
use crate::state::{Due, NotReserved, Parked, Source, Start, Touched};

/// What is to be written of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Node to nominate, and a plan that goes with the gate.
    Place {
        /// The pod.
        demand: Arc<Demand>,
        /// Plan for which GPUs are reserved.
        planned: Planned,
    },
    /// Pods of lower priority are evicted for it; then it is planned.
    Evict {
        /// The pod.
        demand: Arc<Demand>,
        /// The node where that makes room.
        node: Arc<str>,
        /// Which.
        victims: Vec<Victim>,
    },
    /// Gate to remove without a plan: no node could hold the pod even by sums, so that an autoscaler has to see it, or nobody here
    /// is to plan it.
    LetGo {
        /// UID of the pod.
        uid: Arc<str>,
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        name: String,
    },
    /// Nomination to take back: the pod's scheduler had no use of it, and its GPUs are no longer reserved.
    Withdraw {
        /// The pod.
        demand: Arc<Demand>,
    },
}

/// Where a pod finds no room.
#[derive(Debug)]
struct Nowhere {
    by_quota: bool,
    /// A node that has what it requests in sum, if one has.
    sufficient: Option<Arc<str>>,
}

/// How long no node has had what pods request, before autoscalers are to see them: usually other pods end meanwhile.
pub(super) const LACKING_FOR: Duration = Duration::from_secs(10);
/// How long before a gate goes it is looked again whether no node has the sums: looks are a second apart.
const LAST_LOOK: Duration = Duration::from_secs(2);
/// How often another node is tried for a pod whose node was taken meanwhile.
const ATTEMPTS: usize = 3;

// === impl Index ===

impl Index {
    /// Plans pods until there are about so many steps, or `patience` is over, and reserves GPUs for those that have a place.
    /// `busy` are pods of earlier steps that are being written. Returns whether there is more to plan now.
    pub fn plan(&self, most: usize, patience: Duration, busy: &HashSet<Arc<str>>, now: Instant) -> (Vec<Step>, bool) {
        self.rouse(now);
        self.resume_preemptors();
        self.wake_lines();
        let mut steps = Vec::new();
        let mut is_more = true;
        let until = Instant::now() + patience;
        while steps.len() < most && Instant::now() < until {
            let Some(line) = self.state().queue.first() else {
                is_more = false;
                break;
            };
            steps.extend(self.plan_line(line, (most - steps.len(), until), now));
        }
        self.look_for_sums(now);
        steps.extend(self.let_go(most.saturating_sub(steps.len()), busy, now));
        (steps, is_more)
    }

    /// Has pods tried again that have been left alone long enough. Where that changes nothing, the planner isn't woken.
    fn rouse(&self, now: Instant) {
        let mut state = self.state();
        let touched = state.rouse(now);
        if !touched.is_empty() {
            state.publish(touched);
        }
    }

    /// Pods that wait with our gate and no other: it is the planner's turn.
    pub fn gated(&self) -> usize {
        self.state().waiting().filter(|demand| demand.scheduling.is_ours()).count()
    }

    /// Whether a pod waits to be planned.
    pub fn is_queued(&self, uid: &str) -> bool {
        self.state().is_queued(uid)
    }

    /// The gate of a pod is gone.
    pub fn ungated(&self, uid: &str) {
        self.change(|state| state.ungated(uid));
    }

    /// The gate of a pod is gone, and its scheduler sees its nominated node: the reservation lasts until the pod is bound, or
    /// until the watch shows that it is nominated no more.
    pub fn nominated(&self, uid: &str, now: Instant) {
        self.state().nominated(uid, now);
    }

    /// Has lines tried again that may find room on nodes that have gained some.
    fn wake_lines(&self) {
        let (gained, relieved, parked) = {
            let mut state = self.state();
            let gained = std::mem::take(&mut state.gained);
            let relieved = std::mem::take(&mut state.quotas.gained);
            if gained.is_empty() && relieved.is_empty() {
                return;
            }
            let parked = state.queue.parked().map(|(line, parked)| (line, parked.clone()));
            (gained, relieved, parked.collect::<Vec<_>>())
        };
        let view = self.snapshot().view;
        let gained: Vec<(u32, &Arc<Node>)> = gained
            .iter()
            .filter_map(|name| {
                let place = view.place(name)?;
                Some((place, view.node(place)?))
            })
            .collect();
        let may_fit = |demand: &Arc<Demand>| {
            let query = Query::new(demand, &self.config);
            let fits = |place, node: &Node| node.takes(demand) && query.at_best(&view, place).is_some();
            gained.iter().any(|(place, node)| fits(*place, node) || self.may_preempt_on(&query, node))
        };
        let wakes = |parked: &Parked| {
            let is_relieved = |demand: &Arc<Demand>| parked.by_quota && relieved.contains(&*demand.namespace);
            parked.samples.iter().any(|demand| is_relieved(demand) || may_fit(demand))
        };
        for (line, _) in parked.iter().filter(|(_, parked)| wakes(parked)) {
            self.state().queue.wake(*line);
        }
    }

    /// Places of the first pod of a line, or of the pods that start together. A line without a place is parked.
    fn plan_line(&self, line: u64, limit: (usize, Instant), now: Instant) -> Vec<Step> {
        let (start, before) = {
            let state = self.state();
            (state.start(line), state.queue.group(line).map(|group| (Arc::clone(group), state.gangs.changes(group))))
        };
        let planned = match &start {
            Start::Pods(pods) => self.plan_some(pods, limit, now),
            Start::Together(due) => self.plan_together(due, now),
            Start::Waits(parked) => Err(parked.clone()),
        };
        planned.unwrap_or_else(|parked| {
            let mut state = self.state();
            // Members that were given back have a line of their own.
            let is_group = matches!(start, Start::Together(_));
            let line = before.as_ref().filter(|_| is_group).map_or(Some(line), |(group, _)| state.queue.line_of(group));
            // What has come or changed meanwhile of a group may be what it waits for.
            let has_changed = before.is_some_and(|(group, changes)| state.gangs.changes(&group) != changes);
            if let Some(line) = line.filter(|_| !has_changed) {
                state.queue.park(line, parked);
            }
            Vec::new()
        })
    }

    /// Places of those of these pods that find one, until there are enough or the time is over; of each class only one fails.
    pub(super) fn plan_some(
        &self,
        pods: &[Arc<Demand>],
        (most, until): (usize, Instant),
        now: Instant,
    ) -> Result<Vec<Step>, Parked> {
        let mut steps = Vec::new();
        let mut failed = HashSet::new();
        let mut parked = Parked::default();
        for demand in pods {
            if steps.len() >= most || !steps.is_empty() && Instant::now() >= until {
                return Ok(steps);
            }
            if !failed.is_empty() && failed.contains(&demand.class()) {
                continue;
            }
            match self.place(demand, now) {
                Ok(step) => steps.extend(step),
                Err(nowhere) => {
                    let evictions = self.preempt(demand, now);
                    if evictions.is_none() {
                        failed.insert(demand.class());
                        parked.add(demand, &nowhere, now);
                    }
                    steps.extend(evictions);
                }
            }
        }
        // A pod that has just ended, or that somebody has bound, says nothing of the others in its line.
        if steps.is_empty() && !parked.samples.is_empty() { Err(parked) } else { Ok(steps) }
    }

    /// Places of at least so many members of a group, or of none.
    pub(super) fn plan_together(&self, due: &Due, now: Instant) -> Result<Vec<Step>, Parked> {
        let Due { group, members, least, placed, .. } = due;
        let mut steps = Vec::new();
        let mut failures = 0;
        let mut parked = Parked::default();
        let mut failed = HashSet::new();
        let (before, holding) = {
            let state = self.state();
            (state.view().clone(), state.quotas.holding(&group.namespace))
        };
        for demand in members {
            // The others follow one by one.
            if steps.len() == *least || members.len() - failures < *least {
                break;
            }
            if !failed.is_empty() && failed.contains(&demand.class()) {
                failures += 1;
                continue;
            }
            match self.place(demand, now) {
                Ok(step) => {
                    failures += usize::from(step.is_none());
                    steps.extend(step);
                }
                Err(nowhere) => {
                    failed.insert(demand.class());
                    failures += 1;
                    parked.add(demand, &nowhere, now);
                }
            }
        }
        if steps.len() >= *least {
            return Ok(steps);
        }
        let mut state = self.state();
        // Nobody gains by what is given back, but by what others have given back meanwhile.
        let gained = state.gained.clone();
        let relieved = state.quotas.gained.clone();
        let touched: Touched = steps.iter().flat_map(|step| state.failed(step.uid())).collect();
        state.publish(touched.clone());
        let view_now = state.view().clone();
        state.gained = gained;
        state.quotas.gained = relieved;
        let has_gained = |name: &Arc<str>| {
            view_now.find(name).zip(before.find(name)).is_some_and(|(now, before)| now.has_gained(before))
        };
        state.gained.extend(touched.into_iter().filter(has_gained));
        if let Some(holding) = &holding {
            state.quotas.compare(holding);
        }
        let fit = placed + steps.len();
        let all = placed + least;
        let reason = format!("pod group {}: free GPUs for {fit} of {all} pods that start together", group.name);
        parked.reason = Some(reason.into());
        // A scheduler that knows no groups would start some without the others.
        let knows_groups = group.api == PodGroupApi::Kubernetes
            || members.first().is_some_and(|demand| demand.scheduling.scheduler != DEFAULT_SCHEDULER);
        if !knows_groups {
            (parked.lacking_since, parked.sufficient) = (None, None);
        }
        Err(parked)
    }

    /// The best node for a pod, where GPUs are reserved for it now.
    fn place(&self, demand: &Arc<Demand>, now: Instant) -> Result<Option<Step>, Nowhere> {
        let mut by_quota = false;
        let mut sufficient = None;
        for _ in 0..ATTEMPTS {
            let snapshot = self.snapshot_for(demand);
            by_quota |= !snapshot.exceeded().is_empty();
            let allowed = demand.avoiding(snapshot.exceeded());
            let query = Query::new(&allowed, &self.config);
            let view = &snapshot.view;
            let takes = |asked: &NodeRef| view.node(asked.place).is_some_and(|node| node.takes(demand));
            let nodes = || view.all().filter(takes).collect::<Vec<NodeRef>>();
            let mut ranking = snapshot.rank_near_first(&query, nodes(), false);
            if ranking.fitting.is_empty() && ranking.unrated > 0 {
                // No scheduler waits here, and a pod that is parked isn't tried again before something changes.
                ranking = snapshot.rank_near_first(&query, nodes(), true);
            }
            shortlist(&mut ranking.fitting, 1);
            let Some(best) = ranking.fitting.first().and_then(|(best, _)| view.node(best.place)) else {
                return Err(Nowhere { by_quota, sufficient: sufficient_in(view, slice::from_ref(demand)) });
            };
            let mut state = self.state();
            if !state.is_queued(&demand.uid) {
                return Ok(None); // it has just ended, or somebody has bound it
            }
            match state.plan_and_reserve(demand, &best.name, Source::Planned, now) {
                Ok(planned) => return Ok(Some(Step::Place { demand: Arc::clone(demand), planned })),
                Err(refused) => by_quota |= matches!(refused, NotReserved::Exceeded { .. }),
            }
            sufficient = Some(Arc::clone(&best.name));
        }
        Err(Nowhere { by_quota, sufficient })
    }

    /// Follows, once a second, what others take and leave of sums, for which no line is tried again.
    fn look_for_sums(&self, now: Instant) {
        let parked: Vec<(u64, Parked)> = {
            let mut state = self.state();
            if !state.queue.is_time_to_look(now) {
                return;
            }
            let is_gated = |parked: &Parked| parked.samples.iter().any(|demand| demand.scheduling.has_our_gate());
            // A node may have room for one member of a group, and not for all that start together.
            let is_single = |parked: &Parked| parked.reason.is_none();
            let is_soon_let_go = |parked: &Parked| parked.lacks_for(LACKING_FOR.saturating_sub(LAST_LOOK), now);
            let may_change =
                |parked: &Parked| parked.sufficient.is_some() || is_single(parked) && is_soon_let_go(parked);
            let parked = state.queue.parked().filter(|(_, parked)| is_gated(parked) && may_change(parked));
            parked.map(|(line, parked)| (line, parked.clone())).collect()
        };
        let view = self.snapshot().view;
        for (line, Parked { samples, sufficient, .. }) in parked {
            let known = sufficient.as_ref().and_then(|name| view.node(view.place(name)?));
            if !known.is_some_and(|node| samples.iter().any(|demand| node.takes(demand))) {
                self.state().queue.found_sums(line, sufficient_in(&view, &samples), now);
            }
        }
    }

    /// Gates to remove of pods that no node has had room for even in sum for a while, and of those that aren't to be planned.
    fn let_go(&self, most: usize, busy: &HashSet<Arc<str>>, now: Instant) -> Vec<Step> {
        let state = self.state();
        let is_over = |parked: &Parked| parked.lacks_for(LACKING_FOR, now);
        let is_gated = |demand: &&Arc<Demand>| demand.scheduling.has_our_gate();
        let pods = |line| state.queue.pods(line).filter_map(|uid| state.demand(uid));
        // Of equal pods all are gated, or none.
        let may_be_gated =
            |line: &u64| state.queue.group(*line).is_some() || pods(*line).take(1).any(|pod| is_gated(&pod));
        let lines = state.queue.parked().filter(|(_, parked)| is_over(parked)).map(|(line, _)| line);
        let gated = lines.filter(may_be_gated).flat_map(pods).filter(is_gated).map(|demand| Step::let_go(demand));
        let let_go = gated.chain(astray(&state.astray)).filter(|step| !state.queue.rests(step.uid(), now));
        let in_vain = state.in_vain.iter().filter(|(_, vain)| vain.next.is_none_or(|next| next <= now));
        let in_vain = in_vain.filter_map(|(uid, _)| state.waits(uid)).filter(|demand| state.is_in_vain(demand));
        let withdrawn = in_vain.map(|demand| Step::Withdraw { demand: Arc::clone(demand) });
        withdrawn.chain(let_go).filter(|step| !busy.contains(step.uid())).take(most).collect()
    }
}

/// A node that has what one of the pods requests in sum.
fn sufficient_in(view: &View, pods: &[Arc<Demand>]) -> Option<Arc<str>> {
    let mut nodes = view.all().filter_map(|asked| view.node(asked.place));
    nodes.find(|node| pods.iter().any(|demand| node.takes(demand))).map(|node| Arc::clone(&node.name))
}

fn astray(pods: &BTreeMap<Arc<str>, (String, String)>) -> impl Iterator<Item = Step> {
    pods.iter().map(|(uid, (namespace, name))| Step::LetGo {
        uid: Arc::clone(uid),
        namespace: namespace.clone(),
        name: name.clone(),
    })
}

// === impl Step ===

impl Step {
    /// UID of the pod.
    pub fn uid(&self) -> &Arc<str> {
        match self {
            Self::Place { demand, .. } | Self::Evict { demand, .. } | Self::Withdraw { demand } => &demand.uid,
            Self::LetGo { uid, .. } => uid,
        }
    }

    fn let_go(demand: &Demand) -> Self {
        let Demand { uid, namespace, name, .. } = demand;
        Self::LetGo { uid: Arc::clone(uid), namespace: namespace.clone(), name: name.clone() }
    }
}

// === impl Parked ===

impl Parked {
    fn add(&mut self, demand: &Arc<Demand>, nowhere: &Nowhere, now: Instant) {
        self.by_quota |= nowhere.by_quota;
        self.sufficient = self.sufficient.take().or_else(|| nowhere.sufficient.clone());
        self.lacking_since = if self.sufficient.is_none() { Some(now) } else { None };
        self.samples.push(Arc::clone(demand));
    }

    /// Whether no node has had what the pods request even in sum for so long.
    fn lacks_for(&self, time: Duration, now: Instant) -> bool {
        self.lacking_since.is_some_and(|since| since + time <= now)
    }
}
