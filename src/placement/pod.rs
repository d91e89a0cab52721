//! A pod to be placed, and a plan for all of its containers.
//!
//! A plan fixes the cards that we choose for each container. Which cards of earlier init containers the kubelet adds to
//! them is up to the kubelet; a plan is valid if everything fits whatever it draws: each container's cards are distinct,
//! and at the pod's peak each card's memory, cores, slots and exclusive holders are within what other pods leave.
//! Containers that hold cards already are facts: never moved, and judged only on cards where another container joins them.

use divvy_api::annotation::Preferences;
use divvy_api::{ContainerRequest, Share};

use crate::reason::{Reason, summary};

/// A pod to be placed on one node.
#[derive(Clone, Copy, Debug)]
pub struct PodRequest<'a> {
    /// Requests in admission order (init containers as listed, then app containers).
    pub containers: &'a [ContainerRequest],
    /// Positions of the cards that the first `allocated.len()` containers already hold; empty for one without a request.
    pub allocated: &'a [Vec<usize>],
    /// Shares of cards that containers are known to take, as a scale may have changed since they were made; all others are what
    /// the request takes now.
    pub shares: &'a [Vec<(usize, Share)>],
    /// Constraints and preferences from the pod's annotations.
    pub preferences: &'a Preferences,
}

// === impl PodRequest ===

impl PodRequest<'_> {
    /// Share that a container is known to take of a card.
    pub(crate) fn share(&self, container: usize, card: usize) -> Option<Share> {
        self.shares.get(container)?.iter().find(|(known, _)| *known == card).map(|(_, share)| *share)
    }
}

/// Cards for every container, in the request's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One entry a container; empty for one without a request.
    pub containers: Vec<ContainerPlan>,
}

/// Cards of one container, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerPlan {
    /// Cards whose slots are proposed to the kubelet (all cards of a container that holds them already).
    pub chosen: Vec<usize>,
    /// Cards of earlier init containers, from whose slots the kubelet draws.
    pub reused: Vec<usize>,
    /// Number of `reused` cards that it draws.
    pub drawn: usize,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlan {
    /// Searched to the end.
    #[error("container \"{container}\" requests {wanted}: {}", summary(.reasons))]
    Nothing {
        /// The container that finds no cards.
        container: String,
        /// The container's request in words.
        wanted: String,
        /// One reason a card, by position; `None`: this card alone would do.
        reasons: Vec<Option<Reason>>,
    },
    /// The search was cut off; there may be a plan.
    #[error("no plan found within {steps} steps")]
    GaveUp {
        /// Steps taken.
        steps: u32,
    },
}
