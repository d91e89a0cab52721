//! Gangs: the members of `PodGroup`s, which start together or wait together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{ClusterState, Parked};
use crate::demand::Demand;
use crate::pod::PodView;
use crate::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};
use crate::snapshot::GroupOnNodes;

/// `PodGroup`s, and the pods that name one.
#[derive(Debug, Default)]
pub(crate) struct Gangs {
    specs: HashMap<Arc<PodGroup>, PodGroupSpec>,
    /// Pods that haven't ended, by group and UID, also those that ask for no GPUs.
    groups: HashMap<Arc<PodGroup>, Members>,
    /// Groups of pods, by UID.
    group_of: HashMap<Arc<str>, Arc<PodGroup>>,
    /// Changes of groups that have pods, and of these pods: the planner searches without the lock, and tells by them whether
    /// what it saw still holds.
    changes: HashMap<Arc<PodGroup>, u64>,
    /// Whether the API server has Kubernetes' own `PodGroup`s.
    has_own_api: bool,
}

/// Pods of a group, by UID.
type Members = BTreeMap<Arc<str>, Member>;

/// A pod of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    stage: Stage,
    /// Scheduler that is to bind it.
    scheduler: Arc<str>,
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

/// Members that are to start together.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) group: Arc<PodGroup>,
    /// All that have no GPUs, the largest first.
    pub(crate) members: Vec<Arc<Demand>>,
    /// How many of these start, or none.
    pub(crate) least: usize,
    /// Members that are bound, need no GPUs, or have some.
    pub(crate) placed: usize,
}

// === impl Gangs ===

impl Gangs {
    /// Applies a `PodGroup` that was added or changed.
    pub(crate) fn apply(&mut self, group: PodGroup, spec: PodGroupSpec) {
        self.specs.insert(Arc::new(group), spec);
    }

    /// Removes a `PodGroup` that was deleted: its pods start one by one from now on.
    pub(crate) fn delete(&mut self, group: &PodGroup) -> Option<Arc<PodGroup>> {
        self.specs.remove_entry(group).map(|(group, _)| group)
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
    pub(crate) fn add(&mut self, pod: &PodView) -> Option<Arc<PodGroup>> {
        let group = pod.group.as_ref()?;
        let stage = match (&pod.node, pod.scheduling.has_other_gates()) {
            (Some(_), _) => Stage::Bound,
            (None, true) => Stage::Gated,
            (None, false) => Stage::Pending,
        };
        let uid: Arc<str> = pod.uid.as_str().into();
        let group = self.group_of.entry(Arc::clone(&uid)).or_insert_with(|| Arc::clone(group));
        let members = self.groups.entry(Arc::clone(group)).or_default();
        let member = Member { stage, scheduler: pod.scheduling.scheduler.as_str().into() };
        if members.get(&uid) == Some(&member) {
            return None;
        }
        members.insert(uid, member);
        Some(Arc::clone(group))
    }

    /// Takes out a pod that has ended.
    pub(crate) fn remove(&mut self, uid: &str) {
        let Some(group) = self.group_of.remove(uid) else { return };
        let Some(members) = self.groups.get_mut(&group) else { return };
        members.remove(uid);
        if members.is_empty() {
            self.groups.remove(&group);
            self.changes.remove(&group);
        }
    }

    /// Number of changes of a group and its pods so far.
    pub(crate) fn changes(&self, group: &PodGroup) -> u64 {
        self.changes.get(group).copied().unwrap_or(0)
    }

    /// Notes that something has changed of a group.
    pub(crate) fn changed(&mut self, group: &Arc<PodGroup>) {
        if self.groups.contains_key(group) {
            *self.changes.entry(Arc::clone(group)).or_default() += 1;
        }
    }

    /// Notes that something has changed of all groups of this API.
    pub(crate) fn all_changed(&mut self, api: PodGroupApi) {
        for group in self.groups.keys().filter(|group| group.api == api) {
            *self.changes.entry(Arc::clone(group)).or_default() += 1;
        }
    }

    /// UIDs of the members that haven't ended.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<str>> {
        self.group_of.keys()
    }
}

