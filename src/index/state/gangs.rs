//! Gangs: the members of `PodGroup`s, and until when GPUs are held for those that wait for the others.
//!
//! A scheduler asks for nodes member by member, and binds none before it has found enough of them. What it has found is unknown
//! here until then, so GPUs are held from the first answer: for enough members at once, or for none. A group that doesn't get
//! its pods bound in time gives way to others for a while.
//!
//! What is held ends in any case: after the group's time, with its `PodGroup`, when a quota refuses one of its pods, and when
//! no scheduler asks for any of them any more.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ClusterState, Parked, Pod, Source, State, Touched};
use crate::demand::Demand;
use crate::pod::PodView;
use crate::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};

/// `PodGroup`s, and the pods that name one.
#[derive(Debug, Default)]
pub(crate) struct Gangs {
    specs: HashMap<Arc<PodGroup>, PodGroupSpec>,
    groups: HashMap<Arc<PodGroup>, Group>,
    /// Groups of pods, by UID.
    group_of: HashMap<Arc<str>, Arc<PodGroup>>,
    /// Whether the API server has Kubernetes' own `PodGroup`s.
    has_own_api: bool,
}

/// A group of which there are pods.
#[derive(Debug, Default)]
struct Group {
    /// Pods that haven't ended, by UID, also those that ask for no GPUs.
    members: BTreeMap<Arc<str>, Member>,
    term: Option<Term>,
    /// When a scheduler last asked for one of them.
    asked: Option<Instant>,
    refused: Option<Refused>,
}

/// A pod of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    stage: Stage,
    /// Scheduler that is to bind it.
    scheduler: Arc<str>,
}

/// Why a group couldn't start, which holds for all of its pods while nothing changes.
#[derive(Clone, Debug)]
struct Refused {
    reason: Arc<str>,
    /// Version of the nodes by which it was refused.
    version: u64,
    /// No longer than until then: quotas, for one, change without the nodes.
    until: Instant,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not to be scheduled yet (`spec.schedulingGates` of others).
    Gated,
    /// To be scheduled.
    Pending,
    /// Bound.
    Bound,
}

/// When GPUs may be held for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    /// Held, at most until then.
    Holds(Instant),
    /// Not before then: they were held before, and not enough members were bound.
    Pauses(Instant),
}

/// What is to be done for a member of a gang that the scheduler asks nodes for.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Nothing: no group is known to want it.
    None,
    /// GPUs are reserved for it on this node.
    Reserved(String),
    /// The watches haven't shown the pod or its group yet.
    Unseen(String),
    /// The group can't start as it is.
    Refused(Arc<str>),
    /// The group would exceed a quota.
    Exceeds(Arc<str>),
    /// GPUs are to be held for it and for others, at most until then.
    Due(Due, Instant),
}

/// A pod for which GPUs are held until enough of its group are bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPod {
    /// UID of the pod.
    pub uid: Arc<str>,
    /// The node.
    pub node: String,
    /// The pod's group.
    pub group: Arc<PodGroup>,
}

/// Which pods of a line of the queue are to be placed.
#[derive(Debug)]
pub(crate) enum Start {
    /// Any of these, each by itself.
    Pods(Vec<Arc<Demand>>),
    /// So many of these together.
    Together(Due),
    /// None: more of them have to come, or a quota doesn't allow enough.
    Waits(Parked),
}

/// Members for which GPUs are to be held.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) group: Arc<PodGroup>,
    /// All that have none, the largest first.
    pub(crate) members: Vec<Arc<Demand>>,
    /// For how many of these, or for none.
    pub(crate) least: usize,
    /// Members that are bound, need no GPUs, or have some.
    pub(crate) placed: usize,
}

/// Longest time for which a group gives way to others.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A scheduler that has asked for none of a group's pods for so long has given up: twice kube-scheduler's longest back-off
/// (`podMaxBackoffSeconds`).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(20);
/// Longest time for which a refusal is repeated without a new search.
const REFUSED_FOR: Duration = Duration::from_secs(1);

