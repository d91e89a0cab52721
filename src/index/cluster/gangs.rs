//! GPUs held for gangs: for enough members of a `PodGroup` at once, or for none.

use std::sync::Arc;
use std::time::Instant;

use super::Index;
use crate::demand::Demand;
use crate::fit::Query;
use crate::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};
use crate::ranking::shortlist;
use crate::state::{Due, HeldPod, Source, Touched, Turn};
use crate::unpoisoned;

/// What the scheduler is told about a pod that may be a member of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// No GPUs are to be held for it: it is no member of a known group, or it has a reservation already, elsewhere.
    Nothing,
    /// GPUs are held for it on the node of this name, by position.
    At(usize),
    /// The group can't start now.
    Refused(Arc<str>),
    /// The same, but a watch may show soon what is missing.
    Unseen(Arc<str>),
}

/// What came of holding GPUs for members of a group.
#[derive(Debug, Default)]
struct Tried {
    /// Members for which GPUs are held now.
    held: usize,
    /// Members that fit nowhere, and whether there are some beside the asked one, which may have all nodes.
    failed: usize,
    others_failed: bool,
    node_of_asked: Option<String>,
    /// Which quota keeps a member that fits nowhere from GPUs of some model.
    over_quota: Option<Arc<str>>,
}

/// How often another node is tried for a pod whose node was taken meanwhile.
const ATTEMPTS: usize = 3;

// === impl Index ===

impl Index {
    /// Applies a `PodGroup` that was added or changed.
    pub fn apply_pod_group(&self, group: PodGroup, spec: PodGroupSpec) {
        self.change(|state| {
            state.gangs.apply(group.clone(), spec);
            state.queue.wake_group(&group.into());
            Touched::new()
        });
    }

    /// Removes a `PodGroup` that was deleted, and gives back what is held for its pods.
    pub fn delete_pod_group(&self, group: &PodGroup) {
        self.change(|state| state.delete_pod_group(group));
    }

    /// Removes `PodGroup`s of this API for which `is_listed` is false.
    pub fn keep_pod_groups(&self, api: PodGroupApi, is_listed: impl Fn(&PodGroup) -> bool) {
        self.change(|state| {
            let gone: Vec<Arc<PodGroup>> = state.gangs.names(api).filter(|group| !is_listed(group)).cloned().collect();
            gone.iter().flat_map(|group| state.delete_pod_group(group)).collect()
        });
    }

    /// Says whether the API server has this API: pods that name a group of Kubernetes' own wait for it.
    pub fn serves_pod_groups(&self, api: PodGroupApi, is_served: bool) {
        self.change(|state| {
            if state.gangs.served(api, is_served) {
                state.queue.wake_groups(api);
            }
            Touched::new()
        });
    }

    /// Pods for which GPUs are held.
    pub fn held(&self) -> Vec<HeldPod> {
        unpoisoned(self.state.lock()).held()
    }

    /// Gives back what is held for the group of a pod that a quota keeps from GPUs, unless the others are enough without it.
    pub fn give_up_group(&self, demand: &Demand) {
        if demand.group.is_some() {
            self.change(|state| state.give_up_group(demand));
        }
    }

    /// Holds GPUs for a member of a gang on one of the named nodes, and at the same time for as many others as start with it,
    /// wherever these fit. What is held already stays, for the time that the group has; a member whose node isn't named any
    /// more gets another one.
    pub fn hold(&self, demand: &Demand, names: &[&str], now: Instant) -> Held {
        if demand.group.is_none() {
            return Held::Nothing;
        }
        let _one_group_at_a_time = unpoisoned(self.holding.lock());
        let position = |node: &str| names.iter().position(|name| *name == node);
        let turn = self.turn(demand, |node| position(node).is_some(), now);
        let (due, until) = match turn {
            Turn::None => return Held::Nothing,
            Turn::Reserved(node) => return position(&node).map_or(Held::Nothing, Held::At),
            Turn::Unseen(reason) => return Held::Unseen(reason.into()),
            Turn::Refused(reason) => return Held::Refused(reason),
            Turn::Exceeds(reason) => {
                self.give_up_group(demand);
                return Held::Refused(reason);
            }
            Turn::Due(due, until) => (due, until),
        };
        let before = self.view().version();
        let Tried { held, node_of_asked, others_failed, over_quota, .. } =
            self.hold_all(&due, &demand.uid, (names, until));
        let (fit, all) = (due.placed + held, due.placed + due.least.max(held + 1));
        let mut reason = format!("pod group {}: free GPUs for {fit} of {all} pods that start together", due.group.name);
        if let Some(over_quota) = over_quota {
            reason.extend(["; ", &over_quota]);
        }
        let reason = reason.into();
        if held < due.least {
            let released = self.release(&due.group);
            // Each of these is a change of one node. With other changes, GPUs may have become free behind the search.
            let after = self.view().version();
            if others_failed && after == before + (held + released) as u64 {
                unpoisoned(self.state.lock()).gangs.refuse(&due.group, &reason, after, now);
            }
        } else {
            unpoisoned(self.state.lock()).gangs.hold(&due.group, until);
            if let Some(at) = node_of_asked.and_then(|node| position(&node)) {
                return Held::At(at);
            }
        }
        Held::Refused(reason)
    }

