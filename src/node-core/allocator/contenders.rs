//! Containers that a call may be for where the kubelet's list leaves several pods, one of which it has rejected.

use std::sync::Arc;

use divvy_api::{ResourceName, SlotId};

use super::{Allocator, Choice};
use crate::identity::{self, ContainerUnderAdmission};
use crate::pod::Pod;

/// What the kubelet asks with.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// `GetPreferredAllocation`.
    Propose(&'a Choice),
    /// `Allocate`.
    Allocate(&'a [SlotId]),
}

// === impl Allocator ===

impl Allocator {
    /// Containers that lack what is asked for, and those of which the kubelet may have lost its record, one a pod; none if
    /// there is one pod alone.
    pub fn contenders<'a>(
        &self,
        resource: &ResourceName,
        pods: &'a [Arc<Pod>],
        call: Call<'_>,
    ) -> Vec<ContainerUnderAdmission<'a>> {
        let allocations = self.ledger.allocations();
        let history = &self.history;
        let question = self.question(resource, call.size());
        let mut found = identity::lacking(pods, allocations, history, &question);
        // Of an Allocate that wasn't proposed they are looked for where nobody lacks anything.
        if let Call::Propose(choice) = call {
            let state = |slot: &SlotId| self.slot_state(choice, slot);
            let mut forgotten = identity::perhaps_forgotten(pods, allocations, history, &question, state);
            forgotten.retain(|subject| found.iter().all(|other| other.pod.uid != subject.pod.uid));
            found.extend(forgotten);
        }
        if found.len() > 1 { found } else { Vec::new() }
    }

    /// Notes that the kubelet has rejected this pod.
    pub fn reject(&mut self, uid: &str) {
        self.history.reject(uid);
    }
}

// === impl Call ===

impl Call<'_> {
    /// Number of devices asked for.
    pub fn size(&self) -> usize {
        match self {
            Self::Propose(choice) => choice.size,
            Self::Allocate(slots) => slots.len(),
        }
    }
}