// === impl Gangs ===

impl Gangs {
    /// Applies a `PodGroup` that was added or changed.
    pub(crate) fn apply(&mut self, group: PodGroup, spec: PodGroupSpec) {
        self.specs.insert(Arc::new(group), spec);
    }

    /// Known `PodGroup`s of this API.
    pub(crate) fn names(&self, api: PodGroupApi) -> impl Iterator<Item = &Arc<PodGroup>> {
        self.specs.keys().filter(move |group| group.api == api)
    }

    /// Says whether the API server has this API, and returns whether pods that name one of its groups have to wait for it in
    /// another way than before.
    pub(crate) fn served(&mut self, api: PodGroupApi, is_served: bool) -> bool {
        api == PodGroupApi::Kubernetes && std::mem::replace(&mut self.has_own_api, is_served) != is_served
    }

    /// Takes a pod that was added or changed and hasn't ended, and returns its group if that has changed.
    pub(crate) fn come(&mut self, pod: &PodView) -> Option<Arc<PodGroup>> {
        let group = pod.group.as_ref()?;
        let stage = match (&pod.node, pod.scheduling.has_other_gates()) {
            (Some(_), _) => Stage::Bound,
            (None, true) => Stage::Gated,
            (None, false) => Stage::Pending,
        };
        let uid: Arc<str> = pod.uid.as_str().into();
        let group = self.group_of.entry(Arc::clone(&uid)).or_insert_with(|| Arc::clone(group));
        let known = self.groups.entry(Arc::clone(group)).or_default();
        let member = Member { stage, scheduler: pod.scheduling.scheduler.as_str().into() };
        if known.members.get(&uid) == Some(&member) {
            return None;
        }
        known.members.insert(uid, member);
        known.refused = None;
        Some(Arc::clone(group))
    }

    /// Takes out a pod that has ended.
    pub(crate) fn go(&mut self, uid: &str) {
        let Some(group) = self.group_of.remove(uid) else { return };
        let Some(known) = self.groups.get_mut(&group) else { return };
        known.members.remove(uid);
        known.refused = None;
        if known.members.is_empty() {
            self.groups.remove(&group);
        }
    }

    /// UIDs of the members that haven't ended.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<str>> {
        self.group_of.keys()
    }

    /// Begins to hold GPUs for a group, or goes on. Given back, and held again, they are held for no longer.
    pub(crate) fn hold(&mut self, group: &Arc<PodGroup>, until: Instant) {
        if let Some(known) = self.groups.get_mut(group) {
            known.term = Some(Term::Holds(until));
        }
    }

    /// Has other members of a group get the same answer as long as the nodes are of this version.
    pub(crate) fn refuse(&mut self, group: &Arc<PodGroup>, reason: &Arc<str>, version: u64, now: Instant) {
        if let Some(known) = self.groups.get_mut(group) {
            known.refused = Some(Refused { reason: Arc::clone(reason), version, until: now + REFUSED_FOR });
        }
    }

    /// Has a group give way to others whose pods weren't bound in time.
    pub(crate) fn pause(&mut self, uid: &str, now: Instant) {
        let Some(group) = self.group_of.get(uid) else { return };
        let Some(spec) = self.specs.get(group) else { return };
        if let Some(known) = self.groups.get_mut(group) {
            known.term = Some(Term::Pauses(now + pause(*spec)));
        }
    }
}

// === impl Due ===

impl Due {
    /// Why a group can't start of which there are too few pods.
    fn too_few(&self) -> Option<Arc<str>> {
        let Self { group, members, least, placed } = self;
        let (name, min, seen) = (&group.name, placed + least, members.len() + placed);
        let reason = || format!("pod group {name} needs {min} pods at once, and there are {seen}").into();
        (members.len() < *least).then(reason)
    }
}

// === impl ClusterState ===

