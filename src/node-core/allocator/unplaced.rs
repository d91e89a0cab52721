//! Pods that were refused for lack of room, and that would be refused again.
//!
//! A scheduler that counts sums over a node's GPUs binds a pod wherever the sums suffice. If the node refuses it, the pod that
//! its controller creates in its place comes back at once, again and again (seen: 20 a second). So less is published than such a
//! pod requests ([`crate::amounts`]), until it fits.

use std::time::{Duration, Instant};

use divvy_api::ContainerRequest;
use divvy_api::annotation::Preferences;
use divvy_api::pod::peak;
use divvy_api::request::Totals;
use divvy_placement::{PodRequest, plan};

use super::Allocator;
use super::admission::Admission;
use super::propose::Basis;

/// Pods that were refused, each with what its containers request; pods that request the same are one.
#[derive(Debug, Default)]
pub(super) struct UnplacedPods {
    pods: Vec<UnplacedPod>,
    /// What the last judgement stands on.
    judged_on: Option<Basis>,
}

#[derive(Debug)]
struct UnplacedPod {
    containers: Vec<ContainerRequest>,
    /// Whether part of its memory may be the host's: of what a pod's annotations ask for, this alone makes it fit more easily.
    oversubscribe: bool,
    refused: Instant,
}

/// How long a pod is kept away that still doesn't fit: a pod with several GPUs may fit, and be kept away with it.
const KEPT_AWAY: Duration = Duration::from_secs(600);
/// Most that are remembered, the latest ones. Each costs a plan after each change of the ledger.
const MOST: usize = 16;

// === impl UnplacedPods ===

impl UnplacedPods {
    pub(super) fn remember(&mut self, refused: Admission) {
        let Admission { requests: mut containers, preferences, .. } = refused;
        let oversubscribe = preferences.oversubscribe;
        // Names tell pods of one shape apart, and decide nothing.
        for container in &mut containers {
            container.name.clear();
        }
        self.pods.retain(|pod| pod.containers != containers || pod.oversubscribe != oversubscribe);
        self.pods.push(UnplacedPod { containers, oversubscribe, refused: Instant::now() });
        self.pods.drain(..self.pods.len().saturating_sub(MOST));
        self.judged_on = None;
    }
}

// === impl Allocator ===

impl Allocator {
    /// Whether less may have to be published than is free.
    pub fn has_unplaced(&self) -> bool {
        !self.unplaced.pods.is_empty()
    }

    /// What the scheduler counts for each pod that was refused and still doesn't fit, whatever it requires beside amounts.
    pub fn unplaced(&mut self) -> Vec<Totals> {
        let basis = self.basis();
        self.unplaced.pods.retain(|pod| pod.refused.elapsed() < KEPT_AWAY);
        if self.has_unplaced() && self.unplaced.judged_on.as_ref() != Some(&basis) {
            let state = self.state("", |card| self.unheld(card, ""));
            let mut pods = std::mem::take(&mut self.unplaced.pods);
            pods.retain(|UnplacedPod { containers, oversubscribe, .. }| {
                let preferences = Preferences { oversubscribe: *oversubscribe, ..Preferences::default() };
                let request = PodRequest { containers, allocated: &[], shares: &[], preferences: &preferences };
                plan(&state, &request, &self.settings.policy).is_err()
            });
            self.unplaced = UnplacedPods { pods, judged_on: Some(basis) };
        }
        let counted = |container: &ContainerRequest| (container.kind, container.counted);
        self.unplaced.pods.iter().map(|pod| peak(pod.containers.iter().map(counted))).collect()
    }
}