// === impl Due ===

impl Due {
    /// Why a group can't start of which there are too few pods.
    fn too_few(&self) -> Option<Arc<str>> {
        let Self { group, members, least, placed } = self;
        let name = &group.name;
        let min = placed + least;
        let seen = members.len() + placed;
        let reason = || format!("pod group {name} needs {min} pods at once, and there are {seen}").into();
        (members.len() < *least).then(reason)
    }
}

// === impl ClusterState ===

impl ClusterState {
    /// Whether a pod starts with others of its group.
    pub(crate) fn starts_together(&self, demand: &Demand) -> bool {
        demand.group.as_ref().is_some_and(|group| self.gangs.specs.get(group).is_some_and(|spec| spec.min > 1))
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
        let member = first.as_ref().and_then(|first| self.gangs.groups.get(group)?.get(&first.uid));
        let Some((members, Member { scheduler, .. })) = self.gangs.groups.get(group).zip(member) else {
            return Start::Pods(first.into_iter().chain(pods).collect());
        };
        let mut due = self.together(group, *spec, members, scheduler);
        if spec.min <= 1 || due.least == 0 {
            return Start::Pods(first.into_iter().chain(pods).collect());
        }
        if let Some(too_few) = due.too_few() {
            return Start::Waits(Parked { reason: Some(too_few), ..Parked::default() });
        }
        if let Some(reason) = self.over_quota(&due) {
            due.members.truncate(1);
            let samples = due.members;
            let reason = Some(reason);
            return Start::Waits(Parked { by_quota: true, samples, reason, lacking_since: None, sufficient: None });
        }
        Start::Together(due)
    }

    /// The members of a group that this scheduler is to place, the largest first, and how many of them have to start together.
    fn together(&self, group: &Arc<PodGroup>, spec: PodGroupSpec, members: &Members, scheduler: &str) -> Due {
        let (mut members, placed) = self.missing(members, scheduler);
        members.sort_by_key(|demand| Reverse(demand.size()));
        Due { group: Arc::clone(group), members, least: spec.min.saturating_sub(placed), placed }
    }

    /// Which quota keeps a group from starting, and by what.
    fn over_quota(&self, Due { group, members, least, .. }: &Due) -> Option<Arc<str>> {
        let reason = self.quotas.used_up_by(&group.namespace, members, *least).filter(|_| *least > 0)?;
        Some(format!("pod group {}: {reason}", group.name).into())
    }

    /// Members that this scheduler is to place and that have no GPUs yet, and how many are bound, need none, or have some.
    fn missing(&self, members: &Members, scheduler: &str) -> (Vec<Arc<Demand>>, usize) {
        // Nobody knows when another scheduler would place a pod.
        let counts = |member: &Member| match member.stage {
            Stage::Gated => false,
            Stage::Pending => *member.scheduler == *scheduler,
            Stage::Bound => true,
        };
        let counted = members.iter().filter(|(_, member)| counts(member));
        let (pending, bound): (Vec<_>, Vec<_>) = counted.partition(|(_, member)| member.stage == Stage::Pending);
        let missing: Vec<Arc<Demand>> = pending.iter().filter_map(|(uid, _)| self.waits(uid).cloned()).collect();
        let placed = bound.len() + pending.len() - missing.len();
        (missing, placed)
    }

    /// Where other pods of a pod's group are.
    pub(super) fn nodes_of_group(&self, demand: &Demand) -> Option<GroupOnNodes> {
        let members = self.gangs.groups.get(demand.group.as_ref()?)?;
        let node = |uid: &Arc<str>| {
            let reserved = self.reservation_of(uid).map(|reservation| reservation.planned.node.clone());
            reserved.or_else(|| self.requested.node_of(uid).map(ToString::to_string))
        };
        let others = members.keys().filter(|uid| **uid != demand.uid);
        let placed: Vec<String> = others.filter_map(node).collect();
        let waiting = members.len().saturating_sub(placed.len()).max(1);
        Some(GroupOnNodes { placed, waiting })
    }
}