impl ClusterState {
    /// What is to be done for a pod before the scheduler gets a node for it; `may_be_on` tells whether that may be the node of
    /// this name. The nodes are of this version.
    pub(crate) fn turn(
        &mut self,
        asked: &Demand,
        may_be_on: impl Fn(&str) -> bool,
        version: u64,
        now: Instant,
    ) -> (Turn, Touched) {
        let mut touched = Touched::new();
        let Some(group) = &asked.group else { return (Turn::None, touched) };
        let Some(spec) = self.gangs.specs.get(group).copied() else {
            let may_come = group.api == PodGroupApi::Kubernetes && self.gangs.has_own_api;
            let unseen = || Turn::Unseen(format!("pod group {} is not known yet: try again", group.name));
            return (if may_come { unseen() } else { Turn::None }, touched);
        };
        if spec.min <= 1 {
            return (Turn::None, touched); // each may start alone
        }
        if let Some(known) = self.gangs.groups.get_mut(group) {
            known.asked = Some(now);
        }
        match self.reservation_of(&asked.uid) {
            Some(reservation) if may_be_on(&reservation.planned.node) => {
                return (Turn::Reserved(reservation.planned.node.clone()), touched);
            }
            Some(reservation) if reservation.is_announced() => return (Turn::None, touched),
            Some(_) => touched.extend(self.failed(&asked.uid)),
            None if self.demand(&asked.uid).is_some() => {}
            None => return (Turn::Unseen("the pod is not known yet: try again".to_owned()), touched),
        }
        touched.extend(self.expire(now));
        let refused = self.gangs.groups.get(group).and_then(|known| known.refused.as_ref());
        let refused = refused.filter(|refused| touched.is_empty() && refused.version == version && now < refused.until);
        if let Some(Refused { reason, .. }) = refused {
            return (Turn::Refused(Arc::clone(reason)), touched);
        }
        (self.due(asked, group, spec, now), touched)
    }

    fn due(&self, asked: &Demand, group: &Arc<PodGroup>, spec: PodGroupSpec, now: Instant) -> Turn {
        let Some(Group { members, term, .. }) = self.gangs.groups.get(group) else { return Turn::None };
        // A pod that has changed its group keeps to the first one, and is placed by itself.
        let Some(Member { stage, scheduler }) = members.get(&asked.uid) else { return Turn::None };
        if *stage == Stage::Gated {
            return Turn::Unseen("the pod's scheduling gates are not known to be gone yet: try again".to_owned());
        }
        let due = self.together(group, spec, members, scheduler);
        if let Some(too_few) = due.too_few() {
            return Turn::Refused(too_few);
        }
        let until = match term {
            Some(Term::Pauses(until)) if now < *until => {
                let (name, held, pause) = (&group.name, spec.wait.as_secs(), pause(spec).as_secs());
                let reason = format!(
                    "pod group {name}: GPUs were held for {held} s, and too few of its pods were bound: others come first \
                     for {pause} s"
                );
                return Turn::Refused(reason.into());
            }
            Some(Term::Holds(until)) if now < *until => *until,
            Some(_) | None => now + spec.wait,
        };
        match self.over_quota(&due) {
            Some(reason) => Turn::Exceeds(reason),
            None => Turn::Due(due, until),
        }
    }

    /// The members of a group that this scheduler is to place, the largest first, and how many of them have to start together.
    fn together(
        &self,
        group: &Arc<PodGroup>,
        spec: PodGroupSpec,
        members: &BTreeMap<Arc<str>, Member>,
        scheduler: &str,
    ) -> Due {
        let (mut members, placed) = self.missing(members, scheduler);
        members.sort_by_key(|demand| Reverse(demand.size()));
        Due { group: Arc::clone(group), members, least: spec.min.saturating_sub(placed), placed }
    }