    fn turn(&self, demand: &Demand, may_be_on: impl Fn(&str) -> bool, now: Instant) -> Turn {
        let (mut turn, version) = (Turn::None, self.view().version());
        self.change(|state| {
            let (found, touched) = state.turn(demand, may_be_on, version, now);
            turn = found;
            touched
        });
        turn
    }

    /// Gives back what is held for a group, and returns on how many nodes.
    fn release(&self, group: &PodGroup) -> usize {
        let mut nodes = 0;
        self.change(|state| {
            let touched = state.release_gang(group);
            nodes = touched.len();
            touched
        });
        nodes
    }

    /// Holds GPUs for the asked member, and for others until enough have some, or too few are left.
    fn hold_all(&self, due: &Due, asked: &str, (names, until): (&[&str], Instant)) -> Tried {
        let try_one = |tried: &mut Tried, member: &Arc<Demand>| {
            let is_asked = &*member.uid == asked;
            let node =
                if is_asked { self.hold_one(member, names, until) } else { self.hold_beside(member, names, until) };
            if node.is_some() {
                tried.held += 1;
            } else {
                tried.failed += 1;
                tried.others_failed |= !is_asked;
                let over_quota = || self.exceeded(member).into_iter().next().map(|exceeded| exceeded.reason);
                tried.over_quota = tried.over_quota.take().or_else(over_quota);
            }
            if is_asked {
                tried.node_of_asked = node;
            }
        };
        let is_hopeless = |tried: &Tried| due.members.len() - tried.failed < due.least;
        let (mut tried, mut is_due, mut others) = (Tried::default(), true, Vec::new());
        for member in &due.members {
            let is_asked = &*member.uid == asked;
            if is_hopeless(&tried) {
                break;
            } else if is_asked || tried.held + usize::from(is_due) < due.least {
                is_due &= !is_asked;
                try_one(&mut tried, member);
            } else {
                others.push(member);
            }
        }
        for member in others {
            if tried.held >= due.least || is_hopeless(&tried) {
                break;
            }
            try_one(&mut tried, member);
        }
        tried
    }

    /// Holds GPUs for a member that the scheduler hasn't asked for: where it would have the asked one, or else anywhere.
    fn hold_beside(&self, member: &Arc<Demand>, names: &[&str], until: Instant) -> Option<String> {
        let hold = |names: &[&str]| self.hold_one(member, &self.with_cpu(names, member), until);
        hold(names).or_else(|| {
            let all = self.schedulable();
            hold(&all.iter().map(|name| &**name).collect::<Vec<_>>())
        })
    }

    fn hold_one(&self, member: &Arc<Demand>, names: &[&str], until: Instant) -> Option<String> {
        let attempt = || {
            let exceeded = self.exceeded(member);
            let allowed = member.avoiding(&exceeded);
            let mut fitting = self.rank(&Query::new(&allowed, &self.config), names, false).fitting;
            shortlist(&mut fitting, 1);
            let name = fitting.first().map(|(node, _)| names[node.name])?;
            let mut state = unpoisoned(self.state.lock());
            Some(self.plan_and_reserve(&mut state, member, name, (Source::Gang, until)).map(|_| name.to_owned()))
        };
        std::iter::repeat_with(attempt).take(ATTEMPTS).map_while(|attempt| attempt).find_map(Result::ok)
    }

    /// Nodes that take pods, by their Nodes.
    fn schedulable(&self) -> Vec<Arc<str>> {
        let view = self.view();
        view.nodes().filter(|node| node.unschedulable.is_none()).map(|node| Arc::clone(&node.name)).collect()
    }

    /// Those of the nodes that have the CPU that the pod requests, as far as is known.
    fn with_cpu<'n>(&self, names: &[&'n str], demand: &Demand) -> Vec<&'n str> {
        let view = self.view();
        let has_cpu = |name: &str| {
            let node = view.place(name).and_then(|place| view.node(place));
            node.and_then(|node| node.free.as_ref()).is_none_or(|free| free.cpu_milli >= demand.requests.cpu_milli)
        };
        names.iter().copied().filter(|name| has_cpu(name)).collect()
    }
}
