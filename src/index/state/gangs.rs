//! Gangs: the members of `PodGroup`s, and until when GPUs are held for those that wait for the others.
//!
//! A scheduler asks for nodes member by member, and binds none before it has found enough of them. What it has found is unknown
//! here until then, so GPUs are held from the first answer: for enough members at once, or for none. A group that doesn't get
//! its pods bound in time gives way to others for as long as it has held GPUs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ClusterState, Pod, Source, State, Touched};
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
    members: BTreeMap<Arc<str>, Stage>,
    term: Option<Term>,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not to be scheduled yet (`spec.schedulingGates`).
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
    /// The watches haven't shown all yet.
    Unseen(String),
    /// Nothing yet: the group gives way to other pods. It held GPUs for so long.
    Pauses(Duration),
    /// GPUs are to be held for it and for others.
    Due(Due),
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
    /// Until when, at most.
    pub(crate) until: Instant,
}

// === impl Gangs ===

impl Gangs {
    /// Applies a `PodGroup` that was added or changed.
    pub(crate) fn apply(&mut self, group: PodGroup, spec: PodGroupSpec) {
        self.specs.insert(Arc::new(group), spec);
    }

    /// Removes a `PodGroup` that was deleted.
    pub(crate) fn delete(&mut self, group: &PodGroup) {
        self.specs.remove(group);
    }

    /// Known `PodGroup`s of this API.
    pub(crate) fn names(&self, api: PodGroupApi) -> impl Iterator<Item = &Arc<PodGroup>> {
        self.specs.keys().filter(move |group| group.api == api)
    }

    /// Says whether the API server has this API.
    pub(crate) fn served(&mut self, api: PodGroupApi, is_served: bool) {
        if api == PodGroupApi::Kubernetes {
            self.has_own_api = is_served;
        }
    }

    /// Takes a pod that was added or changed and hasn't ended.
    pub(crate) fn come(&mut self, pod: &PodView) {
        let Some(group) = &pod.group else { return };
        let stage = match (&pod.node, pod.is_gated) {
            (Some(_), _) => Stage::Bound,
            (None, true) => Stage::Gated,
            (None, false) => Stage::Pending,
        };
        let uid: Arc<str> = pod.uid.as_str().into();
        let group = self.group_of.entry(Arc::clone(&uid)).or_insert_with(|| Arc::clone(group));
        self.groups.entry(Arc::clone(group)).or_default().members.insert(uid, stage);
    }

    /// Takes out a pod that has ended.
    pub(crate) fn go(&mut self, uid: &str) {
        let Some(group) = self.group_of.remove(uid) else { return };
        let Some(known) = self.groups.get_mut(&group) else { return };
        known.members.remove(uid);
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

    /// Has a group give way to others whose pods weren't bound in time.
    pub(crate) fn pause(&mut self, uid: &str, now: Instant) {
        let Some(group) = self.group_of.get(uid) else { return };
        let Some(spec) = self.specs.get(group) else { return };
        if let Some(known) = self.groups.get_mut(group) {
            known.term = Some(Term::Pauses(now + spec.wait));
        }
    }
}

// === impl ClusterState ===

impl ClusterState {
    /// What is to be done for a pod before the scheduler gets a node for it; `may_be_on` tells whether that may be the node of
    /// this name.
    pub(crate) fn turn(&mut self, asked: &Demand, may_be_on: impl Fn(&str) -> bool, now: Instant) -> (Turn, Touched) {
        let mut touched = Touched::new();
        let Some(group) = &asked.group else { return (Turn::None, touched) };
        let Some(spec) = self.gangs.specs.get(group).copied() else {
            let may_come = group.api == PodGroupApi::Kubernetes && self.gangs.has_own_api;
            let unseen = || Turn::Unseen(format!("pod group {} is not known yet: try again", group.name));
            return (if may_come { unseen() } else { Turn::None }, touched);
        };
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
        (self.due(&asked.uid, group, spec, now), touched)
    }

    fn due(&self, asked: &str, group: &Arc<PodGroup>, spec: PodGroupSpec, now: Instant) -> Turn {
        let Some(Group { members, term }) = self.gangs.groups.get(group) else { return Turn::None };
        let needs_gpus = |uid: &Arc<str>| match self.pods.get(uid) {
            Some(Pod { state: State::Waiting(demand), .. }) => Some(Arc::clone(demand)),
            Some(_) | None => None,
        };
        let pending = members.iter().filter(|(_, stage)| **stage == Stage::Pending);
        let mut missing: Vec<Arc<Demand>> = pending.filter_map(|(uid, _)| needs_gpus(uid)).collect();
        let gated = members.values().filter(|stage| **stage == Stage::Gated).count();
        let placed = members.len() - gated - missing.len();
        let least = spec.min.saturating_sub(placed);
        if missing.len() < least || missing.iter().all(|member| &*member.uid != asked) {
            let (name, min, seen) = (&group.name, spec.min, missing.len() + placed);
            return Turn::Unseen(format!("pod group {name} needs {min} pods at once, and there are {seen}"));
        }
        let until = match term {
            Some(Term::Pauses(until)) if now < *until => return Turn::Pauses(spec.wait),
            Some(Term::Holds(until)) if now < *until => *until,
            Some(_) | None => now + spec.wait,
        };
        missing.sort_by_key(|demand| Reverse(demand.size()));
        Turn::Due(Due { group: Arc::clone(group), members: missing, least, placed, until })
    }

    /// Nodes where other pods of a pod's group are or have GPUs reserved, and how many have none yet, this one included.
    pub(crate) fn nodes_of_group(&self, demand: &Demand) -> Option<(Vec<String>, usize)> {
        let Group { members, .. } = self.gangs.groups.get(demand.group.as_ref()?)?;
        let node = |uid: &Arc<str>| {
            let reserved = self.reservation_of(uid).map(|reservation| reservation.planned.node.clone());
            reserved.or_else(|| self.cpu.node_of(uid).map(ToString::to_string))
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
    pub(crate) fn release_gang(&mut self, group: &Arc<PodGroup>) -> Touched {
        self.give_back(group, |_| true)
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

    fn give_back(&mut self, group: &Arc<PodGroup>, is_meant: impl Fn(&str) -> bool) -> Touched {
        let members = self.gangs.groups.get(group).into_iter().flat_map(|known| known.members.keys());
        let members: Vec<Arc<str>> = members.filter(|uid| self.held_on(uid).is_some_and(&is_meant)).cloned().collect();
        members.iter().flat_map(|uid| self.failed(uid)).collect()
    }
}