    /// Which quota keeps a group from starting, and by what.
    fn over_quota(&self, Due { group, members, least, .. }: &Due) -> Option<Arc<str>> {
        let reason = self.quotas.used_up_by(&group.namespace, members, *least).filter(|_| *least > 0)?;
        Some(format!("pod group {}: {reason}", group.name).into())
    }

    /// Which pods of a line are to be placed now.
    pub(crate) fn start(&self, line: u64) -> Start {
        let mut pods = self.queue.pods(line).filter_map(|uid| self.demand(uid).cloned());
        let Some(group) = self.queue.group(line) else { return Start::Pods(pods.next().into_iter().collect()) };
        let Some(spec) = self.gangs.specs.get(group) else {
            let may_come = group.api == PodGroupApi::Kubernetes && self.gangs.has_own_api;
            let unseen = || format!("pod group {} is not known yet", group.name).into();
            let parked = || Parked { reason: Some(unseen()), ..Parked::default() };
            return if may_come { Start::Waits(parked()) } else { Start::Pods(pods.collect()) };
        };
        let first = pods.next();
        let member = first.as_ref().and_then(|first| self.gangs.groups.get(group)?.members.get(&first.uid));
        let members = self.gangs.groups.get(group).map(|known| &known.members);
        let Some((members, Member { scheduler, .. })) = members.zip(member) else {
            return Start::Pods(first.into_iter().chain(pods).collect());
        };
        let mut due = self.together(group, *spec, members, scheduler);
        if due.least == 0 {
            return Start::Pods(first.into_iter().chain(pods).collect());
        }
        if let Some(too_few) = due.too_few() {
            return Start::Waits(Parked { reason: Some(too_few), ..Parked::default() });
        }
        if let Some(reason) = self.over_quota(&due) {
            due.members.truncate(1);
            let (samples, reason) = (due.members, Some(reason));
            return Start::Waits(Parked { by_quota: true, samples, reason, lacking_since: None });
        }
        Start::Together(due)
    }

    /// Members that this scheduler is to place and that have no GPUs yet, and how many are bound, need none, or have some.
    fn missing(&self, members: &BTreeMap<Arc<str>, Member>, scheduler: &str) -> (Vec<Arc<Demand>>, usize) {
        let needs_gpus = |uid: &Arc<str>| match self.pods.get(uid) {
            Some(Pod { state: State::Waiting(demand), .. }) => Some(Arc::clone(demand)),
            Some(_) | None => None,
        };
        // Nobody knows when another scheduler would place a pod.
        let counts = |member: &Member| match member.stage {
            Stage::Gated => false,
            Stage::Pending => *member.scheduler == *scheduler,
            Stage::Bound => true,
        };
        let counted = members.iter().filter(|(_, member)| counts(member));
        let (pending, bound): (Vec<_>, Vec<_>) = counted.partition(|(_, member)| member.stage == Stage::Pending);
        let missing: Vec<Arc<Demand>> = pending.iter().filter_map(|(uid, _)| needs_gpus(uid)).collect();
        let placed = bound.len() + pending.len() - missing.len();
        (missing, placed)
    }

    /// Gives back what is held for the group of a pod that gets no GPUs, unless the others are enough without it.
    pub(crate) fn give_up_group(&mut self, demand: &Demand) -> Touched {
        let Some(group) = &demand.group else { return Touched::new() };
        let (spec, known) = (self.gangs.specs.get(group), self.gangs.groups.get(group));
        let Some((spec, Group { members, .. })) = spec.zip(known) else { return Touched::new() };
        let Some(Member { scheduler, .. }) = members.get(&demand.uid) else { return Touched::new() };
        let (_, placed) = self.missing(members, scheduler);
        let others = placed.saturating_sub(usize::from(self.held_on(&demand.uid).is_some()));
        if others < spec.min { self.release_gang(group) } else { Touched::new() }
    }

