//! GPUs held for gangs: for enough members of a `PodGroup` at once, or for none.

use std::sync::Arc;
use std::time::Instant;

use super::Index;
use crate::demand::Demand;
use crate::fit::Query;
use crate::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};
use crate::ranking::shortlist;
use crate::state::{Due, HeldPod, Source, Turn};
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

/// How often another node is tried for a pod whose node was taken meanwhile.
const ATTEMPTS: usize = 3;

// === impl Index ===

impl Index {
    /// Applies a `PodGroup` that was added or changed.
    pub fn apply_pod_group(&self, group: PodGroup, spec: PodGroupSpec) {
        unpoisoned(self.state.lock()).gangs.apply(group, spec);
    }

    /// Removes a `PodGroup` that was deleted.
    pub fn delete_pod_group(&self, group: &PodGroup) {
        unpoisoned(self.state.lock()).gangs.delete(group);
    }

    /// Removes `PodGroup`s of this API for which `is_listed` is false.
    pub fn keep_pod_groups(&self, api: PodGroupApi, is_listed: impl Fn(&PodGroup) -> bool) {
        let mut state = unpoisoned(self.state.lock());
        let gone: Vec<Arc<PodGroup>> = state.gangs.names(api).filter(|group| !is_listed(group)).cloned().collect();
        for group in gone {
            state.gangs.delete(&group);
        }
    }

    /// Says whether the API server has this API: pods that name a group of Kubernetes' own wait for it.
    pub fn serves_pod_groups(&self, api: PodGroupApi, is_served: bool) {
        unpoisoned(self.state.lock()).gangs.served(api, is_served);
    }

    /// Pods for which GPUs are held.
    pub fn held(&self) -> Vec<HeldPod> {
        unpoisoned(self.state.lock()).held()
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
        let due = match turn {
            Turn::None => return Held::Nothing,
            Turn::Reserved(node) => return position(&node).map_or(Held::Nothing, Held::At),
            Turn::Unseen(reason) => return Held::Unseen(reason.into()),
            Turn::Pauses(wait) => {
                let group = demand.group.as_ref().map_or("", |group| &group.name);
                let reason = format!(
                    "pod group {group}: GPUs were held for {} s, and too few of its pods were bound: others come first for \
                     as long",
                    wait.as_secs()
                );
                return Held::Refused(reason.into());
            }
            Turn::Due(due) => due,
        };
        let (held, node) = self.hold_all(&due, &demand.uid, names);
        if held < due.least {
            self.change(|state| state.release_gang(&due.group));
        } else {
            unpoisoned(self.state.lock()).gangs.hold(&due.group, due.until);
            if let Some(at) = node.and_then(|node| position(&node)) {
                return Held::At(at);
            }
        }
        let (fit, all) = (due.placed + held, due.placed + due.least.max(held + 1));
        let reason = format!("pod group {}: free GPUs for {fit} of {all} pods that start together", due.group.name);
        Held::Refused(reason.into())
    }

    fn turn(&self, demand: &Demand, may_be_on: impl Fn(&str) -> bool, now: Instant) -> Turn {
        let mut turn = Turn::None;
        self.change(|state| {
            let (found, touched) = state.turn(demand, may_be_on, now);
            turn = found;
            touched
        });
        turn
    }

    /// Holds GPUs for the asked member, and for others until enough have some. Returns for how many, and the node of the asked one.
    fn hold_all(&self, due: &Due, asked: &str, names: &[&str]) -> (usize, Option<String>) {
        let (mut held, mut node_of_asked) = (0, None);
        let mut is_due = true;
        let mut others = Vec::new();
        for member in &due.members {
            if &*member.uid == asked {
                node_of_asked = self.hold_one(member, names, due.until);
                held += usize::from(node_of_asked.is_some());
                is_due = false;
            } else if held + usize::from(is_due) < due.least {
                held += usize::from(self.hold_beside(member, names, due.until));
            } else {
                others.push(member);
            }
        }
        for member in others {
            held += usize::from(held < due.least && self.hold_beside(member, names, due.until));
        }
        (held, node_of_asked)
    }

    /// Holds GPUs for a member that the scheduler hasn't asked for: where it would have the asked one, or else anywhere.
    fn hold_beside(&self, member: &Arc<Demand>, names: &[&str], until: Instant) -> bool {
        let hold = |names: &[&str]| self.hold_one(member, &self.with_cpu(names, member), until).is_some();
        hold(names) || {
            let all = self.schedulable();
            hold(&all.iter().map(|name| &**name).collect::<Vec<_>>())
        }
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
            node.and_then(|node| node.cpu_milli).is_none_or(|free| free >= demand.cpu_milli)
        };
        names.iter().copied().filter(|name| has_cpu(name)).collect()
    }
}
