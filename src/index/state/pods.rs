//! Pods: what the watch shows of them, and what has been written of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_api::pod::wire::Resources;

use super::queue::Why;
use super::{ClusterState, Outcome, Pod, REPORTED_WITHIN, Reservation, Source, State, Touched};
use crate::demand::Demand;
use crate::pod::{PodEnd, PodView};
use crate::pod_group::{PodGroup, PodGroupApi};

/// Time until the status of a pod is to be changed again that the API server has refused to have changed.
const WITHDRAWN_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Longest time until the watch shows what has become of a pod whose change the API server has refused.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

// === impl ClusterState ===

impl ClusterState {
    /// Begins or ends the list of pods beside the watch.
    pub(crate) fn read_list(&mut self, is_read: bool) {
        self.ended = is_read.then(BTreeSet::new);
    }

    /// Applies a pod of that list, unless it is known to have ended since.
    pub(crate) fn listed_pod(&mut self, pod: &PodView, now: Instant) -> Touched {
        let has_ended = self.ended.as_ref().is_some_and(|ended| ended.contains(pod.uid.as_str()));
        if has_ended { Touched::new() } else { self.pod(pod, now) }
    }

    /// Applies a pod that was added or changed.
    pub(crate) fn pod(&mut self, pod: &PodView, now: Instant) -> Touched {
        // One that is deleted before it is bound never will be, whatever its finalizers wait for (`skipPodSchedule`).
        if pod.ended || pod.node.is_none() && matches!(pod.end, PodEnd::Deleted { .. }) {
            return self.end(&pod.uid, Some(Outcome::Ended));
        }
        if let Some(group) = self.gangs.add(pod) {
            self.wake_group(&group);
        }
        let demand = Demand::read(pod, &self.config);
        let Ok(Some(demand)) = demand else {
            let mut touched = self.forget(&pod.uid, None);
            let uid = Arc::from(pod.uid.as_str());
            self.gate_astray(&uid, &pod.namespace, &pod.name, pod.scheduling.has_our_gate());
            touched
                .extend(pod.node.iter().flat_map(|node| self.add_to_node(&uid, &pod.namespace, node, &pod.requests)));
            return touched;
        };
        let uid = Arc::clone(&demand.uid);
        self.astray.remove(&uid);
        let mut touched = Touched::new();
        touched.extend(pod.node.iter().flat_map(|node| self.add_to_node(&uid, &pod.namespace, node, &pod.requests)));
        let before = self.pods.get(&uid).map(|pod| pod.priority);
        // What others leave is no use to pods that ask for oversubscription.
        if before.is_none() && !demand.preferences.oversubscribe {
            self.distribution.count(&demand);
        }
        if let (Some(node), true) = (&pod.node, before != Some(demand.priority)) {
            touched.extend(self.known_node(node));
        }
        self.pods
            .entry(Arc::clone(&uid))
            .and_modify(|known| known.priority = demand.priority)
            .or_insert_with(|| Pod::new(&demand, State::Waiting(Arc::new(demand.clone()))));
        match &pod.node {
            Some(node) => touched.extend(self.bound(&uid, node, pod, demand, now)),
            None => touched.extend(self.unbound(&uid, pod, demand, now)),
        }
        touched
    }