    /// Nodes where other pods of a pod's group are or have GPUs reserved, and how many have none yet, this one included.
    pub(crate) fn nodes_of_group(&self, demand: &Demand) -> Option<(Vec<String>, usize)> {
        let Group { members, .. } = self.gangs.groups.get(demand.group.as_ref()?)?;
        let node = |uid: &Arc<str>| {
            let reserved = self.reservation_of(uid).map(|reservation| reservation.planned.node.clone());
            reserved.or_else(|| self.requested.node_of(uid).map(ToString::to_string))
        };
        let others = members.keys().filter(|uid| **uid != demand.uid);
        let nodes: Vec<String> = others.filter_map(node).collect();
        let waiting = members.len().saturating_sub(nodes.len()).max(1);
        Some((nodes, waiting))
    }

    /// Pods for which GPUs are held.
    pub(crate) fn held(&self) -> Vec<HeldPod> {
        let held = |(uid, group): (&Arc<str>, &Arc<PodGroup>)| {
            Some(HeldPod { uid: Arc::clone(uid), node: self.held_on(uid)?.to_owned(), group: Arc::clone(group) })
        };
        self.gangs.group_of.iter().filter_map(held).collect()
    }

    /// The node where GPUs are held for a pod.
    fn held_on(&self, uid: &str) -> Option<&str> {
        let reservation = self.reservation_of(uid).filter(|reservation| reservation.source == Source::Gang)?;
        Some(&reservation.planned.node)
    }

    /// Gives back what is held for members of a group that can't start.
    pub(crate) fn release_gang(&mut self, group: &PodGroup) -> Touched {
        self.give_back(group, |_| true)
    }

    /// Gives back what is held for groups of which no scheduler asks for a pod any more.
    pub(super) fn release_forgotten(&mut self, now: Instant) -> Touched {
        let is_forgotten = |known: &Group| known.asked.is_some_and(|asked| asked + FORGOTTEN_AFTER <= now);
        let groups = self.gangs.groups.iter_mut().filter(|(_, known)| is_forgotten(known));
        let forgotten: Vec<Arc<PodGroup>> = groups
            .map(|(group, known)| {
                known.asked = None;
                Arc::clone(group)
            })
            .collect();
        forgotten.iter().flat_map(|group| self.release_gang(group)).collect()
    }

    /// Removes a `PodGroup` that was deleted, and gives back what is held for its pods, which start one by one from now on.
    pub(crate) fn delete_pod_group(&mut self, group: &PodGroup) -> Touched {
        if let Some((group, _)) = self.gangs.specs.remove_entry(group) {
            self.queue.wake_group(&group);
        }
        self.release_gang(group)
    }

    /// Ends a group's time once a scheduler binds the last pod that GPUs were held for: when its pods start anew, so does the time.
    pub(crate) fn end_term(&mut self, demand: &Demand) {
        let Some(group) = &demand.group else { return };
        let is_over = |known: &Group| known.members.keys().all(|uid| self.held_on(uid).is_none());
        if self.gangs.groups.get(group).is_some_and(is_over)
            && let Some(known) = self.gangs.groups.get_mut(group)
        {
            known.term = None;
        }
    }

    /// Gives back what is held on a node for others of a pod's group: the scheduler binds the pod there, and knows where they are.
    pub(crate) fn make_way(&mut self, demand: &Demand, node: &str) -> Touched {
        let Some(group) = &demand.group else { return Touched::new() };
        self.give_back(group, |on| on == node)
    }

    fn give_back(&mut self, group: &PodGroup, is_meant: impl Fn(&str) -> bool) -> Touched {
        let members = self.gangs.groups.get(group).into_iter().flat_map(|known| known.members.keys());
        let members: Vec<Arc<str>> = members.filter(|uid| self.held_on(uid).is_some_and(&is_meant)).cloned().collect();
        members.iter().flat_map(|uid| self.failed(uid)).collect()
    }
}

/// How long a group gives way to others: as long as it may hold GPUs, within bounds.
fn pause(spec: PodGroupSpec) -> Duration {
    spec.wait.min(LONGEST_PAUSE)
}
