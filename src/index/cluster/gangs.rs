//! `PodGroup`s as the watches show them, and whether one can start.

use std::sync::Arc;
use std::time::Instant;

use super::Index;
use crate::demand::Demand;
use crate::pod_group::{PodGroup, PodGroupApi, PodGroupSpec};
use crate::state::{Start, Touched};

// === impl Index ===

impl Index {
    /// Applies a `PodGroup` that was added or changed.
    pub fn apply_pod_group(&self, group: PodGroup, spec: PodGroupSpec) {
        self.change(|state| {
            state.gangs.apply(group.clone(), spec);
            state.regroup(&group.into());
            Touched::new()
        });
    }

    /// Removes a `PodGroup` that was deleted.
    pub fn delete_pod_group(&self, group: &PodGroup) {
        self.change(|state| {
            if let Some(group) = state.gangs.delete(group) {
                state.regroup(&group);
            }
            Touched::new()
        });
    }

    /// Removes `PodGroup`s of this API for which `is_listed` is false.
    pub fn keep_pod_groups(&self, api: PodGroupApi, is_listed: impl Fn(&PodGroup) -> bool) {
        let gone: Vec<Arc<PodGroup>> = {
            let state = self.state();
            state.gangs.names(api).filter(|group| !is_listed(group)).cloned().collect()
        };
        for group in &gone {
            self.delete_pod_group(group);
        }
    }

    /// Says whether the API server has this API: pods that name a group of Kubernetes' own wait for it.
    pub fn serves_pod_groups(&self, api: PodGroupApi, is_served: bool) {
        self.change(|state| {
            if state.gangs.served(api, is_served) {
                state.wake_groups(api);
            }
            Touched::new()
        });
    }

    /// Plans the waiting members of a pod's group that start together, as the leader does, or says why they can't start; `None`
    /// if the pod starts by itself. For an index of one's own: what is reserved for them stays.
    pub fn start_group(&self, demand: &Demand, now: Instant) -> Option<Result<(), Arc<str>>> {
        let start = {
            let state = self.state();
            state.start(state.queue.line_of(demand.group.as_ref()?)?)
        };
        match start {
            Start::Pods(_) => None,
            Start::Waits(parked) => parked.reason.map(Err),
            Start::Together(due) => match self.plan_together(&due, now) {
                Ok(_) => Some(Ok(())),
                Err(parked) => parked.reason.map(Err),
            },
        }
    }
}