    fn bound(&mut self, uid: &Arc<str>, node: &str, pod: &PodView, demand: Demand, now: Instant) -> Touched {
        let mut touched = Touched::new();
        let deadline = now + REPORTED_WITHIN;
        self.queue.forget(uid);
        self.victims.remove(uid);
        self.in_vain.remove(uid);
        let state = self.pods.get_mut(uid).map(|pod| &mut pod.state);
        match state {
            Some(State::Reserved(reservation)) if reservation.is_announced() && reservation.planned.node == node => {
                if !reservation.bound {
                    (reservation.bound, reservation.deadline) = (true, deadline);
                    self.gained.insert(node.into()); // it can be evicted now
                }
            }
            Some(state @ (State::Reserved(_) | State::Waiting(_))) => {
                let before = std::mem::replace(state, State::Confirmed);
                let mut is_elsewhere = false;
                let mut is_ours = false;
                if let State::Reserved(elsewhere) = before {
                    (is_elsewhere, is_ours) = (elsewhere.source.is_nominated(), elsewhere.source.is_ours());
                    touched.extend(self.unlist(uid, &elsewhere.planned.node));
                }
                match pod.planned() {
                    Some(planned) if planned.node == node => {
                        let demand = Arc::new(demand);
                        let source = Source::Read;
                        let bound = true;
                        let read = Reservation { demand, planned, source, bound, is_shown: true, deadline };
                        touched.extend(self.reserve(uid, read));
                    }
                    Some(_) if is_elsewhere => {
                        if is_ours {
                            self.outcomes.count(Outcome::Elsewhere);
                        }
                        touched.extend(self.follow(&Arc::new(demand), node, deadline));
                    }
                    Some(_) | None => {}
                }
            }
            Some(State::Confirmed) | None => {}
        }
        touched.extend(self.confirm(uid, node));
        touched
    }

    /// Removes a pod that has ended.
    pub(crate) fn end(&mut self, uid: &str, outcome: Option<Outcome>) -> Touched {
        if let Some(ended) = &mut self.ended {
            ended.insert(uid.into());
        }
        self.gangs.remove(uid);
        let mut touched = self.forget(uid, outcome);
        touched.extend(self.remove_from_node(uid));
        touched
    }

    /// Counts the pod's requests on a node.
    pub(super) fn add_to_node(&mut self, uid: &Arc<str>, namespace: &str, node: &str, requests: &Resources) -> Touched {
        let namespace = self.shared.namespace(namespace);
        let nodes = self.requested.add(uid, namespace, node, requests);
        let known = |at: &Arc<str>| if **at == *node { self.known_node(at) } else { self.node_left(uid, at) };
        nodes.iter().filter_map(known).collect()
    }

    pub(super) fn remove_from_node(&mut self, uid: &str) -> Option<Arc<str>> {
        self.requested.remove(uid).and_then(|node| self.node_left(uid, &node))
    }

    /// Removes a pod that holds no cards and never will.
    fn forget(&mut self, uid: &str, outcome: Option<Outcome>) -> Touched {
        self.queue.forget(uid);
        self.victims.remove(uid);
        self.astray.remove(uid);
        self.in_vain.remove(uid);
        let Some((uid, pod)) = self.pods.remove_entry(uid) else { return Touched::new() };
        let State::Reserved(reservation) = pod.state else { return Touched::new() };
        outcome.filter(|_| reservation.source.is_ours()).into_iter().for_each(|outcome| self.outcomes.count(outcome));
        self.unlist(&uid, &reservation.planned.node)
    }

    /// Takes our gate off a pod, as the watch will show.
    pub(crate) fn ungated(&mut self, uid: &str) -> Touched {
        self.astray.remove(uid);
        if let Some(demand) = self.waits(uid) {
            self.wait(&Arc::new(demand.without_our_gate()));
        }
        Touched::new()
    }

    /// The status of a pod says no longer that GPUs are reserved.
    pub(crate) fn withdrawn(&mut self, uid: &str, now: Instant) {
        self.in_vain.remove(uid);
        if let Some(demand) = self.waits(uid)
            && !self.queue.rests(uid, now)
        {
            self.wait(&Arc::clone(demand));
        }
    }

    /// The status of a pod couldn't be changed that says that GPUs are reserved.
    pub(crate) fn refused_to_withdraw(&mut self, uid: &str, now: Instant) -> Touched {
        if let Some(vain) = self.in_vain.get_mut(uid) {
            vain.next = Some(now + WITHDRAWN_AGAIN_AFTER);
        }
        Touched::new()
    }

    /// What was to be written of a pod has been refused: it is left alone for a while, and its reservation for this purpose ends. A
    /// plan does in a second: the watch may be about to show that the pod is bound.
    pub(crate) fn refused(&mut self, uid: &Arc<str>, purpose: Option<Source>, now: Instant) -> Touched {
        let mut touched = Touched::new();
        match (purpose, self.reservation_mut(uid)) {
            (Some(Source::Planned), Some(kept)) if kept.source == Source::Planned => kept.deadline = now + SHOWN_WITHIN,
            (Some(purpose), Some(_)) => touched.extend(self.failed_as(uid, purpose)),
            _ => {}
        }
        if self.pods.contains_key(uid) || self.astray.contains_key(uid) {
            self.queue.rest(uid, Why::Refused, now);
        }
        touched
    }

    /// Has the lines of all groups of this API tried again.
    pub(crate) fn wake_groups(&mut self, api: PodGroupApi) {
        self.gangs.all_changed(api);
        self.queue.wake_groups(api);
    }

    /// Whether the status of a pod is to be changed before it is planned again. Of a pod that starts with others of its group it is
    /// changed when they are planned.
    pub(crate) fn is_in_vain(&self, demand: &Demand) -> bool {
        self.in_vain.contains_key(&demand.uid) && !self.starts_together(demand)
    }

    /// Has the pods of a group whose `PodGroup` has come, changed or gone wait as it says now.
    pub(crate) fn regroup(&mut self, group: &Arc<PodGroup>) {
        let in_vain = self.in_vain.keys().filter_map(|uid| self.waits(uid));
        let members = in_vain.filter(|demand| demand.group.as_ref() == Some(group));
        let members: Vec<Arc<Demand>> = members.cloned().collect();
        for demand in &members {
            self.wait(demand);
        }
        self.wake_group(group);
    }

    /// Has the line of a group tried again, if it has one, also if it is being tried.
    pub(crate) fn wake_group(&mut self, group: &Arc<PodGroup>) {
        self.gangs.changed(group);
        self.queue.wake_group(group);
    }

    /// Notes whether a pod has our gate for no reason, or has it no more.
    fn gate_astray(&mut self, uid: &Arc<str>, namespace: &str, name: &str, is_astray: bool) {
        if is_astray {
            self.astray.insert(Arc::clone(uid), (namespace.to_owned(), name.to_owned()));
        } else {
            self.astray.remove(uid);
        }
    }

    /// Has a pod wait, and be planned if that is ours to do.
    pub(super) fn wait(&mut self, demand: &Arc<Demand>) {
        let uid = Arc::clone(&demand.uid);
        let is_of_others = !self.config.planned.include(&demand.scheduling.scheduler, demand.group.is_some());
        if is_of_others || demand.scheduling.has_other_gates() || self.is_in_vain(demand) {
            self.queue.remove(&uid);
        } else {
            self.queue.add(demand);
        }
        self.gate_astray(&uid, &demand.namespace, &demand.name, is_of_others && demand.scheduling.has_our_gate());
        self.pods.insert(uid, Pod::new(demand, State::Waiting(Arc::clone(demand))));
    }

    /// Has pods tried again that have been left alone long enough, and nodes looked at again whose pods may be evicted now.
    pub(crate) fn rouse(&mut self, now: Instant) -> Touched {
        let mut touched = Touched::new();
        let is_over = |_: &Arc<str>, until: &mut Instant| *until <= now;
        for (uid, _) in self.spared.extract_if(is_over) {
            self.gained.extend(self.requested.node_of(&uid).cloned());
        }
        for uid in self.queue.rested(now) {
            match self.pods.get(&uid).map(|pod| &pod.state) {
                Some(State::Waiting(demand)) => self.wait(&Arc::clone(demand)),
                Some(State::Reserved(kept)) if kept.source == Source::Planned && kept.deadline <= now => {
                    touched.extend(self.failed(&uid));
                }
                _ => {}
            }
        }
        touched
    }

    /// The node that a reservation or a pod has left, if it has a report. Without one that can be read a pod counts for quotas
    /// as long as the API server has it there.
    pub(super) fn node_left(&mut self, uid: &str, node: &str) -> Option<Arc<str>> {
        if !matches!(self.reports.get(node), Some(Ok(_))) {
            self.quotas.retain(node, |other| other != uid || self.requested.is_on(other, node));
        }
        self.known_node(node)
    }
}
